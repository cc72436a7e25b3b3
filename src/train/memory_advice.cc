#include "train/memory_advice.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "core/check.h"
#include "train/memory_ladder.h"
#include "train/placement.h"

namespace longspan {
namespace {

constexpr int64_t kMostRanks = 1024;

class Advisor {
 public:
  Advisor(const Job& job, const MemoryCheck& check) : job_(job), check_(check) {}

  std::optional<std::string> Rung(const TrainConfig& config) const;
  std::optional<std::string> Shards() const;
  std::optional<std::string> Ranks(const TrainConfig& config) const;
  std::optional<std::string> Length() const;
  TrainConfig Sharded() const;

 private:
  // What cannot be at all, such as more ranks than heads, doesn't fit either.
  bool Fits(const TrainConfig& config) const {
    try {
      return check_(PrepareJobWithoutText(OfSameModel(job_, config))).fits();
    } catch (const Error&) {
      return false;
    }
  }
  bool SplitsByHeadsAlone() const {
    return std::ranges::all_of(job_.strategies, [](const auto& name) { return name == "ulysses"; });
  }
  // With n times as many ranks to a sequence.
  TrainConfig Wider(TrainConfig config, int64_t n) const;

  const Job& job_;
  const MemoryCheck& check_;
};

std::optional<std::string> Advisor::Rung(const TrainConfig& config) const {
  for (const MemoryRung& rung : MemoryLadder()) {
    const TrainConfig on_rung = WithRung(config, rung);
    if (Fits(on_rung)) return PlacementChanges(job_.config, on_rung);
  }
  return std::nullopt;
}

TrainConfig Advisor::Sharded() const {
  TrainConfig config = job_.config;
  config.shard_parameters = true;
  return config;
}

std::optional<std::string> Advisor::Shards() const {
  if (job_.mesh.ranks() == 1 || job_.config.shard_parameters || !Fits(Sharded())) return std::nullopt;
  return "shard_parameters=true";
}

TrainConfig Advisor::Wider(TrainConfig config, int64_t n) const {
  config.ranks *= n;
  (SplitsByHeadsAlone() ? config.ulysses_parallelism : config.context_parallelism) *= n;
  if (job_.mesh.context() == 1) config.context_parallel_layout = "auto";  // which one rank has no use for
  return config;
}

// More ranks never take more each: twice as many until they do, then fewer of these.
std::optional<std::string> Advisor::Ranks(const TrainConfig& config) const {
  const int64_t most = kMostRanks / config.ranks;
  int64_t good = 2;
  while (good <= most && !Fits(Wider(config, good))) good *= 2;
  if (good > most) return std::nullopt;
  for (int64_t bad = good / 2; good - bad > 1;) {
    const int64_t middle = (good + bad) / 2;
    (Fits(Wider(config, middle)) ? good : bad) = middle;
  }
  const TrainConfig wider = Wider(config, good);
  return SplitsByHeadsAlone()
             ? fmt::format("ranks={} ulysses_parallelism={}", wider.ranks, wider.ulysses_parallelism)
             : fmt::format("ranks={} context_parallelism={}", wider.ranks, wider.context_parallelism);
}

std::optional<std::string> Advisor::Length() const {
  const int64_t length = job_.config.max_target_length;
  const int64_t step =
      std::max<int64_t>(1, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(length))) / 64);
  const auto shorter = [&](int64_t steps) {
    TrainConfig config = job_.config;
    config.max_target_length = steps * step;
    return config;
  };
  int64_t good = 0;
  for (int64_t bad = (length + step - 1) / step; bad - good > 1;) {
    const int64_t middle = (good + bad) / 2;
    (Fits(shorter(middle)) ? good : bad) = middle;
  }
  if (good == 0) return std::nullopt;
  return fmt::format("max_target_length={}", good * step);
}

}  // namespace

std::vector<std::string> WhatFits(const Job& job, const MemoryCheck& check) {
  const Advisor advisor(job, check);
  std::vector<std::string> keys;
  const auto add = [&](const std::string& before, const std::optional<std::string>& more) {
    if (more) keys.push_back(before + *more);
  };
  add("", advisor.Rung(job.config));
  add("", advisor.Shards());
  add("", advisor.Ranks(job.config));
  add("", advisor.Length());
  if (!keys.empty() || job.config.shard_parameters) return keys;
  if (job.mesh.ranks() > 1) add("shard_parameters=true ", advisor.Rung(advisor.Sharded()));
  add("shard_parameters=true ", advisor.Ranks(advisor.Sharded()));
  return keys;
}

}  // namespace longspan
