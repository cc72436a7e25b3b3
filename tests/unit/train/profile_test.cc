#include "train/profile.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/thread_comm.h"
#include "core/file.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

TrainConfig Config(int64_t ranks, int64_t skip, int64_t steps) {
  TrainConfig config;
  config.ranks = ranks;
  config.skip_first_n_steps_for_profiler = skip;
  config.profiler_steps = steps;
  return config;
}

void Compute(TraceRecorder& recorder, double begin, double end) {
  Work work;
  work.name = "norm";
  recorder.Start();
  recorder.Took(begin, end);
  recorder.Compute(work);
  recorder.Stop();
}

TEST(Profile, IsOfTheStepsThatTheKeysSay) {
  const Profile profile(Config(1, 2, 3));
  std::string steps;
  for (int64_t i = 0; i < 8; ++i) steps += profile.Has(i) ? profile.IsLast(i, 8) ? 'L' : 'x' : '.';
  EXPECT_EQ(steps, "..xxL...");
  EXPECT_TRUE(profile.IsLast(3, 4));  // a run that ends before
  EXPECT_FALSE(profile.IsLast(1, 2));
}

TEST(Profile, IsOneFileThatBeginsWithTheFirstSpan) {
  const testing::TemporaryDirectory directory;
  Profile profile(Config(2, 0, 1));
  Compute(profile.recorder(0), 100.5, 101);
  Compute(profile.recorder(1), 100.25, 100.75);
  const std::string path = directory / "run/profile/trace.json";
  profile.Write(path);
  const nlohmann::json trace = nlohmann::json::parse(ReadTextFile(path));
  int num_spans = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++num_spans;
    EXPECT_EQ(event["ts"], event["pid"] == 0 ? 0.25e6 : 0);
    EXPECT_EQ(event["dur"], 0.5e6);
  }
  EXPECT_EQ(num_spans, 2);
  EXPECT_EQ(profile.Describe(), "2 spans");
}

// Processes have a profile each. Those of a host have one clock; those of several have as good as one here.
TEST(Profile, OfProcessesIsGatheredByTheFirst) {
  const testing::TemporaryDirectory directory;
  for (const bool one_host : {true, false}) {
    SCOPED_TRACE(one_host);
    std::vector<Host> hosts(one_host ? 1 : 2);
    for (int rank = 0; rank < 3; ++rank) hosts[rank == 0 || one_host ? 0 : 1].ranks.push_back(rank);
    const std::string path = directory / "trace.json";
    RunThreadRanks(3, [&](Comm& world) {
      Profile profile(Config(3, 0, 1), 6);  // two each
      for (int i = 0; i < world.rank(); ++i) Compute(profile.recorder(world.rank()), 100 + i, 100.5 + i);
      if (world.rank() == 0) Compute(profile.recorder(0), 99, 99.5);
      if (world.rank() == 2) Compute(profile.recorder(2), 103, 104);
      profile.Gather(world, hosts);
      if (world.rank() > 0) return;
      profile.Write(path);
      EXPECT_EQ(profile.Describe(), "4 spans, and 1 after them left out");
      EXPECT_EQ(profile.SecondsByName(0), (std::map<std::string, double>{{"norm", 0.5}}));
    });
    const nlohmann::json trace = nlohmann::json::parse(ReadTextFile(path));
    std::map<int, std::vector<double>> starts;
    for (const auto& event : trace["traceEvents"])
      if (event["ph"] == "X") starts[event["pid"]].push_back(event["ts"]);
    const std::map<int, std::vector<double>> wanted = {{0, {0}}, {1, {1e6}}, {2, {1e6, 2e6}}};
    if (one_host) {
      EXPECT_EQ(starts, wanted);
      continue;
    }
    ASSERT_EQ(starts.size(), wanted.size());
    for (const auto& [rank, times] : wanted) {
      ASSERT_EQ(starts[rank].size(), times.size());
      for (size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(starts[rank][i], times[i], 0.4e6);
    }
  }
}

TEST(Profile, SumsARanksSecondsByName) {
  Profile profile(Config(2, 0, 1));
  Compute(profile.recorder(0), 1, 1.5);
  Compute(profile.recorder(0), 2, 2.25);
  Compute(profile.recorder(1), 1, 5);
  EXPECT_EQ(profile.SecondsByName(0), (std::map<std::string, double>{{"norm", 0.75}}));
}

TEST(Profile, RanksShareTheMostSpans) {
  Profile profile(Config(4, 0, 1), 10);  // two each
  for (int i = 0; i < 5; ++i) Compute(profile.recorder(1), i, i + 1);
  Compute(profile.recorder(3), 0, 1);
  EXPECT_EQ(profile.Describe(), "3 spans, and 3 after them left out");
}

TEST(Profile, SaysWhereItCannotBeWritten) {
  const testing::TemporaryDirectory directory;
  WriteFileAtomically(directory / "run", "a file");
  testing::ExpectError(
      {"profile", "run"}, [&] { Profile(Config(1, 0, 1)).Write(directory / "run/profile/trace.json"); },
      ExitCode::kResource);
}

}  // namespace
}  // namespace longspan
