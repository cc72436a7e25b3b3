// A hash table from pairs of 32-bit numbers to 64-bit values: one array, no deletion, one cache line a
// lookup.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "core/check.h"

namespace longspan {

class PairTable {
 public:
  static constexpr uint64_t kNone = ~uint64_t{0};

  // Replaces what the pair had. `value` is not kNone, and the pair is not (2^32 − 1, 2^32 − 1).
  void Set(uint32_t first, uint32_t second, uint64_t value) {
    if (2 * (size_ + 1) > slots_.size()) Grow();
    Slot& slot = slots_[Find(Key(first, second))];
    if (slot.key == kNone) ++size_;
    slot = {Key(first, second), value};
    CHECK(slot.key != kNone && value != kNone);
  }

  // The pair's value, or kNone.
  uint64_t Get(uint32_t first, uint32_t second) const {
    return slots_.empty() ? kNone : slots_[Find(Key(first, second))].value;
  }

 private:
  struct Slot {
    uint64_t key = kNone, value = kNone;
  };

  static uint64_t Key(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

  // Where the key is, or the free slot where it belongs: linear probing.
  size_t Find(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t at = static_cast<size_t>(key * 0x9E3779B97F4A7C15u >> shift_);
    while (slots_[at].key != key && slots_[at].key != kNone) at = (at + 1) & mask;
    return at;
  }

  void Grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : 2 * slots_.size());
    old.swap(slots_);
    shift_ = 64 - std::countr_zero(slots_.size());
    for (const Slot& slot : old)
      if (slot.key != kNone) slots_[Find(slot.key)] = slot;
  }

  std::vector<Slot> slots_;  // a power of two of them, at most half in use
  size_t size_ = 0;
  int shift_ = 0;
};

}  // namespace longspan
