// Standard output.
#pragma once

#include <string_view>

namespace longspan {

// Prints at once what the command was asked for. Throws Error(kResource) if it cannot (a full disk). If it is a
// pipe that nobody reads any more (`| head`) the process ends, silently, by SIGPIPE.
void Answer(std::string_view text);

// Prints at once what a person may like to see. That it cannot is no error: what counts of a run is in its
// directory.
void Show(std::string_view text);

}  // namespace longspan
