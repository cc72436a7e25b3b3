// The one table of parameters: what the model, the optimizer and the checkpoint know of weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace longspan {

enum class ParamKind { kMatrix, kVector, kEmbedding };

struct ParamRow {
  std::string name;            // Hugging Face's, "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // Hugging Face's: (out, in) for matrices
  ParamKind kind = ParamKind::kMatrix;
  bool decays = true;  // weight decay: matrices and embeddings, not norms
  bool trainable = true;
  bool in_products = false;  // Linear reads it: matrices, and the embedding where it is the head as well
  int64_t offset = 0;        // elements from the start of its unit
  int64_t num_elements = 0;
};

// Order of a block's parameters in its unit.
enum BlockParam {
  kInputNorm,
  kQueryProj,
  kKeyProj,
  kValueProj,
  kOutProj,
  kPostAttentionNorm,
  kGateProj,
  kUpProj,
  kDownProj,
  kNumBlockParams
};
// … of the last unit; kHead only if untied.
enum FinalParam { kFinalNorm, kHead };

// A unit is what is gathered, offloaded and sharded at once: 0 embedding, 1 … L blocks, L + 1 norm + head.
// One flat buffer each; parameters begin at multiples of kUnitAlignment elements; the gaps are zero.
struct ParamUnit {
  std::vector<ParamRow> rows;
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

// Initial values of one parameter, f32: matrices and embeddings normal(0, initializer_range), norms 1.
// A function of (seed, name, element) alone.
void InitializeParam(const ParamRow& row, double initializer_range, uint64_t seed, int num_threads,
                     Tensor values);

}  // namespace longspan
