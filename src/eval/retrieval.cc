#include "eval/retrieval.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "comm/thread_comm.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/progress_line.h"
#include "eval/scorer.h"

namespace longspan {

RetrievalCell& RetrievalCell::operator+=(const RetrievalCell& other) {
  cases += other.cases;
  likeliest += other.likeliest;
  greedy += other.greedy;
  log_probability += other.log_probability;
  answer_tokens += other.answer_tokens;
  chance += other.chance;
  return *this;
}

RetrievalCell RetrievalReport::OfLength(int64_t length) const {
  RetrievalCell sum;
  sum.length = length;
  for (const RetrievalCell& cell : cells)
    if (cell.length == length) sum += cell;
  return sum;
}

RetrievalCell RetrievalReport::Whole() const {
  RetrievalCell sum;
  for (const RetrievalCell& cell : cells) sum += cell;
  return sum;
}

std::vector<std::vector<AnswerScore>> ScoreCases(const Job& job, const std::vector<Case>& cases,
                                                 double* seconds) {
  const CaseBatches packed = PackCases(cases, job.config.max_target_length);
  // Where a case's answers begin in one list of all.
  std::vector<size_t> first;
  size_t num_answers = 0;
  for (const Case& one : cases) {
    first.push_back(num_answers);
    num_answers += one.answers.size();
  }
  std::vector<double> sums;  // (answers, 2): log probability, greedy tokens
  RunThreadRanks(job.mesh.ranks(), [&](Comm& world) {
    Scorer scorer(job, world);
    const AbortOnUnwind guard(world);
    std::vector<double> mine(2 * num_answers);
    int64_t rows = 0, total = 0;  // of this data group
    const auto first_batch = static_cast<size_t>(scorer.data_rank());
    const auto groups = static_cast<size_t>(job.mesh.data);
    for (size_t b = first_batch; b < packed.batches.size(); b += groups)
      total += packed.batches[b].num_tokens;
    std::optional<ProgressLine> progress;
    if (world.rank() == 0) progress.emplace("evaluating cases", kKiloTokens, total);
    world.Barrier();
    const double start = Now();
    for (size_t b = first_batch; b < packed.batches.size(); b += groups) {
      if (progress) progress->Update(rows);
      rows += packed.batches[b].num_tokens;
      scorer.Score(packed.batches[b], [&](const TokenScore& token) {
        const auto answer = std::ranges::partition_point(
            packed.answers[b], [&](const CaseBatches::Answer& a) { return a.rows.end <= token.row; });
        double* const sum = &mine[2 * (first[answer->at_case] + answer->answer)];
        sum[0] -= token.loss;
        sum[1] += token.greedy;
      });
    }
    world.SumOverRanks(mine);
    if (world.rank() != 0) return;
    *seconds = Now() - start;
    sums = std::move(mine);
  });

  std::vector<std::vector<AnswerScore>> scores;
  for (size_t c = 0; c < cases.size(); ++c) {
    std::vector<AnswerScore>& of_case = scores.emplace_back();
    for (size_t a = 0; a < cases[c].answers.size(); ++a) {
      const double* const sum = &sums[2 * (first[c] + a)];
      of_case.push_back({sum[0], std::llround(sum[1])});
    }
  }
  return scores;
}

RetrievalReport Summarize(const std::string& task, const std::vector<Case>& cases,
                          const std::vector<std::vector<AnswerScore>>& scores, bool has_depth) {
  RetrievalReport report;
  report.task = task;
  for (size_t c = 0; c < cases.size(); ++c) {
    const Case& one = cases[c];
    const std::optional<double> depth = has_depth ? std::optional(one.depth) : std::nullopt;
    auto cell = std::ranges::find_if(
        report.cells, [&](const RetrievalCell& r) { return r.length == one.length && r.depth == depth; });
    if (cell == report.cells.end()) {
      report.cells.push_back({.length = one.length, .depth = depth});
      cell = report.cells.end() - 1;
    }
    const AnswerScore& right = scores[c][0];
    const auto right_tokens = static_cast<int64_t>(one.answers[0].size());
    cell->cases += 1;
    cell->likeliest += std::all_of(scores[c].begin() + 1, scores[c].end(), [&](const AnswerScore& wrong) {
      return wrong.log_probability < right.log_probability;
    });
    cell->greedy += right.greedy_tokens == right_tokens;
    cell->log_probability += right.log_probability;
    cell->answer_tokens += right_tokens;
    cell->chance += 1 / static_cast<double>(one.answers.size());
    report.tokens += one.num_rows();
  }
  return report;
}

}  // namespace longspan
