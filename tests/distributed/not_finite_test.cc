// A step that is not finite says where that began, and on which rank.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "comm/thread_comm.h"
#include "support/expect_error.h"
#include "support/fake_corpus.h"
#include "support/runs.h"
#include "support/tiny.h"
#include "train/optimizer.h"
#include "train/replica.h"
#include "train/trainer.h"

namespace longspan {
namespace {

using testing::ExpectError;

constexpr float kHuge = 3e38f;

struct Ranks {
  int64_t ranks, data;
  bool sharded;
};

Job MakeJob(const Ranks& ranks, const std::string& dtype = "float32") {
  TrainConfig config;
  config.run_name = "a";
  config.dtype = dtype;
  config.threads_per_rank = 1;
  config.max_target_length = 32;
  config.ranks = ranks.ranks;
  config.data_parallelism = ranks.data;
  config.shard_parameters = ranks.sharded;
  config.global_batch_size = 2;
  const ModelConfig model = testing::TinyConfig();
  std::vector<testing::Ids> documents(4);
  int32_t id = 0;
  for (testing::Ids& document : documents)
    for (int i = 0; i < 32; ++i) document.push_back(++id * 7 % static_cast<int32_t>(model.vocab_size));
  return PrepareJob(config, model, std::make_unique<testing::FakeCorpus>(documents));
}

// Sets this rank's part of all elements of a parameter.
void Poke(ShardedWeights& weights, const std::string& name, float value) {
  for (int unit = 0; unit < weights.table().num_units(); ++unit) {
    for (const ParamRow& row : weights.table().units[static_cast<size_t>(unit)].rows) {
      if (row.name != name) continue;
      const Range part = weights.Kept(unit, {row.offset, row.offset + row.num_elements});
      ASSERT_FALSE(part.empty()) << "this rank keeps nothing of " << name;
      float* const master = weights.State(unit).master.data<float>();
      std::fill_n(master + (part.begin - weights.Kept(unit).begin), part.size(), value);
      weights.RefreshCompute(unit);
      weights.Changed(unit, /*with_moments=*/false);
      return;
    }
  }
  ADD_FAILURE() << name << " is no parameter";
}

StepBatches BatchesOf(const Job& job, int group) {
  StepBatches batches;
  for (int64_t i = 0; i < job.micro_steps(); ++i) {
    batches.mine.push_back(
        testing::MakeBatch(32, {{0, 20}, {20, 31}}, 37, /*seed=*/static_cast<uint64_t>(10 * group + i)));
    batches.passes.push_back(1);
  }
  batches.num_targets = 2 * batches.mine[0].num_targets;
  return batches;
}

// A rank of a job with its initial weights.
struct Rank {
  Rank(const Job& job, Comm& world)
      : replica(job, MakeCpuBackend(1), world),
        optimizer(job.config, replica.backend(), replica.weights()),
        abort(world) {
    replica.weights().Initialize(0.3, 7);
    world.Barrier();
  }
  Replica replica;
  Optimizer optimizer;
  AbortOnUnwind abort;
};

// Runs a step in which `rank` has `value` for a parameter, and expects an error that names `first`.
void ExpectFirst(const Job& job, int rank, const std::string& parameter, float value,
                 const std::string& first) {
  SCOPED_TRACE(parameter);
  ExpectError({"step 5: loss", "is not finite. The first tensor that isn't is " + first,
               "the weights were left as they were"},
              [&] {
                RunThreadRanks(job.mesh.ranks(), [&](Comm& world) {
                  Rank mine(job, world);
                  if (world.rank() == rank) Poke(mine.replica.weights(), parameter, value);
                  TrainStep(mine.replica, mine.optimizer, BatchesOf(job, mine.replica.mesh().group()), 0.1,
                            5);
                });
              });
}

TEST(NotFinite, NamesTheTensorAndTheRank) {
  const std::string layer0 = "model.layers.0.", layer1 = "model.layers.1.";
  for (const Ranks& ranks : {Ranks{2, 1, false}, Ranks{2, 2, false}, Ranks{4, 2, false}}) {
    SCOPED_TRACE(fmt::format("{} ranks, {} data", ranks.ranks, ranks.data));
    for (const std::string dtype : {"float32", "bfloat16"}) {
      SCOPED_TRACE(dtype);
      const Job job = MakeJob(ranks, dtype);
      ExpectFirst(job, 1, layer1 + "self_attn.k_proj.weight", std::nanf(""),
                  layer1 + "self_attn.k_proj.weight on rank 1");
      ExpectFirst(job, 1, layer0 + "mlp.down_proj.weight", kHuge, "decoder_layer_input of layer 1 on rank 1");
      ExpectFirst(job, 1, layer1 + "self_attn.v_proj.weight", kHuge, "value_proj of layer 1 on rank 1");
      ExpectFirst(job, 1, "lm_head.weight", kHuge, "the loss on rank 1");
    }
  }
}

// A rank has a part of the weights; what is computed with them is wrong everywhere.
TEST(NotFinite, NamesTheRankThatKeepsAShard) {
  const Job job = MakeJob({2, 1, true});
  const std::string down = "model.layers.0.mlp.down_proj.weight", head = "lm_head.weight";
  ExpectFirst(job, 1, down, std::nanf(""), down + " on rank 1");
  ExpectFirst(job, 0, head, std::nanf(""), head + " on rank 0");
  ExpectFirst(job, 1, down, kHuge, "decoder_layer_input of layer 1 on rank 0");
}

TEST(NotFinite, SaysWhichMicroStep) {
  const Job job = MakeJob({1, 1, false});
  ASSERT_EQ(job.micro_steps(), 2);
  ExpectFirst(job, 0, "lm_head.weight", kHuge, "the loss on rank 0 in micro-step 1");
}

TEST(NotFinite, ASkippedStepLeavesEverythingAndTheNextIsTaken) {
  Job job = MakeJob({2, 1, false});
  job.config.skip_step_on_nan = true;
  RunThreadRanks(job.mesh.ranks(), [&](Comm& world) {
    Rank mine(job, world);
    ShardedWeights& weights = mine.replica.weights();
    StepGuard guard(job.config);
    const StepBatches batches = BatchesOf(job, 0);
    const auto states = [&] {
      std::vector<float> all;
      weights.ForEachState([&](int, const UnitState& state) {
        for (const Tensor& tensor : {state.master, state.exp_avg, state.exp_avg_sq})
          all.insert(all.end(), tensor.data<float>(), tensor.data<float>() + tensor.num_elements());
      });
      return all;
    };
    EXPECT_EQ(TrainStep(mine.replica, mine.optimizer, batches, 0.1, 1, &guard).skipped, "");
    const std::vector<float> before = states();
    Poke(weights, "lm_head.weight", kHuge);
    const std::vector<float> poked = states();
    const StepResult result = TrainStep(mine.replica, mine.optimizer, batches, 0.1, 2, &guard);
    EXPECT_EQ(result.skipped, "the loss on rank 0 in micro-step 1 is not finite");
    EXPECT_FALSE(std::isfinite(result.loss));
    EXPECT_TRUE(states() == poked);
    EXPECT_EQ(mine.optimizer.num_updates(), 1);
    Poke(weights, "lm_head.weight", 0.1f);
    EXPECT_EQ(TrainStep(mine.replica, mine.optimizer, batches, 0.1, 3, &guard).skipped, "");
    EXPECT_EQ(mine.optimizer.num_updates(), 2);
    EXPECT_FALSE(states() == before);
  });
}

}  // namespace
}  // namespace longspan
