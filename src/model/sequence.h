// One packed sequence as a rank sees it, and how a batch becomes one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/packing.h"
#include "mask/mask.h"
#include "model/config.h"
#include "model/options.h"
#include "model/rope_tables.h"
#include "parallel/layout.h"
#include "parallel/strategy.h"

namespace longspan {

// What the layers of one kind are given besides their rows.
struct LayerInputs {
  SequenceShards shards;  // who sees whom, and who holds what
  RopeTables rope;
};

// t rows. Nothing is owned.
struct Sequence {
  Tensor tokens;                       // (t) int32
  Tensor targets;                      // (t) int32
  Tensor positions;                    // (t) int64, from the start of the row's document
  std::span<const LayerInputs> kinds;  // by ModelConfig::layer_kinds
};

// What one rank holds of a batch. t rows; padding rows have token 0, no target, position 0.
struct Shard {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  std::vector<int64_t> positions;  // from the start of the row's document
};
Shard TakeShard(const Batch& batch, const Layout& layout, int context_rank);

// The KV head of each query head: (H).
std::vector<int32_t> KvHeads(const ModelConfig& config);

// The mask of a layer kind: its sliding window, else the run's mask.
MaskSpec MaskOf(const LayerKind& kind, const MaskSpec& mask);

// Copies a rank's rows of one batch after another to where a backend reads them. Allocates only when made.
class SequenceLoader {
 public:
  // All of it outlives this. `measure`: only masks are made, rows and tables have sizes but no values (a dry
  // run), and a batch needs nothing but its documents.
  SequenceLoader(const ModelConfig& config, const ModelOptions& options, const Layout& layout,
                 int context_rank, bool measure = false);

  // The batch has layout.length() rows. `longest_document`: of the sequence that it is a pass of, as some
  // rotary embeddings go by that; 0: its own. Throws Error for a token or target outside of the vocabulary.
  // Valid until the next call.
  Sequence Load(const Batch& batch, int64_t longest_document = 0);

  int64_t num_bytes() const;  // of rows and rotary tables

 private:
  void CopyRows(const Batch& batch);

  const ModelConfig& config_;
  const MaskSpec mask_;
  const Layout& layout_;
  const int context_rank_;
  const bool measure_;
  const std::vector<std::vector<Range>> spans_;  // of all context ranks
  const std::vector<int32_t> kv_of_;
  std::vector<OwnedRopeTables> rope_tables_;  // by layer kind
  std::vector<Mask> masks_;                   // by layer kind, of the batch loaded last
  std::vector<LayerInputs> kinds_;
  Buffer tokens_, targets_, positions_;  // (t)
};

}  // namespace longspan
