// Weights in memory: packed forms are there where the backend has them, follow every change of the weights,
// and change nothing but speed.
#include "train/weights.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "model/model.h"
#include "support/tiny.h"
#include "train/optimizer.h"
#include "unit/model/model_harness.h"

namespace longspan {
namespace {

using cpu::CpuTarget;
using testing::MakeBatch;
using Moments = ShardedWeights::Moments;

bool Runs(CpuTarget target) { return cpu::Runs(cpu::DetectCpu(), target); }

TEST(ShardedWeightsTest, WhatProductsReadIsPacked) {
  for (const CpuTarget target : cpu::AllTargets()) {
    if (!Runs(target)) continue;
    for (const bool tied : {false, true}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", Name(target), tied ? "tied" : "untied", Name(dtype)));
        const ParamTable table = MakeParamTable(testing::TiedTinyConfig(tied));
        const auto backend = cpu::MakeCpuBackend(target, 1), dry = cpu::MakeDryBackend(target, 1);
        ShardedWeights weights(table, dtype, Moments::kAdam, backend.get());
        const ShardedWeights measured(table, dtype, Moments::kAdam, dry.get());
        int64_t bytes = 0;
        for (int unit = 0; unit < table.num_units(); ++unit) {
          const std::vector<ParamRow>& rows = table.units[static_cast<size_t>(unit)].rows;
          for (size_t i = 0; i < rows.size(); ++i) {
            const Weight weight = weights.Get(unit)[i];
            const int64_t expected = rows[i].in_products ? backend->PackedBytes(weight.values) : 0;
            EXPECT_EQ(weight.packed.IsNull(), expected == 0) << rows[i].name;
            EXPECT_EQ(weight.packed.num_bytes(), expected) << rows[i].name;
            bytes += Arena::AllocationBytes(expected);
          }
        }
        const auto& by_name = weights.memory().peak_by_name();
        EXPECT_EQ(bytes > 0, dtype == DType::kBFloat16 && target >= CpuTarget::kAvx512Bf16);
        EXPECT_EQ(by_name.contains("weights.packed") ? by_name.at("weights.packed") : 0, bytes);
        EXPECT_EQ(by_name, measured.memory().peak_by_name());
      }
    }
  }
}

// Hides the packed forms.
class UnpackedWeights final : public WeightStore {
 public:
  explicit UnpackedWeights(WeightStore& weights) : weights_(weights) {}
  void Prefetch(int unit) override { weights_.Prefetch(unit); }
  std::span<const Weight> Get(int unit) override {
    std::vector<Weight>& plain = plain_[unit];
    plain.clear();
    for (const Weight& weight : weights_.Get(unit)) plain.push_back({.values = weight.values, .packed = {}});
    return plain;
  }
  void Release(int unit) override { weights_.Release(unit); }
  std::span<const Tensor> Grad(int unit) override { return weights_.Grad(unit); }
  void GradReady(int unit) override { weights_.GradReady(unit); }

 private:
  WeightStore& weights_;
  std::map<int, std::vector<Weight>> plain_;
};

// All bits of some steps of training: losses, norms, and the weights in the end.
struct Training {
  std::vector<double> numbers;
  std::vector<float> masters;
  friend bool operator==(const Training&, const Training&) = default;
};

Training Train(const std::string& optimizer_name, bool tied, bool packed, int num_threads) {
  constexpr int64_t kLength = 53;
  const ModelConfig config = testing::TiedTinyConfig(tied);
  const ParamTable table = MakeParamTable(config);
  const auto backend = cpu::MakeCpuBackend(CpuTarget::kAmxModel, num_threads);
  TrainConfig train;
  train.opt_type = optimizer_name;
  ShardedWeights weights(table, DType::kBFloat16, Optimizer::MomentsOf(train), backend.get(), {},
                         /*accumulates=*/true);
  weights.Initialize(config.initializer_range, 11);
  EXPECT_TRUE(weights.memory().peak_by_name().contains("weights.packed"));
  UnpackedWeights unpacked(weights);
  testing::LocalAttention attention;
  const Layout layout(LayoutKind::kContiguous, kLength, 1, 1);
  ResidentActivationStore activations(config, kLength, DType::kBFloat16, {Activation::kDecoderLayerInput},
                                      false);
  const ModelOptions options{.dtype = DType::kBFloat16,
                             .mask = {},
                             .max_target_length = kLength,
                             .mlp_chunk_rows = 30,
                             .loss_chunk_rows = 20};
  const std::vector<AttentionStrategy*> strategies(config.layer_kind_of.size(), &attention);
  Model model(config, options, *backend, strategies, packed ? static_cast<WeightStore&>(weights) : unpacked,
              activations);
  SequenceLoader loader(config, options, layout, 0);
  Optimizer optimizer(train, *backend, weights);
  Training result;
  for (uint64_t step = 0; step < 3; ++step) {
    weights.ZeroGradients();
    for (uint64_t micro = 0; micro < 2; ++micro) {
      const Batch batch = MakeBatch(kLength, {{0, 20}, {20, 51}}, config.vocab_size, 10 * step + micro);
      result.numbers.push_back(model.LossAndGradients(loader.Load(batch), 0.01));
    }
    result.numbers.push_back(optimizer.GradientNorm());
    optimizer.Update(0.01, result.numbers.back());
    result.numbers.push_back(model.Loss(loader.Load(MakeBatch(kLength, {{0, 53}}, config.vocab_size))));
  }
  for (int unit = 0; unit < table.num_units(); ++unit) {
    const Tensor master = weights.State(unit).master;
    result.masters.insert(result.masters.end(), master.data<float>(),
                          master.data<float>() + master.num_elements());
  }
  return result;
}

TEST(ShardedWeightsTest, PackingChangesNoBit) {
  if (!Runs(CpuTarget::kAmxModel)) GTEST_SKIP() << "the model of tiles needs AVX-512";
  for (const std::string optimizer : {"adamw", "sgd"}) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(optimizer);
      for (const int threads : {1, 2}) {
        const Training plain = Train(optimizer, tied, /*packed=*/false, threads);
        EXPECT_NE(plain.numbers[0], plain.numbers[4]);
        EXPECT_TRUE(Train(optimizer, tied, /*packed=*/true, threads) == plain);
      }
    }
  }
}

}  // namespace
}  // namespace longspan
