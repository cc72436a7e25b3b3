// Verify: whether a mesh computes what one rank computes (docs/reference/verify.md).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/hosts.h"
#include "train/job.h"

namespace longspan {

// Relative differences, of what the mesh gives from what one rank gives, or the largest that pass.
struct StepDifferences {
  double loss = 0, grad_norm = 0;
  double gradient = 0;  // of tensors' gradients the largest
  double weights = 0;   // after the update, of all tensors together
};

// ‖a − b‖ / ‖b‖ of one tensor, b of one rank; of its gradient at least a hundredth of the whole gradient's
// norm stands below the line, since what is zero but for rounding differs by all of itself.
struct TensorDifference {
  std::string name;  // of the parameter
  double gradient = 0, weights = 0;
};

struct Verification {
  int64_t step = 0;                        // which was taken
  double loss[2] = {}, grad_norm[2] = {};  // by one rank, by the mesh
  StepDifferences differences, tolerances;
  std::vector<TensorDifference> tensors;  // in the order of the model
  bool passed() const;                    // all are within the tolerances
};

// What rounding may do to a step in this dtype, if a step changes weights by `update`, relative to
// themselves.
StepDifferences VerifyTolerances(DType dtype, double update);

// The recipe of the run as one rank takes the same step: the same sequences, and nothing split.
TrainConfig OnOneRank(const TrainConfig& resolved);

// One step of both jobs, from the checkpoint or, if that is empty, from the job's initial weights. They have
// the same model and data.
Verification VerifyStep(const Job& one_rank, const Job& mesh, const std::string& checkpoint);
// The same where the mesh's ranks are processes, by the one of `world`, which runs on one of `hosts`. The
// first alone has a job of one rank, takes its step while the others wait, and gets the result. Collective.
std::optional<Verification> VerifyRankStep(const Job* one_rank, const Job& mesh,
                                           const std::string& checkpoint, Comm& world,
                                           std::span<const Host> hosts);

std::string VerifyTable(const Job& mesh, const Verification& verification);
std::string VerifyJson(const Job& mesh, const Verification& verification);

}  // namespace longspan
