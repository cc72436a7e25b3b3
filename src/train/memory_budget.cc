#include "train/memory_budget.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "core/check.h"
#include "core/format.h"
#include "core/machine.h"
#include "train/memory_advice.h"

namespace longspan {
namespace {

constexpr int64_t kNumLargest = 3;

int RanksHere(const Job& job, int num_hosts) { return (job.mesh.ranks() + num_hosts - 1) / num_hosts; }

}  // namespace

int64_t TotalBytes(const std::map<std::string, int64_t>& memory) {
  int64_t total = 0;
  for (const auto& [name, bytes] : memory) total += bytes;
  return total;
}

std::vector<std::pair<std::string, int64_t>> LargestFirst(const std::map<std::string, int64_t>& memory) {
  std::vector<std::pair<std::string, int64_t>> rows;
  for (const auto& [name, bytes] : memory)
    if (bytes > 0) rows.emplace_back(name, bytes);
  std::ranges::stable_sort(rows, [](const auto& a, const auto& b) { return a.second > b.second; });
  return rows;
}

std::string LargestText(const std::map<std::string, int64_t>& memory) {
  std::vector<std::string> texts;
  for (const auto& [name, bytes] : LargestFirst(memory) | std::views::take(kNumLargest))
    texts.push_back(fmt::format("{} {}", name, FormatBytes(bytes)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

MemoryFit FitHere(const Job& job, int num_hosts) {
  const int64_t machine = PhysicalMemory() / RanksHere(job, num_hosts), limit = job.device_memory_limit();
  const DryRun dry = RunDryOfLargest(job);
  MemoryFit fit;
  fit.device_bytes = TotalBytes(dry.memory);
  fit.host_bytes = TotalBytes(dry.host_memory);
  const int64_t both = fit.device_bytes + fit.host_bytes;
  if (limit > 0 && fit.device_bytes > limit) {
    fit.misfit = fmt::format("device memory: {} of {}", FormatBytes(fit.device_bytes), FormatBytes(limit));
  } else if (both > machine) {
    fit.misfit =
        fmt::format("this machine's memory: {} of {} a rank", FormatBytes(both), FormatBytes(machine));
  }
  return fit;
}

void RequireMemory(const Job& job, const std::map<std::string, int64_t>& memory, int num_hosts) {
  const int64_t total = TotalBytes(memory);
  const int ranks_here = RanksHere(job, num_hosts);
  if (total <= PhysicalMemory() / ranks_here) return;
  throw Error(
      fmt::format("the run needs {} a rank on {}, and this machine has {}; the largest are {}. Shorten "
                  "max_target_length, or take a smaller model{}{}",
                  FormatBytes(total), Plural(ranks_here, "rank"), FormatBytes(PhysicalMemory()),
                  LargestText(memory), job.mesh.groups() > 1 ? " or fewer data parallel ranks" : "",
                  job.mesh.ranks() > 1 && !job.config.shard_parameters && !job.forward_only
                      ? ", or set shard_parameters=true"
                      : ""),
      ExitCode::kResource);
}

void RequireWithinLimit(const Job& job, const DryRun& dry, int num_hosts) {
  const int64_t total = TotalBytes(dry.memory), limit = job.device_memory_limit();
  if (limit == 0 || total <= limit) return;
  const std::vector<std::string> advice =
      WhatFits(job, [&](const Job& other) { return FitHere(other, num_hosts); });
  throw Error(
      fmt::format(
          "a rank takes {} of device memory ({} bytes), and device_memory_limit is {} ({} bytes); the "
          "largest of it are {}. {}",
          FormatBytes(total), Grouped(total), job.config.device_memory_limit, Grouped(limit),
          LargestText(dry.memory),
          advice.empty()
              ? "Neither less that is kept, nor shards, nor more ranks, nor shorter sequences would do; take "
                "a smaller model"
              : fmt::format("With all else the same it fits with {}", fmt::join(advice, "; or with "))),
      ExitCode::kResource);
}

}  // namespace longspan
