// What all ranks must agree on before they begin, where each is a process with arguments and files of its
// own.
#pragma once

#include <string>

#include "comm/comm.h"

namespace longspan {

// The first rank's text, on every rank. Collective.
std::string ShareText(Comm& world, const std::string& text);

// Throws Error(kUsage) on a rank whose text is another than that of the first rank; it names the rank and the
// first line that differs. `what` is what the text says. Collective.
void RequireAgreement(Comm& world, const std::string& what, const std::string& text);

}  // namespace longspan
