// Memory, embedding, bias, norm, rotary and gate operations against the scalar reference, on every target
// that runs here.
#include "reference/pointwise.h"

#include <numeric>

#include "backend/cpu/kernels.h"
#include "unit/backend/backend_testing.h"

namespace longspan::test {
namespace {

using reference::Complex;
using reference::ToComplex;

class PointwiseTest : public TargetTest {};
LONGSPAN_FOR_TARGETS(PointwiseTest);

// What depends on the target alone.
class KernelTest : public ::testing::TestWithParam<CpuTarget> {};
INSTANTIATE_TEST_SUITE_P(Targets, KernelTest, ::testing::ValuesIn(TargetsHere()),
                         [](const auto& param) { return std::string(Name(param.param)); });

// Sizes around vectors, and one that several threads share.
constexpr int64_t kSizes[] = {0, 1, 15, 16, 17, 31, 33, 100, 200'001};

TEST_P(PointwiseTest, ZeroCopyCastAdd) {
  for (const int threads : {1, 3}) {
    const auto backend = Make(threads);
    for (const int64_t n : kSizes) {
      const auto x = Random(random_, static_cast<size_t>(n), DType::kFloat32);
      const auto y = Random(random_, static_cast<size_t>(n), DType::kFloat32);
      Guarded a(dtype(), {n}, x), b(dtype(), {n}), wide(DType::kFloat32, {n}), narrow(DType::kBFloat16, {n});
      backend->Copy(a, b);
      EXPECT_EQ(b.Get(), a.Get());
      backend->Cast(a, wide);
      EXPECT_EQ(wide.Get(), a.Get());
      wide.Set(x);
      backend->Cast(wide, narrow);
      const auto rounded = narrow.Get();
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(rounded[i], Rounded(x[i], DType::kBFloat16));
      b.Set(y);
      backend->Add(a, b);
      const auto sum = b.Get();
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(sum[i], Rounded(Rounded(x[i], dtype()) + Rounded(y[i], dtype()), dtype()));
      }
      backend->Zero(b);
      EXPECT_EQ(b.Get(), std::vector<double>(x.size()));
    }
  }
}

TEST_P(PointwiseTest, HeadsAreCopiedAndAdded) {
  constexpr int64_t kTokens = 700, kFrom = 5, kTo = 3, kWidth = 70;
  for (const int threads : {1, 3}) {
    const auto backend = Make(threads);
    const auto x = Random(random_, kTokens * kFrom * kWidth, dtype());
    const auto y = Random(random_, kTokens * kTo * kWidth, dtype());
    Guarded src(dtype(), {kTokens, kFrom, kWidth}, x), dst(dtype(), {kTokens, kTo, kWidth}, y);
    auto want = y;
    const auto expect = [&](int64_t src_head, int64_t dst_head, int64_t n, bool add) {
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t i = 0; i < n * kWidth; ++i) {
          double& to = want[static_cast<size_t>((t * kTo + dst_head) * kWidth + i)];
          to = Rounded((add ? to : 0) + x[static_cast<size_t>((t * kFrom + src_head) * kWidth + i)], dtype());
        }
      }
      EXPECT_EQ(dst.Get(), want);
    };
    backend->CopyHeads(src, 3, dst, 0, 2);
    expect(3, 0, 2, false);
    backend->AddHeads(src, 1, dst, 1, 2);
    expect(1, 1, 2, true);
    backend->CopyHeads(src, 4, dst, 2, 1);
    expect(4, 2, 1, false);
    backend->AddHeads(src, 0, dst, 3, 0);
    expect(0, 3, 0, true);
  }
}

TEST_P(PointwiseTest, Embedding) {
  constexpr int64_t kVocabulary = 11, kWidth = 37, kTokens = 300;
  const auto table = Random(random_, kVocabulary * kWidth, dtype());
  const auto dout = Random(random_, kTokens * kWidth, dtype());
  std::vector<double> tokens(kTokens);
  for (double& token : tokens) token = static_cast<double>(random_() % (kVocabulary - 1));  // the last never
  std::vector<double> want(kTokens * kWidth), dwant(kVocabulary * kWidth, 0.5);
  for (size_t i = 0; i < want.size(); ++i) {
    const size_t from = static_cast<size_t>(tokens[i / kWidth]) * kWidth + i % kWidth;
    want[i] = table[from];
    dwant[from] += dout[i];
  }
  std::vector<std::vector<double>> results;
  for (const int threads : {1, 2, 3}) {
    const auto backend = Make(threads);
    Guarded ids(DType::kInt32, {kTokens}, tokens), out(dtype(), {kTokens, kWidth});
    backend->Embedding(ids, Guarded(dtype(), {kVocabulary, kWidth}, table), out);
    EXPECT_EQ(out.Get(), want);
    Guarded dtable(DType::kFloat32, {kVocabulary, kWidth}, std::vector<double>(kVocabulary * kWidth, 0.5));
    backend->EmbeddingBackward(ids, Guarded(dtype(), {kTokens, kWidth}, dout), -1, dtable);
    ExpectClose(dtable.Get(), dwant, DType::kFloat32, "dtable");
    // One id's row stays as it was, all others get the same.
    const auto padding = static_cast<int64_t>(tokens[0]);
    Guarded padded(DType::kFloat32, {kVocabulary, kWidth}, std::vector<double>(kVocabulary * kWidth, 0.5));
    backend->EmbeddingBackward(ids, Guarded(dtype(), {kTokens, kWidth}, dout), padding, padded);
    std::vector<double> expected = dtable.Get();
    std::fill_n(expected.begin() + padding * kWidth, kWidth, 0.5);
    EXPECT_NE(expected, dtable.Get());
    EXPECT_EQ(padded.Get(), expected);
    results.push_back(dtable.Get());
    EXPECT_EQ(results.front(), results.back()) << "depends on the number of threads";
    Guarded bad(DType::kInt32, {1}, {kVocabulary}), one(dtype(), {1, kWidth});
    EXPECT_THROW(backend->Embedding(bad, Guarded(dtype(), {kVocabulary, kWidth}, table), one),
                 std::logic_error);
  }
}

TEST_P(PointwiseTest, RmsNorm) {
  constexpr double kEpsilon = 1e-2;
  for (const auto& [rows, width] :
       {std::pair<int64_t, int64_t>{1, 5}, {5, 37}, {130, 16}, {2200, 3}, {0, 8}}) {
    const size_t n = static_cast<size_t>(rows * width);
    const auto x = Random(random_, n, dtype()), residual = Random(random_, n, dtype());
    const auto dy = Random(random_, n, DType::kFloat32);
    const auto weight = Random(random_, static_cast<size_t>(width), dtype());
    const double offset = width % 2 == 0 ? 1 : 0;
    const auto y_want = reference::RmsNorm(x, weight, kEpsilon, offset);
    std::vector<double> dx_want, dweight_want(static_cast<size_t>(width), 0.25);
    // One row at a time, so that a complex step costs a row.
    for (int64_t row = 0; row < rows; ++row) {
      const auto slice = [&](const std::vector<double>& v) {
        return std::vector<double>(v.begin() + row * width, v.begin() + (row + 1) * width);
      };
      const auto dx_row = reference::ComplexStepGradient(
          [&](const std::vector<Complex>& z) {
            return reference::RmsNorm(z, ToComplex(weight), kEpsilon, offset);
          },
          slice(x), slice(dy));
      const auto dweight_row = reference::ComplexStepGradient(
          [&](const std::vector<Complex>& w) {
            return reference::RmsNorm(ToComplex(slice(x)), w, kEpsilon, offset);
          },
          weight, slice(dy));
      dx_want.insert(dx_want.end(), dx_row.begin(), dx_row.end());
      for (size_t i = 0; i < dweight_row.size(); ++i) dweight_want[i] += dweight_row[i];
    }
    std::vector<std::vector<double>> results;
    for (const int threads : {1, 3}) {
      const auto backend = Make(threads);
      Guarded tx(dtype(), {rows, width}, x), tw(dtype(), {width}, weight), y(dtype(), {rows, width});
      const Norm norm{tw, kEpsilon, static_cast<float>(offset)};
      backend->RmsNorm(tx, norm, y);
      ExpectClose(y.Get(), y_want, dtype(), "y");
      Guarded same(dtype(), {rows, width}, x);
      backend->RmsNorm(same, norm, same);
      EXPECT_EQ(same.Get(), y.Get()) << "in place";
      Guarded dx(dtype(), {rows, width}), sum(dtype(), {rows, width}, residual),
          tdy(DType::kFloat32, {rows, width}, dy);
      Guarded dweight(DType::kFloat32, {width}, std::vector<double>(static_cast<size_t>(width), 0.25));
      backend->RmsNormBackward(tx, norm, tdy, dx, dweight, /*accumulate=*/false);
      ExpectClose(dx.Get(), dx_want, dtype(), "dx");
      ExpectClose(dweight.Get(), dweight_want, DType::kFloat32, "dweight");
      results.push_back(dweight.Get());
      EXPECT_EQ(results.front(), results.back()) << "depends on the number of threads";

      auto sum_want = dx_want;
      for (size_t i = 0; i < n; ++i) sum_want[i] += residual[i];
      backend->RmsNormBackward(tx, norm, tdy, sum, dweight, /*accumulate=*/true);
      ExpectClose(sum.Get(), sum_want, dtype(), "residual + dx");
      const auto twice = dweight.Get();
      for (size_t i = 0; i < twice.size(); ++i)
        EXPECT_NEAR(twice[i] - 0.25, 2 * (results.back()[i] - 0.25), 1e-5 * (1 + std::abs(twice[i])));

      const auto apart = dx.Get();
      backend->RmsNormBackward(tx, norm, tdy, /*dx=*/tx, dweight, /*accumulate=*/false);
      EXPECT_EQ(tx.Get(), apart) << "in place";
      EXPECT_EQ(backend->arena().used_bytes(), 0);
    }
  }
}

// A sum and its norm in one pass have the bits of the two one after the other.
TEST_P(PointwiseTest, AddRmsNorm) {
  for (const auto& [rows, width] :
       {std::pair<int64_t, int64_t>{1, 5}, {5, 37}, {130, 16}, {70, 100}, {0, 8}}) {
    const size_t n = static_cast<size_t>(rows * width);
    const auto x = Random(random_, n, dtype()), y = Random(random_, n, dtype());
    const auto weight = Random(random_, static_cast<size_t>(width), dtype());
    for (const int threads : {1, 3}) {
      const auto backend = Make(threads);
      Guarded tx(dtype(), {rows, width}, x), tw(dtype(), {width}, weight), want(dtype(), {rows, width}, y),
          normed_want(dtype(), {rows, width}), sum(dtype(), {rows, width}, y), normed(dtype(), {rows, width});
      backend->Add(tx, want);
      const Norm norm{tw, 1e-2f, 0.5f};
      backend->RmsNorm(want, norm, normed_want);
      backend->AddRmsNorm(tx, sum, norm, normed);
      EXPECT_EQ(sum.Get(), want.Get());
      // Sums of squares may be reordered.
      ExpectClose(normed.Get(), normed_want.Get(), dtype(), "normed");
    }
  }
}

// A gain's gradient over many rows restarts its sums: one long f32 sum of 100,000 terms would be 1e-5 off or
// worse.
TEST_P(PointwiseTest, NormGainOfManyRows) {
  constexpr int64_t kRows = 100'000;
  Guarded x(dtype(), {kRows, 1}, std::vector<double>(kRows, 1)), weight(dtype(), {1}, {1}),
      dx(dtype(), {kRows, 1});
  Guarded dy(DType::kFloat32, {kRows, 1}, std::vector<double>(kRows, 0.1)),
      dweight(DType::kFloat32, {1}, {0});
  Make(1)->RmsNormBackward(x, {weight, 0}, dy, dx, dweight, /*accumulate=*/false);
  EXPECT_NEAR(dweight.Get()[0] / (kRows * Rounded(0.1, DType::kFloat32)), 1, 1e-6);
  Guarded narrow_dy(dtype(), {kRows, 1}, std::vector<double>(kRows, 0.1)), dbias(DType::kFloat32, {1}, {0});
  Make(1)->AddBiasBackward(narrow_dy, dbias);
  EXPECT_NEAR(dbias.Get()[0] / (kRows * Rounded(0.1, dtype())), 1, 1e-6);
}

TEST_P(PointwiseTest, Bias) {
  for (const auto& [rows, width] :
       {std::pair<int64_t, int64_t>{1, 5}, {5, 37}, {130, 16}, {2200, 3}, {0, 8}}) {
    const size_t n = static_cast<size_t>(rows * width);
    const auto x = Random(random_, n, dtype()), bias = Random(random_, static_cast<size_t>(width), dtype());
    auto want = x;
    std::vector<double> dbias_want(static_cast<size_t>(width), 0.25);
    for (size_t i = 0; i < n; ++i) {
      const size_t column = i % static_cast<size_t>(width);
      want[i] = Rounded(x[i] + bias[column], dtype());
      dbias_want[column] += x[i];
    }
    std::vector<std::vector<double>> results;
    for (const int threads : {1, 3}) {
      const auto backend = Make(threads);
      Guarded y(dtype(), {rows, width}, x), tb(dtype(), {width}, bias), dy(dtype(), {rows, width}, x);
      Guarded dbias(DType::kFloat32, {width}, std::vector<double>(static_cast<size_t>(width), 0.25));
      backend->AddBias(tb, y);
      EXPECT_EQ(y.Get(), want);
      backend->AddBiasBackward(dy, dbias);
      ExpectClose(dbias.Get(), dbias_want, DType::kFloat32, "dbias");
      results.push_back(dbias.Get());
      EXPECT_EQ(results.front(), results.back()) << "depends on the number of threads";
    }
  }
}

TEST_P(PointwiseTest, Scale) {
  for (const int64_t n : kSizes) {
    const auto x = Random(random_, static_cast<size_t>(n), dtype());
    for (const int threads : {1, 3}) {
      Guarded y(dtype(), {n}, x);
      Make(threads)->Scale(5.5f, y);
      auto want = x;
      for (double& value : want) value = Rounded(5.5 * value, dtype());
      EXPECT_EQ(y.Get(), want);
    }
  }
}

RopeTables MakeTables(Guarded& coarse, Guarded& fine, double base) {
  for (Guarded* table : {&coarse, &fine}) {
    const int64_t rows = table->tensor().dim(0), pairs = table->tensor().dim(1);
    std::vector<double> values;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t position = table == &coarse ? row * RopeTables::kPeriod : row;
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(position) *
                             std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs));
        values.push_back(std::cos(angle));
        values.push_back(std::sin(angle));
      }
    }
    table->Set(values);
  }
  return {coarse, fine};
}

TEST_P(PointwiseTest, Rope) {
  const std::vector<int64_t> positions = {0, 1, 257, 4095, 4096, 15'962, 1'000'003, 1'048'575, 3};
  const int64_t tokens = static_cast<int64_t>(positions.size());
  std::vector<int64_t> backwards;
  for (const int64_t position : positions) backwards.push_back(-position);
  for (const int64_t pairs : {1, 5, 32, 150}) {  // 150: more than one chunk of phases
    Guarded coarse(DType::kFloat32, {256, pairs, 2}), fine(DType::kFloat32, {RopeTables::kPeriod, pairs, 2});
    const RopeTables tables = MakeTables(coarse, fine, 10'000);
    constexpr int64_t kHeads = 3;
    const auto x = Random(random_, static_cast<size_t>(tokens * kHeads * 2 * pairs), dtype());
    const auto want = reference::Rope(x, positions, static_cast<size_t>(pairs), 10'000);
    Guarded at(DType::kInt64, {tokens}, std::vector<double>(positions.begin(), positions.end()));
    for (const int threads : {1, 2}) {
      const auto backend = Make(threads);
      Guarded y(dtype(), {tokens, kHeads, 2 * pairs}, x);
      backend->Rope(y, at, tables, false);
      ExpectClose(y.Get(), want, dtype(), "rotated");
      const auto y_before = y.Get();
      backend->Rope(y, at, tables, true);
      ExpectClose(y.Get(), reference::Rope(y_before, backwards, static_cast<size_t>(pairs), 10'000), dtype(),
                  "inverse");
      Guarded past(DType::kInt64, {1}, {256 * RopeTables::kPeriod}), one(dtype(), {1, 1, 2 * pairs});
      EXPECT_THROW(backend->Rope(one, past, tables, false), std::logic_error);
    }
  }
}

// Part of a head: what lies behind the pairs stays as it is.
TEST_P(PointwiseTest, RopeOfAPartOfEachHead) {
  constexpr int64_t kPairs = 5, kHeads = 3, kHeadDim = 13, kTokens = 70;
  Guarded coarse(DType::kFloat32, {1, kPairs, 2}), fine(DType::kFloat32, {RopeTables::kPeriod, kPairs, 2});
  const RopeTables tables = MakeTables(coarse, fine, 10'000);
  std::vector<int64_t> positions;
  for (int64_t t = 0; t < kTokens; ++t) positions.push_back(50 * t);
  const auto x = Random(random_, kTokens * kHeads * kHeadDim, dtype());
  std::vector<double> rotated;  // (t, heads, 2 · pairs)
  for (size_t i = 0; i < x.size(); ++i)
    if (i % kHeadDim < 2 * kPairs) rotated.push_back(x[i]);
  rotated = reference::Rope(rotated, positions, kPairs, 10'000);
  auto want = x;
  for (size_t i = 0, next = 0; i < want.size(); ++i)
    if (i % kHeadDim < 2 * kPairs) want[i] = rotated[next++];
  Guarded at(DType::kInt64, {kTokens}, std::vector<double>(positions.begin(), positions.end()));
  for (const int threads : {1, 2}) {
    Guarded y(dtype(), {kTokens, kHeads, kHeadDim}, x), narrow(dtype(), {kTokens, kHeads, 2 * kPairs - 1});
    const auto backend = Make(threads);
    backend->Rope(y, at, tables, false);
    ExpectClose(y.Get(), want, dtype(), "rotated");
    const auto got = y.Get();
    for (size_t i = 0; i < want.size(); ++i) ASSERT_TRUE(i % kHeadDim < 2 * kPairs || got[i] == x[i]) << i;
    EXPECT_THROW(backend->Rope(narrow, at, tables, false), std::logic_error);
  }
}

// The phase itself, from a unit vector: within 2e-7 of double at any position.
TEST_P(KernelTest, RopePhasesAreExactFarOut) {
  constexpr int64_t kPairs = 32;
  const std::vector<int64_t> positions = {257, 15'962, 1'048'575};
  Guarded coarse(DType::kFloat32, {256, kPairs, 2}), fine(DType::kFloat32, {RopeTables::kPeriod, kPairs, 2});
  const RopeTables tables = MakeTables(coarse, fine, 500'000);
  std::vector<double> unit(positions.size() * 2 * kPairs, 0.0);
  for (size_t i = 0; i < unit.size(); ++i) unit[i] = i % (2 * kPairs) < kPairs ? 1 : 0;
  Guarded at(DType::kInt64, {3}, std::vector<double>(positions.begin(), positions.end()));
  Guarded y(DType::kFloat32, {3, 1, 2 * kPairs}, unit);
  cpu::MakeCpuBackend(GetParam(), 1)->Rope(y, at, tables, false);
  const auto want = reference::Rope(unit, positions, kPairs, 500'000);
  const auto got = y.Get();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-7);
}

// Scores depend on the distance alone, however far from the start.
TEST_P(PointwiseTest, RopeScoresDependOnDistance) {
  constexpr int64_t kPairs = 32;
  Guarded coarse(DType::kFloat32, {256, kPairs, 2}), fine(DType::kFloat32, {RopeTables::kPeriod, kPairs, 2});
  const RopeTables tables = MakeTables(coarse, fine, 10'000);
  const auto q = Random(random_, 2 * kPairs, DType::kFloat32),
             k = Random(random_, 2 * kPairs, DType::kFloat32);
  std::vector<double> qkqk;
  for (const auto* x : {&q, &k, &q, &k}) qkqk.insert(qkqk.end(), x->begin(), x->end());
  Guarded x(dtype(), {4, 1, 2 * kPairs}, qkqk), at(DType::kInt64, {4}, {5, 3, 1'000'005, 1'000'003});
  Make(1)->Rope(x, at, tables, false);
  const auto r = x.Get();
  const auto score = [&](int64_t row) {
    return std::inner_product(r.begin() + row * 2 * kPairs, r.begin() + (row + 1) * 2 * kPairs,
                              r.begin() + (row + 1) * 2 * kPairs, 0.0);
  };
  EXPECT_NEAR(score(0), score(2), dtype() == DType::kFloat32 ? 1e-5 : 0.1);
}

TEST_P(PointwiseTest, GatedUnits) {
  for (const GateActivation activation : {GateActivation::kSilu, GateActivation::kGeluTanh}) {
    for (const int64_t n : {0, 1, 17, 33, 40'000}) {
      const auto gate = Random(random_, static_cast<size_t>(n), dtype(), 4);
      const auto up = Random(random_, static_cast<size_t>(n), dtype());
      const auto dout = Random(random_, static_cast<size_t>(n), dtype());
      const auto want = reference::Glu(activation, gate, up);
      // Elementwise: one complex step moves all elements at once.
      constexpr double kStep = 1e-100;
      std::vector<double> dgate_want, dup_want;
      for (size_t i = 0; i < gate.size(); ++i) {
        const std::vector<Complex> g = {gate[i]}, u = {up[i]};
        const auto slope = [&](const std::vector<Complex>& moved_g, const std::vector<Complex>& moved_u) {
          return dout[i] * reference::Glu(activation, moved_g, moved_u)[0].imag() / kStep;
        };
        dgate_want.push_back(slope({{gate[i], kStep}}, u));
        dup_want.push_back(slope(g, {{up[i], kStep}}));
      }
      for (const int threads : {1, 3}) {
        const auto backend = Make(threads);
        Guarded tg(dtype(), {n}, gate), tu(dtype(), {n}, up), out(dtype(), {n}), dgate(dtype(), {n}),
            dup(dtype(), {n});
        backend->Glu(activation, tg, tu, out);
        ExpectClose(out.Get(), want, dtype(), "out");
        backend->GluBackward(activation, tg, tu, Guarded(dtype(), {n}, dout), dgate, dup);
        ExpectClose(dgate.Get(), dgate_want, dtype(), "dgate");
        ExpectClose(dup.Get(), dup_want, dtype(), "dup");
      }
    }
  }
}

TEST_P(PointwiseTest, GatedUnitsFarFromZero) {
  const std::vector<double> gate = {-1e30, -200, -100, -88.5, 0, 88.5, 100, 200, 1e30};
  Guarded g(dtype(), {9}, gate), ones(dtype(), {9}, std::vector<double>(9, 1)), out(dtype(), {9}),
      dgate(dtype(), {9}), dup(dtype(), {9});
  const auto backend = Make(1);
  for (const GateActivation activation : {GateActivation::kSilu, GateActivation::kGeluTanh}) {
    backend->Glu(activation, g, ones, out);
    backend->GluBackward(activation, g, ones, ones, dgate, dup);
    for (size_t i = 0; i < gate.size(); ++i) {
      const double x = g.Get()[i];
      EXPECT_NEAR(out.Get()[i], x < 0 ? 0 : x, 1e-30) << x;
      EXPECT_EQ(dup.Get()[i], out.Get()[i]) << x;
      EXPECT_NEAR(dgate.Get()[i], x < 0 ? 0 : x > 0 ? 1 : 0.5, 1e-30) << x;
    }
  }
}

TEST_P(KernelTest, ExponentialIsWithinTwoUnits) {
  std::vector<float> x;
  for (float v = -86.97f; v <= 0; v += 1.37e-3f) x.push_back(v);
  std::vector<float> y(x.size());
  const auto exp = cpu::KernelsFor(GetParam()).f32.scaled_exp;
  exp(x.data(), 0, 1, y.data(), static_cast<int64_t>(x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) / want - 1));
  }
  EXPECT_LT(worst, 2 * 1.2e-7);
  const std::vector<float> edges = {-std::numeric_limits<float>::infinity(), -87, 0, -0.0f, std::nanf("")};
  exp(edges.data(), 0, 1, y.data(), static_cast<int64_t>(edges.size()));
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 1);
  EXPECT_EQ(y[3], 1);
  EXPECT_TRUE(std::isnan(y[4]));
}

// For a bf16 output it is as exact as such a one shows.
TEST_P(KernelTest, ExponentialForBf16) {
  std::vector<float> x;
  for (float v = -87.3f; v <= 0; v += 1.37e-3f) x.push_back(v);
  std::vector<BFloat16> y(x.size());
  const auto exp = cpu::KernelsFor(GetParam()).bf16.scaled_exp;
  exp(x.data(), 0, 1, y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(static_cast<double>(static_cast<float>(y[i])) / want, 1, 1.0 / 256 + 1e-5) << x[i];
  }
  const std::vector<float> edges = {-std::numeric_limits<float>::infinity(), -1e30f, -88.1f, 0, -0.0f};
  exp(edges.data(), 0, 1, y.data(), static_cast<int64_t>(edges.size()));
  for (size_t i = 0; i < edges.size(); ++i) EXPECT_EQ(static_cast<float>(y[i]), i < 3 ? 0 : 1) << edges[i];
}

TEST_P(KernelTest, Bf16ConversionIsThatOfOneScalar) {
  std::vector<float> x;
  for (uint32_t upper = 0; upper < 65'536; ++upper) {
    for (const uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      x.push_back(std::bit_cast<float>((upper << 16) | lower));
    }
  }
  std::vector<BFloat16> y(x.size());
  cpu::KernelsFor(GetParam()).to_bf16(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(y[i].bits, BFloat16(x[i]).bits) << std::bit_cast<uint32_t>(x[i]);
}

// 225,304 × 9,728 elements are more than 2^31: the last row must be the last row, not one 2^32 bytes before
// it.
TEST_P(PointwiseTest, OffsetsIn64Bits) {
  constexpr int64_t kRows = 225'304, kWidth = 9'728;
  const Untouched memory(kRows * kWidth * 4);
  const Tensor table(memory.data(), dtype(), {kRows, kWidth});
  const auto row = Random(random_, kWidth, dtype());
  Guarded last(dtype(), {1, kWidth}, row), tokens(DType::kInt32, {2}, {0, kRows - 1}),
      out(dtype(), {2, kWidth});
  const auto backend = Make(1);
  backend->Copy(last, table.Rows(kRows - 1, kRows));
  backend->Embedding(tokens, table, out);
  auto want = std::vector<double>(kWidth, 0.0);
  want.insert(want.end(), row.begin(), row.end());
  EXPECT_EQ(out.Get(), want);
  if (dtype() == DType::kFloat32) {
    backend->EmbeddingBackward(tokens, out, -1, table);  // adds each row to itself
    EXPECT_EQ(table.Rows(kRows - 1, kRows).data<float>()[kWidth - 1], 2 * static_cast<float>(row.back()));
    EXPECT_EQ(table.data<float>()[0], 0);
  }
}

// bf16 contributions of 1/1024 add up in f32 (in bf16 the sum stops at 0.25).
TEST_P(PointwiseTest, SmallContributionsAddUp) {
  constexpr int64_t kTimes = 1024;
  const auto backend = Make(2);
  Guarded tokens(DType::kInt32, {kTimes}, std::vector<double>(kTimes, 0)),
      dtable(DType::kFloat32, {1, 1}, {0});
  Guarded dout(dtype(), {kTimes, 1}, std::vector<double>(kTimes, 1.0 / kTimes));
  backend->EmbeddingBackward(tokens, dout, -1, dtable);
  EXPECT_EQ(dtable.Get()[0], 1);
  Guarded part(DType::kFloat32, {1, 1, 1}, {1.0 / kTimes}), sum(DType::kFloat32, {1, 1, 1}, {0});
  for (int64_t i = 0; i < kTimes; ++i) backend->AddHeads(part, 0, sum, 0, 1);
  EXPECT_EQ(sum.Get()[0], 1);
}

TEST_P(PointwiseTest, WrongShapesAreCaught) {
  const auto backend = Make(1);
  Guarded x(dtype(), {2, 4}), w(dtype(), {4}), narrow(dtype(), {2, 3}), ids(DType::kInt32, {2}, {0, 1});
  EXPECT_THROW(backend->RmsNorm(x, {w, 0}, narrow), std::logic_error);
  EXPECT_THROW(backend->Glu(GateActivation::kSilu, x, narrow, x), std::logic_error);
  EXPECT_THROW(backend->AddBias(w, narrow), std::logic_error);
  EXPECT_THROW(backend->Copy(x, narrow), std::logic_error);
  EXPECT_THROW(backend->Add(x, ids), std::logic_error);
  EXPECT_THROW(backend->Embedding(ids, x, narrow), std::logic_error);
}

}  // namespace
}  // namespace longspan::test
