#include "model/families.h"

#include <algorithm>

namespace longspan {

bool ModelFamily::Reads(std::string_view key) const {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::span<const ModelFamily> ModelFamilies() {
  using Bias = ModelFamily::AttentionBias;
  using Windows = ModelFamily::Windows;
  static const std::vector<ModelFamily> families = {
      {.model_type = "llama",  // 2, 3, 3.1, 3.2; SmolLM2
       .architecture = "LlamaForCausalLM",
       .keys = {"mlp_bias"},
       .max_position_embeddings = 2048,
       .attention_bias = Bias::kByKey},
      {.model_type = "mistral",
       .architecture = "MistralForCausalLM",
       .keys = {"sliding_window"},
       .max_position_embeddings = 131072,
       .num_key_value_heads = 8,
       .sliding_window = 4096,
       .windows = Windows::kAll},
      {.model_type = "qwen2",  // and 2.5
       .architecture = "Qwen2ForCausalLM",
       .keys = {"sliding_window", "use_sliding_window", "max_window_layers", "layer_types"},
       .max_position_embeddings = 32768,
       .num_key_value_heads = 32,
       .sliding_window = 4096,
       .attention_bias = Bias::kQueryKeyValue,
       .windows = Windows::kFromLayer},
      {.model_type = "qwen3",
       .architecture = "Qwen3ForCausalLM",
       .keys = {"sliding_window", "use_sliding_window", "max_window_layers", "layer_types"},
       .max_position_embeddings = 32768,
       .num_key_value_heads = 32,
       .head_dim = 128,
       .sliding_window = 4096,
       .attention_bias = Bias::kByKey,
       .windows = Windows::kFromLayer,
       .query_key_norm = true},
      {.model_type = "gemma2",
       .architecture = "Gemma2ForCausalLM",
       .keys = {"sliding_window", "layer_types", "query_pre_attn_scalar", "attn_logit_softcapping",
                "final_logit_softcapping"},
       .max_position_embeddings = 8192,
       .num_key_value_heads = 4,
       .head_dim = 256,
       .tie_word_embeddings = true,
       .pad_token_id = 0,
       .sliding_window = 4096,
       .sliding_window_pattern = 2,
       .attn_logit_softcapping = 50,
       .final_logit_softcapping = 30,
       .activation_key = "hidden_activation",
       .activation = "gelu_pytorch_tanh",
       .attention_bias = Bias::kByKey,
       .windows = Windows::kPattern,
       .sandwich_norms = true,
       .norm_offset = 1,
       .scales_embeddings = true},
      {.model_type = "gemma3_text",  // its attention has no soft cap, whatever attn_logit_softcapping says
       .architecture = "Gemma3ForCausalLM",
       .keys = {"sliding_window", "sliding_window_pattern", "layer_types", "rope_local_base_freq",
                "query_pre_attn_scalar", "final_logit_softcapping"},
       .max_position_embeddings = 131072,
       .num_key_value_heads = 4,
       .head_dim = 256,
       .tie_word_embeddings = true,
       .pad_token_id = 0,
       .rope_theta = 1e6,
       .rope_local_base_freq = 10000,
       .sliding_window = 4096,
       .sliding_window_pattern = 6,
       .activation_key = "hidden_activation",
       .activation = "gelu_pytorch_tanh",
       .attention_bias = Bias::kByKey,
       .windows = Windows::kPattern,
       .query_key_norm = true,
       .sandwich_norms = true,
       .norm_offset = 1,
       .scales_embeddings = true},
      {.model_type = "phi3",  // 3, 3.5, 4
       .architecture = "Phi3ForCausalLM",
       .keys = {"sliding_window", "partial_rotary_factor"},
       .max_position_embeddings = 4096,
       .rms_norm_eps = 1e-5,
       .pad_token_id = 32000,
       .original_max_position_embeddings = 4096,
       .windows = Windows::kAll,
       .rope_types = {"default", "longrope"},
       .fused_projections = true},
  };
  return families;
}

const ModelFamily* FindModelFamily(std::string_view model_type) {
  const std::span<const ModelFamily> families = ModelFamilies();
  const auto found = std::find_if(families.begin(), families.end(),
                                  [&](const ModelFamily& family) { return family.model_type == model_type; });
  return found == families.end() ? nullptr : &*found;
}

}  // namespace longspan
