#include "data/normalizer.h"

#include "data/utf8.h"

namespace longspan {
namespace {

struct Apply {
  std::string_view text;
  Regex::Scratch& scratch;
  std::string* out;

  void operator()(NormalForm form) const { AppendNormalized(text, form, out); }

  void operator()(const Normalizer::Lowercase&) const {
    for (size_t at = 0; at < text.size();) {
      const char32_t code = NextCodePoint(text, &at);
      AppendUtf8(code == 0x130 ? U'i' : ToLower(code), out);
      if (code == 0x130) AppendUtf8(0x307, out);  // İ is the one character that becomes two
    }
  }

  void operator()(const Normalizer::Prepend& step) const {
    if (!text.empty()) out->append(step.content);
    out->append(text);
  }

  void operator()(const Normalizer::Replace& step) const {
    if (const auto* pattern = std::get_if<std::string>(&step.pattern))
      return AppendReplaced(text, *pattern, step.content, out);
    RegexMatches matches(std::get<Regex>(step.pattern), text, scratch);
    size_t done = 0;
    for (Regex::Match match; matches.Next(&match); done = match.end) {
      out->append(text.substr(done, match.begin - done));
      out->append(step.content);
    }
    out->append(text.substr(done));
  }

  void operator()(const Normalizer::Strip& step) const {
    size_t begin = 0, end = 0;  // of what stays
    bool any = false;
    for (size_t at = 0; at < text.size();) {
      const size_t here = at;
      if (IsWhiteSpace(NextCodePoint(text, &at))) continue;
      if (!any) begin = here;
      end = at;
      any = true;
    }
    if (!any && (step.left || step.right)) return;
    if (!step.left) begin = 0;
    if (!step.right) end = text.size();
    out->append(text.substr(begin, end - begin));
  }
};

}  // namespace

void AppendReplaced(std::string_view text, std::string_view pattern, std::string_view content,
                    std::string* out) {
  size_t done = 0;
  for (size_t at = text.find(pattern); at != text.npos; at = text.find(pattern, done)) {
    out->append(text.substr(done, at - done));
    out->append(content);
    done = at + pattern.size();
  }
  out->append(text.substr(done));
}

std::string_view Normalizer::Normalize(std::string_view text, Regex::Scratch& scratch,
                                       std::string* buffer) const {
  for (const Step& step : steps_) {
    std::string next;
    next.reserve(text.size() + 16);
    std::visit(Apply{text, scratch, &next}, step);
    *buffer = std::move(next);
    text = *buffer;
  }
  return text;
}

}  // namespace longspan
