// PairCounts: allowed pairs of attention calls, each counted once: all layers of a kind make the same calls.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "mask/mask.h"

namespace longspan {

class PairCounts {
 public:
  // Of the rows and keys that these spans name.
  int64_t Count(const Mask& mask, std::span<const Range> rows, std::span<const Range> keys);

 private:
  struct Call {
    size_t mask;  // of masks_
    std::vector<Range> rows, keys;
    int64_t pairs;
  };
  size_t IndexOf(const Mask& mask);

  std::vector<Mask> masks_;             // copies: a mask's owner may put another in its place
  std::multimap<size_t, Call> counts_;  // by a hash of the call
};

}  // namespace longspan
