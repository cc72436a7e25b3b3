// Regular expressions over UTF-8, for pre-tokenizers and normalizers: PCRE2, compiled at run time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace longspan {

// Who wrote a pattern decides what its \w, \h, ^ or {2}+ mean: tokenizer.json is read by Oniguruma (Ruby's
// syntax), tiktoken by Rust's fancy-regex.
enum class RegexDialect { kOniguruma, kRust };

// The pattern in PCRE2's words. Throws Error, beginning with `where`, for what PCRE2 cannot match the same:
// intersections and negated sets within sets, flags other than i, absent operators, ….
std::string TranslateRegex(std::string_view pattern, RegexDialect dialect, const std::string& where);

class Regex {
 public:
  // Memory of a search; for one thread at a time and any number of patterns.
  class Scratch {
   public:
    Scratch();
    ~Scratch();

   private:
    friend class Regex;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };
  struct Match {
    size_t begin, end;
  };

  // Throws Error, beginning with `where`, if the pattern cannot be translated or compiled.
  Regex(std::string_view pattern, RegexDialect dialect, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The first match that begins at `from` or later, in valid UTF-8; false if there is none. Throws
  // Error(kResource) where the machine's memory does not suffice.
  bool Find(std::string_view subject, size_t from, Scratch& scratch, Match* match) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// All matches in order, as Oniguruma's and Rust's iterators give them: from the end of the last, and an empty
// one only where no other has just ended.
class RegexMatches {
 public:
  RegexMatches(const Regex& regex, std::string_view subject, Regex::Scratch& scratch)
      : regex_(regex), subject_(subject), scratch_(scratch) {}
  bool Next(Regex::Match* match);

 private:
  const Regex& regex_;
  std::string_view subject_;
  Regex::Scratch& scratch_;
  size_t from_ = 0;
  size_t last_end_ = ~size_t{0};
};

}  // namespace longspan
