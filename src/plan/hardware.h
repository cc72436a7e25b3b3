// Hardware: what a plan must know of a machine. A rank is a device: a GPU, a TPU chip, or one core of a chip
// that has two. Each field is a key of a file in recipes/hardware, under the same name; cli/hardware_keys.cc
// lists them once with range, default and meaning. GB = 1e9 bytes, GiB = 2^30 bytes, rates are a second's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/tensor.h"

namespace longspan {

struct Hardware {
  std::string hardware_name;

  // Memory and peak of a rank; hosts.
  int64_t ranks_per_chip = 1, ranks_per_host = 1;
  double device_memory_gib = 0, device_memory_reserved_gib = 0;
  double host_memory_gib = 0;  // of a host, for all its ranks
  double peak_tflops_bfloat16 = 0, peak_tflops_float32 = 0;

  // What kernels reach. Curves map a size to a fraction (see Curve).
  double matmul_efficiency = 1, memory_gbps = 0, operation_us = 0;
  std::map<std::string, std::string> attention_forward_efficiency, attention_backward_efficiency;
  std::map<std::string, std::string> attention_backward_one_sequence;  // empty: one is as good as several
  double attention_call_us = 0;

  // Links.
  std::string topology = "islands";  // torus | islands
  double link_gbps = 0;              // one way: a link of the torus; a device into its island
  double chip_gbps = 0;              // torus: between the ranks of a chip
  int64_t island_ranks = 1;          // islands
  double network_gbps = 0;           // islands: one way, a device to other islands
  double message_us = 0;
  double host_gbps = 0, disk_gbps = 0;  // each way, a device

  double peak_flops(DType dtype) const {
    return 1e12 * (dtype == DType::kFloat32 ? peak_tflops_float32 : peak_tflops_bfloat16);
  }
  int64_t usable_memory_bytes() const;
  int64_t host_memory_bytes() const;  // a rank's share
};

// A fraction by size, as a hardware file writes it: {"64": "0.4", "128": "0.55"}. Between two sizes it is
// linear in the size's logarithm, outside of all of them the nearest's.
class Curve {
 public:
  // Throws Error(kUsage) naming `key` for sizes that aren't positive numbers and fractions outside (0, 1].
  Curve(const std::map<std::string, std::string>& points, std::string_view key);
  double At(double size) const;

 private:
  std::map<double, double> points_;  // by log2 of the size; empty: 1 everywhere
};

}  // namespace longspan
