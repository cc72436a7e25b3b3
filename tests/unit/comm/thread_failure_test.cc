// What happens to the ranks of a job when one of them fails.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/thread_comm.h"
#include "unit/comm/occupations.h"

namespace longspan {
namespace {

using testing::Int;
using testing::Occupation;
using testing::Pause;

class WhenARankFails : public ::testing::TestWithParam<Occupation> {};
INSTANTIATE_TEST_SUITE_P(Thread, WhenARankFails, ::testing::ValuesIn(testing::Occupations()),
                         [](const auto& param) { return param.param.name; });

TEST_P(WhenARankFails, TheOthersStopAndItsErrorIsTheOneThrown) {
  for (const int ranks : {2, 3, 8}) {
    for (const int failing : {0, ranks - 1}) {
      for (const bool at_once : {true, false}) {  // before the others wait, or while they do
        std::atomic<int> stopped{0};
        const std::string cause = fmt::format("rank {} failed: out of luck", failing);
        const auto expect_peer_failed = [&](auto act) {
          try {
            act();
            ADD_FAILURE() << "went on";
          } catch (const PeerFailed& error) {
            EXPECT_EQ(error.what(), cause);
            EXPECT_EQ(error.code(), ExitCode::kPeer);
          }
        };
        try {
          RunThreadRanks(ranks, [&](Comm& comm) {
            if (comm.rank() == failing) {
              if (!at_once) Pause();
              throw Error("out of luck", ExitCode::kResource);
            }
            expect_peer_failed([&] { GetParam().act(comm, failing); });
            // So does whatever it does next.
            int32_t value = 0;
            const std::vector<int> alone = {comm.rank()};
            expect_peer_failed([&] { comm.Barrier(); });
            expect_peer_failed([&] { comm.Send(Int(value), comm.rank()).Wait(); });
            expect_peer_failed([&] { comm.Subgroup(alone); });
            ++stopped;
          });
          ADD_FAILURE() << "nothing thrown";
        } catch (const PeerFailed&) {
          ADD_FAILURE() << "a peer's error was thrown";
        } catch (const Error& error) {
          EXPECT_STREQ(error.what(), "out of luck");
          EXPECT_EQ(error.code(), ExitCode::kResource);
        }
        EXPECT_EQ(stopped, ranks - 1);
      }
    }
  }
}

TEST(ThreadFailure, AnyKindOfErrorIsPassedOn) {
  EXPECT_THROW(RunThreadRanks(3,
                              [](Comm& comm) {
                                if (comm.rank() == 1) throw 42;
                                comm.Barrier();
                              }),
               int);
  EXPECT_THROW(RunThreadRanks(2,
                              [](Comm& comm) {
                                if (comm.rank() == 1) throw std::bad_alloc();
                                comm.Barrier();
                              }),
               std::bad_alloc);
  EXPECT_THROW(RunThreadRanks(1, [](Comm&) { throw std::out_of_range("alone"); }), std::out_of_range);
}

// Rank 0 tells the others first, and takes its time to end. Their PeerFailed come earlier; its own error is
// thrown.
TEST(ThreadFailure, ARanksOwnErrorIsPreferred) {
  std::atomic<int> ended{0};
  EXPECT_THROW(RunThreadRanks(3,
                              [&](Comm& comm) {
                                if (comm.rank() == 0) {
                                  comm.Abort("a broken disk");
                                  while (ended < 2) std::this_thread::yield();
                                  Pause();
                                  throw std::domain_error("a broken disk");
                                }
                                try {
                                  comm.Barrier();
                                } catch (const PeerFailed& error) {
                                  EXPECT_STREQ(error.what(), "rank 0 failed: a broken disk");
                                  ++ended;
                                  throw;
                                }
                              }),
               std::domain_error);
}

TEST(ThreadFailure, AnAbortFromASubgroupNamesTheRankOfTheJob) {
  EXPECT_THROW(RunThreadRanks(3,
                              [](Comm& comm) {
                                const std::vector<int> turned = {2, 1, 0};
                                const auto group = comm.Subgroup(turned);
                                if (comm.rank() == 2) group->Abort("first");
                                if (comm.rank() == 2) group->Abort("second");
                                try {
                                  comm.Barrier();
                                } catch (const PeerFailed& error) {
                                  EXPECT_STREQ(error.what(), "rank 2 failed: first");
                                  throw;
                                }
                              }),
               PeerFailed);  // there is no other error
}

TEST(ThreadFailure, AllRanksFailAtOnce) {
  for (int i = 0; i < 20; ++i)
    EXPECT_THROW(
        RunThreadRanks(8, [](Comm& comm) { throw std::invalid_argument(std::to_string(comm.rank())); }),
        std::invalid_argument);
}

TEST(ThreadFailure, AnOperationFailsWithWhatItComesAfter) {
  EXPECT_THROW(RunThreadRanks(2,
                              [](Comm& comm) {
                                int32_t value = 1;
                                if (comm.rank() == 1) return comm.Recv(Int(value), 0).Wait();
                                EventSource disk;
                                const Event sent = comm.Send(Int(value), 1, disk.event());
                                disk.Fail([] { throw std::underflow_error("disk"); });
                                sent.Wait();
                              }),
               std::underflow_error);
}

TEST(ThreadFailure, RanksThatDisagreeAreToldSo) {
  EXPECT_THROW(RunThreadRanks(2,
                              [](Comm& comm) {
                                std::vector<uint8_t> bytes(8);
                                const Tensor four(bytes.data(), DType::kByte, {4}),
                                    five(bytes.data(), DType::kByte, {5});
                                if (comm.rank() == 0) comm.Send(four, 1).Wait();
                                if (comm.rank() == 1) comm.Recv(five, 0).Wait();
                              }),
               std::logic_error);
  RunThreadRanks(2, [](Comm& comm) {
    std::vector<float> values(8);
    const Tensor all(values.data(), DType::kFloat32, {8}), part(values.data(), DType::kFloat32, {3});
    EXPECT_THROW(comm.AllGather(part, all), std::logic_error);
    EXPECT_THROW(comm.ReduceScatter(all, part), std::logic_error);
    EXPECT_THROW(comm.Send(all, 2), std::logic_error);
    EXPECT_THROW(comm.Recv(all, -1), std::logic_error);
    const std::vector<int> not_me = {1 - comm.rank()}, twice = {0, 1, 0}, beyond = {0, 1, 2};
    for (const auto& ranks : {not_me, twice, beyond}) EXPECT_THROW(comm.Subgroup(ranks), std::logic_error);
  });
}

// The memory of a rank that ends goes at once. The workers always have more to do when the rank fails.
// (Whether one still touches that memory depends on the moment; the thread sanitizer sees it at any.)
TEST(ThreadFailure, NobodyTouchesTheMemoryOfARankThatEnds) {
  constexpr int64_t kCount = 100000;
  for (int i = 0; i < 16; ++i) {
    const auto body = [&](Comm& comm) {
      std::vector<float> small(kCount), large(4 * kCount);
      const AbortOnUnwind guard(comm);
      const Tensor one(small.data(), DType::kFloat32, {kCount}),
          four(large.data(), DType::kFloat32, {4 * kCount});
      std::vector<Event> events;
      for (int n = 0; n < 40; ++n)
        events.push_back(i % 2 == 0 ? comm.AllGather(one, four) : comm.ReduceScatter(four, one));
      events[static_cast<size_t>(i / 4)].Wait();
      if (comm.rank() == i % 4) throw std::runtime_error("in the middle");
      comm.Barrier();  // where the failing rank never comes
    };
    EXPECT_THROW(RunThreadRanks(4, body), std::runtime_error);
  }
}

// Guards what it does while an error goes by that began outside.
struct GuardsWhenItEnds {
  ~GuardsWhenItEnds() { const AbortOnUnwind guard(comm); }
  Comm& comm;
};

TEST(ThreadFailure, TheGuardSpeaksOnlyWhenAnErrorPasses) {
  std::latch both_are_past(2);
  RunThreadRanks(2, [&](Comm& comm) {
    { const AbortOnUnwind guard(comm); }
    try {
      const GuardsWhenItEnds ends = {comm};
      throw std::runtime_error("passes outside the guard");
    } catch (const std::runtime_error&) {
    }
    comm.Barrier();
    both_are_past.arrive_and_wait();  // a barrier may be over for one rank and not yet for the other
    if (comm.rank() == 1) {
      try {
        const AbortOnUnwind guard(comm);
        throw std::runtime_error("passes");
      } catch (const std::runtime_error&) {
      }
    }
    EXPECT_THROW(comm.Barrier(), PeerFailed);
  });
}

TEST(ThreadFailure, JobsSideBySideKnowNothingOfEachOther) {
  const auto job = [](int ranks, bool fails) {
    RunThreadRanks(ranks, [&](Comm& comm) {
      for (int i = 0; i < 50; ++i) EXPECT_EQ(comm.SumOverRanks(1), ranks);
      if (fails && comm.rank() == 1) throw std::runtime_error("one job's");
      if (fails) {
        EXPECT_THROW(comm.Barrier(), PeerFailed);
      }
    });
  };
  std::thread other([&] { EXPECT_THROW(job(3, true), std::runtime_error); });
  job(4, false);
  other.join();
}

// A job may end with operations that nobody will ever answer, or that begin only afterwards.
TEST(ThreadFailure, UnansweredOperationsEndWithTheJob) {
  EventSource late;
  int32_t values[2] = {1, 2};
  Event events[2];
  RunThreadRanks(2, [&](Comm& comm) {
    int32_t& value = values[comm.rank()];
    events[comm.rank()] =
        comm.rank() == 0 ? comm.Send(Int(value), 1, late.event()) : comm.Recv(Int(value), 1);
  });
  for (const Event& event : events) EXPECT_THROW(event.Wait(), PeerFailed);
  late.Set();
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], 2);
}

}  // namespace
}  // namespace longspan
