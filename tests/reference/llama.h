// A whole model of any family, one scalar at a time, as transformers' modeling_*.py compute it. `Real` is
// double, Var (all derivatives at once) or std::complex<double> (complex-step derivatives).
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "core/target.h"
#include "data/packing.h"
#include "mask/mask.h"
#include "model/config.h"
#include "reference/mask.h"

namespace longspan::reference {

// Rows of equal width.
template <class Real>
using Rows = std::vector<std::vector<Real>>;

// Flat weights by Hugging Face name; matrices (out, in).
template <class Real>
using LlamaWeights = std::map<std::string, std::vector<Real>>;

template <class Real>
struct LlamaOutput {
  Rows<Real> logits;  // (T, V)
  Real loss{};        // Σ over targets
};

// x Wᵀ + b; no bias if that is empty.
template <class Real>
Rows<Real> MatVec(const Rows<Real>& x, const std::vector<Real>& weight, const std::vector<Real>& bias = {}) {
  Rows<Real> y;
  for (const std::vector<Real>& row : x) {
    y.emplace_back(weight.size() / row.size());
    for (size_t i = 0; i < weight.size(); ++i) y.back()[i / row.size()] += weight[i] * row[i % row.size()];
    for (size_t i = 0; i < bias.size(); ++i) y.back()[i] += bias[i];
  }
  return y;
}

// Of every piece of gain.size() elements of each row; what multiplies is offset + gain.
template <class Real>
Rows<Real> RmsNorm(Rows<Real> x, const std::vector<Real>& gain, const ModelConfig& config) {
  using std::sqrt;
  const Real epsilon(static_cast<double>(config.rms_norm_eps)), offset(config.norm_offset);
  const size_t width = gain.size();
  for (std::vector<Real>& row : x) {
    for (size_t begin = 0; begin < row.size(); begin += width) {
      Real sum{};
      for (size_t i = 0; i < width; ++i) sum += row[begin + i] * row[begin + i];
      const Real root = sqrt(sum / Real(static_cast<double>(width)) + epsilon);
      for (size_t i = 0; i < width; ++i) row[begin + i] = row[begin + i] / root * (offset + gain[i]);
    }
  }
  return x;
}

template <class Real>
void AddTo(Rows<Real>& x, const Rows<Real>& y) {
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = 0; j < x[i].size(); ++j) x[i][j] += y[i][j];
}

// cap · tanh(x / cap).
template <class Real>
Real SoftCap(const Real& x, double cap) {
  using std::tanh;
  return cap == 0 ? x : Real(cap) * tanh(x / Real(cap));
}

// Rotates (d, d + n) of every head by positions[row] · frequencies[d], n of these, and multiplies by
// `factor`.
template <class Real>
void Rope(Rows<Real>& x, size_t head_dim, const std::vector<int64_t>& positions,
          const std::vector<double>& frequencies, double factor) {
  const size_t half = frequencies.size();
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t head = 0; head < x[i].size(); head += head_dim) {
      for (size_t d = 0; d < half; ++d) {
        const double angle = static_cast<double>(positions[i]) * frequencies[d];
        const Real c(factor * std::cos(angle)), s(factor * std::sin(angle));
        const Real a = x[i][head + d], b = x[i][head + d + half];
        x[i][head + d] = a * c - b * s;
        x[i][head + d + half] = b * c + a * s;
      }
    }
  }
}

template <class Real>
Rows<Real> Attention(const Rows<Real>& q, const Rows<Real>& k, const Rows<Real>& v, const ModelConfig& config,
                     const MaskSpec& mask, const Documents& documents) {
  using std::exp;
  using std::real;
  const size_t heads = static_cast<size_t>(config.num_attention_heads);
  const size_t group = heads / static_cast<size_t>(config.num_key_value_heads);
  const size_t width = q[0].size() / heads;
  const Real scale(config.attention_scale);
  Rows<Real> out(q.size(), std::vector<Real>(q[0].size()));
  for (size_t i = 0; i < q.size(); ++i) {
    std::vector<size_t> keys;
    for (size_t j = 0; j < k.size(); ++j)
      if (Sees(mask, documents, static_cast<int64_t>(i), static_cast<int64_t>(j))) keys.push_back(j);
    for (size_t head = 0; head < heads; ++head) {
      const size_t at = head * width, kv_at = head / group * width;
      std::vector<Real> scores;
      double max = -std::numeric_limits<double>::infinity();
      for (const size_t j : keys) {
        Real score{};
        for (size_t d = 0; d < width; ++d) score += q[i][at + d] * k[j][kv_at + d];
        scores.push_back(SoftCap(score * scale, config.attention_soft_cap));
        max = std::max<double>(max, real(scores.back()));
      }
      Real sum{};
      for (Real& score : scores) sum += score = exp(score - Real(max));
      for (size_t n = 0; n < keys.size(); ++n)
        for (size_t d = 0; d < width; ++d) out[i][at + d] += scores[n] / sum * v[keys[n]][kv_at + d];
    }
  }
  return out;
}

template <class Real>
Rows<Real> Glu(GateActivation activation, Rows<Real> gate, const Rows<Real>& up) {
  using std::exp;
  using std::tanh;
  const Real root(std::sqrt(2 / std::numbers::pi)), cubic(0.044715), half(0.5), one(1);
  for (size_t i = 0; i < gate.size(); ++i) {
    for (size_t j = 0; j < gate[i].size(); ++j) {
      const Real g = gate[i][j];
      const Real act = activation == GateActivation::kSilu
                           ? g / (one + exp(Real(-1) * g))
                           : half * g * (one + tanh(root * (g + cubic * g * g * g)));
      gate[i][j] = act * up[i][j];
    }
  }
  return gate;
}

// `mask` is that of layers without a window of their own. Weights are named as in ParamTable.
template <class Real>
LlamaOutput<Real> Llama(const ModelConfig& config, const LlamaWeights<Real>& weights, const MaskSpec& mask,
                        const Batch& batch) {
  using std::exp;
  using std::log;
  using std::real;
  std::vector<int64_t> positions(batch.tokens.size());
  int64_t longest = 0;
  for (const Range& document : batch.documents) {
    longest = std::max(longest, document.size());
    for (int64_t i = document.begin; i < document.end; ++i)
      positions[static_cast<size_t>(i)] = i - document.begin;
  }
  const size_t head_dim = static_cast<size_t>(config.head_dim);

  const std::vector<Real>& table = weights.at("model.embed_tokens.weight");
  Rows<Real> x;
  for (const int32_t token : batch.tokens) {
    const auto row = table.begin() + static_cast<int64_t>(token) * config.hidden_size;
    x.emplace_back(row, row + config.hidden_size);
    for (Real& value : x.back()) value = value * Real(config.embedding_scale);
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const auto name = [&](const char* suffix) { return fmt::format("model.layers.{}.{}", layer, suffix); };
    const auto norm = [&](const Rows<Real>& rows, const char* which) {
      return RmsNorm(rows, weights.at(name(which) + ".weight"), config);
    };
    const auto linear = [&](const Rows<Real>& rows, const char* which, bool has_bias) {
      return MatVec(rows, weights.at(name(which) + ".weight"),
                    has_bias ? weights.at(name(which) + ".bias") : std::vector<Real>());
    };
    const LayerKind& kind = config.layer_kind(layer);
    const std::vector<double> frequencies =
        RopeInverseFrequencies(kind.rope, config.head_dim, kind.rope.UsesLongFactors(longest));
    const MaskSpec own = {.kind = MaskKind::kSlidingWindow, .window = kind.sliding_window};

    const Rows<Real> n = norm(x, "input_layernorm");
    Rows<Real> q = linear(n, "self_attn.q_proj", config.query_key_value_bias);
    Rows<Real> k = linear(n, "self_attn.k_proj", config.query_key_value_bias);
    const Rows<Real> v = linear(n, "self_attn.v_proj", config.query_key_value_bias);
    if (config.query_key_norm) {
      q = norm(q, "self_attn.q_norm");
      k = norm(k, "self_attn.k_norm");
    }
    Rope(q, head_dim, positions, frequencies, kind.rope.attention_factor);
    Rope(k, head_dim, positions, frequencies, kind.rope.attention_factor);
    const Rows<Real> context =
        Attention(q, k, v, config, kind.sliding_window > 0 ? own : mask, batch.documents);
    const Rows<Real> attention_out = linear(context, "self_attn.o_proj", config.out_proj_bias);
    AddTo(x, config.sandwich_norms ? norm(attention_out, "post_attention_layernorm") : attention_out);

    const Rows<Real> m =
        norm(x, config.sandwich_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    const Rows<Real> act = Glu(config.gate_activation, linear(m, "mlp.gate_proj", config.mlp_bias),
                               linear(m, "mlp.up_proj", config.mlp_bias));
    const Rows<Real> mlp_out = linear(act, "mlp.down_proj", config.mlp_bias);
    AddTo(x, config.sandwich_norms ? norm(mlp_out, "post_feedforward_layernorm") : mlp_out);
  }
  x = RmsNorm(std::move(x), weights.at("model.norm.weight"), config);

  LlamaOutput<Real> output;
  output.logits = MatVec(x, config.tie_word_embeddings ? table : weights.at("lm_head.weight"));
  for (std::vector<Real>& row : output.logits)
    for (Real& logit : row) logit = SoftCap(logit, config.final_soft_cap);
  for (size_t i = 0; i < x.size(); ++i) {
    if (batch.targets[i] == kIgnoreTarget) continue;
    double max = -std::numeric_limits<double>::infinity();
    for (const Real& logit : output.logits[i]) max = std::max<double>(max, real(logit));
    Real sum{};
    for (const Real& logit : output.logits[i]) sum += exp(logit - Real(max));
    output.loss += Real(max) + log(sum) - output.logits[i][static_cast<size_t>(batch.targets[i])];
  }
  return output;
}

}  // namespace longspan::reference
