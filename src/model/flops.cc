#include "model/flops.h"

#include <algorithm>

#include "model/sequence.h"

namespace longspan {

StepFlops& StepFlops::operator+=(const StepFlops& other) {
  useful += other.useful;
  attention_hardware += other.attention_hardware;
  maxtext += other.maxtext;
  return *this;
}

StepFlops CountFlops(const ModelConfig& config, const MaskSpec& mask, int64_t num_rows,
                     const Documents& documents, bool keeps_context) {
  const double parameters = static_cast<double>(config.num_matrix_parameters());
  const double rows = static_cast<double>(num_rows);
  double tokens = 0;
  for (const Range& document : documents) tokens += static_cast<double>(document.size());
  double pairs = 0;  // over all layers
  for (size_t kind = 0; kind < config.layer_kinds.size(); ++kind) {
    const double layers = static_cast<double>(
        std::count(config.layer_kind_of.begin(), config.layer_kind_of.end(), static_cast<int>(kind)));
    const Mask kind_mask = MakeMask(MaskOf(config.layer_kinds[kind], mask), documents);
    pairs += layers * static_cast<double>(kind_mask.CountPairs());
  }
  // One product of queries and keys, or weights and values, per pair.
  const double product = 2 * static_cast<double>(config.num_attention_heads * config.head_dim);
  const double every_pair = static_cast<double>(config.num_hidden_layers) * rows * rows / 2;
  return {.useful = 6 * parameters * tokens + 6 * product * pairs,
          .attention_hardware = (keeps_context ? 7 : 9) * product * pairs,
          .maxtext = 6 * parameters * rows + 6 * product * every_pair};
}

}  // namespace longspan
