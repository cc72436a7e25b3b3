// The attention kernels at the edges: rows without keys, extreme scores, carried state, far offsets.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "backend/cpu/attention_kernels.h"
#include "unit/backend/attention_problem.h"

namespace longspan::cpu {
namespace {

// ------------------------------------------------------------------------------- rows that see nothing

TEST(Attention, RowsThatSeeNothingAreZeroAndAddNothing) {
  Random random(7);
  constexpr int64_t kLength = 150;
  const std::vector<Range> documents = {{3, 50}, {60, 140}};
  const auto padding = [](int64_t row) { return row < 3 || (row >= 50 && row < 60) || row >= 140; };
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Problem p = MakeProblem(kLength, EvenHeads(2, 1), 24, 24, dtype,
                            MakeMask({.kind = MaskKind::kFull}, documents), random);
    const Expected e = Reference(p);
    for (const CpuTarget target : TargetsFor(dtype)) {
      for (const int64_t calls : {1, 3}) {
        Plan plan = Whole(p, target);
        plan.key_spans = Deal(Stripes(kLength, random), calls);
        plan.initial_gradient = 0.25f;
        ExpectMatches(p, plan, e);
        const Result got = Compute(p, plan);
        for (int64_t row = 0; row < kLength; ++row) {
          if (!padding(row)) continue;
          for (const float x : RowOf(got.out, row, kLength)) ASSERT_EQ(x, 0.0f);
          for (const float x : RowOf(got.lse, row, kLength)) ASSERT_EQ(x, -kInfinity);
          for (const Floats* gradient : {&got.dq, &got.dk, &got.dv})
            for (const float x : RowOf(*gradient, row, kLength)) ASSERT_EQ(x, 0.25f);
        }
        // Whatever padding holds as a query.
        Problem wild = p;
        for (int64_t row = 0; row < kLength; ++row) {
          if (!padding(row)) continue;
          for (Floats* x : {&wild.q, &wild.dout})
            std::ranges::fill(
                std::span(*x).subspan(static_cast<size_t>(row) * x->size() / kLength, x->size() / kLength),
                kInfinity);
        }
        ExpectSameBits(got, Compute(wild, plan));
      }
    }
  }
}

TEST(Attention, NothingAtAllToSee) {
  Random random(8);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Problem p = MakeProblem(10, EvenHeads(2, 1), 16, 16, dtype, Mask(), random);
    for (const CpuTarget target : TargetsFor(dtype)) {
      Plan plan = Whole(p, target);
      for (const std::vector<std::vector<Range>>& key_spans :
           {std::vector<std::vector<Range>>{{{0, 10}}}, {{}, {{0, 10}}, {}}, {{}}}) {
        plan.key_spans = key_spans;
        const Result got = Compute(p, plan);
        for (const float x : got.out) EXPECT_EQ(x, 0.0f);
        for (const float x : got.lse) EXPECT_EQ(x, -kInfinity);
        for (const float x : got.dq) EXPECT_EQ(x, 0.0f);
      }
      plan.query_spans = {};  // a rank without rows
      plan.key_spans = {{{0, 10}}};
      const Result got = Compute(p, plan);
      for (const Floats* gradient : {&got.dk, &got.dv})
        for (const float x : *gradient) EXPECT_EQ(x, 0.0f);
    }
  }
}

// ---------------------------------------------------------------------------------- what is not finite

// Who sees a token that is not finite gets NaN; who doesn't keeps every bit.
TEST(Attention, WhatIsNotFiniteReachesThoseWhoSeeItAlone) {
  Random random(17);
  constexpr int64_t kLength = 150;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto is_nan = [](float x) { return std::isnan(x); };
  const std::vector<MaskSpec> masks = {{.kind = MaskKind::kCausal},
                                       {.kind = MaskKind::kFull},
                                       {.kind = MaskKind::kSinkWindow, .window = 20, .sinks = 3}};
  for (const MaskSpec& spec : masks) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const auto documents = Packed(kLength, random);
      Problem p = MakeProblem(kLength, EvenHeads(2, 1), 32, 16, dtype, MakeMask(spec, documents), random);
      if (spec.kind == MaskKind::kCausal) p.soft_cap = 3;
      const auto sees = [&](int64_t row, int64_t key) { return p.mask.Row(row).Sees(key); };
      for (const CpuTarget target : TargetsFor(dtype)) {
        Plan plan = Whole(p, target);
        plan.key_spans = Deal(Zigzag(kLength), 1 + random.Below(2));
        const Result clean = Compute(p, plan);
        const auto same = [&](Floats Result::*part, const Result& got, int64_t row) {
          return SameRow(clean.*part, got.*part, row, kLength);
        };
        const auto all_nan = [&](Floats Result::*part, const Result& got, int64_t row) {
          return std::ranges::all_of(RowOf(got.*part, row, kLength), is_nan);
        };
        for (int probe = 0; probe < 8; ++probe) {
          const int64_t token = random.Below(kLength);
          const float poison = random.Of<float>({nan, kInfinity, -kInfinity});
          Floats Problem::*const input =
              random.Of<Floats Problem::*>({&Problem::q, &Problem::k, &Problem::v, &Problem::dout});
          Problem wild = p;
          Floats& x = wild.*input;
          const auto width = static_cast<int64_t>(x.size()) / kLength;
          x[static_cast<size_t>(token * width + random.Below(width))] = poison;
          const Result got = Compute(wild, plan);
          SCOPED_TRACE(fmt::format("mask {}, token {}, {} in {}, {} {}", static_cast<int>(spec.kind), token,
                                   poison,
                                   input == &Problem::q   ? "q"
                                   : input == &Problem::k ? "k"
                                   : input == &Problem::v ? "v"
                                                          : "dout",
                                   Name(target), Name(dtype)));
          // An infinite score may be −∞, which is none.
          const bool is_certain = std::isnan(poison) || input == &Problem::v || input == &Problem::dout;
          if (input == &Problem::k || input == &Problem::v) {
            for (int64_t row = 0; row < kLength; ++row) {
              if (sees(row, token)) {
                ASSERT_TRUE(!is_certain || all_nan(&Result::out, got, row)) << row;
                ASSERT_TRUE(!is_certain || all_nan(&Result::lse, got, row)) << row;
                continue;
              }
              for (const auto part : {&Result::out, &Result::lse, &Result::dq})
                ASSERT_TRUE(same(part, got, row)) << row;
            }
            for (int64_t key = 0; key < kLength; ++key) {
              bool meets = key == token;
              for (int64_t row = 0; row < kLength; ++row) meets |= sees(row, token) && sees(row, key);
              for (const auto part : {&Result::dk, &Result::dv})
                ASSERT_TRUE(meets || same(part, got, key)) << key;
            }
          } else {
            for (int64_t row = 0; row < kLength; ++row)
              for (const auto part : {&Result::out, &Result::lse, &Result::dq})
                ASSERT_TRUE(row == token || same(part, got, row)) << row;
            for (int64_t key = 0; key < kLength; ++key)
              for (const auto part : {&Result::dk, &Result::dv})
                ASSERT_TRUE(sees(token, key) ? !is_certain || all_nan(part, got, key) : same(part, got, key))
                    << key;
          }
        }
      }
    }
  }
}

// --------------------------------------------------------------------------------- numbers at the edge

Problem Causal(int64_t length, int64_t width, DType dtype, Random& random) {
  return MakeProblem(length, EvenHeads(2, 1), width, width, dtype,
                     MakeMask({.kind = MaskKind::kCausal}, std::vector<Range>{{0, length}}), random);
}

TEST(Attention, WindowOfOneReturnsItsValueExactly) {
  Random random(9);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Problem p = Causal(150, 64, dtype, random);
    p.mask = MakeMask({.kind = MaskKind::kSlidingWindow, .window = 1}, std::vector<Range>{{0, 150}});
    for (float& x : p.q) x *= 512;
    for (const CpuTarget target : TargetsHere()) {
      const Result got = Compute(p, Whole(p, target));
      for (int64_t row = 0; row < 150; ++row)
        for (int64_t i = 0; i < 128; ++i)
          ASSERT_EQ(got.out[static_cast<size_t>(row * 128 + i)], p.v[static_cast<size_t>(row * 64 + i % 64)]);
    }
  }
}

// Keys all the same: every row is the mean of the values that it sees.
TEST(Attention, EqualScoresGiveTheMean) {
  Random random(10);
  const std::pair<float, float> cases[] = {{0.0f, 1.0f},  {3.0f, 1.0f},  {-1e5f, 1.0f}, {1e5f, 1.0f},
                                           {1e5f, -0.3f}, {1e30f, 0.3f}, {-1e30f, 0.3f}};
  for (const auto& [product, scale] : cases) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      Problem p = Causal(600, 16, dtype, random);
      p.scale = scale;
      std::ranges::fill(p.q, 1.0f);
      std::ranges::fill(p.k, static_cast<float>(BFloat16(product)) / 16);
      const double score =
          static_cast<double>(scale) * static_cast<double>(static_cast<float>(BFloat16(product)));
      for (const CpuTarget target : TargetsHere()) {
        Plan plan = Whole(p, target);
        plan.key_spans = Deal(Zigzag(600), 2);
        const Result got = Compute(p, plan);
        for (int64_t e = 0; e < 16; ++e) {
          double sum = 0, magnitude = 0;
          for (int64_t row = 0; row < 600; ++row) {
            sum += static_cast<double>(p.v[static_cast<size_t>(row * 16 + e)]);
            magnitude += std::abs(static_cast<double>(p.v[static_cast<size_t>(row * 16 + e)]));
            const double want = sum / static_cast<double>(row + 1);
            const double rounding = dtype == DType::kBFloat16 ? std::abs(want) / 256 : 0;
            ASSERT_NEAR(static_cast<double>(got.out[static_cast<size_t>(row * 32 + e)]), want,
                        rounding + 2e-6 * magnitude / static_cast<double>(row + 1));
          }
        }
        for (int64_t row = 0; row < 600; ++row) {
          const double want = score + std::log(static_cast<double>(row + 1));
          ASSERT_NEAR(static_cast<double>(got.lse[static_cast<size_t>(2 * row)]), want,
                      1e-6 * (10 + std::abs(want)));
        }
      }
    }
  }
}

// One key after another with scores that rise by `step`: the newest takes all, however late it comes.
TEST(Attention, MaximumThatGrowsLate) {
  Random random(11);
  for (const float step : {1.0f, 20.0f, 1000.0f}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const bool is_bf16 = dtype == DType::kBFloat16;
      Problem p = Causal(700, 16, dtype, random);
      p.scale = 1;
      std::ranges::fill(p.q, 0.0f);
      std::ranges::fill(p.k, 0.0f);
      for (size_t row = 0; row < 700; ++row) {
        p.q[row * 32] = p.q[row * 32 + 16] = 1;
        const float score = step * (static_cast<float>(row) - 350);
        p.k[row * 16] = is_bf16 ? static_cast<float>(BFloat16(score)) : score;
      }
      const Expected e = Reference(p);
      for (const CpuTarget target : TargetsFor(dtype)) {
        for (const int64_t calls : {1, 4}) {
          Plan plan = Whole(p, target);
          plan.key_spans = Deal(Zigzag(700), calls);
          const Result got = Compute(p, plan);
          ExpectNear("out", got.out, e.forward.out, is_bf16 ? 5e-3 : 1e-5);
          // On tiles the largest weight is not exactly 1, and weights are cut to bf16 in the backward pass.
          const bool on_tiles = is_bf16 && target >= CpuTarget::kAmx;
          ExpectNear("lse", got.lse, e.forward.lse, on_tiles ? 3e-6 : 1e-6);
          // The weights in the backward pass carry the rounding of lse.
          const double rounding = on_tiles ? 8e-3 : is_bf16 ? 5e-3 : 2e-5;
          const double tolerance = rounding + 350 * static_cast<double>(step) * 0x1p-22;
          ExpectNear("dv", got.dv, e.gradients.dv, tolerance);
          ExpectNear("dk", got.dk, e.gradients.dk, 10 * tolerance);
          for (const float x : got.dq) ASSERT_TRUE(std::isfinite(x));
        }
      }
    }
  }
}

// A negative scale, and none at all.
TEST(Attention, AnyScale) {
  Random random(16);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const float scale : {-0.25f, 0.0f, -0.0f}) {
      Problem p = Causal(150, 16, dtype, random);
      p.scale = scale;
      const Expected e = Reference(p);
      for (const CpuTarget target : TargetsFor(dtype)) {
        Plan plan = Whole(p, target);
        plan.key_spans = Deal(Zigzag(150), 3);
        ExpectMatches(p, plan, e);
      }
    }
  }
}

// Of got − want, or of `want` where there is no `got`.
double RootMeanSquare(const Floats& got, const std::vector<double>& want) {
  double squares = 0;
  for (size_t i = 0; i < want.size(); ++i)
    squares += std::pow((got.empty() ? 0 : static_cast<double>(got[i])) - want[i], 2);
  return std::sqrt(squares / static_cast<double>(want.size()));
}

// However large the scores, the backward pass finds those that made lse. Beyond some thousands most rows are
// one key's, and beyond 10^8 all of them: the others are too far away, and differences are of the scores' own
// size.
TEST(Attention, ScoresOfAnySizeBothWays) {
  Random random(12);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const int64_t width : {64, 72, 128}) {  // 1 / √width is a power of two, and isn't
      for (const float size : {1e4f, 1e5f, 1e6f, 1e8f, 1e30f}) {
        Problem p = Causal(110, width, dtype, random);
        for (Floats* x : {&p.q, &p.k})
          for (float& value : *x) {
            value *= std::sqrt(size);
            if (dtype == DType::kBFloat16) value = static_cast<float>(BFloat16(value));
          }
        if (width == 72) p.soft_cap = size;
        const Expected e = Reference(p);
        for (const CpuTarget target : TargetsFor(dtype)) {
          SCOPED_TRACE(fmt::format("scores of {}, width {}, {} {}", size, width, Name(target), Name(dtype)));
          Plan plan = Whole(p, target);
          plan.key_spans = Deal(Zigzag(110), 2);
          plan.delta = e.delta;
          const Result got = Compute(p, plan);
          for (size_t row = 0; row < got.lse.size(); ++row)
            ASSERT_LE(std::abs(static_cast<double>(got.lse[row]) - e.forward.lse[row]),
                      static_cast<double>(size) * 0x1p-17);
          const double tolerance = RoundsWeights(p, plan) ? 5e-3 : 2e-3;
          ExpectNearOverall("out", got.out, e.forward.out, tolerance);
          ExpectNearOverall("dv", got.dv, e.gradients.dv, tolerance);
          // What the rounding of 1 − 1 leaves, times keys and queries of this size.
          const double noise = static_cast<double>(std::sqrt(size) * p.scale) * 1e-5;
          EXPECT_LE(RootMeanSquare(got.dq, e.gradients.dq),
                    noise + 1e-2 * RootMeanSquare({}, e.gradients.dq));
          EXPECT_LE(RootMeanSquare(got.dk, e.gradients.dk),
                    noise + 1e-2 * RootMeanSquare({}, e.gradients.dk));
          if (HasFailure()) return;
        }
      }
    }
  }
}

// One key of weight 1 and many so small that a sum which held the one would lose them: they must meet first.
TEST(Attention, ManySmallWeightsBesideALargeOne) {
  constexpr int64_t kLength = 8192;
  Problem p;
  p.shape = {kLength, kLength, 1, 1, 1, 1};
  p.kv_of = {0};
  p.mask = MakeMask({.kind = MaskKind::kFull}, std::vector<Range>{{0, kLength}});
  p.q = Floats(kLength, 1);
  p.k = Floats(kLength, 0);
  p.k[0] = 17.5f;
  p.v = p.dout = Floats(kLength, 1);
  const double lse = 17.5 + std::log1p((kLength - 1) * std::exp(-17.5));
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    p.dtype = dtype;
    for (const CpuTarget target : TargetsFor(dtype)) {
      Plan plan = Whole(p, target);
      plan.query_spans = {{kLength - 1, kLength}};
      EXPECT_NEAR(static_cast<double>(Compute(p, plan).lse.back()), lse, 4e-6) << Name(target);
    }
  }
}

// Two calls with a key each: the carried state merges as the two softmaxes would.
TEST(Attention, MergesWhatCallsHaveSeen) {
  struct Case {
    float first, second;      // scores
    double weight_of_second;  // expected
  };
  const double third = std::log(3.0);
  for (const Case& c :
       {Case{0, 0, 0.5}, Case{0, static_cast<float>(third), 0.75}, Case{static_cast<float>(third), 0, 0.25},
        Case{-1e5f, -1e5f, 0.5}, Case{0, 1e5f, 1}, Case{1e5f, 0, 0}, Case{-1e5f, 1e5f, 1}, Case{0, -90, 0}}) {
    Problem p;
    p.shape = {2, 2, 1, 1, 1, 1};
    p.kv_of = {0};
    p.mask = MakeMask({.kind = MaskKind::kFull}, std::vector<Range>{{0, 2}});
    p.q = {1, 1};
    p.k = {c.first, c.second};
    p.v = {0, 1};
    p.dout = {1, 1};
    for (const CpuTarget target : TargetsHere()) {
      for (const std::vector<std::vector<Range>>& key_spans :
           {std::vector<std::vector<Range>>{{{0, 1}}, {{1, 2}}}, {{{0, 2}}}, {{}, {{1, 2}}, {}, {{0, 1}}}}) {
        Plan plan = Whole(p, target);
        plan.key_spans = key_spans;
        const Result got = Compute(p, plan);
        for (const float x : got.out) EXPECT_NEAR(static_cast<double>(x), c.weight_of_second, 1e-6);
        const double max = std::max(c.first, c.second);
        const double lse = max + std::log(std::exp(static_cast<double>(c.first) - max) +
                                          std::exp(static_cast<double>(c.second) - max));
        for (const float x : got.lse) EXPECT_NEAR(static_cast<double>(x), lse, 1e-6 * (1 + std::abs(lse)));
      }
    }
  }
}

// -------------------------------------------------------------------------------------------- far away

// Zeros that cost no memory until they are touched.
class Untouched {
 public:
  Untouched(DType dtype, std::initializer_list<int64_t> shape) {
    bytes_ = static_cast<size_t>(Tensor(nullptr, dtype, shape).num_bytes());
    void* data =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(data != MAP_FAILED);
    tensor_ = Tensor(data, dtype, shape);
  }
  ~Untouched() { munmap(tensor_.raw(), bytes_); }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;
  const Tensor& operator*() const { return tensor_; }

 private:
  size_t bytes_;
  Tensor tensor_;
};

// The last document of so many tokens, whose other rows are no query rows.
void ExpectLastDocumentEqualsItAlone(int64_t length, const Heads& heads, int64_t width, DType dtype,
                                     CpuTarget target) {
  constexpr int64_t kDocument = 129;
  SCOPED_TRACE(fmt::format("{} {}", Name(target), Name(dtype)));
  const Range document = {length - kDocument, length};
  Random random(13);
  const Problem p =
      MakeProblem(kDocument, heads, width, width, dtype,
                  MakeMask({.kind = MaskKind::kCausal}, std::vector<Range>{{0, kDocument}}), random);
  const Result alone = Compute(p, Whole(p, target));

  const std::vector<Range> query_spans = {document}, key_spans = {{0, length}}, rows = {{0, kDocument}};
  const auto far = [&](DType type) { return Untouched(type, {length, heads.kv_heads, width}); };
  const Untouched k = far(dtype), v = far(dtype), dk = far(DType::kFloat32), dv = far(DType::kFloat32);
  const auto last_of = [&](const Untouched& x) { return (*x).Rows(document.begin, document.end); };
  for (const auto& [from, to] : {std::pair{&p.k, last_of(k)}, {&p.v, last_of(v)}})
    for (size_t i = 0; i < from->size(); ++i) Set(to, static_cast<int64_t>(i), (*from)[i]);
  const Guarded q = Gather(p.q, dtype, rows, heads.heads, width);
  const Guarded dout = Gather(p.dout, dtype, rows, heads.heads, width);
  const Guarded out(dtype, {kDocument, heads.heads, width}), lse(DType::kFloat32, {kDocument, heads.heads});
  const Guarded delta(DType::kFloat32, {kDocument, heads.heads});
  const Untouched dq(DType::kFloat32, {kDocument, heads.heads, width});
  const Mask mask =
      MakeMask({.kind = MaskKind::kCausal}, std::vector<Range>{{0, 1000}, {1000, document.begin}, document});
  const AttentionCall call = {
      .mask = &mask, .query_spans = query_spans, .key_spans = key_spans, .kv_of = p.kv_of, .scale = p.scale};
  {
    const Untouched workspace(DType::kByte, {AttentionForwardWorkspace(call, *q, *k, *v, target, kFew)});
    AttentionForward(call, *q, *k, *v, true, true, {}, *out, *lse, *workspace, target, kFew);
  }
  AttentionDelta(*out, *dout, *delta, target, kFew);
  const Untouched workspace(DType::kByte, {AttentionBackwardWorkspace(call, *q, *k, *v, target, kFew)});
  AttentionBackward(call, *q, *k, *v, *dout, *lse, *delta, *dq, *dk, *dv, *workspace, target, kFew);
  // Here its panels of keys begin elsewhere.
  const double tolerance = RoundsWeights(p, Whole(p, target)) ? 2e-2 : 1e-5;
  const double rounding = dtype == DType::kBFloat16 ? 1.0 / 128 : 0;
  const auto expect_equal = [&](const char* what, const Tensor& got, const Floats& want) {
    Floats values;
    for (int64_t i = 0; i < got.num_elements(); ++i) values.push_back(Get(got, i));
    ExpectNear(what, values, Widen(want), tolerance, rounding);
  };
  expect_equal("out", *out, alone.out);
  expect_equal("lse", *lse, alone.lse);
  expect_equal("dq", *dq, alone.dq);
  expect_equal("dk", last_of(dk), alone.dk);
  expect_equal("dv", last_of(dv), alone.dv);
}

// More than 2^31 elements.
TEST(Attention, LastDocumentOfHalfAMillionTokensEqualsItAlone) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16})
    ExpectLastDocumentEqualsItAlone(524'289, EvenHeads(32, 32), 128, dtype, TargetsFor(dtype).back());
}

// Packed keys of two KV heads are in memory at a time, then those of the last.
TEST(Attention, MoreKeysThanArePackedAtOnce) {
  constexpr int64_t kHeadBytes = int64_t{30} << 20, kWidth = 8;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const CpuTarget target : TargetsFor(dtype)) {
      const int64_t panels =
          kHeadBytes / (4 * AttentionKernelsFor(target, dtype).panel_floats(kWidth, kWidth));
      ExpectLastDocumentEqualsItAlone(panels * kPanelKeys, Heads{6, 5, {4, 0, 3, 1, 2, 3}}, kWidth, dtype,
                                      target);
    }
  }
}

}  // namespace
}  // namespace longspan::cpu
