#include "model/flops.h"

namespace longspan {

StepFlops& StepFlops::operator+=(const StepFlops& other) {
  useful += other.useful;
  attention_hardware += other.attention_hardware;
  maxtext += other.maxtext;
  return *this;
}

StepFlops CountFlops(const ModelConfig& config, const MaskSpec& mask, const Batch& batch) {
  const double parameters = static_cast<double>(config.num_matrix_parameters());
  const double rows = static_cast<double>(batch.tokens.size()),
               tokens = static_cast<double>(batch.num_tokens);
  const double pairs = static_cast<double>(MakeMask(mask, batch.documents).CountPairs());
  // One product of queries and keys, or weights and values, per allowed pair: over all layers.
  const double product =
      2 * static_cast<double>(config.num_hidden_layers * config.num_attention_heads * config.head_dim);
  return {.useful = 6 * parameters * tokens + 6 * product * pairs,
          .attention_hardware = 7 * product * pairs,
          .maxtext = 6 * parameters * rows + 6 * product * rows * rows / 2};
}

}  // namespace longspan
