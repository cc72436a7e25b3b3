// How exact attention's bf16 gradients are: as the model computes them, through a strategy on one rank,
// against float64 on the same bf16 inputs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "bench/measure.h"

namespace longspan::bench {

struct AccuracyCase {
  std::string_view name;
  int64_t length, head_dim, query_heads, kv_heads;
  double key_offset;        // added to every key, in standard deviations
  bool values_follow_keys;  // v = k + noise, else noise alone
  bool true_output;  // the reference's row sums are of float64's own output, not of the kernel's bf16 one
  // Rows of dq, and keys of dk and dv, that are compared, spread evenly. No keys: dq alone, which costs less.
  int64_t rows, keys;
};
std::span<const AccuracyCase> AccuracyCases();

// ‖x − reference‖ / ‖reference‖ over what is compared. Gradients are bf16, their own rounding included.
struct Accuracy {
  double dq = 0;
  std::optional<double> dk, dv;
  double checksum = 0;  // Σ of q, k, v and dout as they were made, for who makes them anew
};
Accuracy MeasureAccuracy(const AccuracyCase& accuracy_case, Backend& backend, int num_threads);

// The i-th of `n` of [0, length): in the middle of its share.
int64_t Spread(int64_t i, int64_t n, int64_t length);

}  // namespace longspan::bench
