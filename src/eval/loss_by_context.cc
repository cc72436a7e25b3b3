#include "eval/loss_by_context.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/check.h"

namespace longspan {
namespace {

// Contexts up to 2^bucket that no smaller bucket has.
size_t BucketOf(int64_t context) {
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(context) - 1));
}

}  // namespace

double LossBucket::perplexity() const { return std::exp(loss); }

LossByContext::LossByContext(int64_t longest) : longest_(longest) {
  CHECK(longest >= 1);
  sums_.resize(kSums * (BucketOf(longest) + 1));
}

void LossByContext::Add(int64_t context, double loss) {
  CHECK(1 <= context && context <= longest_);
  double* const sums = &sums_[kSums * BucketOf(context)];
  sums[0] += 1;
  sums[1] += loss;
  sums[2] += loss * loss;
}

LossBucket LossByContext::Bucket(size_t first, size_t last) const {
  double n = 0, sum = 0, squares = 0;
  for (size_t i = first; i < last; ++i) {
    n += sums_[kSums * i];
    sum += sums_[kSums * i + 1];
    squares += sums_[kSums * i + 2];
  }
  LossBucket bucket = {.context_from = first == 0 ? 1 : (int64_t{1} << (first - 1)) + 1,
                       .context_to = std::min(int64_t{1} << (last - 1), longest_),
                       .targets = static_cast<int64_t>(n),
                       .loss = n > 0 ? sum / n : 0,
                       .standard_error = {}};
  if (n > 1) bucket.standard_error = std::sqrt(std::max(0.0, squares - sum * sum / n) / (n - 1) / n);
  return bucket;
}

std::vector<LossBucket> LossByContext::Buckets() const {
  std::vector<LossBucket> buckets;
  for (size_t i = 0; i < sums_.size() / kSums; ++i)
    if (const LossBucket bucket = Bucket(i, i + 1); bucket.targets > 0) buckets.push_back(bucket);
  return buckets;
}

LossBucket LossByContext::Whole() const { return Bucket(0, sums_.size() / kSums); }

}  // namespace longspan
