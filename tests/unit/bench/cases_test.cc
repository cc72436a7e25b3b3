// Every case that is measured, at a length and with numbers that a test can afford, against scalar float64.
#include "bench/cases.h"

#include <gtest/gtest.h>

#include "backend/backend.h"
#include "bench/measure.h"
#include "data/packing.h"
#include "model/linear.h"
#include "unit/backend/attention_problem.h"

namespace longspan::bench {
namespace {

bool Sees(std::string_view name, int64_t row, int64_t key) {
  if (key > row) return false;
  if (name == "packed_512") return key / 512 == row / 512;
  if (name == "window_1024") return row - key < 1024;
  return name == "causal";
}

double RelativeError(const cpu::Floats& got, const std::vector<double>& want) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += want[i] * want[i];
  }
  return std::sqrt(difference / norm);
}

// Long enough for three documents, for rows that the window cuts off, and for two forward key blocks in bf16;
// at the widths that are measured, on every target.
TEST(BenchCases, AttentionOfEveryMaskAndWidth) {
  constexpr int64_t kLength = 1100;
  ASSERT_EQ(MaskCases().size(), 3u);
  cpu::Random random(1);
  for (const MaskCase& c : MaskCases()) {
    const Mask mask = c.Make(kLength);
    for (int64_t row = 0; row < kLength; ++row)
      for (int64_t key = 0; key < kLength; ++key)
        ASSERT_EQ(mask.Row(row).Sees(key), Sees(c.name, row, key)) << c.name << " " << row << " " << key;
    for (const int64_t width : HeadDims()) {
      // Numbers that bf16 holds, so that one reference serves both dtypes.
      cpu::Problem p =
          cpu::MakeProblem(kLength, cpu::EvenHeads(2, 1), width, width, DType::kBFloat16, mask, random);
      const cpu::Expected expected = cpu::Reference(p);
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        p.dtype = dtype;
        for (const cpu::CpuTarget target : cpu::TargetsFor(dtype)) {
          SCOPED_TRACE(fmt::format("{}, width {}, {}, {}", c.name, width, Name(dtype), Name(target)));
          cpu::Plan plan = cpu::Whole(p, target);
          plan.num_threads = cpu::kFew;
          if (dtype == DType::kBFloat16) plan.delta = expected.delta;  // not of an output that was rounded
          const cpu::Result got = cpu::Compute(p, plan);
          const double tolerance = dtype == DType::kBFloat16 ? 5e-3 : 1e-5;
          EXPECT_LT(RelativeError(got.out, expected.forward.out), tolerance);
          EXPECT_LT(RelativeError(got.dq, expected.gradients.dq), tolerance);
          EXPECT_LT(RelativeError(got.dk, expected.gradients.dk), tolerance);
          EXPECT_LT(RelativeError(got.dv, expected.gradients.dv), tolerance);
        }
      }
    }
  }
}

// Small multiples of 1/8, so that sums are exact in f32.
Buffer Exact(DType dtype, int64_t rows, int64_t width, int64_t seed) {
  Buffer x(dtype, {rows, width});
  for (int64_t i = 0; i < rows * width; ++i) {
    const float value = static_cast<float>((i * 7919 + seed) % 13 - 6) / 8;
    if (dtype == DType::kFloat32)
      x.tensor().data<float>()[i] = value;
    else
      x.tensor().data<BFloat16>()[i] = BFloat16(value);
  }
  return x;
}

TEST(BenchCases, ProductsOfTheSmallModel) {
  constexpr int64_t kRows = 5;
  const std::unique_ptr<Backend> backend = MakeCpuBackend(2);
  const ModelCase& model = ModelCases()[0];
  const std::vector<Product> products = ProductsOf(model.Config(), model.with_head, DType::kBFloat16);
  ASSERT_EQ(products.size(), 6u);
  for (const Product& p : products) {
    SCOPED_TRACE(p.name);
    const Buffer x = Exact(DType::kBFloat16, kRows, p.in, 1), w = Exact(DType::kBFloat16, p.out, p.in, 2);
    const Buffer dy = Exact(DType::kBFloat16, kRows, p.out, 3);
    const Buffer y(DType::kFloat32, {kRows, p.out}), dx(DType::kBFloat16, {kRows, p.in}),
        dw(DType::kFloat32, {p.out, p.in});
    Linear(*backend, x.tensor(), {.values = w.tensor(), .packed = {}}, y.tensor());
    LinearBackwardInput(*backend, dy.tensor(), {.values = w.tensor(), .packed = {}}, dx.tensor());
    LinearBackwardWeight(*backend, dy.tensor(), x.tensor(), dw.tensor());
    const auto at = [](const Buffer& b, int64_t row, int64_t column) {
      return double{static_cast<float>(b.tensor().data<BFloat16>()[row * b.tensor().dim(1) + column])};
    };
    for (int64_t i = 0; i < 40; ++i) {
      const int64_t row = i % kRows, out = i * 997 % p.out, in = i * 331 % p.in;
      double y_sum = 0, dx_sum = 0, dw_sum = 0;
      for (int64_t c = 0; c < p.in; ++c) y_sum += at(x, row, c) * at(w, out, c);
      for (int64_t o = 0; o < p.out; ++o) dx_sum += at(dy, row, o) * at(w, o, in);
      for (int64_t r = 0; r < kRows; ++r) dw_sum += at(dy, r, out) * at(x, r, in);
      EXPECT_EQ(y.tensor().data<float>()[row * p.out + out], y_sum);
      EXPECT_EQ(at(dx, row, in), double{static_cast<float>(BFloat16(static_cast<float>(dx_sum)))});
      EXPECT_EQ(dw.tensor().data<float>()[out * p.in + in], dw_sum);
    }
  }
}

TEST(BenchCases, ProductsOfALargeModel) {
  const ModelCase& model = ModelCases()[1];
  const std::vector<Product> products = ProductsOf(model.Config(), model.with_head, DType::kFloat32);
  const int64_t sizes[][2] = {{4096, 4096}, {4096, 1024}, {4096, 4096}, {4096, 14336}, {14336, 4096}};
  ASSERT_EQ(products.size(), std::size(sizes));
  for (size_t i = 0; i < products.size(); ++i) {
    EXPECT_EQ(products[i].in, sizes[i][0]) << products[i].name;
    EXPECT_EQ(products[i].out, sizes[i][1]) << products[i].name;
  }
}

TEST(BenchCases, RandomCorpus) {
  const std::unique_ptr<Corpus> corpus = MakeRandomCorpus(1001, 37);
  EXPECT_EQ(corpus->total_tokens(), 1001);
  std::vector<int32_t> all(1001), part(100), labels(100);
  corpus->ReadTokens(0, 0, all);
  corpus->ReadTokens(0, 500, part);
  corpus->ReadLabels(0, 500, labels);
  std::vector<int> counts(37);
  for (const int32_t token : all) {
    ASSERT_GE(token, 0);
    ASSERT_LT(token, 37);
    ++counts[static_cast<size_t>(token)];
  }
  for (const int count : counts) EXPECT_GT(count, 0);  // 27 are expected of each
  for (size_t i = 0; i < part.size(); ++i) {
    EXPECT_EQ(part[i], all[500 + i]);
    EXPECT_EQ(labels[i], part[i]);
  }
  // Two whole sequences, each of whose rows has a target.
  SequenceReader reader(*corpus, 500, 0, /*shuffle=*/false);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(reader.Next().num_targets, 500);
}

}  // namespace
}  // namespace longspan::bench
