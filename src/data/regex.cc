#include "data/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/check.h"
#include "core/names.h"
#include "data/utf8.h"

namespace longspan {
namespace {

// The stack of compiled patterns: it grows where groups repeat, some 100 bytes a repetition. Reserved as
// addresses only; pages are taken when used.
constexpr size_t kFirstStackBytes = 32 << 10, kMaxStackBytes = size_t{256} << 20;
// What PCRE2's interpreter may use where the stack does not suffice, in KiB.
constexpr uint32_t kInterpreterKibibytes = 4 << 20;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

std::string Pcre2Message(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR Units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Regex::Impl {
  std::unique_ptr<pcre2_code, FreeCode> code;
  bool compiled = false;  // to machine code; else interpreted, with the same matches
  std::string where;
};

struct Regex::Scratch::Impl {
  Impl()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(kFirstStackBytes, kMaxStackBytes, nullptr)) {
    Require(ExitCode::kResource, data != nullptr && context != nullptr && stack != nullptr,
            "out of memory for regular expressions");
    pcre2_jit_stack_assign(context, nullptr, stack);
    // A long text takes many steps; they are linear for the patterns in use.
    pcre2_set_match_limit(context, UINT32_MAX);
    pcre2_set_depth_limit(context, UINT32_MAX);
    pcre2_set_heap_limit(context, kInterpreterKibibytes);
  }
  ~Impl() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

Regex::Scratch::Scratch() : impl_(std::make_unique<Impl>()) {}
Regex::Scratch::~Scratch() = default;

Regex::Regex(std::string_view pattern, RegexDialect dialect, const std::string& where)
    : impl_(std::make_unique<Impl>()) {
  impl_->where = where;
  const std::string translated = TranslateRegex(pattern, dialect, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl_->code.reset(
      pcre2_compile(Units(translated), translated.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  Require(impl_->code != nullptr, "{}: the pattern {} cannot be used: {}", where, Shortened(pattern, 200),
          Pcre2Message(error));
  impl_->compiled = pcre2_jit_compile(impl_->code.get(), PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::Find(std::string_view subject, size_t from, Scratch& scratch, Match* match) const {
  Scratch::Impl& s = *scratch.impl_;
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (impl_->compiled)
    found = pcre2_jit_match(impl_->code.get(), Units(subject), subject.size(), from, 0, s.data, s.context);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT)
    found = pcre2_match(impl_->code.get(), Units(subject), subject.size(), from,
                        PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s.data, s.context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  Require(ExitCode::kResource, found >= 0,
          "{}: matching the pattern failed at byte {} of {}: {}; split the text into smaller documents",
          impl_->where, from, subject.size(), Pcre2Message(found));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(s.data);
  *match = {ends[0], ends[1]};
  return true;
}

bool RegexMatches::Next(Regex::Match* match) {
  while (from_ <= subject_.size() && regex_.Find(subject_, from_, scratch_, match)) {
    if (match->begin != match->end || match->end != last_end_) {
      from_ = last_end_ = match->end;
      return true;
    }
    from_ += from_ < subject_.size() ? Utf8Length(subject_[from_]) : 1;
  }
  from_ = subject_.size() + 1;
  return false;
}

}  // namespace longspan
