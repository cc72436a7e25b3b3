#include "cli/process_job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/run_config.h"
#include "comm/agreement.h"
#include "core/check.h"
#include "core/file.h"
#include "core/format.h"

namespace longspan {
namespace {

// Of the program that runs: other code may compute other bits.
std::string ProgramText() {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  const MappedFile program("/proc/self/exe");
  for (const std::byte byte : program.bytes()) hash = (hash ^ static_cast<uint64_t>(byte)) * 1099511628211u;
  return fmt::format("{} bytes, FNV-1a {:016x}", program.bytes().size(), hash);
}

// Of what was read: each rank reads for itself, and what is there may differ from host to host.
std::string InputsText(const Job& opened) {
  std::string text;
  const auto add = [&](const std::string& path, const Corpus& corpus) {
    text += fmt::format("{}: {}, {}\n", path, Plural(corpus.num_documents(), "document"),
                        Plural(corpus.total_tokens(), "token"));
  };
  for (const DataSource& source : opened.sources) add(source.path, *source.corpus);
  if (opened.eval_corpus) add(opened.config.eval_data_path, *opened.eval_corpus);
  return text + opened.model_json;
}

}  // namespace

ProcessJob PrepareProcessJob(TrainConfig config, Comm& world,
                             const std::function<Job(Job opened, int num_hosts)>& resolve) {
  Require(
      ExitCode::kUsage, config.ranks == world.size(),
      "ranks is {}, but there are {} as the launcher started that many processes; start {}, or leave ranks "
      "out",
      config.ranks, world.size(), config.ranks);
  world.SetFailureTimeout(config.failure_timeout);
  std::vector<Host> hosts = FindHosts(world);
  if (config.threads_per_rank == 0) {
    config.threads_per_rank = hosts[0].num_cores;
    for (const Host& host : hosts)
      config.threads_per_rank =
          std::clamp<int64_t>(host.num_cores / host.num_ranks(), 1, config.threads_per_rank);
  }
  RequireAgreement(world, "the program", ProgramText());
  RequireAgreement(world, "the recipe", WriteRecipe(config));
  Job opened = OpenText(OpenModel(config));
  RequireAgreement(world, "model and data", InputsText(opened));

  std::optional<Job> job;
  if (world.rank() == 0) job = resolve(std::move(opened), NumFullHosts(hosts));
  std::string recipe = ShareText(world, job ? WriteRecipe(job->config) : "");
  if (!job) {
    TrainConfig resolved;
    LoadKeysFromText("train", TrainKeys(resolved), recipe, "the first rank's configuration");
    opened.config = resolved;
    job = PrepareJob(std::move(opened));
  }
  return {std::move(*job), std::move(recipe), std::move(hosts)};
}

}  // namespace longspan
