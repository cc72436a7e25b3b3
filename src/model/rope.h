// RopeConfig: one rotary embedding, resolved, and the frequencies that it turns by.
#pragma once

#include <cstdint>
#include <vector>

namespace longspan {

// Kinds and fields are those of transformers' modeling_rope_utils.py, which names each one's source. What a
// config leaves out is filled in by whoever reads it.
struct RopeConfig {
  enum class Kind { kDefault, kLinear, kLlama3, kYarn, kLongRope } kind = Kind::kDefault;
  double theta = 10000;
  double partial_rotary_factor = 1;  // the first part of each head is rotated, the rest passes
  double factor = 1;                 // linear, llama3, yarn: how much longer the context is to be
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3: turns over the original context
  double original_max_position_embeddings = 0;       // llama3, yarn, longrope: the context that was trained
  double beta_fast = 32, beta_slow = 1;              // yarn: the same
  bool truncate = true;                              // yarn: the ramp begins and ends at whole dimensions
  std::vector<double> short_factor = {}, long_factor = {};  // longrope: (rotary_dim / 2)
  double attention_factor = 1;                              // cos and sin are multiplied by it

  // How much of a head of this width is rotated.
  int64_t rotary_dim(int64_t head_dim) const;
  // longrope: whether a sequence whose longest document has so many tokens takes the long factors. Others
  // have one set of frequencies.
  bool UsesLongFactors(int64_t longest_document) const {
    return kind == Kind::kLongRope &&
           static_cast<double>(longest_document) > original_max_position_embeddings;
  }

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Radians per position, (rotary_dim / 2), in double. attention_factor is not in it.
std::vector<double> RopeInverseFrequencies(const RopeConfig& rope, int64_t head_dim,
                                           bool long_factors = false);

}  // namespace longspan
