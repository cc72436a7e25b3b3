// Loss by how many tokens of its document a row sees: does the model use its context?
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace longspan {

// Means over some targets, natural log.
struct LossBucket {
  int64_t context_from = 0, context_to = 0;  // tokens before the target, both ends included
  int64_t targets = 0;
  double loss = 0;
  std::optional<double>
      standard_error;  // of the mean, as if losses were independent; not of one target alone

  double perplexity() const;
};

// Sums of losses in buckets that end at the powers of two: contexts 1, 2, 3–4, 5–8, 9–16, …
class LossByContext {
 public:
  // `longest`: of all contexts.
  explicit LossByContext(int64_t longest);

  // A target behind `context` tokens, 1 … longest.
  void Add(int64_t context, double loss);
  // What it has added up so far: to be summed over ranks, element by element.
  std::span<double> sums() { return sums_; }

  std::vector<LossBucket> Buckets() const;  // those with a target
  LossBucket Whole() const;                 // all contexts

 private:
  static constexpr size_t kSums = 3;  // targets, losses, squares of losses
  LossBucket Bucket(size_t first, size_t last) const;

  int64_t longest_;
  std::vector<double> sums_;  // (buckets, 3)
};

}  // namespace longspan
