// The two tables from which the backend puts rotary phases together.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "core/tensor.h"
#include "model/rope.h"

namespace longspan {

class OwnedRopeTables {
 public:
  // For positions [0, num_positions) of heads that are head_dim wide. longrope has tables for short documents
  // and for long ones; both exist from the start. `measure`: sizes but no values (a dry run).
  OwnedRopeTables(const RopeConfig& rope, int64_t head_dim, int64_t num_positions, bool measure = false);

  // Those of a sequence whose longest document has so many tokens.
  RopeTables tables(int64_t longest_document) const {
    return rope_.UsesLongFactors(longest_document) ? long_.view() : short_.view();
  }
  int64_t num_bytes() const { return short_.num_bytes() + long_.num_bytes(); }

 private:
  struct Pair {
    RopeTables view() const { return {.coarse = coarse.tensor(), .fine = fine.tensor()}; }
    int64_t num_bytes() const { return coarse.num_bytes() + fine.num_bytes(); }
    Buffer coarse, fine;
  };
  static Pair MakePair(const RopeConfig& rope, int64_t head_dim, int64_t num_positions, bool long_factors,
                       bool measure);

  RopeConfig rope_;
  Pair short_, long_;  // long_ is empty where no document can be long
};

}  // namespace longspan
