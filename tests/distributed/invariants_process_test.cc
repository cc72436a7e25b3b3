// What must hold of a process: nothing of one model stays for the next, and a rank that fails ends them all.
// The first test runs the first model of this process, so this file holds nothing else.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "support/model_ranks.h"
#include "support/tiny.h"

namespace longspan {
namespace {

using testing::MakeBatch;
using testing::ModelResult;
using testing::RanksSpec;

TEST(InvariantsOfAProcess, ASecondModelGivesWhatAFreshProcessGives) {
  const ModelConfig config = testing::TinyConfig();
  const Batch batch = MakeBatch(53, {{0, 13}, {13, 50}}, config.vocab_size);
  const auto run = [&] {
    const RanksSpec spec{.ranks = 3, .strategy = "ulysses", .layout = LayoutKind::kStriped};
    return RunModel(config, testing::InitialWeights(config, 7), spec, std::span(&batch, 1));
  };
  const ModelResult fresh = run();

  // Another model: other shapes, rotary base, mask, dtype, strategy and ranks.
  ModelConfig other = testing::TinyConfig(8);
  other.hidden_size = 48;
  other.SetNumLayers(3);
  other.layer_kinds[0].rope = {
      .kind = RopeConfig::Kind::kLlama3, .theta = 500, .factor = 8, .original_max_position_embeddings = 64};
  const Batch long_batch = MakeBatch(200, {{0, 200}}, other.vocab_size, /*seed=*/5);
  RanksSpec spec{.ranks = 4, .strategy = "usp", .layout = LayoutKind::kZigzag};
  spec.mask = {.kind = MaskKind::kSlidingWindow, .window = 33};
  spec.dtype = DType::kBFloat16;
  RunModel(other, testing::InitialWeights(other, 9), spec, std::span(&long_batch, 1));

  const ModelResult again = run();
  EXPECT_EQ(again.loss, fresh.loss);
  EXPECT_EQ(again.logits, fresh.logits);
  EXPECT_EQ(again.gradients, fresh.gradients);
}

// Fails where a rank asks for a unit's weights or has its gradients ready.
class FailingWeights final : public WeightStore {
 public:
  FailingWeights(WeightStore& weights, int calls_before) : weights_(weights), calls_left_(calls_before) {}
  void Prefetch(int unit) override { weights_.Prefetch(unit); }
  std::span<const Weight> Get(int unit) override {
    CountDown();
    return weights_.Get(unit);
  }
  void Release(int unit) override { weights_.Release(unit); }
  std::span<const Tensor> Grad(int unit) override { return weights_.Grad(unit); }
  void GradReady(int unit) override {
    CountDown();
    weights_.GradReady(unit);
  }

 private:
  void CountDown() {
    Require(ExitCode::kResource, calls_left_-- != 0, "no more memory for weights on this rank");
  }
  WeightStore& weights_;
  int calls_left_;
};

// The rank fails before its first exchange, between two, and in the backward pass, while its peers wait for
// it.
TEST(InvariantsOfAProcess, AFailingRankEndsAllWithItsOwnError) {
  const ModelConfig config = testing::TinyConfig();
  const ParamTable table = MakeParamTable(config);
  const Batch batch = MakeBatch(53, {{0, 13}, {13, 50}}, config.vocab_size);
  for (const std::string& name : testing::StrategyNames()) {
    const MeshShape shape = ResolveMesh({.ranks = 4, .strategy = name, .num_attention_heads = 8});
    const Layout layout(LayoutKind::kZigzag, 53, shape.ring, shape.ulysses);
    for (const auto& [calls_before, sharded] :
         {std::pair(0, false), {2, false}, {6, false}, {0, true}, {2, true}, {6, true}}) {
      SCOPED_TRACE(fmt::format("{}, after {} calls{}", name, calls_before, sharded ? ", sharded" : ""));
      std::atomic<int> peers_failed = 0;
      std::string message;
      try {
        RunThreadRanks(4, [&](Comm& world) {
          try {
            const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
            Mesh mesh = MakeMesh(shape, world);
            const std::unique_ptr<AttentionStrategy> strategy = FindStrategy(name).make(mesh);
            ShardedWeights good(table, DType::kFloat32, ShardedWeights::Moments::kNone, backend.get(),
                                WeightRanks::Of(mesh, sharded));
            good.Initialize(config.initializer_range, 7);
            FailingWeights weights(good, world.rank() == 2 ? calls_before : -1);
            ResidentActivationStore activations(config, layout.rows_per_rank(), DType::kFloat32,
                                                testing::KeptActivations(), false);
            const std::vector<AttentionStrategy*> layers(config.layer_kind_of.size(), strategy.get());
            const ModelOptions options{.mask = {}, .max_target_length = 53};
            Model model(config, options, *backend, layers, weights, activations);
            SequenceLoader loader(config, options, layout, mesh.at.ring * shape.ulysses + mesh.at.ulysses);
            const AbortOnUnwind abort(world);  // while what peers may be reading is still there
            model.LossAndGradients(loader.Load(batch), 1);
            world.Barrier();
            ADD_FAILURE() << "rank " << world.rank() << " went on without rank 2";
          } catch (const PeerFailed&) {
            ++peers_failed;
            throw;
          }
        });
      } catch (const Error& error) {
        message = error.what();
        EXPECT_EQ(error.code(), ExitCode::kResource);
      }
      EXPECT_EQ(message, "no more memory for weights on this rank");
      EXPECT_EQ(peers_failed, 3);
    }
  }
}

}  // namespace
}  // namespace longspan
