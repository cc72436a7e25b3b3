#include "train/finite_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace longspan {
namespace {

using Kind = FiniteWatch::Kind;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class FakeActivations final : public ActivationStore {
 public:
  bool Kept(Activation id) const override { return id != Activation::kOutProj; }
  Tensor Slot(int layer, Activation id) override {
    return Tensor(&values[static_cast<size_t>(layer)][static_cast<size_t>(id)], DType::kFloat32, {1});
  }
  void Keep(int layer, Activation) override { kept.push_back(layer); }
  void Prefetch(int) override {}
  Tensor Take(int layer, Activation id) override { return Slot(layer, id); }

  float values[2][kNumActivations] = {};
  std::vector<int> kept;
};

class FakeWeights final : public WeightStore {
 public:
  void Prefetch(int) override {}
  std::span<const Weight> Get(int) override { return {}; }
  void Release(int) override {}
  std::span<const Tensor> Grad(int unit) override {
    gradients_ = {Tensor(values[unit], DType::kFloat32, {2}), Tensor(values[unit] + 2, DType::kFloat32, {1})};
    return gradients_;
  }
  void GradReady(int unit) override { ready.push_back(unit); }

  float values[3][3] = {};
  std::vector<int> ready;

 private:
  std::vector<Tensor> gradients_;
};

TEST(AllFinite, InBothTypesAndEveryElement) {
  float values[5] = {0, -1, 3e38f, 1e-40f, 2};
  const Tensor tensor(values, DType::kFloat32, {5});
  EXPECT_TRUE(AllFinite(tensor));
  for (float& value : values) {
    for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
      const float good = std::exchange(value, bad);
      EXPECT_FALSE(AllFinite(tensor));
      BFloat16 rounded[5];
      for (int i = 0; i < 5; ++i) rounded[i] = BFloat16(values[i]);
      EXPECT_FALSE(AllFinite(Tensor(rounded, DType::kBFloat16, {5})));
      value = good;
    }
  }
  BFloat16 fine[2] = {BFloat16(1.0f), BFloat16(-3e38f)};
  EXPECT_TRUE(AllFinite(Tensor(fine, DType::kBFloat16, {2})));
  EXPECT_TRUE(AllFinite(Tensor()));
}

TEST(FiniteWatch, FindsTheFirstOfTheFirstKind) {
  FakeActivations activations;
  FakeWeights weights;
  FiniteWatch watch;
  WatchedActivations watched(activations, watch);
  WatchedWeights watched_weights(weights, watch);
  // Two layers, the loss, and units 2, 1, 0 backward.
  const auto pass = [&](double loss) {
    for (int layer = 0; layer < 2; ++layer)
      for (const ActivationRow& row : ActivationTable())
        if (watched.Kept(row.id)) watched.Keep(layer, row.id);
    for (int unit = 2; unit >= 0; --unit) watched_weights.GradReady(unit);
    watch.LookAtLoss(loss);
    return watch.first();
  };
  activations.values[0][0] = kInfinity;
  EXPECT_EQ(pass(1), std::nullopt);  // off
  EXPECT_EQ(activations.kept.size(), 2u * (kNumActivations - 1));
  EXPECT_EQ(weights.ready, std::vector<int>({2, 1, 0}));

  activations.values[0][0] = 0;
  activations.values[1][static_cast<size_t>(Activation::kContextLse)] = -kInfinity;
  watch.Start();
  EXPECT_EQ(pass(1), std::nullopt);  // rows that see nothing

  weights.values[0][0] = weights.values[1][2] = kInfinity;
  watch.Start();
  auto found = pass(1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, Kind::kGradient);
  EXPECT_EQ(found->unit, 1);
  EXPECT_EQ(found->row, 1);
  const int64_t order = found->order;

  watch.Start();
  found = pass(std::nan(""));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, Kind::kLoss);
  EXPECT_GT(found->order, order);

  activations.values[1][static_cast<size_t>(Activation::kContext)] = kInfinity;
  activations.values[1][static_cast<size_t>(Activation::kMlpwi0)] = kInfinity;
  watch.Start();
  pass(1);
  found = pass(std::nan(""));  // a second pass finds it again, which is later
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, Kind::kActivation);
  EXPECT_EQ(found->unit, 1);
  EXPECT_EQ(found->row, static_cast<int>(Activation::kContext));
  EXPECT_LT(found->order, order);

  watch.Stop();
  EXPECT_FALSE(watch.is_on());
}

}  // namespace
}  // namespace longspan
