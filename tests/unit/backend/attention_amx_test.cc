// What is special to the attention kernels on tiles: their accuracy at all kinds of widths, weights computed
// before the maximum is known, sums that stay in tiles, and that the instructions and their model agree.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include "unit/backend/attention_problem.h"

namespace longspan::cpu {
namespace {

std::vector<CpuTarget> TileTargets() {
  std::vector<CpuTarget> targets = TargetsHere();
  std::erase_if(targets, [](CpuTarget target) { return target < CpuTarget::kAmx; });
  return targets;
}

class AttentionOnTiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (TileTargets().empty()) GTEST_SKIP() << "the model of tiles needs AVX-512";
  }
};

Problem OneDocument(int64_t length, int64_t width, int64_t value_width, Random& random,
                    MaskSpec spec = {.kind = MaskKind::kCausal}) {
  return MakeProblem(length, EvenHeads(2, 1), width, value_width, DType::kBFloat16,
                     MakeMask(spec, std::vector<Range>{{0, length}}), random);
}

double RelativeError(const Floats& got, const std::vector<double>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += std::pow(want[i], 2);
  }
  return std::sqrt(error / norm);
}

// Widths whose loops are tuned, and others; once more rows and keys than a block of either pass.
TEST_F(AttentionOnTiles, IsAsExactAsBfloat16Allows) {
  Random random(40);
  const std::pair<int64_t, int64_t> widths[] = {{64, 64}, {128, 128}, {256, 256},
                                                {96, 32}, {16, 160},  {40, 64}};
  for (const auto& [width, value_width] : widths) {
    const Problem p = OneDocument(width == 64 ? 580 : 280, width, value_width, random);
    const Expected e = Reference(p);
    for (const CpuTarget target : TileTargets()) {
      SCOPED_TRACE(fmt::format("widths {} and {}, {}", width, value_width, Name(target)));
      Plan plan = Whole(p, target);
      plan.num_threads = kFew;
      plan.delta = e.delta;
      const Result got = Compute(p, plan);
      EXPECT_LT(RelativeError(got.out, e.forward.out), 2.3e-3);
      EXPECT_LT(RelativeError(got.dq, e.gradients.dq), 2.3e-3);
      EXPECT_LT(RelativeError(got.dk, e.gradients.dk), 2.3e-3);
      EXPECT_LT(RelativeError(got.dv, e.gradients.dv), 2.3e-3);
      ExpectNear("lse", got.lse, e.forward.lse, 4e-6);
    }
  }
}

// Scores that climb by `rise` a key, for every row by another share, and now and then fall back.
TEST_F(AttentionOnTiles, MaximaThatAreOutgrownAgainAndAgain) {
  Random random(41);
  for (const int64_t width : {64, 128}) {
    for (const float rise : {0.5f, 3.0f, 50.0f}) {
      Problem p = OneDocument(300, width, width, random);
      p.scale = 1;
      std::ranges::fill(p.q, 0.0f);
      std::ranges::fill(p.k, 0.0f);
      for (size_t row = 0; row < 300; ++row) {
        for (size_t head = 0; head < 2; ++head)
          p.q[(row * 2 + head) * static_cast<size_t>(width)] =
              static_cast<float>(1 + random.Below(8)) / (random.Below(2) == 0 ? 4 : -4);
        const float score = rise * static_cast<float>(row % 130);
        p.k[row * static_cast<size_t>(width)] = static_cast<float>(BFloat16(score));
      }
      const Expected e = Reference(p);
      for (const CpuTarget target : TileTargets()) {
        for (const int64_t calls : {1, 3}) {
          SCOPED_TRACE(fmt::format("width {}, rise {}, {} calls, {}", width, rise, calls, Name(target)));
          Plan plan = Whole(p, target);
          plan.key_spans = Deal(Zigzag(300), calls);
          const Result got = Compute(p, plan);
          ExpectNear("out", got.out, e.forward.out, 8e-3);
          ExpectNear("lse", got.lse, e.forward.lse, 3e-6);
        }
      }
    }
  }
}

// Logarithms of weights a thousand binades apart, in any order.
TEST_F(AttentionOnTiles, WideScores) {
  Random random(42);
  for (const int64_t width : {64, 128}) {
    Problem p = OneDocument(300, width, width, random);
    for (float& x : p.q) x *= 512;
    const Expected e = Reference(p);
    for (const CpuTarget target : TileTargets()) {
      const Result got = Compute(p, Whole(p, target));
      ExpectNear("out", got.out, e.forward.out, 4e-3, 1.0 / 128);
      ExpectNear("lse", got.lse, e.forward.lse, 3e-6);
      for (const Floats* gradient : {&got.dq, &got.dk, &got.dv})
        for (const float x : *gradient) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

TEST_F(AttentionOnTiles, EqualKeysOfOneValueGiveItExactly) {
  Random random(43);
  for (const int64_t width : {16, 64, 128}) {
    Problem p =
        OneDocument(300, width, width, random, {.kind = MaskKind::kSinkWindow, .window = 100, .sinks = 7});
    for (size_t i = 0; i < p.k.size(); ++i) {
      p.k[i] = p.k[i % static_cast<size_t>(width)];
      p.v[i] = p.v[i % static_cast<size_t>(width)];
    }
    for (const CpuTarget target : TileTargets()) {
      for (const int64_t calls : {1, 2}) {
        Plan plan = Whole(p, target);
        plan.key_spans = Deal(Zigzag(300), calls);
        const Result got = Compute(p, plan);
        for (size_t i = 0; i < got.out.size(); ++i)
          ASSERT_EQ(got.out[i], p.v[i % static_cast<size_t>(width)]);
      }
    }
  }
}

TEST_F(AttentionOnTiles, KeysThatARowDoesNotSeeChangeNoBit) {
  Random random(44);
  constexpr int64_t kLength = 330;
  for (const int64_t width : {64, 128}) {
    for (const MaskSpec& spec : {MaskSpec{.kind = MaskKind::kCausal},
                                 MaskSpec{.kind = MaskKind::kSinkWindow, .window = 90, .sinks = 40}}) {
      const Problem p = MakeProblem(kLength, EvenHeads(2, 1), width, width, DType::kBFloat16,
                                    MakeMask(spec, Packed(kLength, random)), random);
      for (const CpuTarget target : TileTargets()) {
        const Plan plan = Whole(p, target);
        const Result before = Compute(p, plan);
        for (int probe = 0; probe < 3; ++probe) {
          const int64_t token = random.Below(kLength);
          Problem other = p;
          for (int64_t i = token * width; i < (token + 1) * width; ++i) {
            other.k[static_cast<size_t>(i)] *= 1000;
            other.v[static_cast<size_t>(i)] *= -1000;
          }
          const Result after = Compute(other, plan);
          for (int64_t row = 0; row < kLength; ++row) {
            if (p.mask.Row(row).Sees(token)) continue;
            ASSERT_TRUE(SameRow(before.out, after.out, row, kLength)) << row;
            ASSERT_TRUE(SameRow(before.lse, after.lse, row, kLength)) << row;
            ASSERT_TRUE(SameRow(before.dq, after.dq, row, kLength)) << row;
          }
        }
      }
    }
  }
}

TEST_F(AttentionOnTiles, LeavesTheModeOfDenormalNumbersAlone) {
  Random random(45);
  const Problem p = OneDocument(40, 64, 64, random);
  const unsigned mode = _mm_getcsr() & ~0x3fu;  // without the flags of past exceptions
  for (const CpuTarget target : TileTargets()) {
    Compute(p, Whole(p, target));
    EXPECT_EQ(_mm_getcsr() & ~0x3fu, mode);
  }
}

TEST_F(AttentionOnTiles, InstructionsEqualTheirModelBitForBit) {
  if (!Runs(DetectCpu(), CpuTarget::kAmx))
    GTEST_SKIP() << "this CPU has no AMX, or its system grants none: only the model was tested here";
  Random random(46);
  const std::pair<int64_t, int64_t> widths[] = {{64, 64}, {128, 128}, {256, 256}, {40, 72}};
  for (const auto& [width, value_width] : widths) {
    for (const MaskKind kind : {MaskKind::kFull, MaskKind::kCausal}) {
      const int64_t length = 500 + random.Below(200);
      Problem p = MakeProblem(length, EvenHeads(4, 2), width, value_width, DType::kBFloat16,
                              MakeMask({.kind = kind}, Packed(length, random)), random);
      if (random.Below(2) == 0) p.soft_cap = 2;
      for (float& x : p.q) x *= random.Below(2) == 0 ? 1 : 64;
      Plan plan = Whole(p, CpuTarget::kAmx);
      plan.num_threads = kFew;
      plan.key_spans = Deal(Stripes(length, random), 2);
      const Result tiles = Compute(p, plan);
      plan.target = CpuTarget::kAmxModel;
      ExpectSameBits(tiles, Compute(p, plan));
    }
  }
}

}  // namespace
}  // namespace longspan::cpu
