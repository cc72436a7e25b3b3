// Cases: a task's questions as tokens, and as sequences for the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/packing.h"
#include "data/tokenizer.h"
#include "eval/task.h"

namespace longspan {

// A question about a text of a given length. The answers follow the prompt in turns, as branches of one
// document (mask/mask.h), so one pass over the text gives the likelihood of each.
struct Case {
  int64_t length = 0;  // tokens that were asked for
  double depth = 0;    // 0 … 1; 0 for a task that has none
  std::vector<int32_t> prompt;
  std::vector<std::vector<int32_t>> answers;  // the right one first; none is empty

  // Rows: the prompt without its last token, and for each answer that token and the answer without its own
  // last.
  int64_t num_rows() const;
};

struct CaseSpec {
  std::vector<int64_t> lengths;
  std::vector<double> depths;  // 0 … 1
  int64_t samples = 0, choices = 0;
  uint64_t seed = 0;
};
// Cases of every length, depth and sample, in this order: as many units as fit, with the right answer, into
// the length. A task without depth has samples of each length alone. A function of the arguments. Throws
// Error for a length that has no room for a question, or none of whose texts is so long.
std::vector<Case> MakeCases(const Task& task, const Tokenizer& tokenizer, const CaseSpec& spec);

// A question's tokens. Every answer is encoded behind the prompt, as it would be in a text; where that
// changes the prompt's last tokens, the prompt ends before them and the answers begin with them.
Case Tokenize(const Question& question, const Tokenizer& tokenizer);

// Cases one behind the other in sequences of `length` rows; none is cut.
struct CaseBatches {
  struct Answer {
    Range rows;  // global indices, whose targets are the answer
    size_t at_case, answer;
  };
  std::vector<Batch> batches;
  std::vector<std::vector<Answer>> answers;  // of each batch, in order
};
CaseBatches PackCases(const std::vector<Case>& cases, int64_t length);

}  // namespace longspan
