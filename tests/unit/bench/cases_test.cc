// Every case that is measured, at a length and with numbers that a test can afford, against scalar float64.
#include "bench/cases.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/backend.h"
#include "bench/measure.h"
#include "data/packing.h"
#include "model/linear.h"
#include "reference/attention.h"

namespace longspan::bench {
namespace {

std::vector<double> Widen(const Buffer& x) {
  const float* const data = x.tensor().data<float>();
  return {data, data + x.tensor().num_elements()};
}

double RelativeError(const Buffer& x, const std::vector<double>& reference) {
  const std::vector<double> wide = Widen(x);
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    difference += (wide[i] - reference[i]) * (wide[i] - reference[i]);
    norm += reference[i] * reference[i];
  }
  return std::sqrt(difference / norm);
}

// Long enough for three documents, and for rows that the window cuts off.
TEST(BenchCases, MasksAreWhatTheirNamesSay) {
  constexpr int64_t kLength = 1100, kHeads = 2, kWidth = 16;
  const std::vector<int32_t> kv_of = {0, 0};
  const Range span = {0, kLength};
  const auto buffer = [](std::string_view name, int64_t heads) {
    return RandomBuffer(name, DType::kFloat32, {kLength, heads, kWidth});
  };
  const Buffer q = buffer("q", kHeads), k = buffer("k", 1), v = buffer("v", 1), dout = buffer("dout", kHeads);
  const reference::AttentionShape shape = {kLength, kLength, kHeads, 1, kWidth, kWidth};
  const reference::AttentionScores<double> scores = {.scale = 0.25};

  const auto sees = [](std::string_view name, int64_t row, int64_t key) {
    if (key > row) return false;
    if (name == "packed_512") return key / 512 == row / 512;
    if (name == "window_1024") return row - key < 1024;
    return name == "causal";
  };
  const std::unique_ptr<Backend> backend = MakeCpuBackend(2);
  ASSERT_EQ(MaskCases().size(), 3u);
  for (const MaskCase& c : MaskCases()) {
    SCOPED_TRACE(c.name);
    const Mask mask = c.Make(kLength);
    AttentionCall call;
    call.mask = &mask;
    call.query_spans = call.key_spans = {&span, 1};
    call.kv_of = kv_of;
    call.scale = static_cast<float>(scores.scale);
    const Buffer out(DType::kFloat32, {kLength, kHeads, kWidth}), lse(DType::kFloat32, {kLength, kHeads}),
        delta(DType::kFloat32, {kLength, kHeads}), dq(DType::kFloat32, {kLength, kHeads, kWidth}),
        dk(DType::kFloat32, {kLength, 1, kWidth}), dv(DType::kFloat32, {kLength, 1, kWidth});
    backend->AttentionForward(call, q.tensor(), k.tensor(), v.tensor(), true, true, {}, out.tensor(),
                              lse.tensor());
    backend->AttentionDelta(out.tensor(), dout.tensor(), delta.tensor());
    backend->AttentionBackward(call, q.tensor(), k.tensor(), v.tensor(), dout.tensor(), lse.tensor(),
                               delta.tensor(), dq.tensor(), dk.tensor(), dv.tensor());

    const auto sees_key = [&](int64_t row, int64_t key) { return sees(c.name, row, key); };
    const auto forward =
        reference::AttentionForward(shape, kv_of, scores, Widen(q), Widen(k), Widen(v), sees_key);
    const auto gradients = reference::AttentionBackward(shape, kv_of, scores, Widen(q), Widen(k), Widen(v),
                                                        forward, Widen(dout), sees_key);
    EXPECT_LT(RelativeError(out, forward.out), 1e-5);
    EXPECT_LT(RelativeError(dq, gradients.dq), 1e-5);
    EXPECT_LT(RelativeError(dk, gradients.dk), 1e-5);
    EXPECT_LT(RelativeError(dv, gradients.dv), 1e-5);
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
