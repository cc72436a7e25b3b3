// Ranks that are threads, one of which does nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/thread_comm.h"
#include "core/clock.h"
#include "support/expect_error.h"
#include "unit/comm/occupations.h"

namespace longspan {
namespace {

using testing::ExpectError;
using testing::Int;

void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

void Compute(double seconds) {
  for (const double end = Now() + seconds; Now() < end;) {
  }
}

TEST(ThreadWatch, ARankThatDoesNothingEndsAll) {
  const double begin = Now();
  ExpectError(
      {"of ranks 0–3 (step 12) has waited 0.3 s for rank 2: rank 2 neither computes nor reads nor writes;"},
      [] {
        RunThreadRanks(4, [](Comm& comm) {
          comm.SetFailureTimeout(0.3);
          comm.set_step(12);
          comm.Barrier();
          if (comm.rank() == 2) Sleep(1.5);
          comm.SumOverRanks(1);
        });
      },
      ExitCode::kPeer);
  EXPECT_LT(Now() - begin, 8);
}

TEST(ThreadWatch, SeveralAreNamed) {
  ExpectError(
      {"all_gather of ranks 0–4", "for ranks 1, 3 and 4: rank 1 neither", "rank 4 neither"},
      [] {
        RunThreadRanks(5, [](Comm& comm) {
          comm.SetFailureTimeout(0.3);
          if (comm.rank() % 2 == 1 || comm.rank() == 4) Sleep(1.5);
          comm.Barrier();
        });
      },
      ExitCode::kPeer);
}

// Rank 2 has come for the message of rank 1, which can't begin.
TEST(ThreadWatch, AnOperationThatDoesNotBeginIsMissing) {
  ExpectError(
      {"recv from rank 1 has waited 0.3 s for rank 1"},
      [] {
        RunThreadRanks(3, [](Comm& comm) {
          comm.SetFailureTimeout(0.3);
          int32_t value = 0;
          EventSource never;
          const AbortOnUnwind guard(comm);
          if (comm.rank() == 2) comm.Recv(Int(value), 1).Wait();
          if (comm.rank() != 1) return;
          const Event sent = comm.Send(Int(value), 2, never.event());
          Sleep(1.5);
          sent.Wait();
        });
      },
      ExitCode::kPeer);
}

TEST(ThreadWatch, ARankThatComputesIsWaitedForAndThatIsSaidOnce) {
  ::testing::internal::CaptureStderr();
  RunThreadRanks(3, [](Comm& comm) {
    comm.SetFailureTimeout(0.3);
    for (int i = 0; i < 2; ++i) {
      if (comm.rank() == 1) Compute(1);
      comm.Barrier();
    }
  });
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "longspan: all_gather of ranks 0–2 has waited 0.3 s for rank 1, which is not idle: the run goes on "
      "(said once)\n");
}

TEST(ThreadWatch, RanksInDifferentCallsAreAFaultOfOurs) {
  ExpectError(
      {"for rank ", ", which waits in ", "recv from rank 0", "this is a fault of longspan"},
      [] {
        RunThreadRanks(2, [](Comm& comm) {
          comm.SetFailureTimeout(0.3);
          int32_t value = 0;
          if (comm.rank() == 0) return comm.Barrier();
          comm.Recv(Int(value), 0).Wait();
        });
      },
      ExitCode::kInternal);
}

// The rank never comes back, and a thread can't be ended alone.
TEST(ThreadWatchDeath, ARankThatDoesNotComeBackEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(RunThreadRanks(2,
                             [](Comm& comm) {
                               comm.SetFailureTimeout(0.3);
                               if (comm.rank() == 1) Sleep(1000);
                               comm.Barrier();
                             }),
              ::testing::ExitedWithCode(5), "longspan: error: all_gather of ranks 0 and 1 has waited");
}

}  // namespace
}  // namespace longspan
