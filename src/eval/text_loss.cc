#include "eval/text_loss.h"

#include <algorithm>
#include <optional>

#include "comm/thread_comm.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/progress_line.h"
#include "eval/scorer.h"

namespace longspan {

LossReport MeasureLoss(const Job& job) {
  const TrainConfig& config = job.config;
  LossReport report;
  RunThreadRanks(job.mesh.ranks(), [&](Comm& world) {
    Scorer scorer(job, world);
    const AbortOnUnwind guard(world);
    LossByContext losses(config.max_target_length);
    SequenceReader reader(*job.sources[0].corpus, config.max_target_length, 0, /*shuffle=*/false);
    int64_t sequences = 0, tokens = 0, total = job.sources[0].corpus->total_tokens();
    if (config.eval_steps >= 0) total = std::min(total, config.eval_steps * config.max_target_length);
    std::optional<ProgressLine> progress;
    if (world.rank() == 0) progress.emplace("evaluating " + job.sources[0].path, kKiloTokens, total);
    world.Barrier();
    const double start = Now();
    for (; reader.position().epoch == 0 && sequences != config.eval_steps; ++sequences) {
      if (progress) progress->Update(tokens);
      const Batch batch = reader.Next();
      tokens += batch.num_tokens;
      if (sequences % job.mesh.data != scorer.data_rank()) continue;
      scorer.Score(batch, [&](const TokenScore& token) { losses.Add(token.context, token.loss); });
    }
    world.SumOverRanks(losses.sums());
    if (world.rank() != 0) return;
    report = {.sequences = sequences,
              .tokens = tokens,
              .whole = losses.Whole(),
              .buckets = losses.Buckets(),
              .seconds = Now() - start};
  });
  Require(report.whole.targets > 0, "data_path {} has no target in it", job.sources[0].path);
  return report;
}

}  // namespace longspan
