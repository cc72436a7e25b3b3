// The attention kernels against the reference, and what their bits may depend on.
#include <gtest/gtest.h>

#include "unit/backend/attention_problem.h"

namespace longspan::cpu {
namespace {

std::vector<MaskSpec> SmallMasks() {
  return {{.kind = MaskKind::kFull},
          {.kind = MaskKind::kCausal},
          {.kind = MaskKind::kSlidingWindow, .window = 1},
          {.kind = MaskKind::kSlidingWindow, .window = 37},
          {.kind = MaskKind::kChunked, .chunk = 29},
          {.kind = MaskKind::kPrefix, .prefix = 17},
          {.kind = MaskKind::kSinkWindow, .window = 5, .sinks = 3},
          {.kind = MaskKind::kSinkWindow, .window = 70, .sinks = 66}};
}

std::string Describe(const Problem& p, const Plan& plan, const MaskSpec& spec) {
  return fmt::format("{} tokens, {}/{} heads, widths {} and {}, {}, mask {}, {} with {} threads, {} calls",
                     p.length(), p.shape.heads, p.shape.kv_heads, p.shape.width, p.shape.value_width,
                     Name(p.dtype), static_cast<int>(spec.kind), Name(plan.target), plan.num_threads,
                     plan.key_spans.size());
}

// --------------------------------------------------------------------------------------- the reference

TEST(Attention, EqualsReferenceForMasksLengthsHeadsWidthsLayouts) {
  Random random(1);
  const std::vector<Heads> heads = {
      EvenHeads(8, 2),  EvenHeads(4, 1),     EvenHeads(3, 3),
      EvenHeads(12, 4), Heads{2, 2, {0, 1}}, Heads{4, 3, {2, 0, 2, 0}}};  // KV head 1 read by none
  const std::vector<int64_t> widths = {16, 24, 40, 64, 80, 128, 256, 1, 7};
  constexpr int64_t kReferenceWork = 800'000;  // products per pass: keeps the float64 reference quick
  for (const MaskSpec& spec : SmallMasks()) {
    for (const int64_t length : {1, 5, 63, 64, 65, 127, 129, 192}) {
      const auto documents = random.Below(2) == 0 ? std::vector<Range>{{0, length}} : Packed(length, random);
      Heads h = heads[0];
      int64_t width = 16, value_width = 16;
      do {
        h = random.Of(heads);
        width = random.Of(widths);
        value_width = random.Below(3) == 0 ? random.Of(widths) : width;
      } while (length * length * h.heads * (width + value_width) > kReferenceWork &&
               !(h.heads == 2 && width + value_width <= 48));
      const DType dtype = random.Below(3) == 0 ? DType::kBFloat16 : DType::kFloat32;
      const Problem p = MakeProblem(length, h, width, value_width, dtype, MakeMask(spec, documents), random);
      const Expected e = Reference(p);
      for (const CpuTarget target : TargetsHere()) {
        const Plan plan = RandomPlan(length, target, random);
        SCOPED_TRACE(Describe(p, plan, spec));
        ExpectMatches(p, plan, e);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Attention, EqualsReferenceOverSeveralBlocks) {
  Random random(2);
  constexpr int64_t kLength =
      620;  // of two query blocks and two backward key blocks; in f32 of two forward ones
  for (const MaskSpec& spec : {MaskSpec{.kind = MaskKind::kFull}, MaskSpec{.kind = MaskKind::kCausal},
                               MaskSpec{.kind = MaskKind::kPrefix, .prefix = 170},
                               MaskSpec{.kind = MaskKind::kSinkWindow, .window = 300, .sinks = 66}}) {
    const bool is_packed = spec.kind == MaskKind::kFull;
    const auto documents = is_packed ? Packed(kLength, random) : std::vector<Range>{{0, kLength}};
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Problem p =
          MakeProblem(kLength, EvenHeads(2, 1), 8, 16, dtype, MakeMask(spec, documents), random);
      const Expected e = Reference(p);
      for (const CpuTarget target : TargetsFor(dtype)) {
        for (const auto& spans : {std::vector<Range>{{0, kLength}}, Stripes(kLength, random)}) {
          const Plan plan = {.target = target,
                             .num_threads = kFew,
                             .query_spans = spans,
                             .key_spans = Deal(spans, 1 + random.Below(3))};
          SCOPED_TRACE(Describe(p, plan, spec));
          ExpectMatches(p, plan, e);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// In bf16 a forward key block is 1,024 keys: the second one finds sums and maxima there. At the widths that
// have code of their own.
TEST(Attention, EqualsReferenceOverSeveralForwardKeyBlocksInBf16) {
  Random random(15);
  constexpr int64_t kLength = 1100;
  for (const int64_t width : {64, 128, 256}) {
    const Problem p =
        MakeProblem(kLength, EvenHeads(1, 1), width, width, DType::kBFloat16,
                    MakeMask({.kind = MaskKind::kFull}, std::vector<Range>{{0, kLength}}), random);
    const Expected e = Reference(p);
    for (const CpuTarget target : TargetsFor(p.dtype)) {
      SCOPED_TRACE(fmt::format("width {}, {}", width, Name(target)));
      ExpectMatches(p, Whole(p, target), e);
      if (HasFatalFailure()) return;
    }
  }
}

// Every interval end is off by none or one from a panel's.
TEST(Attention, EqualsReferenceBesideThePanelsEdges) {
  Random random(14);
  constexpr int64_t kLength = 200;
  for (const int64_t begin : {0, 1}) {
    for (const int64_t cut : {63, 64, 65, 127, 128, 129}) {
      for (const MaskKind kind : {MaskKind::kFull, MaskKind::kCausal}) {
        const std::vector<Range> documents = {{begin, cut}, {cut, kLength - begin}};
        for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
          const Problem p =
              MakeProblem(kLength, EvenHeads(1, 1), 4, 4, dtype, MakeMask({.kind = kind}, documents), random);
          const Expected e = Reference(p);
          for (const CpuTarget target : TargetsFor(dtype)) {
            SCOPED_TRACE(
                fmt::format("[{}, {}) and [{}, {}), {}", begin, cut, cut, kLength - begin, Name(target)));
            ExpectMatches(p, Whole(p, target), e);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Runs of any length, each with intervals anywhere: what later rows see may come earlier, and keys that one
// block of rows doesn't see may be seen by those before and after it.
Mask RandomRuns(int64_t length, Random& random) {
  std::vector<RowRun> runs;
  for (int64_t begin = 0; begin < length;) {
    const int64_t size = random.Below(2) == 0 ? 1 + random.Below(40) : 32;
    RowRun run{.rows = {begin, std::min(length, begin + size)}, .num_intervals = 0, .intervals = {}};
    int64_t at = 0;
    for (; run.num_intervals < random.Below(4) && run.num_intervals < 2 && at + 1 < length;) {
      const int64_t first = at + random.Below(length - at), end = first + 1 + random.Below(length - first);
      run.intervals[static_cast<size_t>(run.num_intervals++)] = {.begin = {.offset = first},
                                                                 .end = {.offset = end}};
      at = end + 1;
    }
    if (run.num_intervals == 1 && run.intervals[0].begin.offset <= begin && random.Below(2) == 0)
      run.intervals[0].end = {.offset = 1, .follows_row = true};
    if (run.num_intervals > 0) runs.push_back(run);
    begin = run.rows.end;
  }
  return Mask(runs);
}

TEST(Attention, EqualsReferenceForRunsOfAnyKind) {
  Random random(16);
  constexpr int64_t kLength = 300;
  for (int round = 0; round < 4; ++round) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Problem p =
          MakeProblem(kLength, EvenHeads(2, 1), 16, 8, dtype, RandomRuns(kLength, random), random);
      const Expected e = Reference(p);
      for (const CpuTarget target : TargetsFor(dtype)) {
        SCOPED_TRACE(fmt::format("round {}, {} {}", round, Name(target), Name(dtype)));
        ExpectMatches(p, RandomPlan(kLength, target, random), e);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Attention, DeltaIsTheRowSumOfTheProduct) {
  Random random(3);
  for (const CpuTarget target : TargetsHere()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const int64_t width : {1, 7, 16, 40, 128}) {
        const std::vector<Range> spans = {{0, 131}};
        const Floats a = random.Normal(131 * 3 * width, dtype), b = random.Normal(131 * 3 * width, dtype);
        const Guarded out = Gather(a, dtype, spans, 3, width), dout = Gather(b, dtype, spans, 3, width);
        const Guarded delta(DType::kFloat32, {131, 3});
        AttentionDelta(*out, *dout, *delta, target, kFew);
        const auto wide_a = Widen(a), wide_b = Widen(b);
        for (int64_t row = 0; row < 131 * 3; ++row) {
          const auto at = static_cast<size_t>(row * width);
          ASSERT_NEAR(Get(*delta, row), reference::Dot(&wide_a[at], &wide_b[at], width), 2e-5);
        }
      }
    }
  }
}

// ----------------------------------------------------------------------------------------------- bits

TEST(Attention, BitsDependNeitherOnTheRunNorOnTheThreads) {
  Random random(4);
  constexpr int64_t kLength = 450;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Problem p = MakeProblem(kLength, EvenHeads(2, 1), 16, 24, dtype,
                                  MakeMask({.kind = MaskKind::kCausal}, Packed(kLength, random)), random);
    for (const CpuTarget target : TargetsFor(dtype)) {
      Plan plan = Whole(p, target);
      plan.key_spans = Deal(Stripes(kLength, random), 2);
      const Result once = Compute(p, plan);
      for (const int threads : {1, 2, 2, 5}) {
        plan.num_threads = std::min(kMostThreads, threads);
        ExpectSameBits(once, Compute(p, plan));
      }
    }
  }
}

TEST(Attention, BFloat16ComputesAsFloat32AndRoundsTheOutput) {
  Random random(15);
  for (const int64_t width : {7, 20, 64}) {
    const Problem narrow = MakeProblem(150, EvenHeads(2, 1), width, width, DType::kBFloat16,
                                       MakeMask({.kind = MaskKind::kCausal}, Packed(150, random)), random);
    Problem wide = narrow;
    wide.dtype = DType::kFloat32;
    for (const CpuTarget target : TargetsHere()) {
      Plan plan = Whole(narrow, target);
      if (RoundsWeights(narrow, plan)) continue;
      plan.delta.assign(300, 0.125);
      const Result a = Compute(narrow, plan);
      Result b = Compute(wide, plan);
      for (float& x : b.out) x = static_cast<float>(BFloat16(x));
      ExpectSameBits(a, b);
    }
  }
}

TEST(Attention, TokensThatARowDoesNotSeeChangeNoBit) {
  Random random(5);
  constexpr int64_t kLength = 200;
  for (const MaskSpec& spec : SmallMasks()) {
    const auto documents = Packed(kLength, random);
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Problem p =
          MakeProblem(kLength, EvenHeads(2, 1), 16, 16, dtype, MakeMask(spec, documents), random);
      for (const CpuTarget target : TargetsFor(dtype)) {
        const Plan plan = Whole(p, target);
        const Result before = Compute(p, plan);
        for (int probe = 0; probe < 6; ++probe) {
          const int64_t token = random.Below(kLength);
          SCOPED_TRACE(
              fmt::format("mask {}, token {}, {}", static_cast<int>(spec.kind), token, Name(target)));
          const auto change = [&](Floats& x, float factor) {
            for (float& value :
                 std::span(x).subspan(static_cast<size_t>(token) * x.size() / kLength, x.size() / kLength))
              value *= factor;
          };
          // As a key: large scores, that would show through a maximum or a sum.
          Problem other_key = p;
          change(other_key.k, 1000);
          change(other_key.v, -1000);
          const Result key_changed = Compute(other_key, plan);
          int64_t changed_rows = 0;
          for (int64_t row = 0; row < kLength; ++row) {
            if (reference::Sees(spec, documents, row, token)) {
              changed_rows += !SameRow(before.out, key_changed.out, row, kLength);
              continue;
            }
            ASSERT_TRUE(SameRow(before.out, key_changed.out, row, kLength)) << row;
            ASSERT_TRUE(SameRow(before.lse, key_changed.lse, row, kLength)) << row;
            ASSERT_TRUE(SameRow(before.dq, key_changed.dq, row, kLength)) << row;
          }
          ASSERT_EQ(changed_rows > 0, reference::Sees(spec, documents, token, token));
          // As a query.
          Problem other_query = p;
          change(other_query.q, 3);
          change(other_query.dout, -5);
          const Result query_changed = Compute(other_query, plan);
          for (int64_t row = 0; row < kLength; ++row) {
            if (row != token) {
              ASSERT_TRUE(SameRow(before.out, query_changed.out, row, kLength)) << row;
              ASSERT_TRUE(SameRow(before.dq, query_changed.dq, row, kLength)) << row;
            }
            if (!reference::Sees(spec, documents, token, row)) {
              ASSERT_TRUE(SameRow(before.dk, query_changed.dk, row, kLength)) << row;
              ASSERT_TRUE(SameRow(before.dv, query_changed.dv, row, kLength)) << row;
            }
          }
        }
      }
    }
  }
}

TEST(Attention, SomeQueryRowsEqualThoseOfTheWhole) {
  Random random(6);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Problem p = MakeProblem(8, EvenHeads(2, 2), 16, 16, dtype,
                                  MakeMask({.kind = MaskKind::kCausal}, std::vector<Range>{{0, 8}}), random);
    for (const CpuTarget target : TargetsFor(dtype)) {
      Plan plan = Whole(p, target);
      const Result whole = Compute(p, plan);
      plan.query_spans = {{4, 8}};
      const Result part = Compute(p, plan);
      for (int64_t row = 4; row < 8; ++row) {
        EXPECT_TRUE(SameRow(whole.out, part.out, row, 8));
        EXPECT_TRUE(SameRow(whole.lse, part.lse, row, 8));
        EXPECT_TRUE(SameRow(whole.dq, part.dq, row, 8));
      }
    }
  }
}

}  // namespace
}  // namespace longspan::cpu
