#include "train/profile.h"

#include <algorithm>
#include <filesystem>

#include "core/check.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/format.h"
#include "core/trace.h"

namespace longspan {
namespace {

// A span as ranks send it. Names are in other places of another process.
struct SentSpan {
  char name[40] = {};
  TraceLane lane = TraceLane::kCompute;
  double begin = 0, end = 0, flops = 0;
  int64_t bytes = 0;
};

Tensor BytesOf(std::vector<SentSpan>& spans) {
  return Tensor(spans.data(), DType::kByte, {static_cast<int64_t>(spans.size() * sizeof(SentSpan))});
}

// What to add to a time of each rank's clock for one of the first rank's: the median over barriers, which all
// leave at about the same time. Ranks of a host have one clock. Collective.
std::vector<double> ClockOffsets(Comm& world, std::span<const Host> hosts) {
  constexpr size_t kBarriers = 21;
  std::vector<double> mine(kBarriers);
  for (double& time : mine) {
    world.Barrier();
    time = Now();
  }
  std::vector<double> differences = world.rank() == 0 ? mine : std::vector<double>(kBarriers);
  world.SumOverRanks(differences);
  for (size_t i = 0; i < kBarriers; ++i) differences[i] -= mine[i];
  std::ranges::sort(differences);

  std::vector<double> offsets(static_cast<size_t>(world.size()));
  offsets[static_cast<size_t>(world.rank())] = differences[kBarriers / 2];
  world.SumOverRanks(offsets);
  for (const Host& host : hosts) {
    const double of_host = offsets[static_cast<size_t>(host.ranks[0])];
    for (const int rank : host.ranks) offsets[static_cast<size_t>(rank)] = of_host;
  }
  return offsets;
}

}  // namespace

Profile::Profile(const TrainConfig& config, int64_t max_spans)
    : first_(config.skip_first_n_steps_for_profiler), num_steps_(config.profiler_steps) {
  for (int rank = 0; rank < static_cast<int>(config.ranks); ++rank)
    recorders_.emplace_back(rank, static_cast<size_t>(std::max<int64_t>(1, max_spans / config.ranks)));
}

void Profile::Gather(Comm& world, std::span<const Host> hosts) {
  const std::vector<double> offsets = ClockOffsets(world, hosts);
  const size_t me = static_cast<size_t>(world.rank());
  std::vector<SentSpan> sent;
  if (me > 0) {
    for (const TraceSpan& span : recorders_[me].spans()) {
      SentSpan& copy = sent.emplace_back(
          SentSpan{{}, span.lane, span.begin + offsets[me], span.end + offsets[me], span.flops, span.bytes});
      CHECK(span.name.size() < sizeof copy.name);
      span.name.copy(copy.name, sizeof copy.name);
    }
  }
  std::vector<double> counts(static_cast<size_t>(world.size()));
  counts[me] = static_cast<double>(sent.size());
  world.SumOverRanks(counts);
  const int64_t left_out = me > 0 ? recorders_[me].num_left_out() : 0;
  num_left_out_there_ = static_cast<int64_t>(world.SumOverRanks(static_cast<double>(left_out)));
  if (me > 0) return world.Send(BytesOf(sent), /*to=*/0).Wait();
  for (int rank = 1; rank < world.size(); ++rank) {
    std::vector<SentSpan> received(static_cast<size_t>(counts[static_cast<size_t>(rank)]));
    world.Recv(BytesOf(received), rank).Wait();
    for (const SentSpan& span : received)
      gathered_.push_back(
          {rank, span.lane, *names_.emplace(span.name).first, span.begin, span.end, span.flops, span.bytes});
  }
}

void Profile::Write(const std::string& path) const {
  std::vector<TraceSpan> spans = gathered_;
  for (const TraceRecorder& recorder : recorders_) {
    const std::vector<TraceSpan> of_rank = recorder.spans();
    spans.insert(spans.end(), of_rank.begin(), of_rank.end());
  }
  double start = spans.empty() ? 0 : spans.front().begin;
  for (const TraceSpan& span : spans) start = std::min(start, span.begin);
  for (TraceSpan& span : spans) {
    span.begin -= start;
    span.end -= start;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  Require(ExitCode::kResource, !error, "cannot make the folder {} of the profile: {}", folder,
          error.message());
  WriteFileAtomically(path, ChromeTrace(spans));
}

std::map<std::string, double> Profile::SecondsByName(int rank) const {
  std::map<std::string, double> seconds;
  for (const TraceSpan& span : recorders_[static_cast<size_t>(rank)].spans())
    if (span.lane == TraceLane::kCompute) seconds[std::string(span.name)] += span.end - span.begin;
  return seconds;
}

std::string Profile::Describe() const {
  int64_t num_spans = std::ssize(gathered_), num_left_out = num_left_out_there_;
  for (const TraceRecorder& recorder : recorders_) {
    num_spans += std::ssize(recorder.spans());
    num_left_out += recorder.num_left_out();
  }
  if (num_left_out == 0) return Plural(num_spans, "span");
  return fmt::format("{}, and {} after them left out", Plural(num_spans, "span"), Grouped(num_left_out));
}

}  // namespace longspan
