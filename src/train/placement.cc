#include "train/placement.h"

#include <fmt/ranges.h>

#include <vector>

#include "core/names.h"
#include "model/remat_policy.h"

namespace longspan {
namespace {

// Of an activation whose key of custom is not given.
Placement DefaultPlacement(Activation id) {
  return id == Activation::kDecoderLayerInput ? Placement::kDevice : Placement::kRemat;
}

std::string NameOf(Placement placement) {
  return std::string(PlacementNames()[static_cast<size_t>(placement)]);
}

}  // namespace

ActivationPolicy ResolvePlacement(TrainConfig& c) {
  if (c.remat_policy == "custom") {
    ActivationPolicy policy;
    for (const auto& [id, field] : kPlacementKeys) {
      if ((c.*field).empty()) c.*field = NameOf(DefaultPlacement(id));
      policy.Set(id, ParsePlacement(c.*field));
    }
    Require(
        ExitCode::kUsage, policy.Keeps(Activation::kDecoderLayerInput),
        "decoder_layer_input=remat: only all the layers below could compute a layer's input again, and all "
        "else that the layer computes again is made from it; give device or offload");
    return policy;
  }
  for (const auto& [id, field] : kPlacementKeys)
    Require(ExitCode::kUsage, (c.*field).empty(),
            "{} is {}, but remat_policy is {}, which says itself what a layer keeps; leave {} out, or give "
            "remat_policy=custom and all that is to be kept",
            RowOf(id).name, c.*field, c.remat_policy, RowOf(id).name);
  std::vector<std::string_view> names = {"custom"};
  for (const RematPolicyRow& row : RematPolicyTable()) {
    if (row.name == c.remat_policy) return row.policy;
    names.push_back(row.name);
  }
  throw Error(
      fmt::format("remat_policy: none is called {}{}", c.remat_policy, Suggestion(c.remat_policy, names)),
      ExitCode::kUsage);
}

// A named policy has no keys of custom beside it, so of a custom one only these keys are changed.
std::string PlacementChanges(const TrainConfig& from, TrainConfig to) {
  std::vector<std::string> words;
  const bool was_custom = from.remat_policy == "custom";
  const ActivationPolicy wanted = ResolvePlacement(to);
  if (!was_custom && to.remat_policy != from.remat_policy) words.push_back("remat_policy=" + to.remat_policy);
  if (was_custom || to.remat_policy == "custom") {
    for (const auto& [id, field] : kPlacementKeys) {
      const Placement now = was_custom ? ParsePlacement(from.*field) : DefaultPlacement(id);
      if (wanted.Of(id) != now) words.push_back(fmt::format("{}={}", RowOf(id).name, NameOf(wanted.Of(id))));
    }
  }
  if (!from.offload_directory.empty() && to.offload_directory.empty()) words.push_back("offload_directory=");
  if (!from.optimizer_memory_host_offload && to.optimizer_memory_host_offload)
    words.push_back("optimizer_memory_host_offload=true");
  if (!from.parameter_memory_host_offload && to.parameter_memory_host_offload)
    words.push_back("parameter_memory_host_offload=true");
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace longspan
