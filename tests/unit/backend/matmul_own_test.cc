// Our own products of bf16, on tiles and in vectors, beyond what matmul_test.cc asks of every target: shapes
// that are cut into several strips, blocks and shares, and that no way of cutting, storing or packing them
// changes a bit.
#include "reference/pointwise.h"
#include "unit/backend/backend_testing.h"

namespace longspan::test {
namespace {

class OwnMatmulTest : public ::testing::TestWithParam<CpuTarget> {
 protected:
  void SetUp() override {
    if (!cpu::Runs(cpu::DetectCpu(), target())) GTEST_SKIP() << "not on this CPU";
  }
  CpuTarget target() const { return GetParam(); }
  bool is_on_tiles() const { return target() == CpuTarget::kAmxModel; }
  std::mt19937_64 random_{7};
};
INSTANTIATE_TEST_SUITE_P(Targets, OwnMatmulTest,
                         ::testing::Values(CpuTarget::kAvx2, CpuTarget::kAvx512, CpuTarget::kAmxModel),
                         [](const auto& target) { return std::string(cpu::Name(target.param)); });

struct Problem {
  int64_t m, n, k;
  std::vector<double> a, b;  // (m, k), (k, n)
};

Problem RandomProblem(std::mt19937_64& random, int64_t m, int64_t n, int64_t k) {
  return {m, n, k, Random(random, static_cast<size_t>(m * k), DType::kBFloat16),
          Random(random, static_cast<size_t>(k * n), DType::kBFloat16)};
}

std::vector<double> Transposed(const std::vector<double>& x, int64_t rows, int64_t columns) {
  std::vector<double> y(x.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      y[static_cast<size_t>(j * rows + i)] = x[static_cast<size_t>(i * columns + j)];
  return y;
}

struct Form {
  bool transpose_a = false, transpose_b = false, is_packed = false;
  DType out = DType::kFloat32;
  bool accumulate = false;  // to 1
  int threads = 1;
};

std::vector<double> Product(CpuTarget target, const Problem& p, const Form& form) {
  const auto backend = cpu::MakeCpuBackend(target, std::min(form.threads, kMostThreads));
  {  // workspace is NaN
    const Arena::Scope scope(backend->arena());
    const Tensor dirt = backend->arena().Allocate("dirt", DType::kByte, {int64_t{16} << 20});
    std::memset(dirt.raw(), 0xff, static_cast<size_t>(dirt.num_bytes()));
  }
  Guarded a(DType::kBFloat16, {form.transpose_a ? p.k : p.m, form.transpose_a ? p.m : p.k},
            form.transpose_a ? Transposed(p.a, p.m, p.k) : p.a);
  Guarded b(DType::kBFloat16, {form.transpose_b ? p.n : p.k, form.transpose_b ? p.k : p.n},
            form.transpose_b ? Transposed(p.b, p.k, p.n) : p.b);
  Guarded packed(DType::kByte, {backend->PackedBytes(b)});
  if (form.is_packed) backend->Pack(b, packed);
  Guarded c(form.out, {p.m, p.n});
  if (form.accumulate) c.Set(std::vector<double>(static_cast<size_t>(p.m * p.n), 1));
  backend->Matmul({a, b, c, form.transpose_a, form.transpose_b, form.accumulate,
                   form.is_packed ? packed.tensor() : Tensor()});
  return c.Get();
}

constexpr DType kOutputs[] = {DType::kFloat32, DType::kBFloat16};

// Strips, blocks of C and blocks of k by the limits in matmul_tiles.cc and matmul_vectors.cc; whole and
// broken units; rows of whole pairs of cache lines (n a multiple of 64), of whole lines, and others.
TEST_P(OwnMatmulTest, NothingButTheOperandsMatters) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{34, 1030, 1050},
                                {260, 72, 1030},
                                {1030, 40, 300},
                                {400, 130, 520},
                                {70, 192, 513},
                                {96, 96, 64},
                                {33, 127, 30}}) {
    const Problem p = RandomProblem(random_, m, n, k);
    const std::vector<double> want = Product(target(), p, {});
    for (int64_t i = 0; i < m * n; i += 1 + i % 7) {  // a sample
      double sum = 0, magnitude = 0;
      for (int64_t l = 0; l < k; ++l) {
        const double x = p.a[static_cast<size_t>(i / n * k + l)] * p.b[static_cast<size_t>(l * n + i % n)];
        sum += x;
        magnitude += std::abs(x);
      }
      ASSERT_NEAR(want[static_cast<size_t>(i)], sum, 2e-7 * magnitude) << i / n << ", " << i % n;
    }
    std::vector<double> rounded = want, plus_one = want;
    for (double& x : rounded) x = Rounded(x, DType::kBFloat16);
    for (double& x : plus_one) x = Rounded(x + 1, DType::kFloat32);
    const std::vector<double> accumulated = Product(target(), p, {.accumulate = true});
    if (is_on_tiles()) {
      ASSERT_EQ(accumulated, plus_one);
    } else {  // each block of k is added to c
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(accumulated[i], plus_one[i], 2e-5);
    }
    for (int bits = 0; bits < (is_on_tiles() ? 8 : 4); ++bits) {  // no other packs
      for (const int threads : {1, 2 + bits / 2 % 2}) {
        Form form{.transpose_a = (bits & 1) != 0,
                  .transpose_b = (bits & 2) != 0,
                  .is_packed = (bits & 4) != 0,
                  .threads = threads};
        SCOPED_TRACE(
            fmt::format("m {} n {} k {}{}{}{}, {} threads", m, n, k, form.transpose_a ? ", a transposed" : "",
                        form.transpose_b ? ", b transposed" : "", form.is_packed ? ", packed" : "", threads));
        ASSERT_EQ(Product(target(), p, form), want);
        if (bits % 3 != threads % 3) continue;  // some of the forms are enough for the rest
        form.accumulate = true;
        ASSERT_EQ(Product(target(), p, form), accumulated);
        form.accumulate = false;
        form.out = DType::kBFloat16;
        ASSERT_EQ(Product(target(), p, form), rounded);
      }
    }
  }
}

TEST_P(OwnMatmulTest, RowsOffTheCacheLines) {
  const Problem p = RandomProblem(random_, 70, 192, 40);
  const auto backend = cpu::MakeCpuBackend(target(), 1);
  Guarded a(DType::kBFloat16, {70, 40}, p.a), b(DType::kBFloat16, {40, 192}, p.b);
  for (const DType out : kOutputs) {
    const std::vector<double> want = Product(target(), p, {.out = out});
    for (const int64_t shift : {2, 32, 64}) {  // numbers
      Guarded memory(out, {70 * 192 + shift});
      const Tensor c = memory.tensor().Rows(shift, 70 * 192 + shift).Reshape({70, 192});
      backend->Matmul({.a = a, .b = b, .c = c});
      const std::vector<double> got = memory.Get();
      EXPECT_EQ(std::vector<double>(got.begin() + shift, got.end()), want);
      EXPECT_TRUE(std::all_of(got.begin(), got.begin() + shift, [](double x) { return std::isnan(x); }));
    }
  }
}

// A sum over a quarter of a million numbers is as exact as a short one.
TEST_P(OwnMatmulTest, LongSums) {
  constexpr int64_t kLong = int64_t{1} << 18;
  const Problem p = RandomProblem(random_, 1, 1, kLong);
  double sum = 0, magnitude = 0;
  for (size_t i = 0; i < kLong; ++i) {
    sum += p.a[i] * p.b[i];
    magnitude += std::abs(p.a[i] * p.b[i]);
  }
  EXPECT_NEAR(Product(target(), p, {})[0], sum, 2e-7 * magnitude);
}

// Padding meets nothing: what is not finite stays in its own row or column, and stays what it is.
TEST_P(OwnMatmulTest, InfinitiesAndNanStayInTheirRows) {
  constexpr int64_t kM = 40, kN = 70, kK = 50;
  Problem p = RandomProblem(random_, kM, kN, kK);
  p.a[35 * kK + 49] = std::numeric_limits<double>::quiet_NaN();
  p.b[49 * kN + 66] = std::numeric_limits<double>::infinity();
  for (double& x : p.a)
    if (x == 0) x = 1;
  for (const DType out : kOutputs) {
    const std::vector<double> c = Product(target(), p, {.out = out});
    for (int64_t i = 0; i < kM; ++i) {
      for (int64_t j = 0; j < kN; ++j) {
        const double x = c[static_cast<size_t>(i * kN + j)];
        EXPECT_EQ(std::isnan(x), i == 35) << i << ", " << j;
        EXPECT_EQ(std::isinf(x), i != 35 && j == 66) << i << ", " << j;
      }
    }
  }
}

TEST(OwnMatmulOnTilesTest, TheModelEqualsTheHardware) {
  if (!cpu::Runs(cpu::DetectCpu(), CpuTarget::kAmx)) GTEST_SKIP() << "this CPU has no AMX";
  std::mt19937_64 random(7);
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{34, 1030, 1050}, {260, 72, 1030}, {400, 130, 520}, {33, 127, 30}}) {
    const Problem p = RandomProblem(random, m, n, k);
    for (const DType out : kOutputs) {
      for (const bool is_packed : {false, true}) {
        const Form form{.transpose_b = true, .is_packed = is_packed, .out = out, .threads = 2};
        EXPECT_EQ(Product(CpuTarget::kAmx, p, form), Product(CpuTarget::kAmxModel, p, form));
      }
    }
    const Form weight_gradient{.transpose_a = true, .accumulate = true, .threads = 2};
    EXPECT_EQ(Product(CpuTarget::kAmx, p, weight_gradient),
              Product(CpuTarget::kAmxModel, p, weight_gradient));
  }
}

}  // namespace
}  // namespace longspan::test
