#include "eval/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/check.h"

namespace longspan {

int32_t Sampler::Next(std::span<const float> logits) {
  const auto largest = std::ranges::max_element(logits);
  Require(std::isfinite(*largest),
          "the largest logit is {}; the model's weights or its dtype do not suit this text", *largest);
  if (options_.temperature == 0) return static_cast<int32_t>(largest - logits.begin());

  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  const auto likelier = [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  const auto k = static_cast<size_t>(options_.top_k);
  if (0 < k && k < ids.size()) {
    std::nth_element(ids.begin(), ids.begin() + options_.top_k, ids.end(), likelier);
    ids.resize(k);
  }
  if (options_.top_p < 1) std::ranges::sort(ids, likelier);

  std::vector<double> sums;  // of probabilities, not normalized
  double sum = 0;
  for (const int32_t id : ids) {
    sum += std::exp(static_cast<double>(logit(id) - *largest) / options_.temperature);
    sums.push_back(sum);
  }
  if (options_.top_p < 1) {
    const auto last = std::ranges::lower_bound(sums, options_.top_p * sum);
    sum = last == sums.end() ? sum : *last;
  }
  const auto drawn = std::ranges::upper_bound(sums, random_.Uniform(drawn_++) * sum);
  return ids[std::min(static_cast<size_t>(drawn - sums.begin()), ids.size() - 1)];
}

}  // namespace longspan
