// Tokens that are found in the text itself, before it is cut and merged.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/pair_table.h"

namespace longspan {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;                       // is looked for (normalized itself) in the normalized text
  bool single_word = false;                      // counts only where no word character is beside it
  bool left_strip = false, right_strip = false;  // takes the white space before or behind it along
};

// Finds a set of strings in a text: leftmost first, the longest of those that begin at one place.
class AddedTokenFinder {
 public:
  struct Part {
    std::string_view text;
    const AddedToken* token;  // null: the text is none
  };

  // `content` is what is looked for; the first of equal ones counts.
  void Add(const AddedToken& token, std::string_view content);
  bool empty() const { return tokens_.empty(); }

  // The whole text in parts, none of them empty. With `special_is_text`, special tokens are found but stay
  // text, as with encode_special_tokens in Hugging Face's library.
  std::vector<Part> Separate(std::string_view text, bool special_is_text) const;

 private:
  // The longest token at the beginning of a text, and its length; null if there is none.
  const AddedToken* Longest(std::string_view text, size_t* length) const;

  std::vector<AddedToken> tokens_;
  PairTable children_;                  // (node, byte) → node; the root is 0
  std::vector<int64_t> tokens_at_{-1};  // of nodes: place in tokens_, −1: none ends here
};

}  // namespace longspan
