// Watches of ranks over each other on a clock of the test's own: what each asks is answered at once by the
// watches of those that still answer.
#include "comm/peer_watch.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

namespace longspan {
namespace {

constexpr double kTimeout = 80;  // so that ranks look every 10 s

class Ranks {
 public:
  explicit Ranks(int size) : ranks_(std::make_shared<const std::vector<int>>(std::vector<int>{0, 1, 2, 3})) {
    for (int rank = 0; rank < size; ++rank) {
      watches_.emplace_back(rank, size);
      watches_.back().SetTimeout(kTimeout);
    }
    activities_.resize(static_cast<size_t>(size));
    answers_.resize(static_cast<size_t>(size), true);
  }

  void Wait(int rank, std::vector<int> missing) {
    waits_[rank] = {{WorkKind::kAllGather, ranks_, -1, 12}, now_, std::move(missing)};
  }
  void Compute(int rank, double cpu_seconds) { activity(rank).cpu_seconds += cpu_seconds; }
  void Read(int rank, int64_t bytes) { activity(rank).bytes += bytes; }
  void Stop(int rank) { answers_[static_cast<size_t>(rank)] = false; }
  void Sleep(double seconds) { now_ += seconds; }

  // Lets ten seconds pass, in which `work` happens, until a rank judges, which is returned, or so many.
  std::optional<PeerWatch::Failed> Pass(
      double seconds, const std::function<void()>& work = [] {}) {
    for (const double end = now_ + seconds; now_ < end;) {
      now_ += kTimeout / 8;
      work();
      for (size_t i = 0; i < watches_.size(); ++i) {
        if (!answers_[i]) continue;
        const int rank = static_cast<int>(i);
        const auto wait = waits_.find(rank);
        PeerWatch& watch = watches_[i];
        for (const int asked :
             watch.Look(now_, wait == waits_.end() ? std::nullopt : std::optional(wait->second))) {
          if (!answers_[static_cast<size_t>(asked)]) continue;
          watches_[static_cast<size_t>(asked)].HearAsked(now_, rank);
          Answer(asked, rank);
        }
        if (const auto remark = watch.TakeRemark(now_)) remarks_.push_back(*remark);
        if (const auto failed = watch.Judge(now_)) return failed;
      }
    }
    return std::nullopt;
  }
  double now() const { return now_; }
  const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  void Answer(int from, int to) {
    const size_t f = static_cast<size_t>(from), t = static_cast<size_t>(to);
    const PeerWatch::Report report = watches_[f].Answer(now_, to, activities_[f]);
    for (const int rank : watches_[t].HearAnswer(now_, from, report)) Answer(to, rank);
  }
  Activity& activity(int rank) { return activities_[static_cast<size_t>(rank)]; }

  std::shared_ptr<const std::vector<int>> ranks_;
  double now_ = 1000;
  std::vector<PeerWatch> watches_;
  std::vector<Activity> activities_;
  std::vector<bool> answers_;
  std::map<int, PeerWatch::Wait> waits_;
  std::vector<std::string> remarks_;
};

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(PeerWatch, OneThatDoesNotAnswerHasFailed) {
  Ranks ranks(4);
  ranks.Stop(2);
  ranks.Wait(0, {2, 3});
  const auto failed = ranks.Pass(1000, [&] { ranks.Compute(3, 5); });
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->ranks, std::vector<int>{2});
  EXPECT_EQ(failed->verdict.code, ExitCode::kPeer);
  EXPECT_TRUE(
      Contains(failed->verdict.message,
               "all_gather of ranks 0–3 (step 12) has waited 80 s for rank 2: rank 2 does not answer;"))
      << failed->verdict.message;
  EXPECT_NEAR(ranks.now(), 1000 + kTimeout, kTimeout / 8);
}

TEST(PeerWatch, OneThatDoesNothingHasFailed) {
  Ranks ranks(4);
  ranks.Stop(3);
  ranks.Wait(1, {2, 3});
  const auto failed = ranks.Pass(1000);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->ranks, (std::vector<int>{2, 3}));
  EXPECT_TRUE(
      Contains(failed->verdict.message,
               "for ranks 2 and 3: rank 2 neither computes nor reads nor writes, rank 3 does not answer;"))
      << failed->verdict.message;
}

TEST(PeerWatch, OneThatComputesOrReadsIsWaitedFor) {
  Ranks ranks(3);
  ranks.Wait(0, {1, 2});
  EXPECT_FALSE(ranks.Pass(5000, [&] {
    ranks.Compute(1, 1);
    ranks.Read(2, 100'000);
  }));
  ASSERT_EQ(ranks.remarks().size(), 1u);
  EXPECT_EQ(
      ranks.remarks()[0],
      "all_gather of ranks 0–3 (step 12) has waited 80 s for ranks 1 and 2, which are not idle: the run "
      "goes on (said once)");
  EXPECT_TRUE(ranks.Pass(2 * kTimeout)) << "and has failed once it does nothing";
}

TEST(PeerWatch, WhatWaitingTakesIsNotDoingSomething) {
  Ranks ranks(2);
  ranks.Wait(0, {1});
  EXPECT_TRUE(ranks.Pass(2 * kTimeout, [&] {
    ranks.Compute(1, 0.05);
    ranks.Read(1, 500);
  }));
}

// Each waits for the one before it, and the first computes, and later dies.
TEST(PeerWatch, ThoseThatWaitForOneThatComputesAreWell) {
  Ranks ranks(64);
  for (int rank = 1; rank < 64; ++rank) ranks.Wait(rank, {rank - 1});
  EXPECT_FALSE(ranks.Pass(5000, [&] { ranks.Compute(0, 1); }));
  ranks.Stop(0);
  const auto failed = ranks.Pass(1000);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->ranks, std::vector<int>{0}) << failed->verdict.message;
}

TEST(PeerWatch, RanksThatWaitForEachOtherAreAFaultOfOurs) {
  Ranks ranks(4);
  ranks.Wait(0, {1});
  ranks.Wait(1, {2});
  ranks.Wait(2, {0});
  const auto failed = ranks.Pass(2 * kTimeout, [&] { ranks.Compute(3, 1); });
  ASSERT_TRUE(failed);
  EXPECT_TRUE(failed->ranks.empty());
  EXPECT_EQ(failed->verdict.code, ExitCode::kInternal);
  EXPECT_TRUE(
      Contains(failed->verdict.message, "which waits in all_gather of ranks 0–3 (step 12); their calls"))
      << failed->verdict.message;
}

// A whole job that is stopped and goes on, or a machine that has slept.
TEST(PeerWatch, TimeInWhichNobodyLooksDoesNotCount) {
  Ranks ranks(2);
  ranks.Wait(0, {1});
  EXPECT_FALSE(ranks.Pass(kTimeout / 2));
  ranks.Sleep(10000);
  EXPECT_FALSE(ranks.Pass(kTimeout / 2));
  EXPECT_TRUE(ranks.Pass(kTimeout));
}

}  // namespace
}  // namespace longspan
