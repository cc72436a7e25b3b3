#include "model/remat_policy.h"

#include <algorithm>
#include <array>

#include "core/names.h"

namespace longspan {
namespace {

using enum Activation;

constexpr std::array<std::string_view, 3> kPlacementNames = {"device", "offload", "remat"};

// All products that a layer has but those inside of attention.
ActivationPolicy Products() {
  return {kDecoderLayerInput, kQueryProj, kKeyProj, kValueProj, kOutProj, kMlpwi0, kMlpwi1, kMlpwo};
}

ActivationPolicy ProductsOffloaded() {
  ActivationPolicy policy = Products();
  for (const ActivationRow& row : ActivationTable())
    if (policy.Keeps(row.id) && row.id != kDecoderLayerInput) policy.Set(row.id, Placement::kOffload);
  return policy;
}

}  // namespace

std::span<const RematPolicyRow> RematPolicyTable() {
  static const std::array<RematPolicyRow, 6> kTable = {{
      {"full", "the input of a layer (decoder_layer_input) and nothing else", {kDecoderLayerInput}},
      {"save_qkv_proj",
       "also queries, keys and values; attention is computed twice",
       {kDecoderLayerInput, kQueryProj, kKeyProj, kValueProj}},
      {"save_qkv_proj_with_context",
       "also what attention gives, which is then computed once; the default",
       {kDecoderLayerInput, kQueryProj, kKeyProj, kValueProj, kContext}},
      {"minimal", "the input and every product with a weight, but not what attention gives", Products()},
      {"minimal_with_context", "all; next to nothing is computed twice",
       Products().Set(kContext, Placement::kDevice)},
      {"minimal_offloaded", "as minimal, with every product offloaded; the input stays", ProductsOffloaded()},
  }};
  return kTable;
}

std::span<const std::string_view> PlacementNames() { return kPlacementNames; }

Placement ParsePlacement(std::string_view name) {
  const auto found = std::ranges::find(kPlacementNames, name);
  Require(ExitCode::kUsage, found != kPlacementNames.end(), "there is no placement '{}'{}", name,
          Suggestion(name, kPlacementNames));
  return static_cast<Placement>(found - kPlacementNames.begin());
}

}  // namespace longspan
