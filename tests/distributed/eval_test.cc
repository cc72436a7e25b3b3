// Evaluation over ranks against a look at each token: plain documents, one rank, log softmax of whole logits
// in float64.
#include <gtest/gtest.h>

#include <cmath>

#include "eval/report.h"
#include "eval/retrieval.h"
#include "eval/text_loss.h"
#include "support/model_ranks.h"
#include "support/runs.h"
#include "support/tiny.h"
#include "train/replica.h"

namespace longspan {
namespace {

using namespace testing;

struct Ranks {
  int64_t ranks;
  const char *strategy, *layout;
  int64_t data = 1;
};
constexpr Ranks kRanks[] = {{1, "ring", "contiguous"},    {2, "ring", "zigzag"}, {3, "all_gather", "striped"},
                            {4, "ulysses", "contiguous"}, {4, "usp", "zigzag"},  {4, "ring", "striped", 2}};

class EvalTest : public ::testing::Test {
 protected:
  EvalTest() : config_(TinyConfig()) { WriteModel(directory_ / "model", config_, 7); }

  TrainConfig Config(const Ranks& r) const {
    TrainConfig config = PlainConfig(directory_ / "model", directory_ / "text.jsonl", directory_ / "runs");
    config.ranks = r.ranks;
    config.data_parallelism = r.data;
    config.context_parallel_strategy = {{"", r.strategy}};
    config.context_parallel_layout = r.layout;
    config.stripe_length = 3;
    return config;
  }

  // For each row of a document, −log p of the target and the likeliest token.
  struct Row {
    double loss;
    int32_t greedy;
  };
  std::vector<Row> Look(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets,
                        const MaskSpec& mask) const {
    const auto length = static_cast<int64_t>(tokens.size());
    const Batch batch = {.tokens = tokens,
                         .targets = targets,
                         .documents = {{0, length}},
                         .branches = {},
                         .num_tokens = length,
                         .num_targets = length};
    const RanksSpec spec = {.ranks = 1, .layout = LayoutKind::kContiguous, .mask = mask};
    const ModelResult result = RunModel(config_, InitialWeights(config_, 7), spec, std::span(&batch, 1));
    std::vector<Row> rows;
    for (int64_t i = 0; i < length; ++i) {
      const float* logits = &result.logits[static_cast<size_t>(i * config_.vocab_size)];
      double sum = 0;
      for (int64_t v = 0; v < config_.vocab_size; ++v) sum += std::exp(static_cast<double>(logits[v]));
      rows.push_back({std::log(sum) - static_cast<double>(logits[targets[static_cast<size_t>(i)]]),
                      static_cast<int32_t>(std::max_element(logits, logits + config_.vocab_size) - logits)});
    }
    return rows;
  }

  std::vector<int32_t> RandomIds(int64_t count) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i)
      ids.push_back(static_cast<int32_t>(random_.Below(static_cast<uint64_t>(config_.vocab_size), next_++)));
    return ids;
  }

  const TemporaryDirectory directory_;
  const ModelConfig config_;
  const CounterRandom random_{1, "eval"};
  uint64_t next_ = 0;
};

TEST_F(EvalTest, AnswersScoreAsIfEachFollowedThePromptAlone) {
  std::vector<Case> cases;
  for (const int64_t length : {2, 9, 30, 41}) {
    Case& one = cases.emplace_back();
    one.length = length;
    one.prompt = RandomIds(length);
    for (const int64_t answer : {3, 1, 6}) one.answers.push_back(RandomIds(answer));
    if (length == 9) one.answers.resize(1);
  }
  // What greedy decoding says is the right answer of one of them.
  MaskSpec masks[] = {{}, {.kind = MaskKind::kSlidingWindow, .window = 5}};
  for (const MaskSpec& mask : masks) {
    std::vector<int32_t> text = cases[2].prompt;
    for (int i = 0; i < 3; ++i) text.push_back(Look(text, text, mask).back().greedy);
    cases[2].answers[0].assign(text.end() - 3, text.end());

    std::vector<std::vector<AnswerScore>> want;
    for (const Case& one : cases) {
      want.emplace_back();
      for (const std::vector<int32_t>& answer : one.answers) {
        std::vector<int32_t> tokens = one.prompt;
        tokens.insert(tokens.end(), answer.begin(), answer.end());
        std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
        tokens.pop_back();
        const std::vector<Row> rows = Look(tokens, targets, mask);
        AnswerScore& score = want.back().emplace_back();
        for (size_t i = one.prompt.size() - 1; i < rows.size(); ++i) {
          score.log_probability -= rows[i].loss;
          score.greedy_tokens += rows[i].greedy == targets[i];
        }
      }
    }
    EXPECT_EQ(want[2][0].greedy_tokens, 3);
    for (const Ranks& r : kRanks) {
      TrainConfig config = Config(r);
      config.max_target_length = 67;
      config.attention_mask = mask.kind == MaskKind::kCausal ? "causal" : "sliding_window";
      config.sliding_window_size = mask.window;
      Job job = OpenModel(config);
      job.forward_only = true;
      job = PrepareJobWithoutText(std::move(job));
      double seconds = 0;
      const auto scores = ScoreCases(job, cases, &seconds);
      ASSERT_EQ(scores.size(), want.size());
      for (size_t c = 0; c < want.size(); ++c) {
        ASSERT_EQ(scores[c].size(), want[c].size());
        for (size_t a = 0; a < want[c].size(); ++a) {
          EXPECT_NEAR(scores[c][a].log_probability, want[c][a].log_probability, 2e-4)
              << r.strategy << " " << r.ranks << " " << config.attention_mask << " case " << c << " answer "
              << a;
          EXPECT_EQ(scores[c][a].greedy_tokens, want[c][a].greedy_tokens) << r.strategy << " case " << c;
        }
      }
      EXPECT_GT(seconds, 0);
    }
  }
}

TEST_F(EvalTest, LossByContextOverRanks) {
  // Packed, cut in two, of one token, exactly as long as a sequence.
  const std::vector<int64_t> lengths = {20, 100, 1, 9, 48, 33};
  WriteDocuments(directory_ / "text.jsonl", lengths, config_.vocab_size, 3);
  constexpr int64_t kLength = 48;
  LossByContext want(kLength);
  {
    Job job = PrepareJob(Config(kRanks[0]));
    for (int64_t d = 0; d < job.sources[0].corpus->num_documents(); ++d) {
      std::vector<int32_t> ids(static_cast<size_t>(job.sources[0].corpus->num_tokens(d)));
      job.sources[0].corpus->ReadTokens(d, 0, ids);
      for (size_t begin = 0; begin < ids.size(); begin += kLength) {
        const auto piece = ids.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto rows = std::min<std::ptrdiff_t>(kLength, ids.end() - piece);
        std::vector<int32_t> tokens(piece, piece + rows),
            targets(piece + 1, std::min(piece + rows + 1, ids.end()));
        const size_t num_targets = targets.size();
        targets.resize(tokens.size());
        const std::vector<Row> look = Look(tokens, targets, {});
        for (size_t i = 0; i < num_targets; ++i) want.Add(static_cast<int64_t>(i) + 1, look[i].loss);
      }
    }
  }
  for (const Ranks& r : kRanks) {
    TrainConfig config = Config(r);
    config.max_target_length = kLength;
    Job job = OpenModel(config);
    job.forward_only = true;
    job = PrepareJob(std::move(job));
    const LossReport report = MeasureLoss(job);
    EXPECT_EQ(report.tokens, 211);
    EXPECT_EQ(report.whole.targets, 211 - 6);
    EXPECT_NEAR(report.whole.loss, want.Whole().loss, 1e-5) << r.strategy;
    ASSERT_EQ(report.buckets.size(), want.Buckets().size());
    for (size_t i = 0; i < report.buckets.size(); ++i) {
      const LossBucket got = report.buckets[i], expected = want.Buckets()[i];
      EXPECT_EQ(got.targets, expected.targets);
      EXPECT_NEAR(got.loss, expected.loss, 3e-5) << r.strategy << " context " << got.context_from;
      EXPECT_NEAR(got.standard_error.value_or(-1), expected.standard_error.value_or(-1), 1e-4);
    }
    config.eval_steps = 1;
    job = OpenModel(config);
    job.forward_only = true;
    job = PrepareJob(std::move(job));
    EXPECT_EQ(MeasureLoss(job).tokens, 20);
  }
}

// A job that only runs forward holds neither gradients nor moments nor activations, and its dry run is its
// memory.
TEST_F(EvalTest, TakesTheMemoryOfItsDryRun) {
  WriteDocuments(directory_ / "text.jsonl", {60}, config_.vocab_size);
  for (const Ranks& r : kRanks) {
    TrainConfig config = Config(r);
    config.max_target_length = 60;
    Job job = OpenModel(config);
    job.forward_only = true;
    job = PrepareJob(std::move(job));
    const std::map<std::string, int64_t> dry = RunDry(job, 0).memory;
    for (const auto& [name, bytes] : dry) {
      EXPECT_TRUE(name != "gradients" && name != "optimizer" && !name.starts_with("activations.")) << name;
      EXPECT_GT(bytes, 0) << name;
    }
    RunThreadRanks(static_cast<int>(r.ranks), [&](Comm& world) {
      Replica replica(job, MakeCpuBackend(1), world);
      const AbortOnUnwind guard(world);
      LoadModelWeights(job.model_directory, replica.weights());
      const int64_t rows = replica.layout().rows_per_rank();
      const Buffer losses(DType::kFloat32, {rows}), argmax(DType::kInt32, {rows});
      SequenceReader reader(*job.sources[0].corpus, 60, 0, false);
      replica.TokenLosses(reader.Next(), losses.tensor(), argmax.tensor());
      if (world.rank() != 0) return;
      for (const auto& [name, bytes] : replica.MemoryByName()) EXPECT_EQ(dry.at(name), bytes) << name;
    });
  }
}

}  // namespace
}  // namespace longspan
