// Suggestions for misspelt names, the same everywhere.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace longspan {

// The candidate with the smallest edit distance to `name` (insertions, deletions, substitutions and swaps of
// neighbours each count 1), the first of several; empty if none is near: more than a third of the longer
// differs.
std::string_view NearestName(std::string_view name, std::span<const std::string_view> candidates);
// "; did you mean 'x'?" or, with none near, "; one of a, b, c"; nothing if there are no candidates.
std::string Suggestion(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace longspan
