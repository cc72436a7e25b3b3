#include "cli/hardware_keys.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "cli/builtin_hardware.h"
#include "core/check.h"
#include "core/file.h"
#include "core/names.h"

namespace longspan {
namespace {

constexpr double kMost = 1e9;

}  // namespace

KeyList HardwareKeys(Hardware& hardware) {
  KeyList keys;
  keys.Group("Devices and hosts");
  keys.Add("hardware_name", &hardware.hardware_name, "What reports call it.").required = true;
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
  keys.Add("matmul_efficiency", &hardware.matmul_efficiency,
           "Part of the peak that large matrix products reach.", Between(1e-3, 1));
  keys.Add("memory_gbps", &hardware.memory_gbps, "Device memory, GB/s read and written together.",
           Between(1e-3, kMost))
      .required = true;
  keys.Add("operation_us", &hardware.operation_us, "Microseconds to start an operation.", Between(0, 1e6));
  keys.Add("attention_forward_efficiency", &hardware.attention_forward_efficiency,
           "Part of the peak that attention reaches with the allowed pairs alone, by head width: "
           "{64: 0.4, 128: 0.55}.")
      .required = true;
  keys.Add("attention_backward_efficiency", &hardware.attention_backward_efficiency,
           "The same of its backward pass, five products a pair.")
      .required = true;
  keys.Add(
      "attention_backward_one_sequence", &hardware.attention_backward_one_sequence,
      "Factor on that where a group of ranks has one sequence a step, by rows of a call; empty: 1. Several "
      "are taken to run together.");
  keys.Add("attention_call_us", &hardware.attention_call_us,
           "Microseconds that a call of attention takes besides, such as a hop of a ring.", Between(0, 1e6));

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
  return keys;
}

std::vector<std::string_view> BuiltinHardwareNames() {
  std::vector<std::string_view> names;
  for (const BuiltinHardware& builtin : kBuiltinHardware) names.push_back(builtin.name);
  return names;
}

Hardware LoadHardware(const std::string& name) {
  const std::vector<std::string_view> names = BuiltinHardwareNames();
  Require(ExitCode::kUsage, !name.empty(),
          "hardware is not given; give hardware=NAME, one of {}, or the path of a file",
          fmt::join(names, ", "));
  const auto builtin = std::ranges::find(kBuiltinHardware, name, &BuiltinHardware::name);
  std::string text, where = name;
  if (builtin != std::end(kBuiltinHardware)) {
    text = builtin->text;
  } else {
    Require(ExitCode::kUsage, IsRegularFile(name),
            "hardware '{}' is neither a file nor one that is known by name{}", name, Suggestion(name, names));
    text = ReadTextFile(name);
  }
  Hardware hardware;
  LoadKeysFromText("plan", HardwareKeys(hardware), text, where);
  Require(ExitCode::kUsage, hardware.device_memory_reserved_gib < hardware.device_memory_gib,
          "{}: device_memory_reserved_gib {} leaves nothing of device_memory_gib {}", where,
          hardware.device_memory_reserved_gib, hardware.device_memory_gib);
  const bool is_torus = hardware.topology == "torus";
  Require(ExitCode::kUsage, is_torus || hardware.network_gbps > 0, "{}: topology islands needs network_gbps",
          where);
  Require(ExitCode::kUsage, !is_torus || hardware.ranks_per_chip == 1 || hardware.chip_gbps > 0,
          "{}: a torus of chips with {} ranks each needs chip_gbps", where, hardware.ranks_per_chip);
  return hardware;
}

}  // namespace longspan
