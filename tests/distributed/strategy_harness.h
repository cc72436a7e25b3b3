// Runs a strategy over thread ranks (or dry ones) on a whole sequence, and puts the shards together again.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "comm/dry_comm.h"
#include "comm/mesh.h"
#include "comm/thread_comm.h"
#include "parallel/layout.h"
#include "parallel/strategy.h"
#include "reference/attention.h"
#include "reference/mask.h"

namespace longspan::testing {

struct HeadShape {
  int64_t heads = 8, kv_heads = 2, width = 16, value_width = 16;
};

// A whole sequence of T rows: what goes in, and who sees whom.
struct Problem {
  std::string name;
  MaskSpec mask;
  Documents documents;
  int64_t length = 0;
  HeadShape shape;
  DType dtype = DType::kFloat32;           // of q, k, v, out and their gradients
  DType gradient_dtype = DType::kFloat32;  // of dq, dk, dv
  std::vector<float> q, k, v, dout;        // (T, heads, width), exact in dtype
  float soft_cap = 0;
  std::vector<float> sinks = {};  // (heads), or empty

  double scale() const { return 1 / std::sqrt(static_cast<double>(shape.width)); }
  std::vector<int32_t> kv_of() const {
    std::vector<int32_t> kv_of;
    for (int64_t h = 0; h < shape.heads; ++h)
      kv_of.push_back(static_cast<int32_t>(h * shape.kv_heads / shape.heads));
    return kv_of;
  }
};

inline std::vector<float> RandomValues(int64_t n, DType dtype, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) {
    x = normal(random);
    if (dtype == DType::kBFloat16) x = static_cast<float>(BFloat16(x));
  }
  return values;
}

inline Problem MakeProblem(std::string name, const MaskSpec& mask, const Documents& documents, int64_t length,
                           const HeadShape& shape = {}, DType dtype = DType::kFloat32,
                           DType gradient_dtype = DType::kFloat32) {
  Problem p{.name = std::move(name),
            .mask = mask,
            .documents = documents,
            .length = length,
            .shape = shape,
            .dtype = dtype,
            .gradient_dtype = gradient_dtype,
            .q = {},
            .k = {},
            .v = {},
            .dout = {}};
  std::mt19937_64 random(17);
  p.q = RandomValues(length * shape.heads * shape.width, dtype, random);
  p.k = RandomValues(length * shape.kv_heads * shape.width, dtype, random);
  p.v = RandomValues(length * shape.kv_heads * shape.value_width, dtype, random);
  p.dout = RandomValues(length * shape.heads * shape.value_width, dtype, random);
  return p;
}

// Everything that a strategy computes, for the whole sequence.
template <class Real>
struct Results {
  std::vector<Real> out, lse, dq, dk, dv, dsinks;
};

// In float64, dense, on the pairs that the mask's formula allows.
inline Results<double> Reference(const Problem& p) {
  const auto wide = [](const std::vector<float>& x) { return std::vector<double>(x.begin(), x.end()); };
  const reference::AttentionShape shape = {p.length,         p.length,      p.shape.heads,
                                           p.shape.kv_heads, p.shape.width, p.shape.value_width};
  const auto sees = [&](int64_t row, int64_t key) { return reference::Sees(p.mask, p.documents, row, key); };
  const std::vector<int32_t> kv_of = p.kv_of();
  const reference::AttentionScores<double> rule = {p.scale(), p.soft_cap, wide(p.sinks)};
  const auto q = wide(p.q), k = wide(p.k), v = wide(p.v);
  auto forward = reference::AttentionForward(shape, kv_of, rule, q, k, v, sees);
  auto backward = reference::AttentionBackward(shape, kv_of, rule, q, k, v, forward, wide(p.dout), sees);
  return {std::move(forward.out), std::move(forward.lse), std::move(backward.dq),
          std::move(backward.dk), std::move(backward.dv), std::move(backward.dsinks)};
}

// A strategy over R × U ranks.
struct Placement {
  std::string strategy;
  int ring = 1, ulysses = 1;
  LayoutKind layout = LayoutKind::kContiguous;
  int64_t stripe = 4;

  int ranks() const { return ring * ulysses; }
  std::string name() const { return fmt::format("{}_{}x{}_{}", strategy, ring, ulysses, Name(layout)); }
  friend void PrintTo(const Placement& placement, std::ostream* out) { *out << placement.name(); }
};

// What a run took, per rank.
struct Cost {
  int64_t arena_peak = 0;
  Comm::Traffic traffic;
  friend bool operator==(const Cost&, const Cost&) = default;
};

// One rank's part of a run; `whole` gets my rows (disjoint between ranks). Dry: tensors are never touched.
class RankRun {
 public:
  RankRun(const Placement& placement, Comm& world, std::unique_ptr<Backend> backend)
      : placement_(placement),
        world_(world),
        backend_(std::move(backend)),
        mesh_(MakeMesh({.data = 1, .fsdp = 1, .ring = placement.ring, .ulysses = placement.ulysses}, world)),
        strategy_(FindStrategy(placement.strategy).make(mesh_)) {}

  // Whatever an operation takes from the arena and forgets to write is NaN.
  void Poison() {
    const Arena::Scope scope(backend_->arena());
    const Tensor all = backend_->arena().Allocate("test.poison", DType::kByte, {int64_t{2} << 20});
    std::memset(all.raw(), 0xff, static_cast<size_t>(all.num_bytes()));
  }

  Cost Run(const Problem& p, Results<float>* whole) {
    const Arena::Scope scope(backend_->arena());
    const Layout layout(placement_.layout, p.length, placement_.ring, placement_.ulysses, placement_.stripe);
    const Mask mask = MakeMask(p.mask, p.documents);
    std::vector<std::vector<Range>> spans;
    for (int rank = 0; rank < placement_.ranks(); ++rank) spans.push_back(layout.spans(rank));
    const std::vector<int32_t> kv_of = p.kv_of();
    const Tensor sinks = PerHead(p.sinks);
    const SequenceShards shards = {.mask = &mask,
                                   .spans = spans,
                                   .kv_of = kv_of,
                                   .scale = static_cast<float>(p.scale()),
                                   .soft_cap = p.soft_cap,
                                   .sinks = sinks};
    mine_ = spans[static_cast<size_t>(mesh_.context->rank())];
    length_ = p.length;
    const int64_t t = layout.rows_per_rank();
    const auto [heads, kv_heads, width, value_width] = p.shape;

    const Tensor q = Input(p.q, p.dtype, {t, heads, width}), k = Input(p.k, p.dtype, {t, kv_heads, width}),
                 v = Input(p.v, p.dtype, {t, kv_heads, value_width}),
                 dout = Input(p.dout, p.dtype, {t, heads, value_width});
    const Tensor out = New(p.dtype, {t, heads, value_width}), lse = New(DType::kFloat32, {t, heads}),
                 delta = New(DType::kFloat32, {t, heads}), dq = New(p.gradient_dtype, {t, heads, width}),
                 dk = New(p.gradient_dtype, {t, kv_heads, width}),
                 dv = New(p.gradient_dtype, {t, kv_heads, value_width});
    const Comm::Traffic before = world_.traffic();
    strategy_->Forward(*backend_, shards, q, k, v, out, lse);
    backend_->AttentionDelta(out, dout, delta);
    strategy_->Backward(*backend_, shards, q, k, v, dout, lse, delta, dq, dk, dv);
    const Tensor dsinks = PerHead(std::vector<float>(p.sinks.size()));
    if (!dsinks.IsNull()) {
      backend_->AttentionSinksBackward(sinks, lse, delta, dsinks);
      mesh_.context->AllReduceSum(dsinks);
    }
    if (whole != nullptr) {
      if (!dsinks.IsNull() && mesh_.context->rank() == 0)
        whole->dsinks.assign(dsinks.data<float>(), dsinks.data<float>() + heads);
      Output(out, whole->out);
      Output(lse, whole->lse);
      Output(dq, whole->dq);
      Output(dk, whole->dk);
      Output(dv, whole->dv);
    }
    const Comm::Traffic after = world_.traffic();
    return {backend_->arena().peak_bytes(),
            {after.bytes_sent - before.bytes_sent, after.messages_sent - before.messages_sent}};
  }

 private:
  Tensor New(DType dtype, std::initializer_list<int64_t> shape) {
    return backend_->arena().Allocate("test.tensor", dtype, shape);
  }

  // (H) f32 of these values; no tensor for none.
  Tensor PerHead(const std::vector<float>& values) {
    if (values.empty()) return {};
    const Tensor x = New(DType::kFloat32, {static_cast<int64_t>(values.size())});
    if (!backend_->dry()) std::ranges::copy(values, x.data<float>());
    return x;
  }

  // My rows of `whole`; those past the sequence's end hold a number that would show.
  Tensor Input(const std::vector<float>& whole, DType dtype, std::initializer_list<int64_t> shape) {
    const Tensor x = New(dtype, shape);
    if (backend_->dry()) return x;
    const int64_t width = x.dim(1) * x.dim(2);
    int64_t n = 0;
    for (const Range& span : mine_) {
      for (int64_t i = span.begin * width; i < span.end * width; ++i, ++n) {
        const float value = i < length_ * width ? whole[static_cast<size_t>(i)] : 5.0f;
        if (dtype == DType::kFloat32) {
          x.data<float>()[n] = value;
        } else {
          x.data<BFloat16>()[n] = BFloat16(value);
        }
      }
    }
    return x;
  }

  void Output(Tensor x, std::vector<float>& whole) {
    const int64_t width = x.num_elements() / x.dim(0);
    int64_t n = 0;
    for (const Range& span : mine_) {
      for (int64_t i = span.begin * width; i < span.end * width; ++i, ++n) {
        const float value =
            x.dtype() == DType::kFloat32 ? x.data<float>()[n] : static_cast<float>(x.data<BFloat16>()[n]);
        if (i < length_ * width) {
          whole[static_cast<size_t>(i)] = value;
        } else {
          // Only lse (t, H) has two dimensions.
          ASSERT_EQ(value, x.rank() == 2 ? -std::numeric_limits<float>::infinity() : 0.0f) << "past the end";
        }
      }
    }
  }

  const Placement& placement_;
  Comm& world_;
  const std::unique_ptr<Backend> backend_;
  Mesh mesh_;
  const std::unique_ptr<AttentionStrategy> strategy_;
  std::vector<Range> mine_;
  int64_t length_ = 0;
};

// Runs the problems one after the other on the same ranks, each in memory that is full of NaN.
inline std::vector<Results<float>> RunAll(const Placement& placement,
                                          const std::vector<const Problem*>& problems) {
  std::vector<Results<float>> results;
  for (const Problem* p : problems) {
    const auto nan = [&](int64_t width) {
      return std::vector<float>(static_cast<size_t>(p->length * width),
                                std::numeric_limits<float>::quiet_NaN());
    };
    const HeadShape& s = p->shape;
    results.push_back({nan(s.heads * s.value_width),
                       nan(s.heads),
                       nan(s.heads * s.width),
                       nan(s.kv_heads * s.width),
                       nan(s.kv_heads * s.value_width),
                       {}});
  }
  RunThreadRanks(placement.ranks(), [&](Comm& world) {
    RankRun rank(placement, world, MakeCpuBackend(1));
    const AbortOnUnwind abort(world);
    for (size_t n = 0; n < problems.size(); ++n) {
      rank.Poison();
      rank.Run(*problems[n], &results[n]);
    }
  });
  return results;
}

inline Results<float> RunOne(const Placement& placement, const Problem& problem) {
  return RunAll(placement, {&problem})[0];
}

// ‖got − want‖₂ ≤ tolerance · max(‖want‖₂, 1) of what is finite (the 1: a single key's gradient is 0 by
// cancellation of terms of that size); infinities must be the same ones. Names the worst element.
inline void ExpectNear(const char* what, const std::vector<float>& got, const std::vector<double>& want,
                       double tolerance) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double difference = 0, norm = 0, worst = 0;
  size_t worst_at = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i])) {
      ASSERT_EQ(static_cast<double>(got[i]), want[i]) << what << " at " << i;
      continue;
    }
    const double d = std::abs(static_cast<double>(got[i]) - want[i]);
    ASSERT_TRUE(std::isfinite(d)) << what << " is " << got[i] << " at " << i << ", not " << want[i];
    difference += d * d;
    norm += want[i] * want[i];
    if (d > worst) worst = d, worst_at = i;
  }
  EXPECT_LE(std::sqrt(difference), tolerance * std::max(std::sqrt(norm), 1.0))
      << what << " is off by " << std::sqrt(difference / norm) << ", most at " << worst_at << ": "
      << got[worst_at] << ", not " << want[worst_at];
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}
inline bool SameBits(const Results<float>& a, const Results<float>& b) {
  return SameBits(a.out, b.out) && SameBits(a.lse, b.lse) && SameBits(a.dq, b.dq) && SameBits(a.dk, b.dk) &&
         SameBits(a.dv, b.dv) && SameBits(a.dsinks, b.dsinks);
}

// Rows [begin, end) of a whole (T, ·) array.
inline std::vector<float> RowsOf(const std::vector<float>& whole, int64_t length, int64_t begin,
                                 int64_t end) {
  const int64_t width = static_cast<int64_t>(whole.size()) / length;
  return {whole.begin() + begin * width, whole.begin() + end * width};
}

// Relative differences of tensors. In bf16 out, dq, dk and dv are rounded once (2^−9 each at most, 2e-3 in
// the norm), and weights inside the kernel too. Padding: exactly 0 and −∞.
inline void ExpectResults(const Results<float>& got, const Results<double>& want, const Problem& p) {
  const bool f32 = p.dtype == DType::kFloat32;
  ExpectNear("out", got.out, want.out, f32 ? 2e-6 : 5e-3);
  ExpectNear("lse", got.lse, want.lse, f32 ? 2e-6 : 1e-3);
  ExpectNear("dq", got.dq, want.dq, f32 ? 5e-6 : 1e-2);
  ExpectNear("dk", got.dk, want.dk, f32 ? 5e-6 : 1e-2);
  ExpectNear("dv", got.dv, want.dv, f32 ? 5e-6 : 1e-2);
  ExpectNear("dsinks", got.dsinks, want.dsinks, f32 ? 5e-6 : 1e-2);
  for (int64_t row = 0; row < p.length; ++row) {
    if (std::ranges::any_of(p.documents, [&](Range d) { return d.begin <= row && row < d.end; })) continue;
    for (const auto part :
         {&Results<float>::out, &Results<float>::dq, &Results<float>::dk, &Results<float>::dv})
      for (const float x : RowsOf(got.*part, p.length, row, row + 1))
        ASSERT_EQ(x, 0) << "padding row " << row;
    for (const float x : RowsOf(got.lse, p.length, row, row + 1))
      ASSERT_EQ(x, -std::numeric_limits<float>::infinity()) << "padding row " << row;
  }
}

}  // namespace longspan::testing
