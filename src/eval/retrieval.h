// Retrieval: how often a model finds what a text holds, by the text's length and by where in it the answer
// stands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/task_cases.h"
#include "eval/eval_config.h"
#include "train/job.h"

namespace longspan {

// Sums over the cases of one length and depth.
struct RetrievalCell {
  int64_t length = 0;
  std::optional<double> depth;  // 0 … 1; none: over all depths, or the task has none
  int64_t cases = 0;
  int64_t likeliest = 0;       // cases whose right answer has a larger probability than every wrong one
  int64_t greedy = 0;          // … whose right answer greedy decoding gives, token for token
  double log_probability = 0;  // of the right answers, natural log, summed
  int64_t answer_tokens = 0;   // of the right answers
  double chance = 0;           // Σ 1 / answers: what guessing would add to `likeliest`

  RetrievalCell& operator+=(const RetrievalCell& other);
};

struct RetrievalReport {
  std::string task;
  std::vector<RetrievalCell> cells;  // by length, then depth
  int64_t choices = 0, samples = 0;
  int64_t tokens = 0;  // rows that are no padding
  double seconds = 0;  // of the passes over them

  // Of one length over all depths.
  RetrievalCell OfLength(int64_t length) const;
  RetrievalCell Whole() const;
};

// Of every answer of every case: Σ log p of its tokens, and how many of them are the greedy choice where all
// before them are given. That all are is the same as that greedy decoding gives this answer: up to the first
// token that is not, both see the same text.
struct AnswerScore {
  double log_probability = 0;
  int64_t greedy_tokens = 0;
};

// Scores every answer (case, answer), over the job's ranks. `seconds`: what the passes took.
std::vector<std::vector<AnswerScore>> ScoreCases(const Job& job, const std::vector<Case>& cases,
                                                 double* seconds);

RetrievalReport Summarize(const std::string& task, const std::vector<Case>& cases,
                          const std::vector<std::vector<AnswerScore>>& scores, bool has_depth);

}  // namespace longspan
