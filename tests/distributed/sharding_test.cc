// Sharded weights: every bit of a run is that of a run with the whole weights on each rank, and so is every
// byte of its checkpoints; a dry run takes its memory and counts its messages.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "comm/dry_comm.h"
#include "comm/thread_comm.h"
#include "support/fake_corpus.h"
#include "support/files.h"
#include "support/runs.h"
#include "support/tiny.h"
#include "train/replica.h"

namespace longspan {
namespace {

using nlohmann::json;
using testing::ExpectSameRun;

// Units of 1 to 6 blocks of 4,096 elements, the last of which are not full.
ModelConfig Model(bool tied) {
  ModelConfig config = testing::TiedTinyConfig(tied);
  config.vocab_size = 400;
  config.intermediate_size = 260;
  return config;
}

struct RanksOfRun {
  int ranks, data, fsdp;
  std::string strategy;
  std::string ToString() const {
    return fmt::format("{} ranks, data {} × fsdp {}, {}", ranks, data, fsdp, strategy);
  }
};
// With 8 ranks there are more than blocks; 3, 5 and 6 divide none.
const RanksOfRun kRanks[] = {{1, 1, 1, "ring"},       {2, 1, 1, "ring"},    {2, 2, 1, "ring"},
                             {2, 1, 2, "ring"},       {3, 1, 1, "ulysses"}, {3, 1, 3, "ring"},
                             {4, 2, 1, "all_gather"}, {4, 1, 2, "ulysses"}, {4, 1, 1, "usp"},
                             {5, 1, 1, "all_gather"}, {6, 3, 2, "ring"},    {6, 1, 3, "ring"},
                             {8, 1, 1, "ring"},       {8, 2, 2, "ring"},    {8, 2, 1, "usp"}};

class Sharding : public ::testing::Test {
 protected:
  void Prepare(const ModelConfig& model,
               const std::vector<int64_t>& lengths = {7, 20, 3, 11, 70, 16, 25, 9, 14},
               const std::vector<int64_t>& held_out = {28, 29, 30, 27, 30}) {
    model_ = directory_ / fmt::format("model{}", num_models_++);
    testing::WriteModel(model_, model, /*seed=*/7);
    testing::WriteDocuments(directory_ / "data.jsonl", lengths, model.vocab_size);
    testing::WriteDocuments(directory_ / "held_out.jsonl", held_out, model.vocab_size, /*seed=*/2);
  }

  // Five steps of two micro-steps, in which each moment and clipping count, with evaluations that do not
  // divide among the groups.
  TrainConfig Config(const RanksOfRun& r, bool sharded) const {
    TrainConfig config = testing::PlainConfig(model_, directory_ / "data.jsonl", directory_ / "runs");
    config.run_name = fmt::format("run{}", num_runs_++);
    config.eval_data_path = directory_ / "held_out.jsonl";
    config.eval_interval = 2;
    config.max_target_length = 30;
    config.learning_rate = 1e-2;
    config.warmup_steps_fraction = 0.3;
    config.gradient_clipping_threshold = 0.5;
    config.steps = 5;
    config.ranks = r.ranks;
    config.global_batch_size = 2 * r.data * r.fsdp;
    config.shard_parameters = sharded;
    // The same ranks take the same sequences, whether or not they share weights.
    config.data_parallelism = sharded ? r.data : r.data * r.fsdp;
    config.fsdp_parallelism = sharded ? r.fsdp : 1;
    config.context_parallel_strategy = {{"", r.strategy}};
    return config;
  }

 private:
  testing::TemporaryDirectory directory_;
  std::string model_;
  int num_models_ = 0;
  mutable int num_runs_ = 0;
};

TEST_F(Sharding, ChangesNoBit) {
  for (const bool tied : {false, true}) {
    Prepare(Model(tied));
    for (const char* dtype : {"float32", "bfloat16"}) {
      for (const RanksOfRun& ranks : kRanks) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", ranks.ToString(), dtype, tied ? "tied" : "untied"));
        TrainConfig whole = Config(ranks, false), sharded = Config(ranks, true);
        for (TrainConfig* config : {&whole, &sharded}) {
          config->dtype = config->save_dtype = dtype;
          if (tied) config->max_shard_bytes = 20000;  // a few tensors a file
        }
        const std::string wanted = testing::TrainQuietly(whole);
        ASSERT_EQ(testing::ReadMetrics(wanted).size(), 5u);
        ExpectSameRun(testing::TrainQuietly(sharded), wanted);
      }
    }
  }
}

// Tensors that are several parameters, biases, norms of heads; SGD, one micro-step.
TEST_F(Sharding, ChangesNoBitOfAnyFamily) {
  const CounterRandom random(3, "documents");
  std::vector<testing::Ids> documents(9);
  for (size_t d = 0; d < documents.size(); ++d)
    for (uint64_t i = 0; i < 5 + 4 * d; ++i)
      documents[d].push_back(static_cast<int32_t>(random.Below(400, 100 * d + i)));
  for (testing::NamedConfig family : testing::TinyFamilies()) {
    SCOPED_TRACE(family.name);
    family.config.vocab_size = 400;
    family.config.intermediate_size = 260;
    for (const RanksOfRun& ranks : {RanksOfRun{3, 1, 1, "ring"}, RanksOfRun{4, 2, 2, "ring"}}) {
      std::vector<StepMetrics> steps[2];
      for (const bool sharded : {false, true}) {
        TrainConfig config = Config(ranks, sharded);
        config.opt_type = "sgd";
        config.eval_interval = -1;
        config.global_batch_size = ranks.data * ranks.fsdp;
        config.dtype = "bfloat16";
        steps[sharded] = MeasureSteps(
            PrepareJob(config, family.config, std::make_unique<testing::FakeCorpus>(documents)), 0);
      }
      ASSERT_EQ(steps[0].size(), 5u);
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(steps[1].at(i).loss, steps[0][i].loss) << "step " << i + 1;
        EXPECT_EQ(steps[1].at(i).grad_norm, steps[0][i].grad_norm) << "step " << i + 1;
      }
      EXPECT_NE(steps[0][4].loss, steps[0][0].loss);
    }
  }
}

// Sequences of groups that take different numbers of passes, in training and in evaluation.
TEST_F(Sharding, ChangesNoBitOfPasses) {
  Prepare(Model(true), {7, 20, 3, 11, 24, 16, 23, 9, 14, 1, 2, 2, 3, 17},
          {24, 12, 12, 24, 23, 1, 2, 3, 24, 5});
  for (const RanksOfRun& ranks :
       {RanksOfRun{1, 1, 1, "ring"}, RanksOfRun{2, 1, 1, "ring"}, RanksOfRun{3, 1, 3, "ring"},
        RanksOfRun{4, 2, 1, "ring"}, RanksOfRun{4, 1, 2, "ulysses"}, RanksOfRun{8, 2, 2, "ring"}}) {
    SCOPED_TRACE(ranks.ToString());
    TrainConfig whole = Config(ranks, false), sharded = Config(ranks, true);
    for (TrainConfig* config : {&whole, &sharded}) {
      config->max_target_length = 53;
      config->tokens_per_pass = 24;
      config->global_batch_size = ranks.data * ranks.fsdp;
    }
    ExpectSameRun(testing::TrainQuietly(sharded), testing::TrainQuietly(whole));
  }
}

// A checkpoint does not know how the weights of its run lay, and they may lie otherwise when it goes on.
TEST_F(Sharding, ARunGoesOnShardedOrNot) {
  Prepare(Model(true));
  const RanksOfRun ranks{4, 1, 2, "ring"};
  const std::string straight = testing::TrainQuietly(Config(ranks, false));
  for (const bool sharded_first : {false, true}) {
    SCOPED_TRACE(sharded_first);
    TrainConfig first = Config(ranks, sharded_first), then = Config(ranks, !sharded_first);
    first.steps = 3;
    first.learning_rate_schedule_steps = 5;
    then.run_name = first.run_name;
    then.resume = "auto";
    testing::TrainQuietly(first);
    ExpectSameRun(testing::TrainQuietly(then), straight);
  }
}

// Five steps take what a dry run says, and on the wire as well.
TEST_F(Sharding, TakesTheMemoryAndSendsTheMessagesOfItsDryRun) {
  for (const bool tied : {false, true}) {
    Prepare(Model(tied));
    for (const RanksOfRun& ranks : kRanks) {
      for (const bool sharded : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {}, {}", ranks.ToString(), tied ? "tied" : "untied",
                                 sharded ? "sharded" : "whole"));
        TrainConfig config = Config(ranks, sharded);
        config.dtype = ranks.ranks % 2 == 0 ? "bfloat16" : "float32";
        const Job job = PrepareJob(config);
        std::vector<std::map<std::string, int64_t>> memory(static_cast<size_t>(ranks.ranks));
        std::vector<Comm::Traffic> traffic(memory.size());
        RunThreadRanks(ranks.ranks, [&](Comm& world) {
          Replica replica(job, MakeCpuBackend(1), world);
          const AbortOnUnwind guard(world);
          LoadModelWeights(job.model_directory, replica.weights());
          SequenceReader reader = job.MakeEvalReader();
          const Batch batch = reader.Next();
          const size_t rank = static_cast<size_t>(world.rank());
          EXPECT_EQ(world.traffic(), Comm::Traffic{});
          Optimizer optimizer(job.config, replica.backend(), replica.weights());
          const StepBatches batches = {
              .mine = {batch}, .passes = {1}, .num_targets = batch.num_targets, .flops = {}};
          EXPECT_GT(TrainStep(replica, optimizer, batches, config.learning_rate, 1).grad_norm, 0);
          traffic[rank] = world.traffic();
          replica.Loss(batch);
          memory[rank] = replica.MemoryByName();
        });
        int64_t moments = 0, largest = 0;
        for (int rank = 0; rank < ranks.ranks; ++rank) {
          DryRun dry = RunDry(job, rank);
          EXPECT_EQ(dry.traffic, traffic[static_cast<size_t>(rank)]) << "rank " << rank;
          int64_t total = 0;
          for (const auto& [name, bytes] : dry.memory) total += bytes;
          largest = std::max(largest, total);
          EXPECT_EQ(dry.memory["sequences"], SequenceBytes(job));
          dry.memory.erase("sequences");
          EXPECT_EQ(dry.memory, memory[static_cast<size_t>(rank)]) << "rank " << rank;
          moments += dry.memory.at("optimizer");
        }
        // Each moment once in each group of ranks that have the weights among them.
        int64_t wanted = 0;
        for (const ParamUnit& unit : MakeParamTable(job.model).units) wanted += 2 * 4 * unit.num_elements;
        EXPECT_EQ(moments, wanted * (sharded ? ranks.data : ranks.ranks));
        if (ranks.ranks % 3 != 0) continue;  // whole runs of some
        for (const json& row : testing::ReadMetrics(testing::TrainQuietly(config)))
          EXPECT_EQ(row["memory_peak_bytes"], largest);
      }
    }
  }
}

bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.num_bytes() == b.num_bytes() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.num_bytes())) == 0;
}

// The shards of a unit are whole blocks, without gap or overlap, and hold what the whole weights hold.
TEST(ShardedWeightsOverRanks, HaveEveryElementOnce) {
  const ModelConfig config = Model(false);
  const ParamTable table = MakeParamTable(config);
  ShardedWeights whole(table, DType::kBFloat16, ShardedWeights::Moments::kAdam);
  whole.Initialize(0.3, 5);
  for (const int ranks : {1, 2, 3, 5, 8, 16}) {
    SCOPED_TRACE(ranks);
    std::vector<std::vector<Range>> kept(static_cast<size_t>(table.num_units()),
                                         std::vector<Range>(static_cast<size_t>(ranks)));
    RunThreadRanks(ranks, [&](Comm& world) {
      const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
      Mesh mesh = MakeMesh({.data = 1, .fsdp = ranks}, world);
      ShardedWeights weights(table, DType::kBFloat16, ShardedWeights::Moments::kAdam, backend.get(),
                             WeightRanks::Of(mesh, true));
      const AbortOnUnwind guard(world);
      weights.Initialize(0.3, 5);
      for (int unit = 0; unit < table.num_units(); ++unit) {
        const Range mine = weights.Kept(unit);
        kept[static_cast<size_t>(unit)][static_cast<size_t>(world.rank())] = mine;
        // What the model reads, fetched beforehand or not.
        if (unit % 2 == 0) weights.Prefetch(unit);
        const std::span<const Weight> got = weights.Get(unit);
        const std::vector<Tensor> wanted =
            UnitViews(table.units[static_cast<size_t>(unit)], whole.State(unit).compute);
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(SameBytes(got[i].values, wanted[i]));
        weights.Release(unit);
        const Tensor master = weights.Gather(unit, &UnitState::master);
        EXPECT_EQ(master.IsNull(), ranks > 1 && world.rank() != 0);
        if (!master.IsNull()) {
          EXPECT_TRUE(SameBytes(master, whole.State(unit).master));
        }
      }
    });
    for (int unit = 0; unit < table.num_units(); ++unit) {
      int64_t end = 0;
      for (const Range& range : kept[static_cast<size_t>(unit)]) {
        EXPECT_EQ(range.begin, end);
        EXPECT_TRUE(range.empty() || range.begin % 4096 == 0);
        end = range.end;
      }
      EXPECT_EQ(end, whole.Kept(unit).size());
    }
  }
}

}  // namespace
}  // namespace longspan
