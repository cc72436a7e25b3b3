// The pointwise operations one scalar at a time. `Real` is float, double or, for complex-step derivatives,
// std::complex<double>: the derivative of an analytic f is Im f(x + ih) / h, exact to rounding for tiny h.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <numbers>
#include <vector>

#include "backend/gate.h"

namespace longspan::reference {

using Complex = std::complex<double>;

inline std::vector<Complex> ToComplex(const std::vector<double>& x) { return {x.begin(), x.end()}; }

// Gradient of Σ upstream ∘ f(x) with respect to x.
inline std::vector<double> ComplexStepGradient(
    const std::function<std::vector<Complex>(const std::vector<Complex>&)>& f, const std::vector<double>& x,
    const std::vector<double>& upstream) {
  constexpr double kStep = 1e-100;
  std::vector<double> gradient(x.size());
  std::vector<Complex> moved = ToComplex(x);
  for (size_t i = 0; i < x.size(); ++i) {
    moved[i] = Complex(x[i], kStep);
    const std::vector<Complex> y = f(moved);
    for (size_t j = 0; j < y.size(); ++j) gradient[i] += upstream[j] * y[j].imag() / kStep;
    moved[i] = x[i];
  }
  return gradient;
}

// x (rows, width), weight (width); what multiplies is offset + weight.
template <class Real>
std::vector<Real> RmsNorm(const std::vector<Real>& x, const std::vector<Real>& weight, double epsilon,
                          double offset) {
  const size_t width = weight.size();
  std::vector<Real> y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += width) {
    Real squares{};
    for (size_t i = 0; i < width; ++i) squares += x[begin + i] * x[begin + i];
    const Real root = std::sqrt(squares / static_cast<double>(width) + epsilon);
    for (size_t i = 0; i < width; ++i) y[begin + i] = x[begin + i] / root * (offset + weight[i]);
  }
  return y;
}

template <class Real>
std::vector<Real> Glu(GateActivation activation, const std::vector<Real>& gate, const std::vector<Real>& up) {
  const double root = std::sqrt(2 / std::numbers::pi);
  std::vector<Real> out(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    const Real g = gate[i];
    out[i] = up[i] * (activation == GateActivation::kSilu
                          ? g / (1.0 + std::exp(-g))
                          : 0.5 * g * (1.0 + std::tanh(root * (g + 0.044715 * g * g * g))));
  }
  return out;
}

template <class Real>
std::vector<Real> SoftCap(double cap, std::vector<Real> x) {
  for (Real& value : x) value = cap * std::tanh(value / cap);
  return x;
}

// Losses of rows of logits (rows, width) with targets; a negative target is none.
template <class Real>
std::vector<Real> CrossEntropy(const std::vector<Real>& logits, const std::vector<int32_t>& targets) {
  const size_t width = logits.size() / targets.size();
  std::vector<Real> losses(targets.size());
  for (size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] < 0) continue;
    const Real* x = &logits[row * width];
    double max = std::real(x[0]);
    for (size_t i = 1; i < width; ++i) max = std::max(max, std::real(x[i]));
    Real sum{};
    for (size_t i = 0; i < width; ++i) sum += std::exp(x[i] - max);
    losses[row] = std::log(sum) + max - x[targets[row]];
  }
  return losses;
}

// x (tokens, heads, 2·pairs), rotated by positions[t] · base^(−i / pairs).
inline std::vector<double> Rope(const std::vector<double>& x, const std::vector<int64_t>& positions,
                                size_t pairs, double base) {
  std::vector<double> y(x.size());
  const size_t token = x.size() / positions.size();
  for (size_t at = 0; at < x.size(); at += 2 * pairs) {
    const double position = static_cast<double>(positions[at / token]);
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = position * std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs));
      const double c = std::cos(angle), s = std::sin(angle);
      y[at + i] = x[at + i] * c - x[at + pairs + i] * s;
      y[at + pairs + i] = x[at + pairs + i] * c + x[at + i] * s;
    }
  }
  return y;
}

// c (m, n) = op(a) · op(b) + c.
inline void Matmul(const std::vector<double>& a, bool transpose_a, const std::vector<double>& b,
                   bool transpose_b, size_t m, size_t n, size_t k, std::vector<double>& c) {
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t l = 0; l < k; ++l) {
        c[i * n + j] += a[transpose_a ? l * m + i : i * k + l] * b[transpose_b ? j * k + l : l * n + j];
      }
    }
  }
}

// One parameter of AdamW as torch.optim.AdamW updates it.
struct AdamWState {
  double weight, exp_avg = 0, exp_avg_sq = 0;
};
inline void AdamW(AdamWState& state, double gradient, double learning_rate, double beta1, double beta2,
                  double epsilon, double weight_decay, int step) {
  state.weight *= 1 - learning_rate * weight_decay;
  state.exp_avg += (gradient - state.exp_avg) * (1 - beta1);
  state.exp_avg_sq = state.exp_avg_sq * beta2 + gradient * gradient * (1 - beta2);
  const double correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);
  const double denominator = std::sqrt(state.exp_avg_sq) / std::sqrt(correction2) + epsilon;
  state.weight -= learning_rate / correction1 * state.exp_avg / denominator;
}

}  // namespace longspan::reference
