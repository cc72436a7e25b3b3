// The attention kernels of every CPU target that this machine runs, against a dense float64 reference.
#include "backend/cpu/attention.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "reference/attention.h"
#include "reference/mask.h"

namespace longspan::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// libgomp is not instrumented: under the thread sanitizer every region of several threads looks like a race.
#if defined(__SANITIZE_THREAD__)
constexpr int kMostThreads = 1;
#else
constexpr int kMostThreads = 5;
#endif
constexpr int kFew = std::min(kMostThreads, 2);

std::vector<CpuTarget> TargetsHere() {
  std::vector<CpuTarget> targets;
  for (const CpuTarget target : AllTargets())
    if (Runs(DetectCpu(), target)) targets.push_back(target);
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

float Get(const Tensor& x, int64_t i) {
  return x.dtype() == DType::kBFloat16 ? static_cast<float>(x.data<BFloat16>()[i]) : x.data<float>()[i];
}
void Set(const Tensor& x, int64_t i, float value) {
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
  float scale = 1;
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

int64_t RowsOf(std::span<const Range> spans) {
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

Guarded Gather(const Floats& x, DType dtype, std::span<const Range> spans, int64_t heads, int64_t width) {
  Guarded rows(dtype, {RowsOf(spans), heads, width});
  ForRows(spans, [&](int64_t row, int64_t index) {
    for (int64_t i = 0; i < heads * width; ++i)
      Set(*rows, row * heads * width + i, x[static_cast<size_t>(index * heads * width + i)]);
  });
  return rows;
}

void Scatter(const Tensor& rows, std::span<const Range> spans, Floats& x) {
  const int64_t size = rows.dim(0) == 0 ? 0 : rows.num_elements() / rows.dim(0);
  ForRows(spans, [&](int64_t row, int64_t index) {
    for (int64_t i = 0; i < size; ++i) x[static_cast<size_t>(index * size + i)] = Get(rows, row * size + i);
  });
}

Result Compute(const Problem& problem, const Plan& plan) {
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
  const auto call_of = [&](size_t c) {
    return AttentionCall{&problem.mask, plan.query_spans, plan.key_spans[c], problem.kv_of, problem.scale};
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

Plan Whole(const Problem& problem, CpuTarget target) {
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
Heads EvenHeads(int64_t heads, int64_t kv_heads) {
  Heads result{heads, kv_heads, {}};
  for (int64_t h = 0; h < heads; ++h) result.kv_of.push_back(static_cast<int32_t>(h * kv_heads / heads));
  return result;
}

Problem MakeProblem(int64_t length, const Heads& heads, int64_t width, int64_t value_width, DType dtype,
                    Mask mask, Random& random) {
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
std::vector<Range> Packed(int64_t length, Random& random) {
  std::vector<Range> documents;
  for (int64_t at = random.Below(3); at < length;) {
    const int64_t end = std::min(length, at + 1 + random.Below(length / 2 + 1));
    documents.push_back({at, end});
    at = end + (random.Below(3) == 0 ? random.Below(9) : 0);
  }
  if (documents.empty()) documents.push_back({0, length});
  return documents;
}

std::vector<Range> Stripes(int64_t length, Random& random) {
  std::vector<Range> spans;
  for (int64_t at = 0; at < length;) {
    const int64_t end = std::min(length, at + 1 + random.Below(13));
    spans.push_back({at, end});
    at = end;
  }
  std::ranges::shuffle(spans, random.engine());
  return spans;
}

std::vector<Range> Zigzag(int64_t length) {
  std::vector<Range> spans;
  const int64_t chunk = (length + 3) / 4;
  for (const int64_t c : {0, 3, 1, 2}) {
    const Range span = {std::min(length, c * chunk), std::min(length, (c + 1) * chunk)};
    if (!span.empty()) spans.push_back(span);
  }
  return spans;
}

// The spans dealt to so many calls, in turn.
std::vector<std::vector<Range>> Deal(const std::vector<Range>& spans, int64_t calls) {
  std::vector<std::vector<Range>> dealt(static_cast<size_t>(calls));
  for (size_t i = 0; i < spans.size(); ++i) dealt[i % dealt.size()].push_back(spans[i]);
  return dealt;
}

Plan RandomPlan(int64_t length, CpuTarget target, Random& random) {
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

std::vector<double> Widen(const Floats& x) { return {x.begin(), x.end()}; }

struct Expected {
  reference::AttentionOutput<double> forward;
  reference::AttentionGradients<double> gradients;
  std::vector<double> delta;
};

Expected Reference(const Problem& p) {
  const auto sees = [&](int64_t row, int64_t key) { return p.mask.Row(row).Sees(key); };
  std::vector<char> seen(static_cast<size_t>(p.length() * p.length()));
  for (int64_t i = 0; i < p.length(); ++i)
    for (int64_t j = 0; j < p.length(); ++j) seen[static_cast<size_t>(i * p.length() + j)] = sees(i, j);
  const auto seen_at = [&](int64_t i, int64_t j) {
    return seen[static_cast<size_t>(i * p.length() + j)] != 0;
  };
  const auto q = Widen(p.q), k = Widen(p.k), v = Widen(p.v), dout = Widen(p.dout);
  Expected e;
  e.forward = reference::AttentionForward<double>(p.shape, p.kv_of, p.scale, q, k, v, seen_at);
  e.gradients =
      reference::AttentionBackward<double>(p.shape, p.kv_of, p.scale, q, k, v, e.forward, dout, seen_at);
  for (size_t row = 0; row < e.forward.lse.size(); ++row) {
    const auto at = row * static_cast<size_t>(p.shape.value_width);
    e.delta.push_back(reference::Dot(&e.forward.out[at], &dout[at], p.shape.value_width));
  }
  return e;
}

// |got − want| ≤ tolerance · (1 + |want|) + rounding · |want| everywhere; infinities equal.
void ExpectNear(const char* what, const Floats& got, const std::vector<double>& want, double tolerance,
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

void ExpectMatches(const Problem& p, Plan plan, const Expected& e) {
  const bool is_bf16 = p.dtype == DType::kBFloat16;
  // An output rounded to bf16 would spoil delta; the kernel is to be tested, not that rounding.
  if (is_bf16) plan.delta = e.delta;
  const Result got = Compute(p, plan);
  const double f32 = 1e-5, initial = static_cast<double>(plan.initial_gradient);
  ExpectNear("out", got.out, e.forward.out, f32, is_bf16 ? 1.0 / 256 : 0);
  ExpectNear("lse", got.lse, e.forward.lse, f32);
  ExpectNear("dq", got.dq, e.gradients.dq, f32, 0, initial);
  ExpectNear("dk", got.dk, e.gradients.dk, f32, 0, initial);
  ExpectNear("dv", got.dv, e.gradients.dv, f32, 0, initial);
}

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

// ------------------------------------------------------------------------------------------------ the
// reference

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
  constexpr int64_t kLength = 620;  // four query blocks, two forward and four backward key blocks
  for (const MaskSpec& spec : {MaskSpec{.kind = MaskKind::kFull}, MaskSpec{.kind = MaskKind::kCausal},
                               MaskSpec{.kind = MaskKind::kPrefix, .prefix = 170},
                               MaskSpec{.kind = MaskKind::kSinkWindow, .window = 300, .sinks = 66}}) {
    const bool is_packed = spec.kind == MaskKind::kFull;
    const auto documents = is_packed ? Packed(kLength, random) : std::vector<Range>{{0, kLength}};
    const Problem p =
        MakeProblem(kLength, EvenHeads(2, 1), 8, 16, DType::kFloat32, MakeMask(spec, documents), random);
    const Expected e = Reference(p);
    for (const CpuTarget target : TargetsHere()) {
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

// Every interval end is off by none or one from a panel's.
TEST(Attention, EqualsReferenceBesideThePanelsEdges) {
  Random random(14);
  constexpr int64_t kLength = 200;
  for (const int64_t begin : {0, 1}) {
    for (const int64_t cut : {63, 64, 65, 127, 128, 129}) {
      for (const MaskKind kind : {MaskKind::kFull, MaskKind::kCausal}) {
        const std::vector<Range> documents = {{begin, cut}, {cut, kLength - begin}};
        const Problem p = MakeProblem(kLength, EvenHeads(1, 1), 4, 4, DType::kFloat32,
                                      MakeMask({.kind = kind}, documents), random);
        const Expected e = Reference(p);
        for (const CpuTarget target : TargetsHere()) {
          SCOPED_TRACE(
              fmt::format("[{}, {}) and [{}, {}), {}", begin, cut, cut, kLength - begin, Name(target)));
          ExpectMatches(p, Whole(p, target), e);
          if (HasFatalFailure()) return;
        }
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

// -------------------------------------------------------------------------------------------------------
// bits

bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectSameBits(const Result& a, const Result& b) {
  EXPECT_TRUE(SameBits(a.out, b.out));
  EXPECT_TRUE(SameBits(a.lse, b.lse));
  EXPECT_TRUE(SameBits(a.dq, b.dq));
  EXPECT_TRUE(SameBits(a.dk, b.dk));
  EXPECT_TRUE(SameBits(a.dv, b.dv));
}

TEST(Attention, BitsDependNeitherOnTheRunNorOnTheThreads) {
  Random random(4);
  constexpr int64_t kLength = 450;
  const Problem p = MakeProblem(kLength, EvenHeads(2, 1), 16, 24, DType::kFloat32,
                                MakeMask({.kind = MaskKind::kCausal}, Packed(kLength, random)), random);
  for (const CpuTarget target : TargetsHere()) {
    Plan plan = Whole(p, target);
    plan.key_spans = Deal(Stripes(kLength, random), 2);
    const Result once = Compute(p, plan);
    for (const int threads : {1, 2, 2, 5}) {
      plan.num_threads = std::min(kMostThreads, threads);
      ExpectSameBits(once, Compute(p, plan));
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
      plan.delta.assign(300, 0.125);
      const Result a = Compute(narrow, plan);
      Result b = Compute(wide, plan);
      for (float& x : b.out) x = static_cast<float>(BFloat16(x));
      ExpectSameBits(a, b);
    }
  }
}

// Bits of row `row` (of a tensor with so many rows).
std::span<const float> RowOf(const Floats& x, int64_t row, int64_t rows) {
  const size_t size = x.size() / static_cast<size_t>(rows);
  return std::span(x).subspan(static_cast<size_t>(row) * size, size);
}
bool SameRow(const Floats& a, const Floats& b, int64_t row, int64_t rows) {
  const auto x = RowOf(a, row, rows), y = RowOf(b, row, rows);
  return std::memcmp(x.data(), y.data(), x.size_bytes()) == 0;
}

TEST(Attention, TokensThatARowDoesNotSeeChangeNoBit) {
  Random random(5);
  constexpr int64_t kLength = 200;
  for (const MaskSpec& spec : SmallMasks()) {
    const auto documents = Packed(kLength, random);
    const Problem p =
        MakeProblem(kLength, EvenHeads(2, 1), 16, 16, DType::kFloat32, MakeMask(spec, documents), random);
    for (const CpuTarget target : TargetsHere()) {
      const Plan plan = Whole(p, target);
      const Result before = Compute(p, plan);
      for (int probe = 0; probe < 6; ++probe) {
        const int64_t token = random.Below(kLength);
        SCOPED_TRACE(fmt::format("mask {}, token {}, {}", static_cast<int>(spec.kind), token, Name(target)));
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

TEST(Attention, SomeQueryRowsEqualThoseOfTheWhole) {
  Random random(6);
  const Problem p = MakeProblem(8, EvenHeads(2, 2), 16, 16, DType::kFloat32,
                                MakeMask({.kind = MaskKind::kCausal}, std::vector<Range>{{0, 8}}), random);
  for (const CpuTarget target : TargetsHere()) {
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

// ------------------------------------------------------------------------------------- rows that see nothing

TEST(Attention, RowsThatSeeNothingAreZeroAndAddNothing) {
  Random random(7);
  constexpr int64_t kLength = 150;
  const std::vector<Range> documents = {{3, 50}, {60, 140}};
  const auto padding = [](int64_t row) { return row < 3 || (row >= 50 && row < 60) || row >= 140; };
  Problem p = MakeProblem(kLength, EvenHeads(2, 1), 24, 24, DType::kFloat32,
                          MakeMask({.kind = MaskKind::kFull}, documents), random);
  const Expected e = Reference(p);
  for (const CpuTarget target : TargetsHere()) {
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

TEST(Attention, NothingAtAllToSee) {
  Random random(8);
  for (const CpuTarget target : TargetsHere()) {
    Problem p = MakeProblem(10, EvenHeads(2, 1), 16, 16, DType::kFloat32, Mask(), random);
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
    for (const float x : got.dk) EXPECT_EQ(x, 0.0f);
  }
}

// ------------------------------------------------------------------------------------------ numbers at the
// edge

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
  for (const float score : {0.0f, 3.0f, -1e5f, 1e5f}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      Problem p = Causal(600, 16, dtype, random);
      p.scale = 1;
      std::ranges::fill(p.q, 1.0f);
      std::ranges::fill(p.k, static_cast<float>(BFloat16(score)) / 16);
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
          const double want = static_cast<double>(static_cast<float>(BFloat16(score))) +
                              std::log(static_cast<double>(row + 1));
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
    Problem p = Causal(700, 16, DType::kFloat32, random);
    p.scale = 1;
    std::ranges::fill(p.q, 0.0f);
    std::ranges::fill(p.k, 0.0f);
    for (size_t row = 0; row < 700; ++row) {
      p.q[row * 32] = p.q[row * 32 + 16] = 1;
      p.k[row * 16] = step * (static_cast<float>(row) - 350);
    }
    const Expected e = Reference(p);
    for (const CpuTarget target : TargetsHere()) {
      for (const int64_t calls : {1, 4}) {
        Plan plan = Whole(p, target);
        plan.key_spans = Deal(Zigzag(700), calls);
        const Result got = Compute(p, plan);
        ExpectNear("out", got.out, e.forward.out, 1e-5);
        ExpectNear("lse", got.lse, e.forward.lse, 1e-6);
        // The weights in the backward pass carry the rounding of lse.
        const double tolerance = 2e-5 + 350 * static_cast<double>(step) * 0x1p-22;
        ExpectNear("dv", got.dv, e.gradients.dv, tolerance);
        ExpectNear("dk", got.dk, e.gradients.dk, 10 * tolerance);
        for (const float x : got.dq) ASSERT_TRUE(std::isfinite(x));
      }
    }
  }
}

TEST(Attention, ScoresOfTenThousandBothWays) {
  Random random(12);
  Problem p = Causal(300, 64, DType::kFloat32, random);
  for (float& x : p.q) x *= 3000;
  const Expected e = Reference(p);
  for (const CpuTarget target : TargetsHere()) {
    const Result got = Compute(p, Whole(p, target));
    for (size_t row = 0; row < got.lse.size(); ++row)
      ASSERT_NEAR(static_cast<double>(got.lse[row]), e.forward.lse[row], 1e4 * 0x1p-21);
    ExpectNear("out", got.out, e.forward.out, 1e4 * 0x1p-21);
    for (const Floats* gradient : {&got.dq, &got.dk, &got.dv})
      for (const float x : *gradient) ASSERT_TRUE(std::isfinite(x));
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

// ---------------------------------------------------------------------------------------------------- far
// away

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

TEST(Attention, LastDocumentOfHalfAMillionTokensEqualsItAlone) {
  constexpr int64_t kLength = 524'289, kDocument = 129, kHeads = 32, kWidth = 128;
  const Range document = {kLength - kDocument, kLength};
  Random random(13);
  Problem p = MakeProblem(kDocument, EvenHeads(kHeads, kHeads), kWidth, kWidth, DType::kFloat32,
                          MakeMask({.kind = MaskKind::kCausal}, std::vector<Range>{{0, kDocument}}), random);
  const CpuTarget target = TargetsHere().back();
  const Result alone = Compute(p, Whole(p, target));

  const std::vector<Range> query_spans = {document}, key_spans = {{0, kLength}};
  const Untouched k(DType::kFloat32, {kLength, kHeads, kWidth}),
      v(DType::kFloat32, {kLength, kHeads, kWidth});
  const Untouched dk(DType::kFloat32, {kLength, kHeads, kWidth}),
      dv(DType::kFloat32, {kLength, kHeads, kWidth});
  std::ranges::copy(p.k, (*k).Rows(document.begin, document.end).data<float>());
  std::ranges::copy(p.v, (*v).Rows(document.begin, document.end).data<float>());
  const std::vector<Range> rows = {{0, kDocument}};
  const Guarded q = Gather(p.q, DType::kFloat32, rows, kHeads, kWidth);
  const Guarded dout = Gather(p.dout, DType::kFloat32, rows, kHeads, kWidth);
  const Guarded out(DType::kFloat32, {kDocument, kHeads, kWidth}), lse(DType::kFloat32, {kDocument, kHeads});
  const Guarded delta(DType::kFloat32, {kDocument, kHeads});
  const Untouched dq(DType::kFloat32, {kDocument, kHeads, kWidth});
  const Mask mask =
      MakeMask({.kind = MaskKind::kCausal}, std::vector<Range>{{0, 1000}, {1000, document.begin}, document});
  const AttentionCall call = {&mask, query_spans, key_spans, p.kv_of, p.scale};
  {
    const Untouched workspace(DType::kByte, {AttentionForwardWorkspace(call, *q, *k, *v, target, kFew)});
    AttentionForward(call, *q, *k, *v, true, true, {}, *out, *lse, *workspace, target, kFew);
  }
  AttentionDelta(*out, *dout, *delta, target, kFew);
  const Untouched workspace(DType::kByte, {AttentionBackwardWorkspace(call, *q, *k, *v, target, kFew)});
  AttentionBackward(call, *q, *k, *v, *dout, *lse, *delta, *dq, *dk, *dv, *workspace, target, kFew);
  const auto expect_equal = [](const char* what, const Tensor& got, const Floats& want) {
    ExpectNear(what, Floats(got.data<float>(), got.data<float>() + got.num_elements()), Widen(want), 1e-5);
  };
  expect_equal("out", *out, alone.out);
  expect_equal("lse", *lse, alone.lse);
  expect_equal("dq", *dq, alone.dq);
  expect_equal("dk", (*dk).Rows(document.begin, document.end), alone.dk);
  expect_equal("dv", (*dv).Rows(document.begin, document.end), alone.dv);
}

}  // namespace
}  // namespace longspan::cpu
