// What the tests of the attention kernels share: problems, ways to compute them on every CPU target that this
// machine runs, the dense float64 reference, comparisons.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "backend/cpu/attention.h"
#include "reference/attention.h"
#include "reference/mask.h"

namespace longspan::cpu {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// libgomp is not instrumented: under the thread sanitizer every region of several threads looks like a race.
#if defined(__SANITIZE_THREAD__)
inline constexpr int kMostThreads = 1;
#else
inline constexpr int kMostThreads = 5;
#endif
inline constexpr int kFew = std::min(kMostThreads, 2);

inline std::vector<CpuTarget> TargetsHere() {
  std::vector<CpuTarget> targets;
  for (const CpuTarget target : AllTargets())
    if (Runs(DetectCpu(), target)) targets.push_back(target);
  return targets;
}

// The targets whose kernels for this dtype differ: in f32 those after avx512 have its own.
inline std::vector<CpuTarget> TargetsFor(DType dtype) {
  std::vector<CpuTarget> targets = TargetsHere();
  if (dtype == DType::kFloat32) std::erase_if(targets, [](CpuTarget t) { return t > CpuTarget::kAvx512; });
  return targets;
}

// A tensor between two strips of NaN, itself NaN at first. Writing outside it is noticed by the destructor.
class Guarded {
 public:
  Guarded() = default;
  Guarded(DType dtype, std::initializer_list<int64_t> shape) {
    const int64_t bytes = Tensor(nullptr, dtype, shape).num_bytes();
    buffer_ = Buffer(bytes + 2 * kGuard);
    std::memset(buffer_.data(), 0xff, static_cast<size_t>(buffer_.num_bytes()));
    tensor_ = Tensor(static_cast<char*>(buffer_.data()) + kGuard, dtype, shape);
  }
  Guarded(Guarded&&) = default;
  Guarded& operator=(Guarded&&) = default;
  ~Guarded() {
    if (buffer_.data() == nullptr) return;
    const auto* begin = static_cast<const unsigned char*>(buffer_.data());
    const auto untouched = [](unsigned char byte) { return byte == 0xff; };
    EXPECT_TRUE(std::all_of(begin, begin + kGuard, untouched));
    EXPECT_TRUE(std::all_of(begin + buffer_.num_bytes() - kGuard, begin + buffer_.num_bytes(), untouched));
  }
  const Tensor& operator*() const { return tensor_; }

 private:
  static constexpr int64_t kGuard = 4096;
  Buffer buffer_;
  Tensor tensor_;
};

using Floats = std::vector<float>;

inline float Get(const Tensor& x, int64_t i) {
  return x.dtype() == DType::kBFloat16 ? static_cast<float>(x.data<BFloat16>()[i]) : x.data<float>()[i];
}
inline void Set(const Tensor& x, int64_t i, float value) {
  if (x.dtype() == DType::kBFloat16) {
    x.data<BFloat16>()[i] = BFloat16(value);
  } else {
    x.data<float>()[i] = value;
  }
}

// Everything of one attention, rows by global index.
struct Problem {
  reference::AttentionShape shape;
  std::vector<int32_t> kv_of;
  float scale = 1, soft_cap = 0;
  Floats sinks = {};     // (heads), or empty
  Floats key_mean = {};  // (kv_heads, width), or empty
  DType dtype = DType::kFloat32;
  Mask mask;
  Floats q, k, v, dout;

  int64_t length() const { return shape.rows; }
};

// How it is computed.
struct Plan {
  CpuTarget target = CpuTarget::kScalar;
  int num_threads = 1;
  std::vector<Range> query_spans;
  std::vector<std::vector<Range>> key_spans;  // by call
  std::vector<double> delta = {};             // empty: from the kernel's own output
  float initial_gradient = 0;
};

struct Result {
  Floats out, lse, dq, dk, dv;  // rows by global index
};

inline int64_t RowsOf(std::span<const Range> spans) {
  int64_t rows = 0;
  for (const Range& span : spans) rows += span.size();
  return rows;
}

template <class F>
void ForRows(std::span<const Range> spans, const F& f) {
  int64_t row = 0;
  for (const Range& span : spans)
    for (int64_t index = span.begin; index < span.end; ++index) f(row++, index);
}

inline Guarded Gather(const Floats& x, DType dtype, std::span<const Range> spans, int64_t heads,
                      int64_t width) {
  Guarded rows(dtype, {RowsOf(spans), heads, width});
  ForRows(spans, [&](int64_t row, int64_t index) {
    for (int64_t i = 0; i < heads * width; ++i)
      Set(*rows, row * heads * width + i, x[static_cast<size_t>(index * heads * width + i)]);
  });
  return rows;
}

inline void Scatter(const Tensor& rows, std::span<const Range> spans, Floats& x) {
  const int64_t size = rows.dim(0) == 0 ? 0 : rows.num_elements() / rows.dim(0);
  ForRows(spans, [&](int64_t row, int64_t index) {
    for (int64_t i = 0; i < size; ++i) x[static_cast<size_t>(index * size + i)] = Get(rows, row * size + i);
  });
}

// No tensor for no values.
inline Guarded Filled(const Floats& x, std::initializer_list<int64_t> shape) {
  if (x.empty()) return {};
  Guarded tensor(DType::kFloat32, shape);
  std::ranges::copy(x, (*tensor).data<float>());
  return tensor;
}

inline Result Compute(const Problem& problem, const Plan& plan) {
  const auto& s = problem.shape;
  const int64_t rows = RowsOf(plan.query_spans);
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  Result result;
  result.out.assign(problem.dout.size(), nan);
  result.lse.assign(static_cast<size_t>(s.rows * s.heads), nan);
  result.dq.assign(problem.q.size(), nan);
  result.dk.assign(problem.k.size(), nan);
  result.dv.assign(problem.v.size(), nan);

  const Guarded q = Gather(problem.q, problem.dtype, plan.query_spans, s.heads, s.width);
  const Guarded dout = Gather(problem.dout, problem.dtype, plan.query_spans, s.heads, s.value_width);
  Guarded out(problem.dtype, {rows, s.heads, s.value_width}), lse(DType::kFloat32, {rows, s.heads});
  Guarded state_out(DType::kFloat32, {rows, s.heads, s.value_width});
  Guarded state_max(DType::kFloat32, {rows, s.heads}), state_sum(DType::kFloat32, {rows, s.heads});
  std::vector<Guarded> k, v;
  const Guarded sinks = Filled(problem.sinks, {s.heads}),
                mean = Filled(problem.key_mean, {s.kv_heads, s.width});
  const auto call_of = [&](size_t c) {
    return AttentionCall{.mask = &problem.mask,
                         .query_spans = plan.query_spans,
                         .key_spans = plan.key_spans[c],
                         .kv_of = problem.kv_of,
                         .scale = problem.scale,
                         .soft_cap = problem.soft_cap,
                         .sinks = *sinks,
                         .key_mean = *mean};
  };
  for (size_t c = 0; c < plan.key_spans.size(); ++c) {
    k.push_back(Gather(problem.k, problem.dtype, plan.key_spans[c], s.kv_heads, s.width));
    v.push_back(Gather(problem.v, problem.dtype, plan.key_spans[c], s.kv_heads, s.value_width));
    const bool first = c == 0, last = c + 1 == plan.key_spans.size();
    const Guarded workspace(DType::kByte, {AttentionForwardWorkspace(call_of(c), *q, *k[c], *v[c],
                                                                     plan.target, plan.num_threads)});
    AttentionForward(call_of(c), *q, *k[c], *v[c], first, last,
                     first && last ? AttentionState{} : AttentionState{*state_out, *state_max, *state_sum},
                     *out, *lse, *workspace, plan.target, plan.num_threads);
  }
  Scatter(*out, plan.query_spans, result.out);
  Scatter(*lse, plan.query_spans, result.lse);

  Guarded delta(DType::kFloat32, {rows, s.heads});
  AttentionDelta(*out, *dout, *delta, plan.target, plan.num_threads);
  if (!plan.delta.empty()) {
    ForRows(plan.query_spans, [&](int64_t row, int64_t index) {
      for (int64_t h = 0; h < s.heads; ++h)
        Set(*delta, row * s.heads + h,
            static_cast<float>(plan.delta[static_cast<size_t>(index * s.heads + h)]));
    });
  }
  const auto initial = [&](const Tensor& x) {
    std::fill_n(x.data<float>(), x.num_elements(), plan.initial_gradient);
  };
  Guarded dq(DType::kFloat32, {rows, s.heads, s.width});
  initial(*dq);
  for (size_t c = 0; c < plan.key_spans.size(); ++c) {
    const int64_t keys = RowsOf(plan.key_spans[c]);
    Guarded dk(DType::kFloat32, {keys, s.kv_heads, s.width}),
        dv(DType::kFloat32, {keys, s.kv_heads, s.value_width});
    initial(*dk);
    initial(*dv);
    const Guarded workspace(DType::kByte, {AttentionBackwardWorkspace(call_of(c), *q, *k[c], *v[c],
                                                                      plan.target, plan.num_threads)});
    AttentionBackward(call_of(c), *q, *k[c], *v[c], *dout, *lse, *delta, *dq, *dk, *dv, *workspace,
                      plan.target, plan.num_threads);
    Scatter(*dk, plan.key_spans[c], result.dk);
    Scatter(*dv, plan.key_spans[c], result.dv);
  }
  Scatter(*dq, plan.query_spans, result.dq);
  return result;
}

inline Plan Whole(const Problem& problem, CpuTarget target) {
  const Range all = {0, problem.length()};
  return {.target = target, .query_spans = {all}, .key_spans = {{all}}};
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  template <class T>
  const T& Of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(Below(static_cast<int64_t>(choices.size())))];
  }
  // Normal, as the dtype holds them.
  Floats Normal(int64_t n, DType dtype) {
    std::normal_distribution<float> normal;
    Floats x(static_cast<size_t>(n));
    for (float& value : x) value = normal(engine_);
    if (dtype == DType::kBFloat16)
      for (float& value : x) value = static_cast<float>(BFloat16(value));
    return x;
  }
  std::mt19937& engine() { return engine_; }

 private:
  std::mt19937 engine_;
};

struct Heads {
  int64_t heads, kv_heads;
  std::vector<int32_t> kv_of;
};
inline Heads EvenHeads(int64_t heads, int64_t kv_heads) {
  Heads result{heads, kv_heads, {}};
  for (int64_t h = 0; h < heads; ++h) result.kv_of.push_back(static_cast<int32_t>(h * kv_heads / heads));
  return result;
}

inline Problem MakeProblem(int64_t length, const Heads& heads, int64_t width, int64_t value_width,
                           DType dtype, Mask mask, Random& random) {
  Problem p;
  p.shape = {length, length, heads.heads, heads.kv_heads, width, value_width};
  p.kv_of = heads.kv_of;
  p.scale = 1 / std::sqrt(static_cast<float>(width));
  p.dtype = dtype;
  p.mask = std::move(mask);
  p.q = random.Normal(length * heads.heads * width, dtype);
  p.k = random.Normal(length * heads.kv_heads * width, dtype);
  p.v = random.Normal(length * heads.kv_heads * value_width, dtype);
  p.dout = random.Normal(length * heads.heads * value_width, dtype);
  return p;
}

// Unequal documents with padding between and after them; the whole length if it is too short for that.
inline std::vector<Range> Packed(int64_t length, Random& random) {
  std::vector<Range> documents;
  for (int64_t at = random.Below(3); at < length;) {
    const int64_t end = std::min(length, at + 1 + random.Below(length / 2 + 1));
    documents.push_back({at, end});
    at = end + (random.Below(3) == 0 ? random.Below(9) : 0);
  }
  if (documents.empty()) documents.push_back({0, length});
  return documents;
}

inline std::vector<Range> Stripes(int64_t length, Random& random) {
  std::vector<Range> spans;
  for (int64_t at = 0; at < length;) {
    const int64_t end = std::min(length, at + 1 + random.Below(13));
    spans.push_back({at, end});
    at = end;
  }
  std::ranges::shuffle(spans, random.engine());
  return spans;
}

inline std::vector<Range> Zigzag(int64_t length) {
  std::vector<Range> spans;
  const int64_t chunk = (length + 3) / 4;
  for (const int64_t c : {0, 3, 1, 2}) {
    const Range span = {std::min(length, c * chunk), std::min(length, (c + 1) * chunk)};
    if (!span.empty()) spans.push_back(span);
  }
  return spans;
}

// The spans dealt to so many calls, in turn.
inline std::vector<std::vector<Range>> Deal(const std::vector<Range>& spans, int64_t calls) {
  std::vector<std::vector<Range>> dealt(static_cast<size_t>(calls));
  for (size_t i = 0; i < spans.size(); ++i) dealt[i % dealt.size()].push_back(spans[i]);
  return dealt;
}

inline Plan RandomPlan(int64_t length, CpuTarget target, Random& random) {
  const auto spans = [&] {
    switch (random.Below(3)) {
      case 0:
        return std::vector<Range>{{0, length}};
      case 1:
        return Zigzag(length);
      default:
        return Stripes(length, random);
    }
  };
  return {.target = target,
          .num_threads = std::min(kMostThreads, 1 + static_cast<int>(random.Below(2))),
          .query_spans = spans(),
          .key_spans = Deal(spans(), 1 + random.Below(4)),
          .initial_gradient = random.Below(2) == 0 ? 0.0f : 0.5f};
}

inline std::vector<double> Widen(const Floats& x) { return {x.begin(), x.end()}; }

struct Expected {
  reference::AttentionOutput<double> forward;
  reference::AttentionGradients<double> gradients;
  std::vector<double> delta;
};

inline Expected Reference(const Problem& p) {
  const auto sees = [&](int64_t row, int64_t key) { return p.mask.Row(row).Sees(key); };
  std::vector<char> seen(static_cast<size_t>(p.length() * p.length()));
  for (int64_t i = 0; i < p.length(); ++i)
    for (int64_t j = 0; j < p.length(); ++j) seen[static_cast<size_t>(i * p.length() + j)] = sees(i, j);
  const auto seen_at = [&](int64_t i, int64_t j) {
    return seen[static_cast<size_t>(i * p.length() + j)] != 0;
  };
  const auto q = Widen(p.q), k = Widen(p.k), v = Widen(p.v), dout = Widen(p.dout);
  Expected e;
  const reference::AttentionScores<double> rule = {p.scale, p.soft_cap, Widen(p.sinks)};
  e.forward = reference::AttentionForward(p.shape, p.kv_of, rule, q, k, v, seen_at);
  e.gradients = reference::AttentionBackward(p.shape, p.kv_of, rule, q, k, v, e.forward, dout, seen_at);
  for (size_t row = 0; row < e.forward.lse.size(); ++row) {
    const auto at = row * static_cast<size_t>(p.shape.value_width);
    e.delta.push_back(reference::Dot(&e.forward.out[at], &dout[at], p.shape.value_width));
  }
  return e;
}

// |got − want| ≤ tolerance · (1 + |want|) + rounding · |want| everywhere; infinities equal.
inline void ExpectNear(const char* what, const Floats& got, const std::vector<double>& want, double tolerance,
                       double rounding = 0, double offset = 0) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double expected = want[i] + offset;
    if (static_cast<double>(got[i]) == expected) continue;
    ASSERT_LE(std::abs(static_cast<double>(got[i]) - expected),
              tolerance * (1 + std::abs(expected)) + rounding * std::abs(expected))
        << what << "[" << i << "] is " << got[i] << ", not " << expected;
  }
}

// |got − want| has a root mean square of at most tolerance · that of `want`, and is nowhere 12 times that:
// for results whose terms are rounded to bf16, large and small alike.
inline void ExpectNearOverall(const char* what, const Floats& got, const std::vector<double>& want,
                              double tolerance, double offset = 0) {
  ASSERT_EQ(got.size(), want.size());
  double squares = 0, error_squares = 0, worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = static_cast<double>(got[i]) - (want[i] + offset);
    ASSERT_TRUE(std::isfinite(error)) << what << "[" << i << "] is " << got[i];
    squares += want[i] * want[i];
    error_squares += error * error;
    worst = std::max(worst, std::abs(error));
  }
  const auto n = static_cast<double>(std::max<size_t>(1, got.size()));
  const double scale = std::sqrt(squares / n) + 1e-3;
  ASSERT_LE(worst, 12 * tolerance * scale) << what;
  ASSERT_LE(std::sqrt(error_squares / n), tolerance * scale) << what;
}

// Whether weights and their gradients are rounded to bf16 before they meet a product.
inline bool RoundsWeights(const Problem& p, const Plan& plan) {
  return p.dtype == DType::kBFloat16 && plan.target > CpuTarget::kAvx512;
}

inline void ExpectMatches(const Problem& p, Plan plan, const Expected& e) {
  const bool is_bf16 = p.dtype == DType::kBFloat16;
  // An output rounded to bf16 would spoil delta; the kernel is to be tested, not that rounding.
  if (is_bf16) plan.delta = e.delta;
  const Result got = Compute(p, plan);
  const double f32 = 1e-5, initial = static_cast<double>(plan.initial_gradient);
  ExpectNear("lse", got.lse, e.forward.lse, f32);
  if (RoundsWeights(p, plan)) {
    ExpectNearOverall("out", got.out, e.forward.out, 5e-3);
    ExpectNearOverall("dq", got.dq, e.gradients.dq, 5e-3, initial);
    ExpectNearOverall("dk", got.dk, e.gradients.dk, 5e-3, initial);
    ExpectNearOverall("dv", got.dv, e.gradients.dv, 5e-3, initial);
    return;
  }
  ExpectNear("out", got.out, e.forward.out, f32, is_bf16 ? 1.0 / 256 : 0);
  ExpectNear("dq", got.dq, e.gradients.dq, f32, 0, initial);
  ExpectNear("dk", got.dk, e.gradients.dk, f32, 0, initial);
  ExpectNear("dv", got.dv, e.gradients.dv, f32, 0, initial);
}

inline bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline void ExpectSameBits(const Result& a, const Result& b) {
  EXPECT_TRUE(SameBits(a.out, b.out));
  EXPECT_TRUE(SameBits(a.lse, b.lse));
  EXPECT_TRUE(SameBits(a.dq, b.dq));
  EXPECT_TRUE(SameBits(a.dk, b.dk));
  EXPECT_TRUE(SameBits(a.dv, b.dv));
}

// Bits of row `row` (of a tensor with so many rows).
inline std::span<const float> RowOf(const Floats& x, int64_t row, int64_t rows) {
  const size_t size = x.size() / static_cast<size_t>(rows);
  return std::span(x).subspan(static_cast<size_t>(row) * size, size);
}
inline bool SameRow(const Floats& a, const Floats& b, int64_t row, int64_t rows) {
  const auto x = RowOf(a, row, rows), y = RowOf(b, row, rows);
  return std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
}

}  // namespace longspan::cpu
