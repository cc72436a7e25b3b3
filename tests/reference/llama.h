// A whole Llama, one scalar at a time, as transformers' modeling_llama.py computes it. `Real` is double, Var
// (all derivatives at once) or std::complex<double> (complex-step derivatives).
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <map>
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

// x Wᵀ.
template <class Real>
Rows<Real> MatVec(const Rows<Real>& x, const std::vector<Real>& weight) {
  Rows<Real> y;
  for (const std::vector<Real>& row : x) {
    y.emplace_back(weight.size() / row.size());
    for (size_t i = 0; i < weight.size(); ++i) y.back()[i / row.size()] += weight[i] * row[i % row.size()];
  }
  return y;
}

template <class Real>
Rows<Real> RmsNorm(Rows<Real> x, const std::vector<Real>& gain, double epsilon) {
  using std::sqrt;
  for (std::vector<Real>& row : x) {
    Real sum{};
    for (const Real& value : row) sum += value * value;
    const Real root = sqrt(sum / Real(static_cast<double>(row.size())) + Real(epsilon));
    for (size_t i = 0; i < row.size(); ++i) row[i] = row[i] / root * gain[i];
  }
  return x;
}

template <class Real>
void AddTo(Rows<Real>& x, const Rows<Real>& y) {
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = 0; j < x[i].size(); ++j) x[i][j] += y[i][j];
}

// Rotates (d, d + D/2) of every head by positions[row] · frequencies[d].
template <class Real>
void Rope(Rows<Real>& x, const std::vector<int64_t>& positions, const std::vector<double>& frequencies) {
  const size_t half = frequencies.size();
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t head = 0; head < x[i].size(); head += 2 * half) {
      for (size_t d = 0; d < half; ++d) {
        const double angle = static_cast<double>(positions[i]) * frequencies[d];
        const Real c(std::cos(angle)), s(std::sin(angle)), a = x[i][head + d], b = x[i][head + d + half];
        x[i][head + d] = a * c - b * s;
        x[i][head + d + half] = b * c + a * s;
      }
    }
  }
}

template <class Real>
Rows<Real> Attention(const Rows<Real>& q, const Rows<Real>& k, const Rows<Real>& v, size_t heads,
                     size_t kv_heads, const MaskSpec& mask, const Documents& documents) {
  using std::exp;
  using std::real;
  const size_t width = q[0].size() / heads;
  const Real scale(1 / std::sqrt(static_cast<double>(width)));
  Rows<Real> out(q.size(), std::vector<Real>(q[0].size()));
  for (size_t i = 0; i < q.size(); ++i) {
    std::vector<size_t> keys;
    for (size_t j = 0; j < k.size(); ++j)
      if (Sees(mask, documents, static_cast<int64_t>(i), static_cast<int64_t>(j))) keys.push_back(j);
    for (size_t head = 0; head < heads; ++head) {
      const size_t at = head * width, kv_at = head / (heads / kv_heads) * width;
      std::vector<Real> scores;
      double max = -std::numeric_limits<double>::infinity();
      for (const size_t j : keys) {
        Real score{};
        for (size_t d = 0; d < width; ++d) score += q[i][at + d] * k[j][kv_at + d];
        scores.push_back(score * scale);
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
Rows<Real> SwiGlu(Rows<Real> gate, const Rows<Real>& up) {
  using std::exp;
  for (size_t i = 0; i < gate.size(); ++i)
    for (size_t j = 0; j < gate[i].size(); ++j)
      gate[i][j] = gate[i][j] / (Real(1) + exp(Real(-1) * gate[i][j])) * up[i][j];
  return gate;
}

template <class Real>
LlamaOutput<Real> Llama(const ModelConfig& config, const LlamaWeights<Real>& weights, const MaskSpec& mask,
                        const Batch& batch) {
  using std::exp;
  using std::log;
  using std::real;
  std::vector<int64_t> positions(batch.tokens.size());
  for (const Range& document : batch.documents)
    for (int64_t i = document.begin; i < document.end; ++i)
      positions[static_cast<size_t>(i)] = i - document.begin;
  const std::vector<double> frequencies = RopeInverseFrequencies(config.layer_kinds[0].rope, config.head_dim);
  const double epsilon = static_cast<double>(config.rms_norm_eps);
  const size_t heads = static_cast<size_t>(config.num_attention_heads);
  const size_t kv_heads = static_cast<size_t>(config.num_key_value_heads);

  const std::vector<Real>& table = weights.at("model.embed_tokens.weight");
  Rows<Real> x;
  for (const int32_t token : batch.tokens) {
    const auto row = table.begin() + static_cast<int64_t>(token) * config.hidden_size;
    x.emplace_back(row, row + config.hidden_size);
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const auto w = [&](const char* name) -> const std::vector<Real>& {
      return weights.at(fmt::format("model.layers.{}.{}.weight", layer, name));
    };
    const Rows<Real> n = RmsNorm(x, w("input_layernorm"), epsilon);
    Rows<Real> q = MatVec(n, w("self_attn.q_proj")), k = MatVec(n, w("self_attn.k_proj"));
    Rope(q, positions, frequencies);
    Rope(k, positions, frequencies);
    AddTo(x, MatVec(Attention(q, k, MatVec(n, w("self_attn.v_proj")), heads, kv_heads, mask, batch.documents),
                    w("self_attn.o_proj")));
    const Rows<Real> m = RmsNorm(x, w("post_attention_layernorm"), epsilon);
    AddTo(x, MatVec(SwiGlu(MatVec(m, w("mlp.gate_proj")), MatVec(m, w("mlp.up_proj"))), w("mlp.down_proj")));
  }
  x = RmsNorm(std::move(x), weights.at("model.norm.weight"), epsilon);

  LlamaOutput<Real> output;
  output.logits = MatVec(x, config.tie_word_embeddings ? table : weights.at("lm_head.weight"));
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
