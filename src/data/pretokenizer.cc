#include "data/pretokenizer.h"

#include "data/normalizer.h"

namespace longspan {
namespace {

using Behavior = Pretokenizer::Split::Behavior;

// Pieces as they end up, from the alternating matches and rests of a split.
class Joiner {
 public:
  Joiner(Behavior behavior, std::string_view text) : behavior_(behavior), text_(text) {}

  // The next part of the text, which follows the one before; `emit` gets what is complete.
  template <class Emit>
  void Add(size_t begin, size_t end, bool is_match, const Emit& emit) {
    if (behavior_ == Behavior::kIsolated) return emit(text_.substr(begin, end - begin));
    if (behavior_ == Behavior::kRemoved) {
      if (!is_match) emit(text_.substr(begin, end - begin));
      return;
    }
    const bool join = has_held_ && ((behavior_ == Behavior::kContiguous && is_match == was_match_) ||
                                    (behavior_ == Behavior::kMergedWithPrevious && is_match && !was_match_) ||
                                    (behavior_ == Behavior::kMergedWithNext && !is_match && was_match_));
    if (!join) {
      Finish(emit);
      held_begin_ = begin;
    }
    has_held_ = true;
    held_end_ = end;
    was_match_ = is_match;
  }

  template <class Emit>
  void Finish(const Emit& emit) {
    if (has_held_) emit(text_.substr(held_begin_, held_end_ - held_begin_));
    has_held_ = false;
  }

 private:
  Behavior behavior_;
  std::string_view text_;
  bool has_held_ = false, was_match_ = false;
  size_t held_begin_ = 0, held_end_ = 0;
};

// Matches of a string, as RegexMatches finds those of a pattern.
class StringMatches {
 public:
  StringMatches(std::string_view pattern, std::string_view text) : pattern_(pattern), text_(text) {}
  bool Next(Regex::Match* match) {
    const size_t at = text_.find(pattern_, from_);
    if (at == text_.npos) return false;
    from_ = at + pattern_.size();
    *match = {at, from_};
    return true;
  }

 private:
  std::string_view pattern_, text_;
  size_t from_ = 0;
};

}  // namespace

// One call of Cut: each step gives its pieces to the next.
struct Pretokenizer::Run {
  const Pretokenizer& pretokenizer;
  Regex::Scratch& scratch;
  const Sink& sink;

  void Step(size_t index, std::string_view piece, bool is_first) const {
    if (piece.empty()) return;
    if (index == pretokenizer.steps_.size()) return sink(piece);
    std::visit([&](const auto& step) { Apply(step, index + 1, piece, is_first); },
               pretokenizer.steps_[index]);
  }

  template <class Matches>
  void Separate(const Split& split, Matches matches, size_t next, std::string_view text,
                bool is_first) const {
    const auto emit = [&](std::string_view piece) {
      Step(next, piece, is_first && piece.data() == text.data());
    };
    Joiner joiner(split.behavior, text);
    size_t done = 0;
    for (Regex::Match match; matches.Next(&match); done = match.end) {
      if (done != match.begin) joiner.Add(done, match.begin, split.invert, emit);
      joiner.Add(match.begin, match.end, !split.invert, emit);
    }
    if (done != text.size()) joiner.Add(done, text.size(), split.invert, emit);
    joiner.Finish(emit);
  }

  void Apply(const Split& split, size_t next, std::string_view text, bool is_first) const {
    if (const auto* pattern = std::get_if<std::string>(&split.pattern))
      Separate(split, StringMatches(*pattern, text), next, text, is_first);
    else
      Separate(split, RegexMatches(std::get<Regex>(split.pattern), text, scratch), next, text, is_first);
  }

  void Apply(const PrefixSpace&, size_t next, std::string_view text, bool is_first) const {
    if (text.starts_with(' ')) return Step(next, text, is_first);
    std::string prefixed = " ";
    prefixed += text;
    Step(next, prefixed, is_first);
  }

  void Apply(const Metaspace& metaspace, size_t next, std::string_view text, bool is_first) const {
    std::string replaced;
    if (metaspace.prepend != Metaspace::Prepend::kNever &&
        (is_first || metaspace.prepend == Metaspace::Prepend::kAlways) && !text.starts_with(' ') &&
        !text.starts_with(metaspace.replacement))
      replaced = metaspace.replacement;
    AppendReplaced(text, " ", metaspace.replacement, &replaced);
    if (!metaspace.split) return Step(next, replaced, is_first);
    const Split split = {metaspace.replacement, Behavior::kMergedWithNext, false};
    Apply(split, next, replaced, is_first);
  }
};

void Pretokenizer::Cut(std::string_view text, bool is_first, Regex::Scratch& scratch,
                       const Sink& sink) const {
  Run{*this, scratch, sink}.Step(0, text, is_first);
}

}  // namespace longspan
