// Every strategy × layout × mask × head shape × degree against the dense float64 reference, and what must
// hold of all of them.
#include "distributed/strategy_harness.h"
#include "parallel/key_mean.h"

namespace longspan::testing {
namespace {

constexpr int64_t kLength = 61;  // divided by no degree
const Documents kOneDocument = {{0, kLength}};
const Documents kPacked = {
    {0, 17}, {17, 18}, {20, 43}, {43, 50}, {52, 58}};  // unequal; padding inside and at the end

const MaskSpec kFull = {.kind = MaskKind::kFull};
const MaskSpec kCausal = {.kind = MaskKind::kCausal};
const MaskSpec kWindow = {.kind = MaskKind::kSlidingWindow, .window = 11};
const MaskSpec kChunked = {.kind = MaskKind::kChunked, .chunk = 9};
const MaskSpec kPrefix = {.kind = MaskKind::kPrefix, .prefix = 7};
const MaskSpec kSinkWindow = {.kind = MaskKind::kSinkWindow, .window = 6, .sinks = 3};

struct Case {
  Problem problem;
  Results<double> want;
};

// A sink of its own for each head, and a soft cap (0: none).
Problem WithSinks(Problem problem, float soft_cap) {
  problem.soft_cap = soft_cap;
  for (int64_t h = 0; h < problem.shape.heads; ++h)
    problem.sinks.push_back(0.75f * static_cast<float>(h) - 2);
  return problem;
}

std::vector<Case> MakeCases() {
  std::vector<Case> cases;
  const auto add = [&](Problem problem) {
    Results<double> want = Reference(problem);
    cases.push_back({std::move(problem), std::move(want)});
  };
  const std::pair<const char*, MaskSpec> masks[] = {{"full", kFull},     {"causal", kCausal},
                                                    {"window", kWindow}, {"chunked", kChunked},
                                                    {"prefix", kPrefix}, {"sinks", kSinkWindow}};
  for (const auto& [name, mask] : masks) {
    add(MakeProblem(fmt::format("{}, one document", name), mask, kOneDocument, kLength));
    add(MakeProblem(fmt::format("{}, packed", name), mask, kPacked, kLength));
  }
  const HeadShape mqa = {8, 1, 16, 16}, mha = {8, 8, 16, 8};
  add(MakeProblem("MQA", kCausal, kPacked, kLength, mqa));
  add(MakeProblem("MHA, values narrower than keys", kCausal, kPacked, kLength, mha));
  add(MakeProblem("bfloat16", kCausal, kPacked, kLength, {}, DType::kBFloat16, DType::kBFloat16));
  add(MakeProblem("bfloat16, float32 gradients", kSinkWindow, kPacked, kLength, {}, DType::kBFloat16));
  add(WithSinks(MakeProblem("learned sinks", kCausal, kPacked, kLength), 0));
  add(WithSinks(MakeProblem("learned sinks, soft cap", kSinkWindow, kPacked, kLength, mqa), 1.5f));
  add(WithSinks(MakeProblem("both, bfloat16", kFull, kPacked, kLength, {}, DType::kBFloat16), 1.5f));
  // Without the mean key the output's rounding makes dq here wrong by a fifth.
  Problem offset = MakeProblem("keys far from 0", kCausal, kPacked, kLength, {}, DType::kBFloat16);
  for (float& x : offset.k) x = static_cast<float>(BFloat16(x + 8));
  for (float& x : offset.v) x = static_cast<float>(BFloat16(x + 2));
  add(std::move(offset));
  return cases;
}

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = MakeCases();
  return cases;
}

const LayoutKind kLayouts[] = {LayoutKind::kContiguous, LayoutKind::kZigzag, LayoutKind::kStriped};

// Every strategy at every degree, under every layout; `degrees` for the first three, and their USP meshes.
std::vector<Placement> Placements(std::initializer_list<int> degrees,
                                  std::initializer_list<std::pair<int, int>> usp) {
  std::vector<Placement> placements;
  for (const LayoutKind layout : kLayouts) {
    for (const int degree : degrees) {
      placements.push_back({"all_gather", degree, 1, layout});
      placements.push_back({"ring", degree, 1, layout});
      placements.push_back({"ulysses", 1, degree, layout});
    }
    for (const auto& [ring, ulysses] : usp) placements.push_back({"usp", ring, ulysses, layout});
  }
  return placements;
}

std::string NameOf(const ::testing::TestParamInfo<Placement>& info) { return info.param.name(); }

class EveryPlacement : public ::testing::TestWithParam<Placement> {};

TEST_P(EveryPlacement, EqualsTheDenseReference) {
  std::vector<const Problem*> problems;
  for (const Case& c : Cases()) problems.push_back(&c.problem);
  const std::vector<Results<float>> got = RunAll(GetParam(), problems);
  for (size_t n = 0; n < got.size(); ++n) {
    SCOPED_TRACE(Cases()[n].problem.name);
    ExpectResults(got[n], Cases()[n].want, Cases()[n].problem);
  }
}

TEST_P(EveryPlacement, TwoRunsAreEqualBitForBit) {
  const Problem& problem = Cases()[3].problem;
  const std::vector<Results<float>> runs = RunAll(GetParam(), {&problem, &problem});
  EXPECT_TRUE(SameBits(runs[0], runs[1]));
  EXPECT_TRUE(SameBits(runs[0], RunOne(GetParam(), problem)));
}

// A dry run of any rank takes as much memory and sends as much as the real one.
TEST_P(EveryPlacement, ADryRunCostsTheSame) {
  const Placement& placement = GetParam();
  const Case* cases[] = {&Cases()[3], &Cases()[14], &Cases()[17]};
  for (const Case* c : cases) {
    std::vector<Cost> real(static_cast<size_t>(placement.ranks()));
    RunThreadRanks(placement.ranks(), [&](Comm& world) {
      RankRun rank(placement, world, MakeCpuBackend(1));
      real[static_cast<size_t>(world.rank())] = rank.Run(c->problem, nullptr);
    });
    for (int r = 0; r < placement.ranks(); ++r) {
      const std::unique_ptr<Comm> world = MakeDryComm(r, placement.ranks());
      const Cost dry = RankRun(placement, *world, MakeDryBackend(1)).Run(c->problem, nullptr);
      EXPECT_EQ(dry.arena_peak, real[static_cast<size_t>(r)].arena_peak) << "rank " << r;
      EXPECT_EQ(dry.traffic.bytes_sent, real[static_cast<size_t>(r)].traffic.bytes_sent) << "rank " << r;
      EXPECT_EQ(dry.traffic.messages_sent, real[static_cast<size_t>(r)].traffic.messages_sent)
          << "rank " << r;
    }
  }
}

// Changing a token of document 0 leaves every other document's outputs and gradients as they were, bit for
// bit.
TEST_P(EveryPlacement, DocumentsDoNotTouchEachOther) {
  const Problem& before = Cases()[3].problem;
  Problem after = before;
  constexpr int64_t kChanged = 5;
  for (std::vector<float>* x : {&after.q, &after.k, &after.v, &after.dout}) {
    const int64_t width = static_cast<int64_t>(x->size()) / kLength;
    for (int64_t i = kChanged * width; i < (kChanged + 1) * width; ++i) (*x)[static_cast<size_t>(i)] += 1;
  }
  const std::vector<Results<float>> runs = RunAll(GetParam(), {&before, &after});
  const int64_t end = kPacked[0].end;
  for (const auto part : {&Results<float>::out, &Results<float>::lse, &Results<float>::dq,
                          &Results<float>::dk, &Results<float>::dv}) {
    EXPECT_TRUE(
        SameBits(RowsOf(runs[0].*part, kLength, end, kLength), RowsOf(runs[1].*part, kLength, end, kLength)));
    EXPECT_FALSE(SameBits(RowsOf(runs[0].*part, kLength, 0, end), RowsOf(runs[1].*part, kLength, 0, end)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, EveryPlacement,
    ::testing::ValuesIn(Placements({1, 2, 3, 4, 8},
                                   {{1, 1}, {2, 1}, {1, 3}, {3, 1}, {2, 2}, {2, 4}, {4, 2}, {3, 2}})),
    NameOf);

class SomePlacements : public ::testing::TestWithParam<Placement> {};

// Token ids [1,1,1,0,2,2,0,0]: documents of 3 and 2 tokens, padding inside and at the end. Over 8 ranks some
// hold only padding.
TEST_P(SomePlacements, SmallDocumentsWithPadding) {
  const Documents documents = {{0, 3}, {4, 6}};
  const Problem problem = MakeProblem("small", kCausal, documents, 8);
  const std::vector<Results<float>> runs = RunAll(GetParam(), {&problem, &problem});
  ExpectResults(runs[0], Reference(problem), problem);
  EXPECT_TRUE(SameBits(runs[0], runs[1]));
  const std::vector<float> zero(RowsOf(runs[0].out, 8, 0, 1).size());
  for (const int64_t row : {0, 1, 2, 4, 5}) EXPECT_NE(RowsOf(runs[0].out, 8, row, row + 1), zero) << row;
  for (const int64_t row : {3, 6, 7}) EXPECT_EQ(RowsOf(runs[0].out, 8, row, row + 1), zero) << row;
}

// Fewer real rows than ranks: what lies past the sequence's end fills whole ranks.
TEST_P(SomePlacements, RanksThatHoldOnlyPadding) {
  for (const int64_t length : {1, 3, 9}) {
    SCOPED_TRACE(length);
    const Problem problem = MakeProblem("short", kCausal, {{0, length}}, length);
    ExpectResults(RunOne(GetParam(), problem), Reference(problem), problem);
  }
}

// Nothing but padding anywhere.
TEST_P(SomePlacements, NoDocumentAtAll) {
  const Problem problem = MakeProblem("empty", kCausal, {}, 20);
  ExpectResults(RunOne(GetParam(), problem), Reference(problem), problem);
}

// Window 4, 32 tokens: changing token 0 changes rows 0 … 3 only.
TEST_P(SomePlacements, AWindowReachesAsFarAsItSays) {
  const Problem before =
      MakeProblem("window", {.kind = MaskKind::kSlidingWindow, .window = 4}, {{0, 32}}, 32);
  Problem after = before;
  for (std::vector<float>* x : {&after.k, &after.v})
    for (size_t i = 0; i < x->size() / 32; ++i) (*x)[i] += 1;
  const std::vector<Results<float>> runs = RunAll(GetParam(), {&before, &after});
  ExpectResults(runs[0], Reference(before), before);
  for (int64_t row = 0; row < 32; ++row)
    EXPECT_EQ(SameBits(RowsOf(runs[0].out, 32, row, row + 1), RowsOf(runs[1].out, 32, row, row + 1)),
              row >= 4)
        << row;
}

// A window that spans three ranks and more.
TEST_P(SomePlacements, AWindowOverSeveralRanks) {
  const Problem problem =
      MakeProblem("window", {.kind = MaskKind::kSlidingWindow, .window = 21}, {{0, 64}}, 64);
  ExpectResults(RunOne(GetParam(), problem), Reference(problem), problem);
}

// Upstream gradient in the last rows only: the keys of the first rank still get theirs.
TEST_P(SomePlacements, GradientsReachTheFirstRank) {
  Problem problem = MakeProblem("late gradient", kCausal, {{0, 64}}, 64);
  std::fill(problem.dout.begin(), problem.dout.end() - static_cast<int64_t>(problem.dout.size()) / 8, 0.0f);
  const Results<float> got = RunOne(GetParam(), problem);
  ExpectResults(got, Reference(problem), problem);
  for (const auto part : {&Results<float>::dk, &Results<float>::dv})
    for (const float x : RowsOf(got.*part, 64, 0, 8)) ASSERT_NE(x, 0);
}

INSTANTIATE_TEST_SUITE_P(Strategies, SomePlacements,
                         ::testing::ValuesIn(Placements({2, 4, 8}, {{2, 2}, {4, 2}})), NameOf);

// 698 tokens in two documents with padding between and behind.
TEST(FourRanks, SixHundredAndNinetyEightTokens) {
  const Problem problem = MakeProblem("698", kCausal, {{0, 301}, {310, 690}}, 698, {4, 2, 4, 4});
  const Results<double> want = Reference(problem);
  for (const Placement& placement : Placements({4}, {{2, 2}})) {
    SCOPED_TRACE(placement.name());
    const std::vector<Results<float>> runs = RunAll(placement, {&problem, &problem});
    ExpectResults(runs[0], want, problem);
    EXPECT_TRUE(SameBits(runs[0], runs[1]));
  }
}

// Head shapes that a Ulysses degree does not divide: 12 query and 4 KV heads over 6 (rank 0 and 1 hold as
// many heads, but map them differently), 8 heads over 5 and 7, one KV head held by all.
TEST(Ulysses, HeadsDealtUnevenly) {
  const std::pair<int, HeadShape> shapes[] = {
      {6, {12, 4, 16, 16}}, {5, {8, 2, 16, 8}}, {7, {8, 4, 16, 16}}, {3, {3, 1, 16, 16}}};
  for (const auto& [degree, shape] : shapes) {
    for (const LayoutKind layout : kLayouts) {
      SCOPED_TRACE(fmt::format("{} heads, {} KV heads over {}, {}", shape.heads, shape.kv_heads, degree,
                               Name(layout)));
      const Problem problem = WithSinks(MakeProblem("uneven", kCausal, kPacked, kLength, shape), 0);
      ExpectResults(RunOne({"ulysses", 1, degree, layout}, problem), Reference(problem), problem);
    }
  }
}

// The mean of what belongs to documents, the same bits on every rank, whoever holds it.
TEST(KeyMeanTest, IsOfAllRanksKeysThatBelongToADocument) {
  const Problem problem = MakeProblem("mean", kCausal, kPacked, kLength, {}, DType::kBFloat16);
  const int64_t width = problem.shape.kv_heads * problem.shape.width;
  std::vector<double> want(static_cast<size_t>(width));
  double num_rows = 0;
  for (const Range& document : kPacked) num_rows += static_cast<double>(document.size());
  for (const Range& document : kPacked)
    for (int64_t i = document.begin * width; i < document.end * width; ++i)
      want[static_cast<size_t>(i % width)] +=
          static_cast<double>(problem.k[static_cast<size_t>(i)]) / num_rows;
  const Mask mask = MakeMask(problem.mask, problem.documents);
  for (const int ranks : {1, 2, 3, 4}) {
    for (const LayoutKind kind : kLayouts) {
      const Layout layout(kind, kLength, ranks, 1, 4);
      std::vector<std::vector<Range>> spans;
      for (int rank = 0; rank < ranks; ++rank) spans.push_back(layout.spans(rank));
      const SequenceShards shards = {.mask = &mask, .spans = spans, .kv_of = {}};
      std::vector<std::vector<float>> means(static_cast<size_t>(ranks));
      RunThreadRanks(ranks, [&](Comm& world) {
        const auto backend = MakeCpuBackend(1);
        std::vector<BFloat16> rows;
        for (const float x : problem.k) rows.emplace_back(x);
        rows.resize(static_cast<size_t>((kLength + 64) * width), BFloat16(1e30f));  // padding
        std::vector<BFloat16> mine;
        for (const Range& span : shards.spans[static_cast<size_t>(world.rank())])
          mine.insert(mine.end(), rows.begin() + span.begin * width, rows.begin() + span.end * width);
        const Tensor k(mine.data(), DType::kBFloat16,
                       {layout.rows_per_rank(), problem.shape.kv_heads, problem.shape.width});
        const Tensor mean = KeyMean(*backend, world, shards, k);
        means[static_cast<size_t>(world.rank())].assign(mean.data<float>(), mean.data<float>() + width);
      });
      for (const std::vector<float>& mean : means) {
        ExpectNear("mean", mean, want, 1e-6);
        EXPECT_TRUE(SameBits(mean, means[0]));
      }
    }
  }
}

// Bytes that each rank sends in a forward and a backward pass, from the formulas (docs/parallel.md).
TEST(Traffic, IsWhatTheFormulasSay) {
  constexpr int64_t kRows = 16;  // of each of 4 ranks
  const auto [heads, kv_heads, width, value_width] = HeadShape{8, 4, 16, 8};
  const Problem problem =
      MakeProblem("traffic", kCausal, {{0, 4 * kRows}}, 4 * kRows, {heads, kv_heads, width, value_width},
                  DType::kBFloat16, DType::kBFloat16);
  const auto cost_of = [&](const Placement& placement, int rank) {
    const std::unique_ptr<Comm> world = MakeDryComm(rank, placement.ranks());
    return RankRun(placement, *world, MakeDryBackend(1)).Run(problem, nullptr);
  };
  const auto sent_by = [&](const Placement& placement) {
    std::vector<int64_t> bytes;
    for (int r = 0; r < placement.ranks(); ++r) bytes.push_back(cost_of(placement, r).traffic.bytes_sent);
    return bytes;
  };
  const int64_t kv = kRows * kv_heads * (width + value_width);
  // K and V go round twice, their f32 gradients once; three hops each. The mean key is summed and handed
  // round.
  const int64_t mean = 2 * 3 * 4 * kv_heads * width / 4;
  EXPECT_EQ(sent_by({"ring", 4, 1}), std::vector<int64_t>(4, 3 * (2 * 2 * kv + 4 * kv) + mean));
  // Forward q, k, v, out and lse; backward q, k, v, dout, lse, delta, dq and f32 dk, dv. Three quarters
  // leave.
  const int64_t query = kRows * heads * (width + value_width);
  const int64_t forward = 2 * query + 2 * kv + 4 * kRows * heads;
  const int64_t backward = 2 * query + 2 * kv + 2 * 4 * kRows * heads + 2 * kRows * heads * width + 4 * kv;
  EXPECT_EQ(sent_by({"ulysses", 1, 4}), std::vector<int64_t>(4, (forward + backward) * 3 / 4));
  // One rank is local attention under each name: nothing sent, no buffers for it.
  const Cost local = cost_of({"all_gather", 1, 1}, 0);
  EXPECT_EQ(local.traffic, Comm::Traffic{});
  for (const char* strategy : {"ring", "ulysses", "usp"})
    EXPECT_EQ(cost_of({strategy, 1, 1}, 0), local) << strategy;
}

// Rows 4 … 7 of 8, which the second of two ranks holds, against all 8 keys: as in the whole.
TEST(AllGather, SomeRowsAgainstAllKeys) {
  const Problem problem = MakeProblem("rows", kCausal, {{0, 8}}, 8);
  const Results<float> whole = RunOne({"all_gather", 1, 1}, problem),
                       halves = RunOne({"all_gather", 2, 1}, problem);
  for (const auto part : {&Results<float>::out, &Results<float>::lse, &Results<float>::dq}) {
    const std::vector<float> some = RowsOf(halves.*part, 8, 4, 8), all = RowsOf(whole.*part, 8, 4, 8);
    ExpectNear("rows", some, std::vector<double>(all.begin(), all.end()), 1e-6);
  }
}

}  // namespace
}  // namespace longspan::testing
