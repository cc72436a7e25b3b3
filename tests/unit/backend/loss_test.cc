// Cross entropy against the scalar reference, on every target that runs here.
#include <limits>
#include <numeric>

#include "core/target.h"
#include "reference/pointwise.h"
#include "unit/backend/backend_testing.h"

namespace longspan::test {
namespace {

using reference::Complex;

class LossTest : public TargetTest {};  // the dtype is that of dlogits
LONGSPAN_FOR_TARGETS(LossTest);

double Sum(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

TEST_P(LossTest, SoftCap) {
  constexpr float kCap = 30;
  for (const int64_t n : {0, 1, 17, 33, 40'000}) {
    for (const double spread : {1e-3, 1.0, 30.0, 1e30}) {
      const auto logits = Random(random_, static_cast<size_t>(n), DType::kFloat32, spread);
      const auto upstream = Random(random_, static_cast<size_t>(n), dtype());
      const auto want = reference::SoftCap(double{kCap}, logits);
      std::vector<double> dwant;
      for (size_t i = 0; i < logits.size(); ++i) {
        const std::vector<Complex> moved = {{logits[i], 1e-100}};
        const bool is_far = std::abs(logits[i]) > 20 * kCap;  // there it is flat
        dwant.push_back(is_far ? 0
                               : upstream[i] * reference::SoftCap(double{kCap}, moved)[0].imag() / 1e-100);
      }
      for (const int threads : {1, 3}) {
        const auto backend = Make(threads);
        Guarded x(DType::kFloat32, {n}, logits), dx(dtype(), {n}, upstream);
        backend->SoftCap(kCap, x);
        ExpectClose(x.Get(), want, DType::kFloat32, "capped");
        backend->SoftCapBackward(x, kCap, dx);
        ExpectClose(dx.Get(), dwant, dtype(), "gradient");
      }
    }
  }
  Guarded bad(DType::kFloat32, {1}, {0});
  EXPECT_THROW(Make(1)->SoftCap(0, bad), std::logic_error);
}

TEST_P(LossTest, LossAndGradient) {
  struct Sizes {
    int64_t rows, width;
  };
  for (const auto& [rows, width] :
       {Sizes{1, 1}, {3, 2}, {40, 3}, {17, 16}, {5, 33}, {6, 100}, {3, 9001}, {0, 4}}) {
    for (const double spread : {1.0, 30.0}) {
      const auto logits = Random(random_, static_cast<size_t>(rows * width), DType::kFloat32, spread);
      std::vector<int32_t> targets(static_cast<size_t>(rows));
      for (int32_t& target : targets) {
        target = random_() % 4 == 0 ? kIgnoreTarget
                                    : static_cast<int32_t>(random_() % static_cast<uint64_t>(width));
      }
      const double loss_want = rows == 0 ? 0 : Sum(reference::CrossEntropy(logits, targets));
      constexpr double kScale = 0.375;
      std::vector<double> want(logits.size());
      // Of a wide row only some elements.
      const size_t stride = width > 100 ? 997 : 1;
      for (size_t i = 0; i < logits.size(); i += stride) {
        const size_t row = i / static_cast<size_t>(width), w = static_cast<size_t>(width);
        std::vector<Complex> moved(logits.begin() + static_cast<ptrdiff_t>(row * w),
                                   logits.begin() + static_cast<ptrdiff_t>((row + 1) * w));
        moved[i % w] += Complex(0, 1e-100);
        want[i] = kScale * reference::CrossEntropy(moved, {targets[row]})[0].imag() / 1e-100;
      }
      std::vector<double> ids(targets.begin(), targets.end());
      std::vector<std::vector<double>> results;
      for (const int threads : {1, 3}) {
        const auto backend = Make(threads);
        Guarded tl(DType::kFloat32, {rows, width}, logits), tt(DType::kInt32, {rows}, ids);
        Guarded dlogits(dtype(), {rows, width});
        EXPECT_NEAR(backend->CrossEntropy(tl, tt), loss_want, 1e-6 * (1 + loss_want));
        const double loss = backend->CrossEntropyBackward(tl, tt, kScale, dlogits);
        EXPECT_EQ(loss, backend->CrossEntropy(tl, tt));
        const auto got = dlogits.Get();
        results.push_back(got);
        results.back().push_back(loss);
        EXPECT_EQ(results.front(), results.back()) << "depends on the number of threads";
        // Probabilities far below the largest carry |x − max| · 2^-24 of rounding; a target's own gradient is
        // 1 less something in f64.
        for (size_t i = 0; i < got.size(); i += stride) {
          const double relative = (dtype() == DType::kBFloat16 ? 1.0 / 256 : 2e-6) + 1e-6 * spread;
          const bool is_target = static_cast<int64_t>(i) % width == targets[i / static_cast<size_t>(width)];
          const double absolute = is_target ? 1e-14 : 1e-37;
          ASSERT_NEAR(got[i], want[i], relative * std::abs(want[i]) + absolute)
              << i << " of " << rows << " x " << width;
        }
        EXPECT_EQ(backend->arena().used_bytes(), 0);
      }
    }
  }
}

TEST_P(LossTest, TokenLossesAreTheRowsOfTheSum) {
  for (const auto& [rows, width] :
       {std::pair<int64_t, int64_t>{1, 1}, {37, 3}, {17, 33}, {5, 9001}, {0, 4}}) {
    const size_t n = static_cast<size_t>(rows), w = static_cast<size_t>(width);
    auto logits = Random(random_, n * w, DType::kFloat32, 3);
    for (double& x : logits) x = std::round(x);  // ties
    std::vector<double> targets(n);
    for (double& target : targets)
      target =
          random_() % 4 == 0 ? kIgnoreTarget : static_cast<double>(random_() % static_cast<uint64_t>(width));
    for (const int threads : {1, 3}) {
      const auto backend = Make(threads);
      Guarded losses(DType::kFloat32, {rows}), argmax(DType::kInt32, {rows});
      backend->TokenLosses(Guarded(DType::kFloat32, {rows, width}, logits),
                           Guarded(DType::kInt32, {rows}, targets), losses, argmax);
      for (size_t row = 0; row < n; ++row) {
        const std::vector<double> x(logits.begin() + static_cast<ptrdiff_t>(row * w),
                                    logits.begin() + static_cast<ptrdiff_t>((row + 1) * w));
        const double loss = backend->CrossEntropy(Guarded(DType::kFloat32, {1, width}, x),
                                                  Guarded(DType::kInt32, {1}, {targets[row]}));
        EXPECT_EQ(losses.tensor().data<float>()[row], static_cast<float>(loss));
        EXPECT_EQ(argmax.tensor().data<int32_t>()[row], std::max_element(x.begin(), x.end()) - x.begin());
      }
    }
  }
}

TEST_P(LossTest, TokenLossesOfARowThatIsNotFinite) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  Guarded losses(DType::kFloat32, {3}), argmax(DType::kInt32, {3});
  Make(1)->TokenLosses(Guarded(DType::kFloat32, {3, 3}, {9, nan, 10, -infinity, 0, -infinity, 0, -0.0, 0}),
                       Guarded(DType::kInt32, {3}, {0, 1, 2}), losses, argmax);
  EXPECT_TRUE(std::isnan(losses.tensor().data<float>()[0]));
  EXPECT_EQ(losses.tensor().data<float>()[1], 0);
  const int32_t* choice = argmax.tensor().data<int32_t>();
  EXPECT_EQ(choice[0], 1);
  EXPECT_EQ(choice[1], 1);
  EXPECT_EQ(choice[2], 0);
}

TEST_P(LossTest, ExtremeLogits) {
  const double infinity = std::numeric_limits<double>::infinity();
  struct Row {
    std::vector<double> logits;
    double loss;
    std::vector<double> gradient;
  };
  const Row rows[] = {{{1e4, 1e4, -1e4}, std::log(2.0), {-0.5, 0.5, 0}},
                      {{-1e4, -1e4, -1e4}, std::log(3.0), {-2.0 / 3, 1.0 / 3, 1.0 / 3}},
                      {{0, 1e4, 0}, 1e4, {-1, 1, 0}},
                      {{1e4, 0, 0}, 0, {0, 0, 0}},
                      {{-1e30, 1e30, 0}, 2e30, {-1, 1, 0}},
                      {{0, -infinity, -infinity}, 0, {0, 0, 0}}};
  const auto backend = Make(1);
  for (const Row& row : rows) {
    Guarded logits(DType::kFloat32, {1, 3}, row.logits), target(DType::kInt32, {1}, {0}),
        dlogits(dtype(), {1, 3});
    EXPECT_NEAR(backend->CrossEntropyBackward(logits, target, 1, dlogits), row.loss, 1e-6 * row.loss);
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(dlogits.Get()[i], row.gradient[i], ToleranceOf(dtype()));
  }
  Guarded bad(DType::kFloat32, {1, 3}, {0, std::nan(""), 0}), target(DType::kInt32, {1}, {0});
  EXPECT_TRUE(std::isnan(backend->CrossEntropy(bad, target)));
}

// A confident row's gradient at its target is 1 − p, which a difference of f32 numbers could not tell from 0.
TEST_P(LossTest, ConfidentRowsKeepTheirGradient) {
  Guarded logits(DType::kFloat32, {1, 2}, {20, 0}), target(DType::kInt32, {1}, {0}), dlogits(dtype(), {1, 2});
  Make(1)->CrossEntropyBackward(logits, target, 1, dlogits);
  const double p = 1 / (1 + std::exp(20.0));
  EXPECT_NEAR(dlogits.Get()[0] / -p, 1, ToleranceOf(dtype()));
  EXPECT_NEAR(dlogits.Get()[1] / p, 1, ToleranceOf(dtype()));
}

TEST_P(LossTest, TargetsOutsideTheVocabularyAreCaught) {
  const auto backend = Make(1);
  Guarded logits(DType::kFloat32, {1, 3}, {0, 0, 0});
  for (const double target : {3.0, -1.0}) {
    EXPECT_THROW(backend->CrossEntropy(logits, Guarded(DType::kInt32, {1}, {target})), std::logic_error);
  }
}

// 2^25 losses of 64 (which is e^-64 from exact) sum exactly; a sum in f32 would stop growing at 2^30.
TEST(LossSumTest, ManyLossesSumExactly) {
  constexpr int64_t kPiece = int64_t{1} << 20, kRows = int64_t{1} << 25;
  std::vector<float> piece(kPiece);
  for (size_t i = 1; i < piece.size(); i += 2) piece[i] = 64;
  const Repeated logits(piece, 2 * kRows / kPiece);
  const Untouched targets(kRows * 4);
  const double loss = MakeCpuBackend(kMostThreads)
                          ->CrossEntropy(Tensor(logits.data(), DType::kFloat32, {kRows, 2}),
                                         Tensor(targets.data(), DType::kInt32, {kRows}));
  EXPECT_EQ(loss, 64.0 * kRows);
  // Losses that are no short binary number keep all digits of f64.
  const Untouched zeros(kPiece * 2 * 4);
  const double even = MakeCpuBackend(1)->CrossEntropy(Tensor(zeros.data(), DType::kFloat32, {kPiece, 2}),
                                                      Tensor(targets.data(), DType::kInt32, {kPiece}));
  EXPECT_NEAR(even / (std::log(2.0) * kPiece), 1, 1e-11);
}

// Only the last row of 225,304 × 9,728 logits has a target; its logits are all that is read.
TEST_P(LossTest, OffsetsIn64Bits) {
  constexpr int64_t kRows = 225'304, kWidth = 9'728;
  const Untouched memory(kRows * kWidth * 4);
  const Tensor logits(memory.data(), DType::kFloat32, {kRows, kWidth});
  logits.Rows(kRows - 1, kRows).data<float>()[7] = 3;
  std::vector<double> targets(kRows, kIgnoreTarget);
  targets.back() = 7;
  EXPECT_NEAR(Make(1)->CrossEntropy(logits, Guarded(DType::kInt32, {kRows}, targets)),
              std::log(kWidth - 1 + std::exp(3.0)) - 3, 1e-6);
}

}  // namespace
}  // namespace longspan::test
