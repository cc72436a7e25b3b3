// Hardware: what a plan must know of a machine. A rank is a device: a GPU, a TPU chip, or one core of a chip
// that has two; or some threads of a CPU that the ranks share. Each field is a key of a file in
// recipes/hardware, under the same name; cli/hardware_keys.cc lists them once with range, default and
// meaning. GB = 1e9 bytes, GiB = 2^30 bytes, rates are a second's.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace longspan {

// What kernels reach with operands of one dtype: parts of its peak, and GB/s. Maps are as a file has them
// (see Curve).
struct KernelRates {
  using Map = std::map<std::string, std::string>;

  // Products, by FLOPs a byte of the operands. Empty gradients: as matmul_efficiency.
  Map matmul_efficiency, input_gradient_efficiency, weight_gradient_efficiency;
  // By head width; the second of the bytes of queries, keys, values and what is made of them. Empty: nothing.
  Map attention_forward_efficiency, attention_backward_efficiency;
  Map attention_forward_gbps, attention_backward_gbps;
  // By operation (Work::name); of one that isn't there: memory_gbps.
  Map operation_gbps;
};

// All of them, for what goes over each.
inline constexpr KernelRates::Map KernelRates::*kKernelRates[] = {
    &KernelRates::matmul_efficiency,
    &KernelRates::input_gradient_efficiency,
    &KernelRates::weight_gradient_efficiency,
    &KernelRates::attention_forward_efficiency,
    &KernelRates::attention_backward_efficiency,
    &KernelRates::attention_forward_gbps,
    &KernelRates::attention_backward_gbps,
    &KernelRates::operation_gbps,
};

struct Hardware {
  std::string hardware_name;
  std::string kind = "device";  // device | cpu
  // cpu: what it was measured on. Rates below are then those of a core while all are at work, memory, links
  // to the disk and the network's are the machine's.
  std::string cpu_model, cpu_target;
  int64_t cores = 1;

  // Memory and peak of a rank; hosts.
  int64_t ranks_per_chip = 1, ranks_per_host = 1;
  double device_memory_gib = 0, device_memory_reserved_gib = 0;
  double host_memory_gib = 0;  // of a host, for all its ranks
  double peak_tflops_bfloat16 = 0, peak_tflops_float32 = 0;

  // What kernels reach; of float32 each where it differs from bfloat16's, else empty.
  KernelRates kernels, kernels_float32;
  double memory_gbps = 0, operation_us = 0;
  bool sequences_together = false;                   // those of a group; false: one after the other
  KernelRates::Map attention_backward_one_sequence;  // empty: one is as good as several
  double attention_call_us = 0;
  // By threads of a rank: the speed of one beside that of as many ranks of one thread. Empty: the same.
  KernelRates::Map matmul_threads_efficiency, attention_threads_efficiency, operation_threads_efficiency;
  KernelRates::Map threads_us;  // of an operation, to have several threads

  // Links.
  std::string topology = "islands";  // torus | islands
  double link_gbps = 0;              // one way: a link of the torus; a device into its island
  double chip_gbps = 0;              // torus: between the ranks of a chip
  int64_t island_ranks = 1;          // islands
  double network_gbps = 0;           // islands: one way, a device to other islands
  double message_us = 0;
  double host_gbps = 0, disk_gbps = 0;  // each way, a device
  double disk_read_gbps = 0;            // 0: as disk_gbps

  // Not keys: what is a rank's of a CPU (OfRank); as they are, of a device.
  int64_t rank_threads = 1;
  double rank_cores = 1;  // that are its alone, on average: fewer than threads where ranks outnumber cores
  double transfer_work =
      0;  // of each second that links or copies to the host work, the computing that it costs

  bool is_cpu() const { return kind == "cpu"; }
  // The machine as one of `ranks` ranks with so many threads has it: itself, unless it is a CPU.
  Hardware OfRank(int64_t ranks, int64_t threads_per_rank) const;

  double peak_flops(DType dtype) const {
    return 1e12 * rank_cores * (dtype == DType::kFloat32 ? peak_tflops_float32 : peak_tflops_bfloat16);
  }
  int64_t usable_memory_bytes() const;
  int64_t host_memory_bytes() const;  // a rank's share
};

// Values by size, as a hardware file writes them: {"64": "0.4", "128": "0.55"}. Between two sizes it is
// linear in the size's logarithm, outside of all of them the nearest's. One of size "" is everywhere.
class Curve {
 public:
  // Throws Error(kUsage) naming `key` for sizes that aren't positive numbers and values outside (0, most].
  Curve(const KernelRates::Map& points, std::string_view key, double most = 1);
  bool empty() const { return points_.empty(); }
  double At(double size) const;  // empty: 1

 private:
  std::map<double, double> points_;  // by log2 of the size; empty: 1 everywhere
};
inline constexpr double kAnyRate = std::numeric_limits<double>::max();

// Rates by name, {"rope": "3.5"}. Throws Error(kUsage) naming `key` for values that aren't positive numbers.
std::map<std::string, double, std::less<>> RatesByName(const KernelRates::Map& rates, std::string_view key);

}  // namespace longspan
