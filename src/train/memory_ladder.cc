#include "train/memory_ladder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace longspan {
namespace {

constexpr MemoryRung kLadder[] = {
    {"all", "minimal_with_context", "", ""},
    // Products are computed again: C multiplications and additions for each byte that is won.
    {"input, q, k, v, context", "save_qkv_proj_with_context", "", ""},
    {"input, context", "custom", "device", "device"},
    // What would cost more than that is offloaded, in MaxText's order.
    {"input; context offloaded", "custom", "offload", "device"},
    {"input; context, optimizer offloaded", "custom", "offload", "device", true},
    {"context, optimizer, input offloaded", "custom", "offload", "offload", true},
    {"context, optimizer, input, weights offloaded", "custom", "offload", "offload", true, true},
    // Attention is computed again, which takes less of the host as well.
    {"input", "custom", "remat", "device"},
    {"input offloaded", "custom", "remat", "offload"},
    {"input, optimizer, weights offloaded", "custom", "remat", "offload", true, true},
};

}  // namespace

std::span<const MemoryRung> MemoryLadder() { return kLadder; }

std::string MemoryRung::Keys() const {
  std::vector<std::string> words = {fmt::format("remat_policy={}", remat_policy)};
  if (!context.empty()) words.push_back(fmt::format("context={}", context));
  if (!decoder_layer_input.empty())
    words.push_back(fmt::format("decoder_layer_input={}", decoder_layer_input));
  if (optimizer_memory_host_offload) words.push_back("optimizer_memory_host_offload=true");
  if (parameter_memory_host_offload) words.push_back("parameter_memory_host_offload=true");
  return fmt::format("{}", fmt::join(words, " "));
}

TrainConfig WithRung(TrainConfig config, const MemoryRung& rung) {
  config.remat_policy = rung.remat_policy;
  for (const PlacementKey& key : kPlacementKeys) (config.*key.field).clear();
  config.context = rung.context;
  config.decoder_layer_input = rung.decoder_layer_input;
  config.optimizer_memory_host_offload |= rung.optimizer_memory_host_offload && config.opt_type != "sgd";
  config.parameter_memory_host_offload |= rung.parameter_memory_host_offload;
  if (rung.context != "offload" && rung.decoder_layer_input != "offload" && !config.offloads_state())
    config.offload_directory.clear();
  return config;
}

RungChoice ChooseRung(const TrainConfig& config, const std::function<MemoryFit(const TrainConfig&)>& fit_of) {
  RungChoice choice;
  for (const MemoryRung& rung : kLadder) choice.tried.push_back({&rung, fit_of(WithRung(config, rung))});
  auto chosen = std::ranges::find_if(choice.tried, [](const auto& tried) { return tried.fit.fits(); });
  if (chosen == choice.tried.end())
    chosen = std::ranges::min_element(choice.tried, {}, [](const auto& t) { return t.fit.device_bytes; });
  choice.chosen = static_cast<size_t>(chosen - choice.tried.begin());
  return choice;
}

}  // namespace longspan
