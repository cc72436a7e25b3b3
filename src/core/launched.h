#pragma once

#include <optional>

namespace longspan {

// The rank that an MPI launcher (mpirun, mpiexec, srun) gave this process; nothing if none has started it.
std::optional<int> LaunchedRank();

}  // namespace longspan
