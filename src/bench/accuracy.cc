#include "bench/accuracy.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/parallel.h"
#include "bench/cases.h"
#include "comm/thread_comm.h"
#include "core/random.h"
#include "parallel/strategy.h"

namespace longspan::bench {
namespace {

constexpr AccuracyCase kCases[] = {
    {"same_output", 4096, 64, 2, 1, 0, false, false, 256, 256},
    {"same_output", 4096, 128, 2, 1, 0, false, false, 256, 256},
    {"offset_keys", 32768, 128, 2, 1, 1, false, true, 256, 0},
    {"offset_keys_values", 32768, 128, 2, 1, 1, true, true, 256, 0},
};

// Four sums side by side: the compiler may not change the order of one.
double Dot(const double* a, const double* b, int64_t n) {
  double sum[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int64_t j = 0; j < 4; ++j) sum[j] += a[i + j] * b[i + j];
  for (; i < n; ++i) sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

void AddScaled(double scale, const double* x, double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += scale * x[i];
}

std::vector<double> Widen(const Buffer& x) {
  std::vector<double> wide(static_cast<size_t>(x.tensor().num_elements()));
  for (size_t i = 0; i < wide.size(); ++i)
    wide[i] = double{static_cast<float>(x.tensor().data<BFloat16>()[i])};
  return wide;
}

// ‖x − reference‖ / ‖reference‖, gathered piece by piece.
struct RelativeError {
  double difference = 0, norm = 0;
  void Add(const BFloat16* x, const std::vector<double>& reference) {
    for (size_t i = 0; i < reference.size(); ++i) {
      const double d = double{static_cast<float>(x[i])} - reference[i];
      difference += d * d;
      norm += reference[i] * reference[i];
    }
  }
  double value() const { return std::sqrt(difference / norm); }
};

// What the kernel is given and what it answers, bf16 but for lse and delta.
struct Problem {
  explicit Problem(const AccuracyCase& c)
      : size(c),
        q(RandomBuffer("accuracy.q", DType::kBFloat16, {c.length, c.query_heads, c.head_dim})),
        k(RandomBuffer("accuracy.k", DType::kBFloat16, {c.length, c.kv_heads, c.head_dim})),
        v(RandomBuffer("accuracy.v", DType::kBFloat16, {c.length, c.kv_heads, c.head_dim})),
        dout(RandomBuffer("accuracy.dout", DType::kBFloat16, {c.length, c.query_heads, c.head_dim})),
        out(DType::kBFloat16, {c.length, c.query_heads, c.head_dim}),
        lse(DType::kFloat32, {c.length, c.query_heads}),
        delta(DType::kFloat32, {c.length, c.query_heads}),
        dq(DType::kBFloat16, {c.length, c.query_heads, c.head_dim}),
        dk(DType::kBFloat16, {c.length, c.kv_heads, c.head_dim}),
        dv(DType::kBFloat16, {c.length, c.kv_heads, c.head_dim}) {
    BFloat16* const keys = k.tensor().data<BFloat16>();
    BFloat16* const values = v.tensor().data<BFloat16>();
    for (int64_t i = 0; i < k.tensor().num_elements(); ++i) {
      keys[i] = BFloat16(static_cast<float>(keys[i]) + static_cast<float>(c.key_offset));
      if (c.values_follow_keys)
        values[i] = BFloat16(static_cast<float>(values[i]) + static_cast<float>(keys[i]));
    }
    for (int64_t head = 0; head < c.query_heads; ++head)
      kv_of.push_back(static_cast<int32_t>(head / (c.query_heads / c.kv_heads)));
  }

  double scale() const { return 1 / std::sqrt(static_cast<double>(size.head_dim)); }

  void Run(Backend& backend) const {
    const Mask mask = MaskCases()[0].Make(size.length);
    const std::vector<Range> spans[] = {{{0, size.length}}};
    SequenceShards shards;
    shards.mask = &mask;
    shards.spans = spans;
    shards.kv_of = kv_of;
    shards.scale = static_cast<float>(scale());
    RunThreadRanks(1, [&](Comm& comm) {
      const std::unique_ptr<AttentionStrategy> strategy = MakeRing(comm);
      strategy->Forward(backend, shards, q.tensor(), k.tensor(), v.tensor(), out.tensor(), lse.tensor());
      backend.AttentionDelta(out.tensor(), dout.tensor(), delta.tensor());
      strategy->Backward(backend, shards, q.tensor(), k.tensor(), v.tensor(), dout.tensor(), lse.tensor(),
                         delta.tensor(), dq.tensor(), dk.tensor(), dv.tensor());
    });
  }

  const AccuracyCase& size;
  Buffer q, k, v, dout, out, lse, delta, dq, dk, dv;
  std::vector<int32_t> kv_of;
};

// The same in float64, causal, row by row and key by key.
class Reference {
 public:
  explicit Reference(const Problem& problem)
      : size_(problem.size),
        kv_of_(problem.kv_of),
        scale_(problem.scale()),
        q_(Widen(problem.q)),
        k_(Widen(problem.k)),
        v_(Widen(problem.v)),
        dout_(Widen(problem.dout)),
        out_(problem.size.true_output ? std::vector<double>() : Widen(problem.out)) {}

  double Checksum() const {
    double sum = 0;
    for (const std::vector<double>* x : {&q_, &k_, &v_, &dout_})
      for (const double value : *x) sum += value;
    return sum;
  }

  // The weights' logarithm of their sum, and rowsum(out ∘ dout).
  struct RowTerms {
    double lse, delta;
  };
  RowTerms Row(int64_t row, int64_t head) const {
    std::vector<double> weights(static_cast<size_t>(row + 1));
    double max = -INFINITY, sum = 0;
    for (int64_t key = 0; key <= row; ++key) {
      double& score = weights[static_cast<size_t>(key)];
      score = Score(row, head, key);
      max = std::max(max, score);
    }
    for (double& weight : weights) sum += weight = std::exp(weight - max);
    RowTerms terms = {max + std::log(sum), 0};
    if (!out_.empty()) {
      terms.delta = Dot(At(out_, row, head), At(dout_, row, head), size_.head_dim);
      return terms;
    }
    std::vector<double> out(static_cast<size_t>(size_.head_dim));
    for (int64_t key = 0; key <= row; ++key)
      AddScaled(weights[static_cast<size_t>(key)] / sum, OfKey(v_, key, head), out.data(), size_.head_dim);
    terms.delta = Dot(out.data(), At(dout_, row, head), size_.head_dim);
    return terms;
  }

  std::vector<double> Dq(int64_t row, int64_t head) const {
    const RowTerms terms = Row(row, head);
    std::vector<double> dq(static_cast<size_t>(size_.head_dim));
    for (int64_t key = 0; key <= row; ++key)
      AddScaled(Pair(row, head, key, terms).ds, OfKey(k_, key, head), dq.data(), size_.head_dim);
    return dq;
  }

  // `terms` (T, H). Both of one key and KV head.
  void DkDv(int64_t key, int64_t kv, const std::vector<RowTerms>& terms, std::vector<double>& dk,
            std::vector<double>& dv) const {
    dk.assign(static_cast<size_t>(size_.head_dim), 0);
    dv.assign(static_cast<size_t>(size_.head_dim), 0);
    for (int64_t head = 0; head < size_.query_heads; ++head) {
      if (kv_of_[static_cast<size_t>(head)] != kv) continue;
      for (int64_t row = key; row < size_.length; ++row) {
        const PairTerms pair =
            Pair(row, head, key, terms[static_cast<size_t>(row * size_.query_heads + head)]);
        AddScaled(pair.ds, At(q_, row, head), dk.data(), size_.head_dim);
        AddScaled(pair.p, At(dout_, row, head), dv.data(), size_.head_dim);
      }
    }
  }

 private:
  struct PairTerms {
    double p, ds;
  };

  const double* At(const std::vector<double>& x, int64_t row, int64_t head) const {
    return &x[static_cast<size_t>((row * size_.query_heads + head) * size_.head_dim)];
  }
  const double* OfKey(const std::vector<double>& x, int64_t key, int64_t head) const {
    return &x[static_cast<size_t>((key * size_.kv_heads + kv_of_[static_cast<size_t>(head)]) *
                                  size_.head_dim)];
  }
  double Score(int64_t row, int64_t head, int64_t key) const {
    return scale_ * Dot(At(q_, row, head), OfKey(k_, key, head), size_.head_dim);
  }
  PairTerms Pair(int64_t row, int64_t head, int64_t key, const RowTerms& terms) const {
    const double p = std::exp(Score(row, head, key) - terms.lse);
    const double dp = Dot(At(dout_, row, head), OfKey(v_, key, head), size_.head_dim);
    return {p, p * (dp - terms.delta) * scale_};
  }

  const AccuracyCase& size_;
  const std::vector<int32_t>& kv_of_;
  const double scale_;
  const std::vector<double> q_, k_, v_, dout_, out_;
};

}  // namespace

std::span<const AccuracyCase> AccuracyCases() { return kCases; }

int64_t Spread(int64_t i, int64_t n, int64_t length) { return (2 * i + 1) * length / (2 * n); }

Accuracy MeasureAccuracy(const AccuracyCase& c, Backend& backend, int num_threads) {
  const Problem problem(c);
  problem.Run(backend);
  const Reference reference(problem);
  const int64_t rows = std::min(c.rows, c.length), keys = std::min(c.keys, c.length);

  std::vector<std::vector<double>> dq(static_cast<size_t>(rows * c.query_heads));
  cpu::ParallelTasks(num_threads, rows * c.query_heads, [&](int64_t i, int) {
    dq[static_cast<size_t>(i)] = reference.Dq(Spread(i / c.query_heads, rows, c.length), i % c.query_heads);
  });
  RelativeError dq_error, dk_error, dv_error;
  for (int64_t i = 0; i < rows * c.query_heads; ++i) {
    const int64_t row = Spread(i / c.query_heads, rows, c.length);
    dq_error.Add(
        problem.dq.tensor().data<BFloat16>() + (row * c.query_heads + i % c.query_heads) * c.head_dim,
        dq[static_cast<size_t>(i)]);
  }
  Accuracy accuracy;
  accuracy.dq = dq_error.value();
  accuracy.checksum = reference.Checksum();
  if (keys == 0) return accuracy;

  std::vector<Reference::RowTerms> terms(static_cast<size_t>(c.length * c.query_heads));
  cpu::ParallelTasks(num_threads, c.length * c.query_heads, [&](int64_t i, int) {
    terms[static_cast<size_t>(i)] = reference.Row(i / c.query_heads, i % c.query_heads);
  });
  std::vector<std::vector<double>> dk(static_cast<size_t>(keys * c.kv_heads)), dv(dk.size());
  cpu::ParallelTasks(num_threads, keys * c.kv_heads, [&](int64_t i, int) {
    const auto at = static_cast<size_t>(i);
    reference.DkDv(Spread(i / c.kv_heads, keys, c.length), i % c.kv_heads, terms, dk[at], dv[at]);
  });
  for (int64_t i = 0; i < keys * c.kv_heads; ++i) {
    const int64_t key = Spread(i / c.kv_heads, keys, c.length);
    const int64_t at = (key * c.kv_heads + i % c.kv_heads) * c.head_dim;
    dk_error.Add(problem.dk.tensor().data<BFloat16>() + at, dk[static_cast<size_t>(i)]);
    dv_error.Add(problem.dv.tensor().data<BFloat16>() + at, dv[static_cast<size_t>(i)]);
  }
  accuracy.dk = dk_error.value();
  accuracy.dv = dv_error.value();
  return accuracy;
}

}  // namespace longspan::bench
