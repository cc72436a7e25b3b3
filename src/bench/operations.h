// The operations of a step that take as long as memory is read and written, at the sizes at which a step of a
// small model does them: chunks of rows in a cache, whole sequences and weights beyond it.
#pragma once

#include <vector>

#include "bench/ranks.h"

namespace longspan::bench {

// Of operands of one dtype; each operation reports its name in it. To be called in the thread that does them.
std::vector<Operation> OtherOperations(DType dtype, Backend& backend);

// One that has next to nothing to do, for each of its threads.
Operation SmallestOperation();

}  // namespace longspan::bench
