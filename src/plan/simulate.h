// A rank's work laid out in time on a machine.
//
// Computing goes on in the order of the log. A transfer begins once it has been begun there, once what it
// comes after has ended, and once its lane is free; waiting ends with what is waited for. Peers are taken to
// be as fast as this rank: what a neighbour sends arrives as what this rank sends leaves.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/trace.h"
#include "core/work_log.h"
#include "plan/hardware.h"
#include "plan/topology.h"

namespace longspan {

struct Timeline {
  double seconds = 0;  // from the first begin to the last end
  double matmul = 0, attention = 0,
         pointwise = 0;                       // seconds of computing by what it is; attention with its calls
  std::array<double, kNumLanes> busy = {};    // seconds that each lane works
  std::array<double, kNumLanes> waited = {};  // seconds that computing stood still for each lane
  std::vector<TraceSpan> spans;               // where asked for

  // Of the greatest part of the step: "attention", "matmul", "memory", "link", "host", "disk".
  std::string_view bound_by() const;
};

class Machine {
 public:
  // Of one rank (Hardware::OfRank). `sequences_a_group`: how many each group of ranks that share one has in a
  // step. `hardware` outlives it. Throws Error(kUsage) naming a key whose map is wrong.
  Machine(const Hardware& hardware, int num_ranks, int64_t sequences_a_group);

  // Of one time of an operation that computes.
  double ComputeSeconds(const Work& work) const;
  double CopySeconds(const Work& work) const;  // to and from host and disk
  // Of each second of a transfer beside it, how long computing stands still.
  double TransferWork(Lane lane) const;
  const Topology& topology() const { return topology_; }

 private:
  // KernelRates, read.
  struct Kernels {
    explicit Kernels(const KernelRates& rates);
    const Curve& EfficiencyOf(const Work& product) const;

    Curve matmul, input_gradient, weight_gradient;
    Curve attention_forward, attention_backward, attention_forward_gbps, attention_backward_gbps;
    std::map<std::string, double, std::less<>> operation_gbps;
  };
  double MatmulSeconds(const Work& work, const Kernels& kernels) const;
  double AttentionSeconds(const Work& work, const Kernels& kernels) const;
  double OperationSeconds(const Work& work, const Kernels& kernels) const;

  const Hardware& hardware_;
  const Topology topology_;
  const Kernels bfloat16_, float32_;
  const Curve one_sequence_;
  const bool one_sequence_a_group_;
  const double matmul_threads_, attention_threads_, operation_threads_;  // factors on the speed
  const double bandwidth_;                                               // of memory, bytes a second
};

Timeline Simulate(const WorkLog& log, const Machine& machine, int rank, bool with_spans = false);

}  // namespace longspan
