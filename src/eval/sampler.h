// Sampler: the next token from its logits.
#pragma once

#include <cstdint>
#include <span>

#include "core/random.h"

namespace longspan {

struct SamplerOptions {
  double temperature = 0;  // 0: the lowest id of the largest logit
  int64_t top_k = 0;       // only the k likeliest; 0: all
  double top_p = 1;        // of these only the likeliest that together have probability top_p
  uint64_t seed = 0;
};

// Temperature, then top_k, then top_p, each on what the one before leaves. Tokens of equal logits are taken
// in order of their ids. The n-th token drawn is a function of the seed, n and the logits.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed, "sample") {}
  int32_t Next(std::span<const float> logits);

 private:
  const SamplerOptions options_;
  const CounterRandom random_;
  uint64_t drawn_ = 0;
};

}  // namespace longspan
