// An exception as what others fail with.
#pragma once

#include "core/event.h"

namespace longspan {

// What the exception that is being handled becomes for those who wait: Error with its code, memory that ran
// out, or a fault of ours.
Failure CurrentFailure();

}  // namespace longspan
