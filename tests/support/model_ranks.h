// A whole model on thread ranks: what they compute together, put back in order. For tests.
#pragma once

#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "comm/mesh.h"
#include "comm/thread_comm.h"
#include "model/model.h"
#include "model/sequence.h"
#include "parallel/strategy.h"
#include "train/weights.h"

namespace longspan::testing {

struct RanksSpec {
  int ranks = 1;
  std::string strategy = "ring";           // of the mesh, and of every layer
  std::vector<std::string> of_kinds = {};  // or of each layer kind its own
  LayoutKind layout = LayoutKind::kZigzag;
  int data_parallelism = 1;
  MaskSpec mask = {};
  DType dtype = DType::kFloat32;

  std::string ToString() const {
    return fmt::format("{} {} on {} ranks ({} data), {}", strategy, fmt::join(of_kinds, ", "), ranks,
                       data_parallelism, Name(layout));
  }
};

struct ModelResult {
  double loss = 0;       // mean over the targets of all batches, from the pass that makes gradients
  double eval_loss = 0;  // the same from the pass that makes none
  double grad_norm = 0;
  std::map<std::string, std::vector<float>> gradients;  // by stored tensor, summed over ranks and batches
  std::vector<float> logits;                            // (T, V) of the first batch
};

// Sets the master weights of a rank; must do the same on each.
using FillWeights = std::function<void(ShardedWeights&)>;

inline FillWeights InitialWeights(const ModelConfig& config, uint64_t seed) {
  return [&config, seed](ShardedWeights& weights) { weights.Initialize(config.initializer_range, seed); };
}

inline ActivationPolicy KeptActivations() { return {Activation::kDecoderLayerInput, Activation::kContext}; }

// The strategy of each layer on this rank.
struct LayerStrategies {
  LayerStrategies(const ModelConfig& config, const RanksSpec& spec, Mesh& mesh) {
    for (size_t kind = 0; kind < config.layer_kinds.size(); ++kind)
      of_kinds.push_back(
          FindStrategy(spec.of_kinds.empty() ? spec.strategy : spec.of_kinds[kind]).make(mesh));
    for (const int kind : config.layer_kind_of) layers.push_back(of_kinds[static_cast<size_t>(kind)].get());
  }
  std::vector<std::unique_ptr<AttentionStrategy>> of_kinds;
  std::vector<AttentionStrategy*> layers;
};

// Data rank d takes batches d, d + N, … one after the other (micro-steps). All batches have T rows.
inline ModelResult RunModel(const ModelConfig& config, const FillWeights& fill, const RanksSpec& spec,
                            std::span<const Batch> batches) {
  const int64_t length = static_cast<int64_t>(batches[0].tokens.size());
  int64_t num_targets = 0;
  for (const Batch& batch : batches) num_targets += batch.num_targets;
  const MeshShape shape = ResolveMesh({.ranks = spec.ranks,
                                       .strategy = spec.strategy,
                                       .data_parallelism = spec.data_parallelism,
                                       .num_attention_heads = static_cast<int>(config.num_attention_heads)});
  const Layout layout(spec.layout, length, shape.ring, shape.ulysses);
  const ParamTable table = MakeParamTable(config);

  ModelResult result;
  result.logits.resize(static_cast<size_t>(length * config.vocab_size));
  RunThreadRanks(spec.ranks, [&](Comm& world) {
    const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
    Mesh mesh = MakeMesh(shape, world);
    const LayerStrategies strategies(config, spec, mesh);
    ShardedWeights weights(table, spec.dtype, ShardedWeights::Moments::kNone, backend.get(), {},
                           /*accumulates=*/batches.size() > 1);
    fill(weights);
    ResidentActivationStore activations(config, layout.rows_per_rank(), spec.dtype, KeptActivations(), false);
    const ModelOptions options{.dtype = spec.dtype,
                               .mask = spec.mask,
                               .max_target_length = length,
                               .mlp_chunk_rows = 48,
                               .loss_chunk_rows = 32};
    Model model(config, options, *backend, strategies.layers, weights, activations);
    const int context_rank = mesh.at.ring * shape.ulysses + mesh.at.ulysses;
    SequenceLoader loader(config, options, layout, context_rank);

    const AbortOnUnwind abort(world);
    const Buffer logits(DType::kFloat32, {layout.rows_per_rank(), config.vocab_size});
    model.Logits(loader.Load(batches[0]), logits.tensor());
    if (mesh.at.data == 0) {
      const float* row = logits.tensor().data<float>();
      for (const Range& span : layout.spans(context_rank)) {
        for (int64_t i = span.begin; i < span.end; ++i, row += config.vocab_size) {
          if (i < length) std::copy_n(row, config.vocab_size, result.logits.begin() + i * config.vocab_size);
        }
      }
    }

    double loss = 0, eval_loss = 0;
    for (size_t i = static_cast<size_t>(mesh.at.data); i < batches.size();
         i += static_cast<size_t>(shape.data)) {
      eval_loss += model.Loss(loader.Load(batches[i]));
      loss += model.LossAndGradients(loader.Load(batches[i]), 1.0 / static_cast<double>(num_targets));
    }
    loss = world.SumOverRanks(loss) / static_cast<double>(num_targets);
    eval_loss = world.SumOverRanks(eval_loss) / static_cast<double>(num_targets);
    weights.FinishGradients();
    double sum_of_squares = 0;
    for (int unit = 0; unit < table.num_units(); ++unit) {
      world.AllReduceSum(weights.FlatGrad(unit));
      sum_of_squares += backend->SumOfSquares(weights.FlatGrad(unit));
    }
    if (world.rank() != 0) return;
    result.loss = loss;
    result.eval_loss = eval_loss;
    result.grad_norm = std::sqrt(sum_of_squares);
    for (int unit = 0; unit < table.num_units(); ++unit) {
      const ParamUnit& rows = table.units[static_cast<size_t>(unit)];
      const std::vector<Tensor> gradients = StoredViews(rows, weights.FlatGrad(unit));
      for (size_t i = 0; i < gradients.size(); ++i) {
        const float* values = gradients[i].data<float>();
        result.gradients[rows.stored[i].name].assign(values, values + gradients[i].num_elements());
      }
    }
  });
  return result;
}

// ‖a − b‖₂ / ‖b‖₂; ‖a‖₂ if b is 0.
template <class A, class B>
double RelativeDifference(const std::vector<A>& a, const std::vector<B>& b) {
  CHECK(a.size() == b.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

// The worst of the parameters' relative differences.
inline double GradientDifference(const ModelResult& a, const ModelResult& b) {
  double worst = 0;
  for (const auto& [name, gradient] : b.gradients) {
    worst = std::max(worst, RelativeDifference(a.gradients.at(name), gradient));
  }
  return worst;
}

inline std::vector<std::string> StrategyNames() {
  std::vector<std::string> names;
  for (const StrategyRow& row : StrategyTable()) names.emplace_back(row.name);
  return names;
}

}  // namespace longspan::testing
