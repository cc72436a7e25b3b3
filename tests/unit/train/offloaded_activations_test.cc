#include "train/offloaded_activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "support/expect_error.h"
#include "support/failing_disk.h"
#include "support/files.h"
#include "support/tiny.h"

namespace longspan {
namespace {

using enum Activation;
constexpr int64_t kRows = 100;
constexpr int kLayers = 5;
constexpr int64_t kBlock = ScratchFile::kAlignment;

ModelConfig Config(int num_layers) {
  ModelConfig config = testing::TinyConfig();  // C 24, H 8, D 6
  config.SetNumLayers(num_layers);
  return config;
}

ActivationPolicy Policy() {
  ActivationPolicy policy;
  policy.Set(kDecoderLayerInput, Placement::kOffload);
  policy.Set(kContext, Placement::kOffload);
  policy.Set(kKeyProj, Placement::kDevice);
  return policy;
}

// A store and what it stands on.
class Store {
 public:
  Store(int num_layers, const ActivationPolicy& policy, const std::string& directory, IoHooks hooks = {})
      : background_(hooks.before_each),
        tier_(directory, &background_, hooks),
        store_(Config(num_layers), kRows, DType::kFloat32, policy, *backend_, tier_) {
    tier_.Reserve();
  }
  OffloadedActivations* operator->() { return &store_; }
  const Tier& tier() const { return tier_; }

 private:
  const std::unique_ptr<Backend> backend_ = MakeCpuBackend(1);
  Background background_;
  Tier tier_;
  OffloadedActivations store_;
};

IoHooks Slow() {
  return {.before_each = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }};
}

void Fill(Tensor tensor, float value) {
  float* x = tensor.data<float>();
  std::fill(x, x + tensor.num_elements(), value);
}

bool Holds(Tensor tensor, float value) {
  const float* x = tensor.data<float>();
  return std::all_of(x, x + tensor.num_elements(), [&](float y) { return y == value; });
}

float ValueOf(int pass, int layer, Activation id) {
  return static_cast<float>(1000 * pass + 10 * layer + static_cast<int>(id));
}

// What a model does with a store. What is read must be what was written.
void Pass(Store& store, int num_layers, int pass) {
  const auto value = [&](int layer, Activation id) { return ValueOf(pass, layer, id); };
  Tensor x = store->Slot(0, kDecoderLayerInput);
  Fill(x, value(0, kDecoderLayerInput));
  for (int layer = 0; layer < num_layers; ++layer) {
    store->Keep(layer, kDecoderLayerInput);
    const Tensor y = layer + 1 < num_layers ? store->Slot(layer + 1, kDecoderLayerInput) : Tensor();
    const Tensor key = store->Slot(layer, kKeyProj), context = store->Slot(layer, kContext);
    const Tensor lse = store->Slot(layer, kContextLse);
    Fill(key, value(layer, kKeyProj));
    Fill(context, value(layer, kContext));
    Fill(lse, value(layer, kContextLse));
    for (const Activation id : {kKeyProj, kContext, kContextLse}) store->Keep(layer, id);
    // The feed-forward layer reads both while they are on their way, and writes the next layer's input.
    EXPECT_TRUE(Holds(x, value(layer, kDecoderLayerInput)));
    EXPECT_TRUE(Holds(context, value(layer, kContext)));
    if (!y.IsNull()) Fill(y, value(layer + 1, kDecoderLayerInput));
    EXPECT_TRUE(Holds(x, value(layer, kDecoderLayerInput)));
    x = y;
  }
  store->Prefetch(num_layers - 1);
  for (int layer = num_layers - 1; layer >= 0; --layer) {
    if (layer > 0) store->Prefetch(layer - 1);
    for (const Activation id : {kDecoderLayerInput, kKeyProj, kContext, kContextLse}) {
      const Tensor taken = store->Take(layer, id);
      EXPECT_TRUE(Holds(taken, value(layer, id))) << "layer " << layer << ", " << RowOf(id).name;
      Fill(taken, -1);  // its taker's
    }
  }
}

TEST(OffloadedActivations, GivesBackWhatWasKeptHoweverSlowTheCopies) {
  const testing::TemporaryDirectory disk;
  for (const std::string& directory : {std::string(), disk.path()}) {
    for (const bool slow : {false, true}) {
      for (const int num_layers : {1, 2, 3, kLayers}) {
        SCOPED_TRACE(fmt::format("'{}', {} layers", directory, num_layers));
        Store store(num_layers, Policy(), directory, slow ? Slow() : IoHooks{});
        for (int pass = 0; pass < 3; ++pass) Pass(store, num_layers, pass);
        EXPECT_TRUE(store.tier().wait_seconds() > 0 || !slow || num_layers < kLayers);
      }
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
}

TEST(OffloadedActivations, TakesTwoTensorsOfEachOnTheDeviceAndAllInTheTier) {
  // (100, 24), (100, 8 · 6), (100, 8) f32 in blocks of 4,096.
  const int64_t input = 3 * kBlock, context = 5 * kBlock, lse = kBlock;
  const std::map<std::string, int64_t> tier = {{"activations.decoder_layer_input", kLayers * input},
                                               {"activations.context", kLayers * context},
                                               {"activations.context_lse", kLayers * lse}};
  Store store(kLayers, Policy(), "");
  Pass(store, kLayers, 0);
  const std::unique_ptr<Backend> dry_backend = MakeDryBackend(1);
  Tier dry_tier("/nowhere", /*background=*/nullptr);
  OffloadedActivations dry(Config(kLayers), kRows, DType::kFloat32, Policy(), *dry_backend, dry_tier);
  for (OffloadedActivations* any : {store.operator->(), &dry}) {
    EXPECT_EQ(any->in_flight_bytes(), 2 * (input + context + lse));
    EXPECT_EQ(any->resident().num_bytes(), any->resident().num_bytes(kKeyProj));
    EXPECT_FALSE(any->Kept(kQueryProj));
    for (const Activation id : {kDecoderLayerInput, kKeyProj, kContext, kContextLse})
      EXPECT_TRUE(any->Kept(id));
  }
  EXPECT_EQ(store.tier().BytesByName(), tier);
  EXPECT_EQ(dry_tier.BytesByName(), tier);
  // Every layer goes there, all but two come back.
  EXPECT_EQ(store.tier().bytes_written(), kLayers * (input + context + lse));
  EXPECT_EQ(store.tier().bytes_read(), (kLayers - 2) * (input + context + lse));
}

TEST(OffloadedActivations, WithoutAnyThatIsOffloadedTheTierIsEmpty) {
  const ActivationPolicy policy = {kDecoderLayerInput, kContext};
  EXPECT_FALSE(AnyOffloaded(policy));
  EXPECT_TRUE(AnyOffloaded(Policy()));
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  Tier tier("/nowhere", /*background=*/nullptr);
  OffloadedActivations store(Config(2), kRows, DType::kFloat32, policy, *backend, tier);
  EXPECT_EQ(store.in_flight_bytes(), 0);
  EXPECT_TRUE(tier.BytesByName().empty());
  EXPECT_NE(store.Slot(0, kContext).raw(), store.Slot(1, kContext).raw());
}

TEST(OffloadedActivations, AFailingDiskEndsThePassWithItsError) {
  const testing::TemporaryDirectory disk;
  for (const int64_t good :
       {1, 2, 12, 24, 25}) {  // of 25 writes; the last ones are waited for by the backward pass
    testing::FailingDisk calls;
    IoHooks hooks = Slow();
    hooks.file_calls = &calls;
    Store store(kLayers, Policy(), disk.path(), hooks);
    calls.good_writes = good;
    if (good == 25)
      Pass(store, kLayers, 0);
    else
      testing::ExpectError(
          {"cannot write", disk.path(), "No space left"}, [&] { Pass(store, kLayers, 0); },
          ExitCode::kResource);
  }
  for (const int64_t good : {0, 5}) {
    testing::FailingDisk calls;
    IoHooks hooks;
    hooks.file_calls = &calls;
    Store store(kLayers, Policy(), disk.path(), hooks);
    calls.good_reads = good;
    testing::ExpectError(
        {"cannot read", disk.path(), "Input/output error"}, [&] { Pass(store, kLayers, 0); },
        ExitCode::kResource);
  }
}

TEST(OffloadedActivations, TakesOnlyWhatWasAskedFor) {
  Store store(kLayers, Policy(), "");
  for (int layer = 0; layer < kLayers; ++layer) {
    store->Slot(layer, kContext);
    store->Keep(layer, kContext);
  }
  EXPECT_THROW(store->Take(0, kContext), std::logic_error);
  EXPECT_THROW(store->Slot(kLayers, kContext), std::logic_error);
  EXPECT_THROW(store->Slot(0, kQueryProj), std::logic_error);
}

}  // namespace
}  // namespace longspan
