// The ids of short pieces of text that were met before.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace longspan {

// 4 MiB: an entry is found by the hash of its piece, and replaced by the next piece that belongs in its
// place. For one thread at a time.
class PieceCache {
 public:
  static constexpr size_t kMaxBytes = 30, kMaxIds = 8;  // of a piece that is kept

  // Appends the ids of a piece that is here; else `encode(piece, ids)` does, and they are kept.
  template <class Encode>
  void Append(std::string_view piece, std::vector<int32_t>* ids, const Encode& encode) {
    if (piece.size() > kMaxBytes) return encode(piece, ids);
    Entry& entry = entries_[Place(piece)];
    if (entry.num_bytes == piece.size() && std::memcmp(entry.bytes.data(), piece.data(), piece.size()) == 0) {
      ids->insert(ids->end(), entry.ids.begin(), entry.ids.begin() + entry.num_ids);
      return;
    }
    const size_t begin = ids->size();
    encode(piece, ids);
    const std::span<const int32_t> added = std::span(*ids).subspan(begin);
    if (added.size() > kMaxIds) return;
    entry.num_bytes = static_cast<uint8_t>(piece.size());
    entry.num_ids = static_cast<uint8_t>(added.size());
    std::memcpy(entry.bytes.data(), piece.data(), piece.size());
    std::copy(added.begin(), added.end(), entry.ids.begin());
  }

 private:
  struct alignas(64) Entry {  // a cache line of the CPU
    uint8_t num_bytes = 0, num_ids = 0;
    std::array<char, kMaxBytes> bytes;
    std::array<int32_t, kMaxIds> ids;
  };
  static constexpr int kBits = 16;

  static size_t Place(std::string_view piece) {
    uint64_t hash = piece.size();
    for (size_t i = 0; i < piece.size(); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, piece.data() + i, std::min<size_t>(8, piece.size() - i));
      hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    }
    return hash * 0x9E3779B97F4A7C15u >> (64 - kBits);
  }

  std::vector<Entry> entries_ = std::vector<Entry>(size_t{1} << kBits);
};

}  // namespace longspan
