// The one table of parameters: what the model, the optimizer and the checkpoint know of weights.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/check.h"
#include "model/config.h"

namespace longspan {

enum class ParamKind { kMatrix, kVector, kEmbedding };

struct ParamRow {
  // Hugging Face's, "model.layers.0.self_attn.q_proj.weight"; of a part of a fused tensor what it would be
  // called alone.
  std::string name;
  std::vector<int64_t> shape;  // Hugging Face's: (out, in) for matrices
  ParamKind kind = ParamKind::kMatrix;
  float initial_value = 0;  // of vectors; matrices and embeddings begin at random
  bool decays = true;       // weight decay: matrices and embeddings, not norms and biases
  bool trainable = true;
  bool in_products = false;  // Linear reads it: matrices, and the embedding where it is the head as well
  int64_t offset = 0;        // elements from the start of its unit
  int64_t num_elements = 0;
};

// A block's parameters, in the order of its unit. Most models have only some of them.
enum BlockParam {
  kInputNorm,
  kQueryProj,
  kKeyProj,
  kValueProj,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kQueryNorm,  // of each head
  kKeyNorm,
  kOutProj,
  kOutBias,
  kAttentionOutNorm,  // sandwich norms: of what attention gives
  kFeedForwardNorm,   // before the feed-forward layer
  kGateProj,
  kUpProj,
  kGateBias,
  kUpBias,
  kDownProj,
  kDownBias,
  kFeedForwardOutNorm,  // sandwich norms: of what the feed-forward layer gives
  kNumBlockParams
};
// Those that a block of this model has, in order: the rows of its unit.
std::vector<BlockParam> BlockParams(const ModelConfig& config);

// A unit's weights or gradients by BlockParam; null where the model has none.
template <class T>
std::array<T, kNumBlockParams> ByBlockParam(std::span<const BlockParam> params, std::span<const T> rows) {
  CHECK(params.size() == rows.size());
  std::array<T, kNumBlockParams> by_param;
  for (size_t i = 0; i < rows.size(); ++i) by_param[params[i]] = rows[i];
  return by_param;
}

// … of the last unit; kHead only if untied.
enum FinalParam { kFinalNorm, kHead };

// What a file holds: one parameter, or several whose rows lie one after the other (Phi-3's qkv_proj and
// gate_up_proj).
struct StoredTensor {
  std::string name;            // Hugging Face's
  std::vector<int64_t> shape;  // likewise
  int64_t offset = 0;          // elements from the start of its unit
  int64_t num_elements = 0;
};

// A unit is what is gathered, offloaded and sharded at once: 0 embedding, 1 … L blocks, L + 1 norm + head.
// One flat buffer each; stored tensors begin at multiples of kUnitAlignment elements; the gaps are zero.
struct ParamUnit {
  std::vector<ParamRow> rows;
  std::vector<StoredTensor> stored;
  int64_t num_elements = 0;  // flat size, alignment gaps included; a multiple of kUnitAlignment
};
inline constexpr int64_t kUnitAlignment = 64;

struct ParamTable {
  std::vector<ParamUnit> units;
  int num_units() const { return static_cast<int>(units.size()); }
};
ParamTable MakeParamTable(const ModelConfig& config);

// The views of a unit's parameters in its flat tensor, in row order.
std::vector<Tensor> UnitViews(const ParamUnit& unit, Tensor flat);
// … of its stored tensors.
std::vector<Tensor> StoredViews(const ParamUnit& unit, Tensor flat);

// Initial values of one parameter, f32: matrices and embeddings normal(0, initializer_range), norms
// such that they multiply by 1, biases 0. A function of (seed, name, element) alone. `values` are its
// elements from `first` on, all or some of them.
void InitializeParam(const ParamRow& row, double initializer_range, uint64_t seed, int num_threads,
                     int64_t first, Tensor values);

}  // namespace longspan
