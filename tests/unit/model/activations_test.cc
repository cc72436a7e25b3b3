#include "model/activations.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "support/tiny.h"

namespace longspan {
namespace {

using enum Activation;

TEST(Activations, TheTableIsInOrderAndEndsAtWhatIsAlwaysKept) {
  ASSERT_EQ(ActivationTable().size(), static_cast<size_t>(kNumActivations));
  for (size_t i = 0; i < ActivationTable().size(); ++i) {
    const ActivationRow& row = ActivationTable()[i];
    EXPECT_EQ(static_cast<size_t>(row.id), i);
    EXPECT_EQ(row.recomputed_from.empty(), row.id == kDecoderLayerInput);
    for (const Activation source : row.recomputed_from) EXPECT_LT(source, row.id);  // so it ends
  }
  EXPECT_EQ(RowOf(kContextLse).name, "context_lse");
  EXPECT_EQ(RowOf(kMlpwo).name, "mlpwo");
}

TEST(Activations, APolicyKeepsTheLogSumExpWithItsContext) {
  ActivationPolicy policy = {kDecoderLayerInput, kContext};
  EXPECT_EQ(policy.Of(kContextLse), Placement::kDevice);
  EXPECT_EQ(policy.Of(kQueryProj), Placement::kRemat);
  policy.Set(kContext, Placement::kOffload);
  EXPECT_EQ(policy.Of(kContext), Placement::kOffload);
  EXPECT_EQ(policy.Of(kContextLse), Placement::kOffload);
  EXPECT_TRUE(policy.Keeps(kContextLse));
  EXPECT_THROW(policy.Set(kContextLse, Placement::kRemat), std::logic_error);
  policy.Set(kContext, Placement::kRemat);
  EXPECT_FALSE(policy.Keeps(kContextLse));
  EXPECT_EQ(policy, ActivationPolicy{kDecoderLayerInput});
}

TEST(Activations, OnlyANormReadsWhatTheFeedForwardLayerGives) {
  for (const testing::NamedConfig& family : testing::TinyFamilies()) {
    EXPECT_EQ(IsRead(family.config, kMlpwo), family.config.sandwich_norms) << family.name;
    EXPECT_TRUE(IsRead(family.config, kOutProj));
  }
}

TEST(Activations, ResidentStoreHoldsWhatItIsToldTo) {
  const ModelConfig config = testing::TinyConfig();  // C 24, F 40, H 8, K 2, D 6, 2 layers
  for (const bool measure : {false, true}) {
    ResidentActivationStore store(config, 10, DType::kBFloat16,
                                  {kDecoderLayerInput, kKeyProj, kContext, kMlpwi1}, measure);
    EXPECT_TRUE(store.Kept(kKeyProj));
    EXPECT_FALSE(store.Kept(kOutProj));
    EXPECT_EQ(store.Slot(1, kKeyProj).ShapeString(), "(10, 2, 6) bfloat16");
    EXPECT_EQ(store.Slot(1, kContextLse).ShapeString(), "(10, 8) float32");
    EXPECT_EQ(store.Slot(0, kMlpwi1).ShapeString(), "(10, 40) bfloat16");
    EXPECT_EQ(store.Take(0, kDecoderLayerInput).ShapeString(), "(10, 24) bfloat16");
    EXPECT_EQ(store.Take(1, kKeyProj).raw(), store.Slot(1, kKeyProj).raw());
    EXPECT_NE(store.Slot(0, kKeyProj).raw(), store.Slot(1, kKeyProj).raw());
    EXPECT_EQ(store.num_bytes(kDecoderLayerInput), 2 * 512);  // 480, aligned
    EXPECT_EQ(store.num_bytes(kOutProj), 0);
    int64_t sum = 0;
    for (const ActivationRow& row : ActivationTable()) sum += store.num_bytes(row.id);
    EXPECT_EQ(store.num_bytes(), sum);
    EXPECT_THROW(store.Slot(0, kOutProj), std::logic_error);
    EXPECT_THROW(store.Slot(2, kKeyProj), std::logic_error);
  }
  EXPECT_THROW(ResidentActivationStore(config, 10, DType::kFloat32, {kContext}, false), std::logic_error);
  ActivationPolicy elsewhere = {kDecoderLayerInput, kKeyProj};
  elsewhere.Set(kDecoderLayerInput, Placement::kOffload);
  const ResidentActivationStore rest(config, 10, DType::kFloat32, elsewhere, false);
  EXPECT_FALSE(rest.Kept(kDecoderLayerInput));
  EXPECT_EQ(rest.num_bytes(), rest.num_bytes(kKeyProj));
}

// A dry run describes any size: a million tokens of the 8B model on a machine without that memory.
TEST(Activations, MeasuringTakesNoMemory) {
  const ModelConfig config = ParseModelConfig(BuiltinModelJson("llama3.1-8b"), "llama3.1-8b");
  const ResidentActivationStore store(config, int64_t{1} << 20, DType::kBFloat16, {kDecoderLayerInput}, true);
  EXPECT_EQ(store.num_bytes(), (int64_t{1} << 20) * 4096 * 2 * 32);
}

}  // namespace
}  // namespace longspan
