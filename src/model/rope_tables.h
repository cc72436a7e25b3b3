// The two tables from which the backend puts rotary phases together.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "core/tensor.h"
#include "model/config.h"

namespace longspan {

class OwnedRopeTables {
 public:
  // For positions [0, num_positions), with the config's base and scaling.
  OwnedRopeTables(const ModelConfig& config, int64_t num_positions);

  RopeTables tables() const { return {.coarse = coarse_.tensor(), .fine = fine_.tensor()}; }
  int64_t num_bytes() const { return coarse_.num_bytes() + fine_.num_bytes(); }

 private:
  Buffer coarse_, fine_;
};

}  // namespace longspan
