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

// The first `size` bytes, or one to three fewer where a character would be cut, and "…"; or all of a text
// that is no longer.
std::string Shortened(std::string_view text, size_t size);

// What is shown to a person, who or whose files may have written parts of it: control characters become \xNN,
// so that it is one line and leaves a terminal as it is, and of more than 4096 bytes the middle is left out.
std::string OneLine(std::string_view text);

}  // namespace longspan
