// ModelConfig: a Llama-architecture model, read from a Hugging Face config.json or a built-in of that form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace longspan {

// Rotary scaling; `kLlama3` as in transformers' modeling_rope_utils._compute_llama3_parameters.
struct RopeScaling {
  enum class Kind { kNone, kLlama3 } kind = Kind::kNone;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  double original_max_position_embeddings = 8192;
  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

struct ModelConfig {
  int64_t vocab_size = 0;           // V
  int64_t hidden_size = 0;          // C
  int64_t intermediate_size = 0;    // F
  int64_t num_hidden_layers = 0;    // L
  int64_t num_attention_heads = 0;  // H
  int64_t num_key_value_heads = 0;  // K
  int64_t head_dim = 0;             // D = E
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-5f;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;

  int64_t num_parameters() const;  // tied weights once
  // Those that multiply every token: blocks' matrices and the head (tied or not), not the embedding lookup.
  int64_t num_matrix_parameters() const;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Reads and checks config.json text; `where` names it in errors. Both spellings in use: rope_scaling +
// rope_theta + torch_dtype, and rope_parameters + dtype. Settings that change the result and are not
// implemented (another model_type or hidden_act, attention_bias, unknown rope kinds, …) are refused by name.
ModelConfig ParseModelConfig(std::string_view json, const std::string& where);
// The text for a checkpoint's config.json. With `source` (the text that `config` came from) every key there
// is kept, in the spelling and order it came in, and only the dtype is updated; without (empty) it is written
// from `config`.
std::string WriteModelConfig(const ModelConfig& config, std::string_view source, DType saved_dtype);

// Built-in models: tiny, 100m, llama3.1-8b, llama3.1-8b-16-4-256, llama3.1-70b, llama3.2-1b, smollm2-135m; the
// texts are recipes/models/*.json, compiled in. Empty if there is none of that name.
std::string_view BuiltinModelJson(std::string_view name);
std::vector<std::string_view> BuiltinModelNames();

// Rotary inverse frequencies (D/2), scaling applied, in double.
std::vector<double> RopeInverseFrequencies(const ModelConfig& config);

}  // namespace longspan
