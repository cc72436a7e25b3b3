// The table of model families: what each has beyond a Llama, and what its config.json means by a key that is
// missing. Nothing but the reading and writing of configs looks at it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace longspan {

struct ModelFamily {
  // Which of q, k, v and o have a bias: none; q, k and v; or all, where attention_bias says so.
  enum class AttentionBias { kNone, kQueryKeyValue, kByKey };
  // Which layers are windowed if layer_types doesn't say: none; all; those from max_window_layers on, with
  // use_sliding_window; all but every sliding_window_pattern-th.
  enum class Windows { kNone, kAll, kFromLayer, kPattern };

  std::string_view model_type, architecture;
  // Of the keys that change the result and that only some families have, those that this one reads. Other
  // families' are refused unless they say what is so anyway.
  std::vector<std::string_view> keys = {};

  // What a missing key means: transformers' configuration_*.py. 0: see the comment.
  int64_t max_position_embeddings = 0;
  int64_t num_key_value_heads = 0;  // 0: as many as query heads
  int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  int64_t pad_token_id = -1;  // −1: none
  double rope_theta = 10000;
  double rope_local_base_freq = 0;  // of windowed layers; 0: all layers share one rotary embedding
  int64_t sliding_window = 0;       // 0: none
  int64_t sliding_window_pattern = 0;
  int64_t original_max_position_embeddings =
      0;  // 0: what the rope's own object says, or max_position_embeddings
  double attn_logit_softcapping = 0, final_logit_softcapping = 0;  // 0: none

  // The key that names the gate's activation, and what it is if that is missing.
  std::string_view activation_key = "hidden_act", activation = "silu";
  AttentionBias attention_bias = AttentionBias::kNone;
  Windows windows = Windows::kNone;
  std::vector<std::string_view> rope_types = {"default", "linear", "llama3", "yarn", "longrope"};
  bool query_key_norm = false;
  bool sandwich_norms = false;
  double norm_offset = 0;
  bool scales_embeddings = false;  // by sqrt(hidden_size)
  bool fused_projections = false;

  bool Reads(std::string_view key) const;
};

std::span<const ModelFamily> ModelFamilies();
// Null if there is none.
const ModelFamily* FindModelFamily(std::string_view model_type);

}  // namespace longspan
