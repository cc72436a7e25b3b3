// What a call of attention may carry: a soft cap, learned sinks, a mean key; and head widths of every kind.
#include <gtest/gtest.h>

#include <complex>

#include "backend/cpu/cpu_backend.h"
#include "unit/backend/attention_problem.h"

namespace longspan::cpu {
namespace {

Problem CausalProblem(int64_t length, const Heads& heads, int64_t width, int64_t value_width, DType dtype,
                      Random& random) {
  return MakeProblem(length, heads, width, value_width, dtype,
                     MakeMask({.kind = MaskKind::kCausal}, Packed(length, random)), random);
}

// The reference's gradients are the derivatives of its forward pass: d/dx f = Im f(x + ih) / h.
TEST(AttentionReference, GradientsAreDerivatives) {
  using Complex = std::complex<double>;
  Random random(20);
  const reference::AttentionShape shape = {5, 5, 2, 1, 3, 2};
  const std::vector<int32_t> kv_of = {0, 0};
  const auto sees = [](int64_t row, int64_t key) { return key <= row && row != 2; };
  for (const double soft_cap : {0.0, 0.8}) {
    const reference::AttentionScores<double> rule = {0.7, soft_cap, {0.3, -1.0}};
    const auto normal = [&](int64_t n) { return Widen(random.Normal(n, DType::kFloat32)); };
    const std::vector<std::vector<double>> inputs = {normal(30), normal(15), normal(10), rule.sinks};
    const std::vector<double> dout = normal(20);
    const auto forward =
        reference::AttentionForward(shape, kv_of, rule, inputs[0], inputs[1], inputs[2], sees);
    const auto g = reference::AttentionBackward(shape, kv_of, rule, inputs[0], inputs[1], inputs[2], forward,
                                                dout, sees);
    const std::vector<double> gradients[] = {g.dq, g.dk, g.dv, g.dsinks};
    for (size_t n = 0; n < inputs.size(); ++n) {
      for (size_t i = 0; i < inputs[n].size(); ++i) {
        std::vector<std::vector<Complex>> x;
        for (const auto& input : inputs) x.emplace_back(input.begin(), input.end());
        x[n][i] += Complex(0, 1e-30);
        const auto out =
            reference::AttentionForward<Complex>(shape, kv_of, {0.7, soft_cap, x[3]}, x[0], x[1], x[2], sees)
                .out;
        double derivative = 0;
        for (size_t k = 0; k < out.size(); ++k) derivative += dout[k] * out[k].imag() / 1e-30;
        ASSERT_NEAR(gradients[n][i], derivative, 1e-12) << n << " " << i;
      }
    }
  }
}

// ----------------------------------------------------------------------------------------- sinks, soft caps

TEST(AttentionFeatures, SinksAndSoftCapsEqualReference) {
  Random random(21);
  for (const MaskSpec& spec : {MaskSpec{.kind = MaskKind::kCausal},
                               MaskSpec{.kind = MaskKind::kSinkWindow, .window = 70, .sinks = 3},
                               MaskSpec{.kind = MaskKind::kFull}}) {
    for (const int64_t length : {1, 65, 200}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        Problem p = MakeProblem(length, EvenHeads(4, 2), 24, 16, dtype,
                                MakeMask(spec, Packed(length, random)), random);
        p.scale = random.Of<float>({1, -0.5f});  // wide scores, so that the cap bites
        p.soft_cap = random.Of<float>({0, 1.5f, 30});
        if (p.soft_cap == 0 || random.Below(2) == 0) p.sinks = random.Normal(4, DType::kFloat32);
        const Expected e = Reference(p);
        for (const CpuTarget target : TargetsFor(dtype)) {
          SCOPED_TRACE(fmt::format("{} rows, cap {}, {} sinks, {} {}", length, p.soft_cap, p.sinks.size(),
                                   Name(target), Name(dtype)));
          ExpectMatches(p, RandomPlan(length, target, random), e);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(AttentionFeatures, ASoftCapOverSeveralBlocks) {
  Random random(22);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Problem p = MakeProblem(1100, EvenHeads(1, 1), 16, 16, dtype,
                            MakeMask({.kind = MaskKind::kCausal}, std::vector<Range>{{0, 1100}}), random);
    p.soft_cap = 2;
    p.sinks = {0.5f};
    const Expected e = Reference(p);
    for (const CpuTarget target : TargetsFor(dtype)) ExpectMatches(p, Whole(p, target), e);
  }
}

// Scores of any size stay below the cap, and a wide cap is none.
TEST(AttentionFeatures, ASoftCapBoundsAllScores) {
  Random random(23);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const float size : {1.0f, 1e4f, 1e15f}) {
      Problem p = CausalProblem(130, EvenHeads(2, 1), 16, 16, dtype, random);
      p.scale = 1;
      p.soft_cap = 20;
      for (Floats* x : {&p.q, &p.k})
        for (float& value : *x)
          value = dtype == DType::kBFloat16 ? static_cast<float>(BFloat16(value * size)) : value * size;
      const Expected e = Reference(p);
      for (const CpuTarget target : TargetsFor(dtype)) {
        const Result got = Compute(p, Whole(p, target));
        ExpectNear("lse", got.lse, e.forward.lse, 2e-6);
        ExpectNear("out", got.out, e.forward.out, dtype == DType::kBFloat16 ? 1e-2 : 1e-5);
        for (const Floats* gradient : {&got.dq, &got.dk, &got.dv})
          for (const float x : *gradient) ASSERT_TRUE(std::isfinite(x));
      }
    }
    Problem p = CausalProblem(130, EvenHeads(2, 1), 16, 16, dtype, random);
    const Expected e = Reference(p);
    p.soft_cap = 1e6f;
    for (const CpuTarget target : TargetsFor(dtype)) ExpectMatches(p, Whole(p, target), e);
  }
}

// A row with a single key has its score as lse.
TEST(AttentionFeatures, ASoftCapIsExactToRounding) {
  Random random(30);
  constexpr int64_t kLength = 400;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const float cap : {0.01f, 1.0f, 50.0f}) {
      Problem p = MakeProblem(
          kLength, EvenHeads(1, 1), 1, 1, dtype,
          MakeMask({.kind = MaskKind::kSlidingWindow, .window = 1}, std::vector<Range>{{0, kLength}}),
          random);
      p.soft_cap = cap;
      p.scale = 1;
      std::ranges::fill(p.k, 1.0f);
      for (int64_t i = 0; i < kLength; ++i) {
        float& x = p.q[static_cast<size_t>(i)];
        // From far below the cap to far above it, most of them near.
        x *= cap *
             std::pow(10.0f, static_cast<float>(i % 40 < 36 ? random.Below(4) - 2 : random.Below(60) - 30));
        if (dtype == DType::kBFloat16) x = static_cast<float>(BFloat16(x));
      }
      for (const CpuTarget target : TargetsFor(dtype)) {
        // On tiles lse is put together from rounded weights.
        const bool on_tiles = dtype == DType::kBFloat16 && target >= CpuTarget::kAmx;
        const Result got = Compute(p, Whole(p, target));
        for (size_t i = 0; i < got.lse.size(); ++i) {
          const double c = static_cast<double>(cap), want = c * std::tanh(static_cast<double>(p.q[i]) / c);
          ASSERT_LE(std::abs(static_cast<double>(got.lse[i]) - want), on_tiles ? 1e-5 : 4e-7 * std::abs(want))
              << p.q[i] << " under " << cap << ", " << Name(target) << " " << Name(dtype);
        }
      }
    }
  }
}

TEST(AttentionFeatures, SinksOfAnySize) {
  Random random(24);
  const Floats sinks = {-kInfinity, -1e30f, 1e4f, 1e30f, kInfinity};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Problem p = CausalProblem(90, EvenHeads(5, 1), 16, 16, dtype, random);
    for (const CpuTarget target : TargetsFor(dtype)) {
      const Result plain = Compute(p, Whole(p, target));
      p.sinks = sinks;
      Plan plan = Whole(p, target);
      plan.key_spans = {{{0, 90}}, {}};
      const Result got = Compute(p, plan);
      p.sinks.clear();
      for (size_t at = 0; at < 90 * 5; ++at) {  // row and head
        const bool takes_all = sinks[at % 5] > 0, sees_nothing = plain.lse[at] == -kInfinity;
        ASSERT_EQ(got.lse[at], takes_all && !sees_nothing ? sinks[at % 5] : plain.lse[at]) << at;
        for (size_t i = at * 16; i < at * 16 + 16; ++i) {
          ASSERT_EQ(got.out[i], takes_all ? 0.0f : plain.out[i]) << at;
          ASSERT_EQ(got.dq[i], takes_all ? 0.0f : plain.dq[i]) << at;
        }
      }
      for (const Floats* gradient : {&got.dk, &got.dv})
        for (const float x : *gradient) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

TEST(AttentionFeatures, GradientOfSinks) {
  Random random(25);
  Problem p = CausalProblem(700, EvenHeads(4, 2), 16, 16, DType::kFloat32, random);
  p.sinks = {0.5f, -2, 3, 0};
  const Expected e = Reference(p);
  const auto narrow = [](const std::vector<double>& x) { return Floats(x.begin(), x.end()); };
  const Guarded sinks = Filled(p.sinks, {4}), lse = Filled(narrow(e.forward.lse), {700, 4}),
                delta = Filled(narrow(e.delta), {700, 4});
  for (const CpuTarget target : TargetsHere()) {
    Floats once;
    for (const int threads : {1, kFew}) {
      const Guarded dsinks = Filled({1, 1, 1, 1}, {4});
      MakeCpuBackend(target, threads)->AttentionSinksBackward(*sinks, *lse, *delta, *dsinks);
      const Floats got((*dsinks).data<float>(), (*dsinks).data<float>() + 4);
      ExpectNear("dsinks", got, e.gradients.dsinks, 1e-5, 0, 1);
      if (once.empty()) once = got;
      EXPECT_EQ(once, got);
    }
  }
}

// A large term, then a million of 1/4, which would each be lost beside it in f32, and as many rows that
// see nothing.
TEST(AttentionFeatures, GradientOfSinksLosesNoDigits) {
  constexpr int64_t kRows = int64_t{1} << 21;
  const Buffer lse(DType::kFloat32, {kRows, 1}), delta(DType::kFloat32, {kRows, 1});
  std::fill_n(delta.tensor().data<float>(), kRows, 0.25f);
  for (int64_t row = 0; row < kRows; row += 2) {
    lse.tensor().data<float>()[row] = -kInfinity;
    delta.tensor().data<float>()[row] = 1e30f;
  }
  delta.tensor().data<float>()[1] = 5e7f;  // first: from here on f32 would round each 1/4 away
  const Guarded sinks = Filled({0}, {1}), dsinks = Filled({0}, {1});
  MakeCpuBackend(TargetsHere().back(), kFew)
      ->AttentionSinksBackward(*sinks, lse.tensor(), delta.tensor(), *dsinks);
  EXPECT_EQ(Get(*dsinks, 0), static_cast<float>(-5e7 - 0.25 * (kRows / 2 - 1)));
}

// --------------------------------------------------------------------------------------------- the mean key

// Any constant serves, and in f32 makes no difference beyond rounding.
TEST(AttentionFeatures, AMeanKeyChangesNothingButRounding) {
  Random random(26);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const int64_t width : {7, 16, 40, 64, 96}) {
      Problem p = CausalProblem(140, EvenHeads(4, 2), width, 16, dtype, random);
      const Expected e = Reference(p);
      p.key_mean = random.Normal(2 * width, DType::kFloat32);
      for (float& x : p.key_mean) x /= 4;
      for (const CpuTarget target : TargetsFor(dtype)) {
        Plan plan = RandomPlan(140, target, random);
        SCOPED_TRACE(fmt::format("width {}, {} {}", width, Name(target), Name(dtype)));
        ExpectMatches(p, plan, e);
      }
    }
  }
}

// Keys with a common offset and values like them: the output's rounding to bf16 spoils delta, and dq with it.
TEST(AttentionFeatures, AMeanKeyMakesDqExact) {
  Random random(27);
  Problem p = MakeProblem(400, EvenHeads(1, 1), 32, 32, DType::kBFloat16,
                          MakeMask({.kind = MaskKind::kCausal}, std::vector<Range>{{0, 400}}), random);
  for (float& x : p.k) x = static_cast<float>(BFloat16(x + 3));
  p.v = p.k;
  const Expected e = Reference(p);
  const auto error_of = [&](const Result& got) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < got.dq.size(); ++i) {
      error += std::pow(static_cast<double>(got.dq[i]) - e.gradients.dq[i], 2);
      norm += std::pow(e.gradients.dq[i], 2);
    }
    return std::sqrt(error / norm);
  };
  for (const CpuTarget target : TargetsHere()) {
    const double without = error_of(Compute(p, Whole(p, target)));
    p.key_mean.assign(32, 3.0f);
    const double with = error_of(Compute(p, Whole(p, target)));
    p.key_mean.clear();
    EXPECT_LT(with, 6e-3) << Name(target);
    EXPECT_LT(with, without / 3) << Name(target);
  }
}

// One that a token has spoilt serves nobody: rows that don't see it keep their gradients.
TEST(AttentionFeatures, AMeanKeyThatIsNotFiniteCountsAsNone) {
  Random random(31);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    Problem p = CausalProblem(90, EvenHeads(2, 2), 16, 16, dtype, random);
    for (const CpuTarget target : TargetsFor(dtype)) {
      const Result without = Compute(p, Whole(p, target));
      for (const float spoilt : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        p.key_mean.assign(32, 0.0f);
        p.key_mean[static_cast<size_t>(random.Below(32))] = spoilt;
        ExpectSameBits(without, Compute(p, Whole(p, target)));
      }
      p.key_mean.clear();
    }
  }
}

TEST(AttentionFeatures, MeanOfRows) {
  Random random(28);
  const std::vector<Range> all = {{0, 900}}, rows = {{3, 300}, {301, 302}, {310, 310}, {400, 890}};
  for (const CpuTarget target : TargetsHere()) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const Floats values = random.Normal(900 * 2 * 5, dtype);
      const Guarded x = Gather(values, dtype, all, 2, 5);
      std::vector<double> want(10);
      for (const Range& range : rows)
        for (int64_t row = range.begin; row < range.end; ++row)
          for (size_t i = 0; i < 10; ++i)
            want[i] += static_cast<double>(values[static_cast<size_t>(row) * 10 + i]) / 1000;
      Floats once;
      for (const int threads : {1, kFew}) {
        const Guarded mean(DType::kFloat32, {2, 5});
        const auto backend = MakeCpuBackend(target, threads);
        backend->MeanOfRows(*x, rows, 1000, *mean);
        const Floats got((*mean).data<float>(), (*mean).data<float>() + 10);
        ExpectNear("mean", got, want, 1e-7);
        if (once.empty()) once = got;
        EXPECT_EQ(once, got);
        backend->MeanOfRows(*x, {}, 0, *mean);
        for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(Get(*mean, i), 0.0f);
      }
    }
  }
}

// -------------------------------------------------------------------------------------------------- widths

TEST(AttentionFeatures, AnyMultipleOfSixteenIsAHeadWidth) {
  Random random(29);
  const std::pair<int64_t, int64_t> widths[] = {{16, 16},   {48, 48}, {80, 80}, {96, 96},  {112, 112},
                                                {256, 256}, {80, 48}, {48, 96}, {192, 128}};
  for (const auto& [width, value_width] : widths) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const int64_t length = 130 + random.Below(20);
      Problem p = CausalProblem(length, EvenHeads(2, 1), width, value_width, dtype, random);
      if (random.Below(3) == 0) p.soft_cap = 2;
      const Expected e = Reference(p);
      for (const CpuTarget target : TargetsFor(dtype)) {
        SCOPED_TRACE(fmt::format("widths {} and {}, {} {}", width, value_width, Name(target), Name(dtype)));
        ExpectMatches(p, RandomPlan(length, target, random), e);
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace longspan::cpu
