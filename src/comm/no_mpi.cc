#include "comm/mpi_comm.h"
#include "core/check.h"

namespace longspan {

void RunMpiRank(const std::function<void(Comm&)>&) {
  throw Error(
      "an MPI launcher (mpirun, srun) has started this process, but this longspan was built without MPI; "
      "install libopenmpi-dev, or libmpich-dev, and build again, or start one process with ranks=N",
      ExitCode::kUsage);
}

void LeaveMpi(int) {}

}  // namespace longspan
