// A model small enough to run in a millisecond, with every inequality that hides mistakes: the group of query
// heads (4) is not the number of KV heads (2), H·D is not C, and nothing is a power of two but the heads.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
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
