#include "eval/task_cases.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/target.h"

namespace longspan {
namespace {

std::vector<int32_t> Encode(const Tokenizer& tokenizer, const std::string& text) {
  const std::span<const int32_t> prefix = tokenizer.document_prefix();
  std::vector<int32_t> ids(prefix.begin(), prefix.end());
  const std::vector<int32_t> encoded = tokenizer.Encode(text);
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  return ids;
}

size_t CommonPrefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// Asks about texts of any number of units; the same random numbers each time.
class Asker {
 public:
  Asker(const Task& task, const Tokenizer& tokenizer, const CaseSpec& spec, int64_t length, double depth,
        std::string stream)
      : task_(task),
        tokenizer_(tokenizer),
        spec_(spec),
        length_(length),
        depth_(depth),
        stream_(std::move(stream)) {}

  Question Ask(int64_t units) const {
    Draws draws(spec_.seed, stream_);
    return task_.Ask(units, depth_, spec_.choices, draws);
  }

  // The question about the longest text that fits.
  Question Longest() const {
    int64_t units = task_.min_units(), too_many = task_.max_units() + 1;
    Question question = Ask(units);
    int64_t tokens = CountTokens(question);
    Require(tokens <= length_,
            "a case of {} tokens has no room for the shortest question, which takes {}; give "
            "larger task_lengths",
            length_, tokens);
    // Between a number of units that fits and one that does not, along the line through the last two counts.
    double tokens_per_unit = 8;
    while (too_many - units > 1) {
      const double room = static_cast<double>(length_ - tokens) / tokens_per_unit;
      const int64_t more =
          std::clamp(static_cast<int64_t>(std::min(room, 1e9)), int64_t{1}, too_many - units - 1);
      Question longer = Ask(units + more);
      const int64_t longer_tokens = CountTokens(longer);
      tokens_per_unit =
          std::max(0.1, static_cast<double>(longer_tokens - tokens) / static_cast<double>(more));
      if (longer_tokens > length_) {
        too_many = units + more;
        continue;
      }
      units += more;
      tokens = longer_tokens;
      question = std::move(longer);
    }
    Require(units < task_.max_units(),
            "the task's file makes a text of {} tokens, and {} are asked for; give smaller "
            "task_lengths or a larger task_path",
            tokens, length_);
    return question;
  }

 private:
  int64_t CountTokens(const Question& question) const {
    return static_cast<int64_t>(Encode(tokenizer_, question.prompt + question.answers[0]).size());
  }

  const Task& task_;
  const Tokenizer& tokenizer_;
  const CaseSpec& spec_;
  const int64_t length_;
  const double depth_;
  const std::string stream_;
};

}  // namespace

int64_t Case::num_rows() const {
  int64_t rows = static_cast<int64_t>(prompt.size()) - 1;
  for (const std::vector<int32_t>& answer : answers) rows += static_cast<int64_t>(answer.size());
  return rows;
}

Case Tokenize(const Question& question, const Tokenizer& tokenizer) {
  Case result;
  result.prompt = Encode(tokenizer, question.prompt);
  std::vector<std::vector<int32_t>> whole;
  size_t shared = result.prompt.size();
  for (const std::string& answer : question.answers) {
    whole.push_back(Encode(tokenizer, question.prompt + answer));
    shared = std::min(shared, CommonPrefix(result.prompt, whole.back()));
  }
  result.prompt.resize(shared);
  for (const std::vector<int32_t>& ids : whole)
    result.answers.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(shared), ids.end());
  Require(shared >= 2 && std::ranges::none_of(result.answers, &std::vector<int32_t>::empty),
          "this tokenizer makes no tokens of their own of the prompt's and the answer's texts, so this task "
          "cannot be "
          "scored with it");
  return result;
}

std::vector<Case> MakeCases(const Task& task, const Tokenizer& tokenizer, const CaseSpec& spec) {
  std::vector<Case> cases;
  for (const int64_t length : spec.lengths)
    for (const double depth : task.has_depth() ? spec.depths : std::vector<double>{0})
      for (int64_t sample = 0; sample < spec.samples; ++sample) {
        const Asker asker(task, tokenizer, spec, length, depth,
                          fmt::format("case/{}/{}/{}", length, depth, sample));
        cases.push_back(Tokenize(asker.Longest(), tokenizer));
        cases.back().length = length;
        cases.back().depth = depth;
      }
  return cases;
}

CaseBatches PackCases(const std::vector<Case>& cases, int64_t length) {
  CaseBatches packed;
  for (size_t c = 0; c < cases.size(); ++c) {
    const Case& one = cases[c];
    CHECK(one.num_rows() <= length);
    if (packed.batches.empty() || packed.batches.back().num_tokens + one.num_rows() > length) {
      Batch& batch = packed.batches.emplace_back();
      batch.tokens.assign(static_cast<size_t>(length), 0);
      batch.targets.assign(static_cast<size_t>(length), kIgnoreTarget);
      packed.answers.emplace_back();
    }
    Batch& batch = packed.batches.back();
    int64_t row = batch.num_tokens;
    const auto append = [&](int32_t token, int32_t target) {
      batch.tokens[static_cast<size_t>(row)] = token;
      batch.targets[static_cast<size_t>(row++)] = target;
      batch.num_targets += target != kIgnoreTarget;
    };
    for (size_t i = 0; i + 1 < one.prompt.size(); ++i) append(one.prompt[i], kIgnoreTarget);
    for (size_t a = 0; a < one.answers.size(); ++a) {
      const int64_t begin = row;
      int32_t before = one.prompt.back();
      for (const int32_t id : one.answers[a]) {
        append(before, id);
        before = id;
      }
      batch.branches.push_back({begin, row});
      packed.answers.back().push_back({{begin, row}, c, a});
    }
    batch.documents.push_back({batch.num_tokens, row});
    batch.num_tokens = row;
  }
  return packed;
}

}  // namespace longspan
