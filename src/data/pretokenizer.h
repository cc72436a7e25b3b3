// Cuts a normalized text into the pieces that are encoded each by itself.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "data/regex.h"

namespace longspan {

class Pretokenizer {
 public:
  // The steps that tokenizer.json has names for, in the words of its Split and Metaspace.
  struct Split {
    // What becomes of the matches. They are cut out with what is around them kept (isolated), dropped, joined
    // with equal neighbours (a match with matches, the rest with the rest), or with what is before or behind.
    enum class Behavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };
    std::variant<std::string, Regex> pattern;  // a string is itself
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;  // what lies between the matches counts as the matches
  };
  struct PrefixSpace {};  // ByteLevel's: before a piece that doesn't begin with one
  struct Metaspace {
    enum class Prepend { kAlways, kFirst, kNever };
    std::string replacement;             // for spaces
    Prepend prepend = Prepend::kAlways;  // kFirst: at the beginning of the text only
    bool split = true;                   // before each replacement
  };
  using Step = std::variant<Split, PrefixSpace, Metaspace>;
  using Sink = std::function<void(std::string_view piece)>;

  template <class S>  // one of Step's
  void Add(S step) {
    steps_.emplace_back(std::move(step));
  }

  // Gives all pieces to `sink` in order; none is empty. `is_first`: the text begins the document.
  void Cut(std::string_view text, bool is_first, Regex::Scratch& scratch, const Sink& sink) const;

 private:
  struct Run;
  std::vector<Step> steps_;
};

}  // namespace longspan
