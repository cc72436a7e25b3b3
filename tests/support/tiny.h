// A model small enough to run in a millisecond, with every inequality that hides mistakes: the group of query
// heads (4) is not the number of KV heads (2), H·D is not C, and nothing is a power of two but the heads.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "data/packing.h"
#include "model/config.h"

namespace longspan::testing {

inline ModelConfig TinyConfig(int64_t num_key_value_heads = 2) {
  ModelConfig config;
  config.vocab_size = 37;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_attention_heads = 8;
  config.num_key_value_heads = num_key_value_heads;
  config.head_dim = 6;
  config.max_position_embeddings = 1024;
  config.num_hidden_layers = 2;
  config.layer_kind_of = {0, 0};
  config.attention_scale = 1 / std::sqrt(6.0);
  config.initializer_range = 0.3;  // attention far from uniform
  return config;
}

struct NamedConfig {
  std::string name;
  ModelConfig config;
};

// Each switch of ModelConfig in a tiny model, in the company in which families have it.
inline std::vector<NamedConfig> TinyFamilies() {
  const LayerKind full, window = {.name = "sliding_attention", .sliding_window = 5, .rope = {}};
  std::vector<NamedConfig> families;
  const auto add = [&](const char* name) -> ModelConfig& {
    families.push_back({name, TinyConfig()});
    return families.back().config;
  };
  add("llama").tie_word_embeddings = true;
  add("mistral").layer_kinds = {window};
  ModelConfig& biased = add("biases");  // Qwen 2's, and all that Llama may have
  biased.query_key_value_bias = biased.out_proj_bias = biased.mlp_bias = true;
  add("qwen3").query_key_norm = true;

  ModelConfig& gemma2 = add("gemma2");
  gemma2.sandwich_norms = gemma2.tie_word_embeddings = true;
  gemma2.norm_offset = 1;
  gemma2.gate_activation = GateActivation::kGeluTanh;
  gemma2.embedding_scale = std::sqrt(24.0);
  gemma2.attention_scale = 0.25;
  gemma2.attention_soft_cap = 5;
  gemma2.final_soft_cap = 3;
  gemma2.layer_kinds = {window, full};
  gemma2.layer_kind_of = {0, 1};

  ModelConfig gemma3 = gemma2;
  gemma3.attention_soft_cap = gemma3.final_soft_cap = 0;
  gemma3.query_key_norm = true;
  gemma3.layer_kinds[0].rope.theta = 100;
  gemma3.layer_kinds[1].rope = {.kind = RopeConfig::Kind::kLinear, .theta = 1e6, .factor = 4};
  gemma3.num_hidden_layers = 3;
  gemma3.layer_kind_of = {0, 0, 1};
  families.push_back({"gemma3", gemma3});

  ModelConfig& phi3 = add("phi3");  // past its original length in documents of more than 10 tokens
  phi3.fused_projections = true;
  phi3.layer_kinds[0].rope = {.kind = RopeConfig::Kind::kLongRope,
                              .partial_rotary_factor = 0.7,
                              .original_max_position_embeddings = 10,
                              .short_factor = {1, 1.1},
                              .long_factor = {1.5, 3},
                              .attention_factor = 1.2};

  add("yarn").layer_kinds[0].rope = {.kind = RopeConfig::Kind::kYarn,
                                     .factor = 4,
                                     .original_max_position_embeddings = 16,
                                     .attention_factor = 1.14};
  return families;
}

inline ModelConfig TiedTinyConfig(bool tied) {
  ModelConfig config = TinyConfig();
  config.tie_word_embeddings = tied;
  return config;
}

// Random tokens in `documents`, 0 between them; each row's target is the next token of its document.
inline Batch MakeBatch(int64_t length, std::span<const Range> documents, int64_t vocab_size,
                       uint64_t seed = 1) {
  const CounterRandom random(seed, "tokens");
  Batch batch;
  batch.tokens.assign(static_cast<size_t>(length), 0);
  batch.targets.assign(static_cast<size_t>(length), kIgnoreTarget);
  batch.documents = NormalizeDocuments(documents, length);
  for (const Range& document : batch.documents) {
    for (int64_t i = document.begin; i < document.end; ++i) {
      const size_t row = static_cast<size_t>(i);
      batch.tokens[row] = static_cast<int32_t>(random.Below(static_cast<uint64_t>(vocab_size), row));
      if (i > document.begin) batch.targets[row - 1] = batch.tokens[row];
    }
    batch.num_tokens += document.size();
    batch.num_targets += document.size() - 1;
  }
  return batch;
}

inline Batch MakeBatch(int64_t length, std::initializer_list<Range> documents, int64_t vocab_size,
                       uint64_t seed = 1) {
  return MakeBatch(length, std::span<const Range>(documents.begin(), documents.size()), vocab_size, seed);
}

// Leaves only the targets of `rows`.
inline void KeepTargets(Batch& batch, std::initializer_list<int64_t> rows) {
  std::vector<int32_t> kept(batch.targets.size(), kIgnoreTarget);
  batch.num_targets = 0;
  for (const int64_t row : rows) {
    kept[static_cast<size_t>(row)] = batch.targets[static_cast<size_t>(row)];
    batch.num_targets += kept[static_cast<size_t>(row)] != kIgnoreTarget;
  }
  batch.targets = kept;
}

}  // namespace longspan::testing
