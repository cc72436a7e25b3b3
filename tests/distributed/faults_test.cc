// What ends one rank of a run ends all of it: in each part of a run, on each rank, it is said once, with rank
// and step, under the right exit code, and what was saved goes on to the bits of a run that nothing has
// happened to. docs/reference/failures.md is this table.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/report_error.h"
#include "support/failing_disk.h"
#include "support/files.h"
#include "support/runs.h"

namespace longspan {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kSteps = 3, kStep = 2;  // all; the one in which something happens
constexpr double kTimeout = 0.4, kSleep = 1.2, kLimit = 30;

// Parts of a run, known by the messages with which they begin.
enum class Part { kStart, kForward, kBackward, kUpdate, kEvaluate, kEndOfStep, kSave };
constexpr Part kParts[] = {Part::kStart,    Part::kForward,   Part::kBackward, Part::kUpdate,
                           Part::kEvaluate, Part::kEndOfStep, Part::kSave};
const char* Name(Part part) {
  constexpr const char* kNames[] = {"start",    "forward",     "backward", "update",
                                    "evaluate", "end of step", "save"};
  return kNames[static_cast<size_t>(part)];
}

// Follows the messages of a rank, and calls `act` when it has come to a part of step kStep.
class PartFinder final : public WorkRecorder {
 public:
  PartFinder(Part part, std::function<void()> act) : part_(part), act_(std::move(act)) {}

  void Compute(const Work&) override {}
  void Wait(const Event&) override {}
  Event Transfer(const Work& work, const Event&, const Event& done) override {
    const Part before = at_;
    at_ = Next(work);
    if (before == Part::kEndOfStep && at_ == Part::kForward) ++step_;  // a run that doesn't save
    if (before == Part::kSave && at_ == Part::kForward) ++step_;
    const bool comes = is_first_ || at_ != before;
    is_first_ = false;
    if (comes && at_ == part_ && (part_ == Part::kStart || step_ == kStep) && act_) act_();
    return done;
  }

 private:
  Part Next(const Work& work) const {
    constexpr int64_t kOthers = kRanks - 1, kNumber = sizeof(double);
    switch (work.kind) {
      case WorkKind::kSend:
      case WorkKind::kRecv:  // of a ring
        if (at_ == Part::kUpdate || at_ == Part::kEvaluate) return Part::kEvaluate;
        return at_ == Part::kBackward ? Part::kBackward : Part::kForward;
      case WorkKind::kReduceScatter:  // of a gradient
        return Part::kBackward;
      default:
        if (work.bytes == kOthers * (kRanks + 1) * kNumber) return Part::kEndOfStep;
        if (at_ == Part::kEndOfStep) return Part::kSave;
        if (at_ == Part::kBackward && work.bytes == kOthers * kNumber) return Part::kUpdate;  // the loss
        return at_;
    }
  }

  const Part part_;
  const std::function<void()> act_;
  Part at_ = Part::kStart;
  bool is_first_ = true;
  int64_t step_ = 1;
};

struct Outcome {
  int exit_code = 0;
  std::string said;
  double seconds = 0;
};

class Faults : public ::testing::Test {
 protected:
  Faults() {
    testing::WriteModel(directory_ / "model", testing::TinyConfig(), /*seed=*/3);
    testing::WriteDocuments(directory_ / "data.jsonl", std::vector<int64_t>(20, 61), 37);
    straight_ = testing::OutcomeOf(testing::TrainQuietly(Config("straight")));
  }

  TrainConfig Config(const std::string& name) const {
    TrainConfig config =
        testing::PlainConfig(directory_ / "model", directory_ / "data.jsonl", directory_ / "runs");
    config.run_name = name;
    config.ranks = kRanks;
    config.max_target_length = 64;
    config.steps = kSteps;
    config.learning_rate = 1e-2;
    config.checkpoint_period = 1;
    config.eval_data_path = directory_ / "data.jsonl";
    config.eval_interval = 1;
    config.eval_steps = 1;
    config.failure_timeout = kTimeout;
    config.enable_tensorboard = false;
    return config;
  }

  // A run as the program ends it.
  Outcome Run(const Job& job) {
    Outcome outcome;
    const double begin = Now();
    ::testing::internal::CaptureStderr();
    try {
      testing::TrainQuietly(job);
    } catch (...) {
      outcome.exit_code = ReportError("");
    }
    outcome.said = ::testing::internal::GetCapturedStderr();
    outcome.seconds = Now() - begin;
    EXPECT_LT(outcome.seconds, kLimit);
    EXPECT_EQ(std::count(outcome.said.begin(), outcome.said.end(), '\n'), outcome.exit_code == 0 ? 0 : 1)
        << outcome.said;
    return outcome;
  }

  // `act` of `rank` in this part of step kStep.
  Outcome RunWith(const std::string& name, Part part, int rank, const std::function<void(Comm&)>& act) {
    Job job = PrepareJob(Config(name));
    std::vector<std::unique_ptr<PartFinder>> finders(kRanks);
    int times = 0;
    job.message_recorder = [&](Comm& world) {
      auto& finder = finders[static_cast<size_t>(world.rank())];
      finder = std::make_unique<PartFinder>(part, [&, rank] {
        if (world.rank() != rank) return;
        ++times;
        act(world);
      });
      return finder.get();
    };
    const Outcome outcome = Run(job);
    EXPECT_EQ(times, 1) << "the test doesn't find the part";
    return outcome;
  }

  // To the bits of the run to which nothing has happened.
  void ExpectGoesOn(const std::string& name) {
    TrainConfig config = Config(name);
    config.resume = "auto";
    EXPECT_TRUE(testing::OutcomeOf(testing::TrainQuietly(config)) == straight_);
  }

  testing::TemporaryDirectory directory_;
  testing::Outcome straight_;
};

struct Thrown {
  const char* name;
  std::function<void()> act;
  int exit_code;
  const char* message;
};

TEST_F(Faults, AnErrorOfOneRankEndsAll) {
  const std::vector<Thrown> errors = {
      {"error", [] { throw Error("the disk is full", ExitCode::kResource); }, 4, "the disk is full"},
      {"memory", [] { throw std::bad_alloc(); }, 4, "memory ran out; use more ranks"},
      {"bug", [] { throw std::logic_error("internal error: x"); }, 1,
       "internal error: x; this is a fault of"}};
  size_t kind = 0;
  for (const Part part : kParts) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const Thrown& error = errors[kind++ % errors.size()];
      const std::string name = fmt::format("{} {} {}", error.name, Name(part), rank);
      SCOPED_TRACE(name);
      const Outcome outcome = RunWith(name, part, rank, [&](Comm& world) {
        world.Abort("its error");  // what it has sent is of memory that goes with it
        error.act();
      });
      EXPECT_EQ(outcome.exit_code, error.exit_code);
      const std::string where = part == Part::kStart
                                    ? "longspan: error: "
                                    : fmt::format("longspan: rank {}: step {}: error: ", rank, kStep);
      EXPECT_TRUE(outcome.said.starts_with(where + error.message)) << outcome.said;
      ExpectGoesOn(name);
    }
  }
}

TEST_F(Faults, ARankThatHangsEndsAll) {
  int rank = 0;
  for (const Part part : kParts) {
    rank = (rank + 1) % kRanks;
    const std::string name = fmt::format("hangs {} {}", Name(part), rank);
    SCOPED_TRACE(name);
    const Outcome outcome = RunWith(
        name, part, rank, [](Comm&) { std::this_thread::sleep_for(std::chrono::duration<double>(kSleep)); });
    EXPECT_EQ(outcome.exit_code, 5);
    EXPECT_TRUE(outcome.said.starts_with("longspan: error: ")) << outcome.said;
    const std::string step = part == Part::kStart ? "" : fmt::format(" (step {})", kStep);
    EXPECT_NE(
        outcome.said.find(fmt::format("{0} has waited 0.4 s for rank {1}: rank {1} neither computes nor "
                                      "reads nor writes; ",
                                      step, rank)),
        std::string::npos)
        << outcome.said;
    ExpectGoesOn(name);
  }
}

// Which is waited for.
TEST_F(Faults, ASlowRankIsNone) {
  Job job = PrepareJob(Config("slow"));
  std::vector<std::unique_ptr<PartFinder>> finders(kRanks);
  job.message_recorder = [&](Comm& world) {
    auto& finder = finders[static_cast<size_t>(world.rank())];
    finder = std::make_unique<PartFinder>(Part::kBackward, [&] {
      for (const double end = Now() + kSleep; world.rank() == 3 && Now() < end;) {
      }
    });
    return finder.get();
  };
  ::testing::internal::CaptureStderr();
  const std::string run = testing::TrainQuietly(job);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("has waited 0.4 s for rank 3, which is not idle: the run goes on (said once)\n"),
            std::string::npos)
      << said;
  EXPECT_TRUE(testing::OutcomeOf(run) == straight_);
}

// The disk of what is offloaded, of all ranks, from some call on.
TEST_F(Faults, ADiskThatFailsEndsAll) {
  std::filesystem::create_directory(directory_ / "tier");
  const auto run = [&](const std::string& name, const FileCalls& disk) {
    TrainConfig config = Config(name);
    config.remat_policy = "custom";
    config.context = config.query_proj = "offload";
    config.optimizer_memory_host_offload = true;
    config.offload_directory = directory_ / "tier";
    Job job = PrepareJob(config);
    job.io_hooks.file_calls = &disk;
    return Run(job);
  };
  testing::FailingDisk full, broken;
  full.good_writes = 20;
  broken.good_reads = 120;
  const Outcome written = run("full", full), read = run("broken", broken);
  EXPECT_EQ(written.exit_code, 4);
  EXPECT_EQ(read.exit_code, 4);
  for (const Outcome& outcome : {written, read}) {
    EXPECT_TRUE(outcome.said.starts_with("longspan: rank ")) << outcome.said;
    EXPECT_NE(outcome.said.find(": step "), std::string::npos) << outcome.said;
  }
  EXPECT_NE(written.said.find("No space left on device"), std::string::npos) << written.said;
  EXPECT_NE(read.said.find("Input/output error"), std::string::npos) << read.said;
  for (const char* name : {"full", "broken"}) ExpectGoesOn(name);
}

}  // namespace
}  // namespace longspan
