// The named policies of what a layer keeps from its forward pass for the backward pass.
#pragma once

#include <span>
#include <string_view>

#include "model/activations.h"

namespace longspan {

struct RematPolicyRow {
  std::string_view name;     // as in remat_policy
  std::string_view summary;  // for --help
  ActivationPolicy policy;
};
// MaxText's policies of these names, and save_qkv_proj_with_context, which it hasn't.
std::span<const RematPolicyRow> RematPolicyTable();

// Throws Error(kUsage) naming the nearest.
Placement ParsePlacement(std::string_view name);  // "device", "offload", "remat"
std::span<const std::string_view> PlacementNames();

}  // namespace longspan
