// ModelConfig: what any model family comes down to, read from a Hugging Face config.json or a built-in of
// that form. Nothing above the parser asks which family it was: whatever differs is a field here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gate.h"
#include "core/tensor.h"
#include "model/rope.h"

namespace longspan {

// Layers of a kind share their mask and their rotary embedding.
struct LayerKind {
  std::string name = "full_attention";  // Hugging Face's layer type; or "sliding_attention"
  int64_t sliding_window = 0;           // keys that a row sees, its own included; 0: all before it
  RopeConfig rope;
  friend bool operator==(const LayerKind&, const LayerKind&) = default;
};

struct ModelConfig {
  std::string model_type = "llama";  // the family, for writing it down again
  int64_t vocab_size = 0;            // V
  int64_t hidden_size = 0;           // C
  int64_t intermediate_size = 0;     // F
  int64_t num_hidden_layers = 0;     // L
  int64_t num_attention_heads = 0;   // H
  int64_t num_key_value_heads = 0;   // K
  int64_t head_dim = 0;              // D = E
  int64_t max_position_embeddings = 0;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;

  std::vector<LayerKind> layer_kinds = {LayerKind{}};
  std::vector<int> layer_kind_of;  // (L) index into layer_kinds

  // Attention.
  bool query_key_value_bias = false, out_proj_bias = false;
  bool query_key_norm = false;    // RMSNorm over each head of q and k, before the rotary embedding
  double attention_scale = 0;     // scores are q · k times this: 1/sqrt(D), or query_pre_attn_scalar^-0.5
  double attention_soft_cap = 0;  // c: scores become c · tanh(score / c); 0: none

  // MLP.
  bool mlp_bias = false;  // of gate, up and down
  GateActivation gate_activation = GateActivation::kSilu;

  // Norms.
  float rms_norm_eps = 1e-5f;
  double norm_offset = 0;       // 1: what multiplies is 1 + the stored weight
  bool sandwich_norms = false;  // Gemma 2 and 3: what attention and MLP give is normed before it is added

  // Ends.
  int64_t pad_token_id = -1;   // its embedding gets no gradient as an input, as in transformers; −1: none
  double embedding_scale = 1;  // embeddings are multiplied by it; Gemma: sqrt(C)
  double final_soft_cap = 0;   // of logits, as attention_soft_cap

  bool fused_projections = false;  // files hold qkv_proj and gate_up_proj (Phi-3)

  const LayerKind& layer_kind(int64_t layer) const {
    return layer_kinds[static_cast<size_t>(layer_kind_of[static_cast<size_t>(layer)])];
  }
  // Its first n layers; further ones are of the same kinds in the same order.
  void SetNumLayers(int64_t n);

  int64_t num_parameters() const;  // tied weights once
  // Those that multiply every token: blocks' matrices and the head (tied or not), not the embedding lookup.
  int64_t num_matrix_parameters() const;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Reads and checks config.json text; `where` names it in errors. Both spellings in use: rope_scaling +
// rope_theta + torch_dtype, and rope_parameters (of each layer type, where they differ) + layer_types +
// dtype. Missing keys are what transformers takes for the family (families.h). Settings that change the
// result and are not implemented (another model_type or hidden_act, unknown rope kinds, …) are refused by
// name.
ModelConfig ParseModelConfig(std::string_view json, const std::string& where);
// The text for a checkpoint's config.json. With `source` (the text that `config` came from) every key there
// is kept, in the spelling and order it came in, and only the dtype is updated; without (empty) it is written
// from `config`, in the newer spelling. Either reads back as `config`.
std::string WriteModelConfig(const ModelConfig& config, std::string_view source, DType saved_dtype);

// The text of any model's config.json with another dtype, under the key that it has; else as it was. Throws
// Error for a quantised model, whose tensors are no plain numbers. `where` names it in errors.
std::string WithDType(std::string_view config_json, DType dtype, const std::string& where);

// Built-in models: tiny, tiny-4-layers, tiny-one-head, 100m, llama3.1-8b, llama3.1-8b-16-4-256, llama3.1-70b, llama3.2-1b,
// smollm2-135m; the texts are recipes/models/*.json, compiled in. Empty if there is none of that name.
std::string_view BuiltinModelJson(std::string_view name);
std::vector<std::string_view> BuiltinModelNames();

}  // namespace longspan
