#include "cli/hardware_keys.h"

#include "core/check.h"
#include "plan/simulate.h"

namespace longspan {
namespace {

constexpr double kMost = 1e9;

// A map of KernelRates: its keys for bfloat16 and float32.
struct KernelKey {
  std::string_view name, name_float32;
  KernelRates::Map KernelRates::*field;
  std::string_view meaning;
};
constexpr KernelKey kKernelKeys[] = {
    {"matmul_efficiency", "matmul_efficiency_float32", &KernelRates::matmul_efficiency,
     "Part of the peak that matrix products reach: one number for all that are large, or by FLOPs a byte of "
     "their operands."},
    {"input_gradient_efficiency", "input_gradient_efficiency_float32",
     &KernelRates::input_gradient_efficiency,
     "The same of gradients of inputs; empty: as matmul_efficiency."},
    {"weight_gradient_efficiency", "weight_gradient_efficiency_float32",
     &KernelRates::weight_gradient_efficiency,
     "The same of gradients of weights; empty: as matmul_efficiency."},
    {"attention_forward_efficiency", "attention_forward_efficiency_float32",
     &KernelRates::attention_forward_efficiency,
     "Part of the peak that attention reaches with the allowed pairs alone, by head width: "
     "{64: 0.4, 128: 0.55}."},
    {"attention_backward_efficiency", "attention_backward_efficiency_float32",
     &KernelRates::attention_backward_efficiency, "The same of its backward pass, five products a pair."},
    {"attention_forward_gbps", "attention_forward_gbps_float32", &KernelRates::attention_forward_gbps,
     "GB/s at which attention goes over queries, keys, values and what it makes of them besides, by head "
     "width; empty: only the running softmax's, at memory_gbps."},
    {"attention_backward_gbps", "attention_backward_gbps_float32", &KernelRates::attention_backward_gbps,
     "The same of its backward pass."},
    {"operation_gbps", "operation_gbps_float32", &KernelRates::operation_gbps,
     "GB/s read and written of other operations by name, {rope: 3.5}; of those that aren't there: "
     "memory_gbps."},
};

void AddKernelRates(KeyList& keys, KernelRates& rates, std::string_view KernelKey::*name) {
  for (const KernelKey& key : kKernelKeys) keys.Add(key.*name, &(rates.*key.field), key.meaning);
}

void CheckHardware(const Hardware& hardware) {
  Require(ExitCode::kUsage, hardware.device_memory_reserved_gib < hardware.device_memory_gib,
          "device_memory_reserved_gib {} leaves nothing of device_memory_gib {}",
          hardware.device_memory_reserved_gib, hardware.device_memory_gib);
  const bool is_torus = hardware.topology == "torus";
  Require(ExitCode::kUsage, !(hardware.is_cpu() && is_torus), "a cpu's ranks have no torus between them");
  Require(ExitCode::kUsage, is_torus || hardware.is_cpu() || hardware.network_gbps > 0,
          "topology islands needs network_gbps");
  Require(ExitCode::kUsage, !is_torus || hardware.ranks_per_chip == 1 || hardware.chip_gbps > 0,
          "a torus of chips with {} ranks each needs chip_gbps", hardware.ranks_per_chip);
  const Machine reads_all_maps(hardware.OfRank(1, 2), 1, 1);
}

}  // namespace

KeyList HardwareKeys(Hardware& hardware) {
  KeyList keys;
  keys.Group("Devices and hosts");
  keys.Add("hardware_name", &hardware.hardware_name, "What reports call it.").required = true;
  keys.Add(
      "kind", &hardware.kind,
      "device: a rank is one of its devices. cpu: ranks are threads that share its cores and memory; rates "
      "are a core's while all are at work, memory, links and disk the machine's.",
      {}, {"device", "cpu"});
  keys.Add("cpu_model", &hardware.cpu_model, "cpu: what it was measured on.");
  keys.Add("cpu_target", &hardware.cpu_target, "cpu: with which kernels.");
  keys.Add("cores", &hardware.cores, "cpu: those that its ranks share.", Between(1, 4096));
  keys.Add("ranks_per_chip", &hardware.ranks_per_chip,
           "A rank is a device; 2 where a chip shows its two cores as devices of their own.", Between(1, 64));
  keys.Add("ranks_per_host", &hardware.ranks_per_host, "Devices that share a host's memory.",
           Between(1, 4096));
  keys.Add("device_memory_gib", &hardware.device_memory_gib, "Memory of a device, GiB.", Between(1e-3, kMost))
      .required = true;
  keys.Add("device_memory_reserved_gib", &hardware.device_memory_reserved_gib,
           "Of it, what drivers, compilers and libraries keep for themselves.", Between(0, kMost));
  keys.Add("host_memory_gib", &hardware.host_memory_gib, "Memory of a host that its devices share, GiB.",
           Between(0, kMost));
  keys.Add("peak_tflops_bfloat16", &hardware.peak_tflops_bfloat16,
           "Peak of a device with dense bf16, TFLOP/s.", Between(1e-6, kMost))
      .required = true;
  keys.Add("peak_tflops_float32", &hardware.peak_tflops_float32, "Peak with strict float32, TFLOP/s.",
           Between(1e-6, kMost))
      .required = true;

  keys.Group("Kernels");
  AddKernelRates(keys, hardware.kernels, &KernelKey::name);
  keys.Get("attention_forward_efficiency").required = true;
  keys.Get("attention_backward_efficiency").required = true;
  keys.Add("memory_gbps", &hardware.memory_gbps, "Device memory, GB/s read and written together.",
           Between(1e-3, kMost))
      .required = true;
  keys.Add("operation_us", &hardware.operation_us, "Microseconds to start an operation.", Between(0, 1e6));
  keys.Add("sequences_together", &hardware.sequences_together,
           "Its software runs the sequences that a group of ranks has in a step together, in the memory of "
           "all of them; false: one after the other, as this trainer does.");
  keys.Add("attention_backward_one_sequence", &hardware.attention_backward_one_sequence,
           "Factor on that where a group of ranks has one sequence a step, by rows of a call; empty: 1.");
  keys.Add("attention_call_us", &hardware.attention_call_us,
           "Microseconds that a call of attention takes besides, such as a hop of a ring.", Between(0, 1e6));
  keys.Group("Kernels with float32, where that differs");
  AddKernelRates(keys, hardware.kernels_float32, &KernelKey::name_float32);
  keys.Group("Threads of a CPU");
  keys.Add(
      "matmul_threads_efficiency", &hardware.matmul_threads_efficiency,
      "Speed of products in a rank of so many threads beside as many ranks of one, by threads; empty: 1.");
  keys.Add("attention_threads_efficiency", &hardware.attention_threads_efficiency, "The same of attention.");
  keys.Add("operation_threads_efficiency", &hardware.operation_threads_efficiency, "The same of all else.");
  keys.Add("threads_us", &hardware.threads_us,
           "Microseconds to have an operation done by several threads, by how many; empty: "
           "operation_us alone.");

  keys.Group("Links");
  keys.Add(
      "topology", &hardware.topology,
      "torus: chips in a 3D torus; islands: devices with fast links to each other, and a slower network.", {},
      {"islands", "torus"});
  keys.Add("link_gbps", &hardware.link_gbps,
           "One way, GB/s: of one link of the torus, or of a device into its island.", Between(1e-6, kMost))
      .required = true;
  keys.Add("chip_gbps", &hardware.chip_gbps, "Torus: between the ranks of a chip, one way, GB/s.",
           Between(0, kMost));
  keys.Add("island_ranks", &hardware.island_ranks, "Islands: devices of one.", Between(1, 1e6));
  keys.Add("network_gbps", &hardware.network_gbps, "Islands: of a device to other islands, one way, GB/s.",
           Between(0, kMost));
  keys.Add("message_us", &hardware.message_us, "Microseconds of a message, or of one step of a collective.",
           Between(0, 1e6));
  keys.Add("host_gbps", &hardware.host_gbps, "Between a device and its host's memory, each way, GB/s.",
           Between(1e-6, kMost))
      .required = true;
  keys.Add("disk_gbps", &hardware.disk_gbps, "A device's share of its host's disks, GB/s.",
           Between(1e-6, kMost))
      .required = true;
  keys.Add("disk_read_gbps", &hardware.disk_read_gbps,
           "The same of reading, where disk_gbps is of writing alone; 0: the same.", Between(0, kMost));
  return keys;
}

Hardware ParseHardware(const std::string& text, const std::string& where) {
  Hardware hardware;
  LoadKeysFromText("plan", HardwareKeys(hardware), text, where);
  try {
    CheckHardware(hardware);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", where, error.what()), error.code());
  }
  return hardware;
}

}  // namespace longspan
