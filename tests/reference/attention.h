// Dense attention, forward and backward, one scalar at a time. `Real` is float, double or, for complex-step
// derivatives, std::complex<double>; `sees(row, key)` says which keys a row sees.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace longspan::reference {

// q (rows, heads, width), k (keys, kv_heads, width), v (keys, kv_heads, value_width); kv_of (heads).
struct AttentionShape {
  int64_t rows = 0, keys = 0, heads = 1, kv_heads = 1, width = 1, value_width = 1;
};

// Scores are scale · q·k, under a soft cap c ≠ 0 c · tanh(scale · q·k / c). A sink per head, where there are
// sinks, joins the softmax of each row that sees a key, without a value of its own.
template <class Real>
struct AttentionScores {
  double scale = 1, soft_cap = 0;
  std::vector<Real> sinks = {};  // (heads), or empty

  Real Of(Real product) const {
    const Real x = Real(scale) * product;
    return soft_cap == 0 ? x : Real(soft_cap) * std::tanh(x / Real(soft_cap));
  }
  Real Derivative(Real product) const {
    if (soft_cap == 0) return Real(scale);
    const Real t = std::tanh(Real(scale) * product / Real(soft_cap));
    return Real(scale) * (Real(1) - t * t);
  }
};

template <class Real>
struct AttentionOutput {
  std::vector<Real> out;  // (rows, heads, value_width); 0 in a row that sees nothing
  std::vector<Real> lse;  // (rows, heads); −∞ in a row that sees nothing
};

template <class Real>
struct AttentionGradients {
  std::vector<Real> dq, dk, dv, dsinks;  // as q, k, v, sinks
};

template <class Real>
Real Dot(const Real* a, const Real* b, int64_t n) {
  Real sum{};
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class Real, class Sees>
AttentionOutput<Real> AttentionForward(const AttentionShape& s, std::span<const int32_t> kv_of,
                                       const AttentionScores<Real>& rule, const std::vector<Real>& q,
                                       const std::vector<Real>& k, const std::vector<Real>& v,
                                       const Sees& sees) {
  AttentionOutput<Real> result{std::vector<Real>(static_cast<size_t>(s.rows * s.heads * s.value_width)),
                               std::vector<Real>(static_cast<size_t>(s.rows * s.heads))};
  std::vector<Real> scores(static_cast<size_t>(s.keys));
  for (int64_t i = 0; i < s.rows; ++i) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t kv = kv_of[static_cast<size_t>(h)];
      double max = -std::numeric_limits<double>::infinity();
      for (int64_t j = 0; j < s.keys; ++j) {
        if (!sees(i, j)) continue;
        scores[static_cast<size_t>(j)] =
            rule.Of(Dot(&q[static_cast<size_t>((i * s.heads + h) * s.width)],
                        &k[static_cast<size_t>((j * s.kv_heads + kv) * s.width)], s.width));
        max = std::max(max, static_cast<double>(std::real(scores[static_cast<size_t>(j)])));
      }
      const bool has_sink = !rule.sinks.empty() && !std::isinf(max);
      const Real sink = has_sink ? rule.sinks[static_cast<size_t>(h)] : Real{};
      if (has_sink) max = std::max(max, static_cast<double>(std::real(sink)));
      Real sum = has_sink ? std::exp(sink - Real(max)) : Real{};
      Real* out = &result.out[static_cast<size_t>((i * s.heads + h) * s.value_width)];
      Real& lse = result.lse[static_cast<size_t>(i * s.heads + h)];
      for (int64_t j = 0; j < s.keys; ++j) {
        if (!sees(i, j)) continue;
        const Real p = std::exp(scores[static_cast<size_t>(j)] - Real(max));
        sum += p;
        for (int64_t e = 0; e < s.value_width; ++e)
          out[e] += p * v[static_cast<size_t>((j * s.kv_heads + kv) * s.value_width + e)];
      }
      if (std::isinf(max)) {
        lse = Real(max);
        continue;
      }
      for (int64_t e = 0; e < s.value_width; ++e) out[e] /= sum;
      lse = Real(max) + std::log(sum);
    }
  }
  return result;
}

template <class Real, class Sees>
AttentionGradients<Real> AttentionBackward(const AttentionShape& s, std::span<const int32_t> kv_of,
                                           const AttentionScores<Real>& rule, const std::vector<Real>& q,
                                           const std::vector<Real>& k, const std::vector<Real>& v,
                                           const AttentionOutput<Real>& forward,
                                           const std::vector<Real>& dout, const Sees& sees) {
  AttentionGradients<Real> g{std::vector<Real>(q.size()), std::vector<Real>(k.size()),
                             std::vector<Real>(v.size()), std::vector<Real>(rule.sinks.size())};
  for (int64_t i = 0; i < s.rows; ++i) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t kv = kv_of[static_cast<size_t>(h)];
      const auto row = static_cast<size_t>((i * s.heads + h) * s.value_width);
      const auto q_row = static_cast<size_t>((i * s.heads + h) * s.width);
      const Real delta = Dot(&forward.out[row], &dout[row], s.value_width);
      const Real lse = forward.lse[static_cast<size_t>(i * s.heads + h)];
      if (!rule.sinks.empty() && !std::isinf(std::real(lse)))
        g.dsinks[static_cast<size_t>(h)] -= std::exp(rule.sinks[static_cast<size_t>(h)] - lse) * delta;
      for (int64_t j = 0; j < s.keys; ++j) {
        if (!sees(i, j)) continue;
        const auto k_row = static_cast<size_t>((j * s.kv_heads + kv) * s.width);
        const auto v_row = static_cast<size_t>((j * s.kv_heads + kv) * s.value_width);
        const Real product = Dot(&q[q_row], &k[k_row], s.width);
        const Real p = std::exp(rule.Of(product) - lse);
        const Real ds = p * (Dot(&dout[row], &v[v_row], s.value_width) - delta) * rule.Derivative(product);
        for (size_t d = 0; d < static_cast<size_t>(s.width); ++d) {
          g.dq[q_row + d] += ds * k[k_row + d];
          g.dk[k_row + d] += ds * q[q_row + d];
        }
        for (size_t e = 0; e < static_cast<size_t>(s.value_width); ++e) g.dv[v_row + e] += p * dout[row + e];
      }
    }
  }
  return g;
}

}  // namespace longspan::reference
