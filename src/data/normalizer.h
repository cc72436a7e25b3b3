// What is done to a text before it is cut: Unicode's normal forms, replacements, prefixes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "data/regex.h"
#include "data/unicode.h"

namespace longspan {

class Normalizer {
 public:
  // The steps that tokenizer.json has names for.
  struct Lowercase {};
  struct Prepend {  // to a text that is not empty
    std::string content;
  };
  struct Replace {  // every occurrence
    std::variant<std::string, Regex> pattern;
    std::string content;
  };
  struct Strip {  // white space at the ends
    bool left, right;
  };
  using Step = std::variant<NormalForm, Lowercase, Prepend, Replace, Strip>;

  template <class S>  // one of Step's
  void Add(S step) {
    steps_.emplace_back(std::move(step));
  }

  // The text after all steps in order: `text` itself where there are none, else `*buffer`. Valid UTF-8 in and
  // out.
  std::string_view Normalize(std::string_view text, Regex::Scratch& scratch, std::string* buffer) const;

 private:
  std::vector<Step> steps_;
};

// Every occurrence of `pattern`, which is not empty, replaced.
void AppendReplaced(std::string_view text, std::string_view pattern, std::string_view content,
                    std::string* out);

}  // namespace longspan
