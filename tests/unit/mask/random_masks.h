// Random masks, documents and ranges for brute-force tests: small, and full of edge cases.
#pragma once

#include <fmt/format.h>

#include <random>
#include <string>

#include "mask/mask.h"

namespace longspan::testing {

// Any kind, with parameters from 1 (0 where allowed) to about a document's length.
inline MaskSpec RandomSpec(std::mt19937_64& random) {
  const auto up_to = [&](uint64_t n) { return static_cast<int64_t>(random() % (n + 1)); };
  return {.kind = MaskTable()[random() % MaskTable().size()].kind,
          .window = 1 + up_to(12),
          .chunk = 1 + up_to(12),
          .prefix = up_to(12),
          .sinks = up_to(6)};
}

// Sorted, disjoint documents in [0, length), some of them side by side, with padding between others.
inline Documents RandomDocuments(std::mt19937_64& random, int64_t length) {
  Documents documents;
  const auto longest = 1 + random() % static_cast<uint64_t>(length);
  for (int64_t begin = 0; begin < length;) {
    if (random() % 3 == 0) begin += static_cast<int64_t>(random() % 4);
    const int64_t end = std::min(length, begin + 1 + static_cast<int64_t>(random() % longest));
    if (begin < end) documents.push_back({begin, end});
    begin = end;
  }
  return documents;
}

// A range that may be empty and may reach past both ends of the sequence.
inline Range RandomRange(std::mt19937_64& random, int64_t length) {
  const int64_t begin = static_cast<int64_t>(random() % static_cast<uint64_t>(length + 4)) - 2;
  return {begin, begin + static_cast<int64_t>(random() % static_cast<uint64_t>(length + 2))};
}

inline std::string Describe(const MaskSpec& spec, std::span<const Range> documents) {
  std::string text =
      fmt::format("kind {} window {} chunk {} prefix {} sinks {}; documents", static_cast<int>(spec.kind),
                  spec.window, spec.chunk, spec.prefix, spec.sinks);
  for (const Range& document : documents) text += fmt::format(" [{}, {})", document.begin, document.end);
  return text;
}

}  // namespace longspan::testing
