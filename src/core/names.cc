#include "core/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace longspan {
namespace {

// Optimal string alignment: Levenshtein's distance with swaps of neighbours. O(|a|·|b|) time, three rows of
// memory.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = above[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substituted});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

bool IsInsideCharacter(char c) { return (c & 0xc0) == 0x80; }  // of UTF-8: not its first byte

}  // namespace

std::string_view NearestName(std::string_view name, std::span<const std::string_view> candidates) {
  std::string_view nearest;
  size_t nearest_distance = 0;
  for (const std::string_view candidate : candidates) {
    const size_t distance = EditDistance(name, candidate);
    if (3 * distance > std::max(name.size(), candidate.size())) continue;
    if (nearest.empty() || distance < nearest_distance) {
      nearest = candidate;
      nearest_distance = distance;
    }
  }
  return nearest;
}

std::string Suggestion(std::string_view name, std::span<const std::string_view> candidates) {
  const std::string_view nearest = NearestName(name, candidates);
  if (!nearest.empty()) return fmt::format("; did you mean '{}'?", nearest);
  if (candidates.empty()) return "";
  return fmt::format("; one of {}", fmt::join(candidates, ", "));
}

std::string Shortened(std::string_view text, size_t size) {
  if (text.size() <= size) return std::string(text);
  while (size > 0 && IsInsideCharacter(text[size])) --size;
  return fmt::format("{}…", text.substr(0, size));
}

std::string OneLine(std::string_view text) {
  constexpr size_t kMaxBytes = 4096;
  if (text.size() > kMaxBytes) {
    size_t tail = text.size() - kMaxBytes / 2;
    while (tail < text.size() && IsInsideCharacter(text[tail])) ++tail;
    return OneLine(Shortened(text, kMaxBytes / 2 - 16) + std::string(text.substr(tail)));
  }
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      line += fmt::format("\\x{:02x}", byte);
    else
      line += c;
  }
  return line;
}

}  // namespace longspan
