// The ladder: how a run gives up memory of its devices, rung by rung, the cheapest to give up first
// (docs/memory.md says why in this order). remat_policy=auto climbs down it until the run fits.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/memory_budget.h"
#include "train/train_config.h"

namespace longspan {

struct MemoryRung {
  std::string_view name;  // what stays on the device, and what is offloaded
  // The keys that it sets; of custom, the placements that are not here keep their defaults.
  std::string_view remat_policy, context, decoder_layer_input;
  bool optimizer_memory_host_offload = false, parameter_memory_host_offload = false;

  // "remat_policy=custom context=offload decoder_layer_input=device".
  std::string Keys() const;
};
std::span<const MemoryRung> MemoryLadder();

// `config` on this rung, with state offloaded that the rung or `config` offloads, as far as the optimizer has
// any; without offload_directory where nothing is.
TrainConfig WithRung(TrainConfig config, const MemoryRung& rung);

// All rungs, and which of them is taken: the first that fits or, if none does, the one that takes least.
struct RungChoice {
  struct Tried {
    const MemoryRung* rung;
    MemoryFit fit;
  };
  std::vector<Tried> tried;  // in the ladder's order
  size_t chosen = 0;
  const MemoryRung& rung() const { return *tried[chosen].rung; }
};
// `fit_of` a run of so much of its configuration.
RungChoice ChooseRung(const TrainConfig& config, const std::function<MemoryFit(const TrainConfig&)>& fit_of);

}  // namespace longspan
