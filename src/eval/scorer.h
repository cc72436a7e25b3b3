// Scorer: what one rank's model makes of given tokens, row by row. Forward passes alone, over ranks as in
// training.
#pragma once

#include <cstdint>

#include "train/replica.h"

namespace longspan {

// A row that has a target.
struct TokenScore {
  int64_t row = 0;      // global index
  int64_t context = 0;  // tokens of its document up to this row, itself included
  double loss = 0;      // −log p(target), natural log
  bool greedy = false;  // the target is the likeliest token: what greedy decoding would choose here
};

class Scorer {
 public:
  // Collective over `world`, which has job.mesh.ranks() ranks. Loads the model's weights.
  Scorer(const Job& job, Comm& world);

  Replica& replica() { return replica_; }
  int data_rank() const { return replica_.mesh().at.data; }

  // Calls add(score) for each row of this rank that has a target, in its order. Collective over the ranks
  // that share a sequence. Throws Error for a loss that is not finite.
  template <class Add>
  void Score(const Batch& batch, Add add);

 private:
  TokenScore At(const Shard& shard, size_t i, int64_t row) const;

  Replica replica_;
  Buffer losses_, argmax_;  // (t)
};

template <class Add>
void Scorer::Score(const Batch& batch, Add add) {
  replica_.TokenLosses(batch, losses_.tensor(), argmax_.tensor());
  const Shard shard = TakeShard(batch, replica_.layout(), replica_.context_rank());
  size_t i = 0;
  for (const Range& span : replica_.layout().spans(replica_.context_rank()))
    for (int64_t row = span.begin; row < span.end; ++row, ++i)
      if (shard.targets[i] != kIgnoreTarget) add(At(shard, i, row));
}

}  // namespace longspan
