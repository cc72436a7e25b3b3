// What must hold of ranks that exchange something, whatever they are: thread_ranks.cc makes threads of them,
// tests/mpi/mpi_ranks.cc processes. So ranks share nothing here but messages.
#include "comm/comm.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/random.h"
#include "unit/comm/ranks.h"

namespace longspan {
namespace {

using testing::MostRanks;
using testing::RunRanks;

Tensor Floats(std::vector<float>& values) {
  return Tensor(values.data(), DType::kFloat32, {std::ssize(values)});
}
Tensor Bytes(std::vector<uint8_t>& values) {
  return Tensor(values.data(), DType::kByte, {std::ssize(values)});
}
Tensor Int(int32_t& value) { return Tensor(&value, DType::kInt32, {1}); }

// What rank `rank` contributes: of all magnitudes, so that the order of a sum shows in its bits.
std::vector<float> Contribution(int rank, int64_t n) {
  const CounterRandom random(static_cast<uint64_t>(rank), "contribution");
  std::vector<float> values;
  for (uint64_t i = 0; i < static_cast<uint64_t>(n); ++i)
    values.push_back(static_cast<float>(std::ldexp(random.Normal(i), static_cast<int>(i % 20))));
  return values;
}

std::vector<uint8_t> Message(int from, int to, int64_t n) {
  std::vector<uint8_t> bytes(static_cast<size_t>(n));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] =
        static_cast<uint8_t>(101 * static_cast<size_t>(from) + 37 * static_cast<size_t>(to) + i + i / 251);
  return bytes;
}

std::vector<float> SumInRankOrder(int num_ranks, int64_t n) {
  std::vector<float> sum = Contribution(0, n);
  for (int r = 1; r < num_ranks; ++r) {
    const std::vector<float> values = Contribution(r, n);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

bool SameBits(const float* a, const float* b, size_t n) {
  return n == 0 || std::memcmp(a, b, n * sizeof(float)) == 0;
}

class AnyRanks : public ::testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Comm, AnyRanks, ::testing::Range(1, MostRanks() + 1));

TEST_P(AnyRanks, KnowTheirPlace) {
  RunRanks(ranks(), [&](Comm& comm) {
    EXPECT_EQ(comm.size(), ranks());
    std::vector<double> seen(static_cast<size_t>(ranks()));
    seen[static_cast<size_t>(comm.rank())] = 1;
    comm.SumOverRanks(seen);
    EXPECT_EQ(seen, std::vector<double>(static_cast<size_t>(ranks()), 1));
  });
}

TEST_P(AnyRanks, AllGather) {
  for (const int64_t n : {0, 1, 1000, 300000}) {  // the last is copied in several steps
    std::vector<uint8_t> want;
    for (int p = 0; p < ranks(); ++p) {
      const std::vector<uint8_t> theirs = Message(p, 0, n);
      want.insert(want.end(), theirs.begin(), theirs.end());
    }
    RunRanks(ranks(), [&](Comm& comm) {
      const auto my_part = want.begin() + comm.rank() * n;
      std::vector<uint8_t> mine(my_part, my_part + n), all(want.size());
      comm.AllGather(Bytes(mine), Bytes(all)).Wait();
      EXPECT_EQ(all, want);

      std::vector<uint8_t> in_place(want.size());
      std::copy(mine.begin(), mine.end(), in_place.begin() + comm.rank() * n);
      const Tensor whole = Bytes(in_place);
      comm.AllGather(whole.Rows(comm.rank() * n, (comm.rank() + 1) * n), whole).Wait();
      EXPECT_EQ(in_place, want);
    });
  }
}

TEST_P(AnyRanks, ReduceScatterAddsInRankOrder) {
  for (const int64_t n : {0, 1, 17, 5000}) {  // the last is summed in several steps
    const std::vector<float> want = SumInRankOrder(ranks(), n * ranks());
    RunRanks(ranks(), [&](Comm& comm) {
      std::vector<float> mine = Contribution(comm.rank(), n * ranks()), sum(static_cast<size_t>(n));
      const float* expected = want.data() + comm.rank() * n;
      comm.ReduceScatter(Floats(mine), Floats(sum)).Wait();
      EXPECT_TRUE(SameBits(sum.data(), expected, sum.size()));

      const Tensor piece = Floats(mine).Rows(comm.rank() * n, (comm.rank() + 1) * n);
      comm.ReduceScatter(Floats(mine), piece).Wait();
      EXPECT_TRUE(SameBits(piece.data<float>(), expected, sum.size()));
    });
  }
}

// Pieces of any size, anywhere: here those of later ranks come first.
TEST_P(AnyRanks, PiecesOfUnequalSize) {
  std::vector<Range> pieces(static_cast<size_t>(ranks()));
  int64_t n = 0;
  for (int p = ranks() - 1; p >= 0; --p) {
    pieces[static_cast<size_t>(p)] = {n, n + (p % 3 == 1 ? 0 : 1000 * p + 17)};
    n = pieces[static_cast<size_t>(p)].end;
  }
  const std::vector<float> want = SumInRankOrder(ranks(), n);
  RunRanks(ranks(), [&](Comm& comm) {
    const Range piece = pieces[static_cast<size_t>(comm.rank())];
    std::vector<float> mine = Contribution(comm.rank(), n), sum(static_cast<size_t>(piece.size())),
                       all(static_cast<size_t>(n), -1);
    comm.ReduceScatter(Floats(mine), Floats(sum), pieces).Wait();
    EXPECT_TRUE(SameBits(sum.data(), want.data() + piece.begin, sum.size()));
    comm.AllGather(Floats(sum), Floats(all), pieces).Wait();
    EXPECT_EQ(all, want);

    const Tensor in_place = Floats(mine).Rows(piece.begin, piece.end);
    const Event summed = comm.ReduceScatter(Floats(mine), in_place, pieces);
    comm.AllGather(in_place, Floats(mine), pieces, summed).Wait();
    EXPECT_EQ(mine, want);
  });
}

TEST_P(AnyRanks, AllToAllWithUnequalAndEmptyPieces) {
  const auto size = [](int from, int to) { return int64_t{(3 * from + 5 * to) % 4} * 100; };
  RunRanks(ranks(), [&](Comm& comm) {
    std::vector<uint8_t> send, want;
    std::vector<int64_t> send_bytes, recv_bytes;
    for (int p = 0; p < ranks(); ++p) {
      send_bytes.push_back(size(comm.rank(), p));
      recv_bytes.push_back(size(p, comm.rank()));
      const auto out = Message(comm.rank(), p, send_bytes.back()),
                 in = Message(p, comm.rank(), recv_bytes.back());
      send.insert(send.end(), out.begin(), out.end());
      want.insert(want.end(), in.begin(), in.end());
    }
    std::vector<uint8_t> recv(want.size());
    comm.AllToAll(Bytes(send), send_bytes, Bytes(recv), recv_bytes).Wait();
    EXPECT_EQ(recv, want);
  });
}

TEST_P(AnyRanks, AllReduceSumOfAnyLengthIsTheSumInRankOrder) {
  for (const int64_t n : {0, 1, 2, 7, 8, 9, 4096, 10007}) {
    const std::vector<float> want = SumInRankOrder(ranks(), n);
    for (int run = 0; run < 2; ++run) {
      RunRanks(ranks(), [&](Comm& comm) {
        std::vector<float> values = Contribution(comm.rank(), n);
        comm.AllReduceSum(Floats(values));
        EXPECT_TRUE(SameBits(values.data(), want.data(), want.size())) << n << " values";
      });
    }
  }
}

TEST_P(AnyRanks, AllReduceSumKeepsTheShape) {
  RunRanks(ranks(), [&](Comm& comm) {
    std::vector<float> values(15, 1.0f);
    comm.AllReduceSum(Tensor(values.data(), DType::kFloat32, {3, 5}));
    EXPECT_EQ(values, std::vector<float>(15, static_cast<float>(ranks())));
  });
}

// 1,024 contributions of 1/1024: across ranks, and over as many calls as it then takes.
TEST(Comm, SmallContributionsAreNotLost) {
  for (int ranks = 1; ranks <= MostRanks(); ranks *= 2) {
    RunRanks(ranks, [&](Comm& comm) {
      float sum = 0;
      for (int step = 0; step < 1024 / ranks; ++step) {
        std::vector<float> value = {1.0f / 1024};
        comm.AllReduceSum(Floats(value));
        sum += value[0];
      }
      EXPECT_EQ(sum, 1.0f);
    });
  }
}

TEST_P(AnyRanks, SumOverRanksIsInDoubleAndInRankOrder) {
  const auto value = [](int rank, int i) {
    return std::ldexp(1.0 + rank, i % 2 == 0 ? 0 : 50 - 25 * rank) / 3;
  };
  std::vector<double> want(5);
  for (int i = 0; i < 5; ++i)
    for (int r = 0; r < ranks(); ++r) want[static_cast<size_t>(i)] += value(r, i);
  RunRanks(ranks(), [&](Comm& comm) {
    std::vector<double> values;
    for (int i = 0; i < 5; ++i) values.push_back(value(comm.rank(), i));
    comm.SumOverRanks(values);
    EXPECT_EQ(values, want);
    EXPECT_EQ(comm.SumOverRanks(value(comm.rank(), 3)), want[3]);
    comm.SumOverRanks(std::span<double>());
  });
}

TEST_P(AnyRanks, ABlockTravelsRoundTheRing) {
  RunRanks(ranks(), [&](Comm& comm) {
    const int next = (comm.rank() + 1) % ranks(), previous = (comm.rank() + ranks() - 1) % ranks();
    std::vector<float> held = Contribution(comm.rank(), 1000), coming(1000);
    for (int hop = 1; hop <= ranks(); ++hop) {
      const Event sent = comm.Send(Floats(held), next);
      comm.Recv(Floats(coming), previous).Wait();
      sent.Wait();
      held.swap(coming);
      EXPECT_EQ(held, Contribution((comm.rank() + ranks() - hop) % ranks(), 1000));
    }
  });
}

// The same with events alone: each hop is posted at once, after the one before. Nobody waits in between.
TEST_P(AnyRanks, OperationsChainThroughEvents) {
  RunRanks(ranks(), [&](Comm& comm) {
    const int next = (comm.rank() + 1) % ranks(), previous = (comm.rank() + ranks() - 1) % ranks();
    std::vector<std::vector<float>> held(static_cast<size_t>(ranks()) + 1, std::vector<float>(100));
    held[0] = Contribution(comm.rank(), 100);
    Event received;
    std::vector<Event> sent;
    for (size_t hop = 1; hop < held.size(); ++hop) {
      sent.push_back(comm.Send(Floats(held[hop - 1]), next, received));
      received = comm.Recv(Floats(held[hop]), previous);
    }
    received.Wait();
    for (const Event& event : sent) event.Wait();
    EXPECT_EQ(held.back(), held.front());
  });
}

// The clock is the same for all ranks of a machine.
TEST_P(AnyRanks, ABarrierKeepsThemTogether) {
  RunRanks(ranks(), [&](Comm& comm) {
    const CounterRandom pauses(static_cast<uint64_t>(comm.rank()), "pauses");
    for (uint64_t round = 0; round < 20; ++round) {
      std::this_thread::sleep_for(std::chrono::microseconds(pauses.Below(500, round)));
      std::vector<double> arrived(static_cast<size_t>(ranks()));
      arrived[static_cast<size_t>(comm.rank())] = Now();
      comm.Barrier();
      const double left = Now();
      comm.SumOverRanks(arrived);
      EXPECT_LE(*std::ranges::max_element(arrived), left);
    }
  });
}

// Longer than the pieces in which anything may be moved, and not a multiple of them.
TEST_P(AnyRanks, LongMessages) {
  const int64_t n = (int64_t{5} << 20) + 3;
  RunRanks(ranks(), [&](Comm& comm) {
    const int next = (comm.rank() + 1) % ranks(), previous = (comm.rank() + ranks() - 1) % ranks();
    std::vector<uint8_t> out = Message(comm.rank(), next, n), in(out.size());
    const Event sent = comm.Send(Bytes(out), next);
    comm.Recv(Bytes(in), previous).Wait();
    sent.Wait();
    EXPECT_TRUE(in == Message(previous, comm.rank(), n));
  });
  const int64_t count = 300'001;
  const auto part = [](int rank, int64_t i) {
    return static_cast<float>((i * 40503 + rank * 977) % 65536 - 32768) / 3;
  };
  RunRanks(ranks(), [&](Comm& comm) {
    std::vector<float> mine(static_cast<size_t>(count * ranks())), sum(static_cast<size_t>(count)),
        want(sum.size());
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = part(comm.rank(), static_cast<int64_t>(i));
    for (size_t i = 0; i < want.size(); ++i)
      for (int r = 0; r < ranks(); ++r) want[i] += part(r, comm.rank() * count + static_cast<int64_t>(i));
    comm.ReduceScatter(Floats(mine), Floats(sum)).Wait();
    EXPECT_TRUE(SameBits(sum.data(), want.data(), sum.size()));
  });
}

TEST(Comm, MessagesOfAPairMatchInOrder) {
  RunRanks(2, [](Comm& comm) {
    constexpr int kMessages = 50;
    std::vector<int32_t> values(kMessages);
    std::vector<Event> events;
    if (comm.rank() == 0) {
      std::iota(values.begin(), values.end(), 0);
      for (int32_t& value : values) events.push_back(comm.Send(Int(value), 1));
      comm.Barrier();
    } else {
      for (size_t i = 0; i < kMessages / 2; ++i) events.push_back(comm.Recv(Int(values[i]), 0));
      comm.Barrier();  // half of them before, half after what is sent
      for (size_t i = kMessages / 2; i < kMessages; ++i) events.push_back(comm.Recv(Int(values[i]), 0));
    }
    for (const Event& event : events) event.Wait();
    for (int32_t i = 0; i < kMessages; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], i);
  });
}

TEST(Comm, PostingDoesNotWaitForPeers) {
  RunRanks(2, [](Comm& comm) {
    int32_t mine = comm.rank() + 10, all[2] = {}, posted = 0;
    const Tensor gathered(all, DType::kInt32, {2});
    if (comm.rank() == 0) {
      const Event event = comm.AllGather(Int(mine), gathered);
      EXPECT_FALSE(event.Done());  // the peer hasn't come: it waits for what follows
      comm.Send(Int(posted), 1).Wait();
      event.Wait();
    } else {
      comm.Recv(Int(posted), 0).Wait();
      comm.AllGather(Int(mine), gathered).Wait();
    }
    EXPECT_EQ(all[0], 10);
    EXPECT_EQ(all[1], 11);
  });
}

// A message arrives while its receiver computes and never looks.
TEST(Comm, MessagesMoveWhileRanksCompute) {
  RunRanks(2, [](Comm& comm) {
    std::vector<float> values = Contribution(0, 100000), received(comm.rank() == 0 ? 0 : values.size());
    const Event event = comm.rank() == 0 ? comm.Send(Floats(values), 1) : comm.Recv(Floats(received), 0);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!event.Done() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(event.Done());
    if (comm.rank() == 1) {
      EXPECT_EQ(received, values);
    }
  });
}

TEST(Comm, AnOperationWaitsForWhatItComesAfter) {
  for (const int late : {0, 1}) {  // the sender or the receiver
    RunRanks(2, [&](Comm& comm) {
      EventSource source;
      int32_t value = comm.rank() == 0 ? 1 : -1;
      const Event after = comm.rank() == late ? source.event() : Event();
      const Event event =
          comm.rank() == 0 ? comm.Send(Int(value), 1, after) : comm.Recv(Int(value), 0, after);
      comm.Barrier();  // both have posted
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      EXPECT_FALSE(event.Done());
      comm.Barrier();  // both have looked
      if (comm.rank() == late) {
        value = comm.rank() == 0 ? 2 : -2;  // mine until I let it begin
        source.Set();
      }
      event.Wait();
      if (comm.rank() == 1) {
        EXPECT_EQ(value, late == 0 ? 2 : 1);
      }
    });
  }
}

// Rank 0 waits first for what comes last. In between it serves the ranks on which that depends.
TEST(Comm, AWaitingOperationHoldsUpNoOther) {
  RunRanks(3, [](Comm& comm) {
    const std::vector<int> pair = {0, 1};
    int32_t value = 0;
    if (comm.rank() == 0) {
      const Event last = comm.Recv(Int(value), 2);
      comm.Subgroup(pair)->Barrier();
      last.Wait();
      EXPECT_EQ(value, 5);
    } else if (comm.rank() == 1) {
      comm.Subgroup(pair)->Barrier();
      value = 5;
      comm.Send(Int(value), 2).Wait();
    } else {
      comm.Recv(Int(value), 1).Wait();
      comm.Send(Int(value), 0).Wait();
    }
  });
}

TEST(Comm, ASendHasHappenedOnlyWhenItIsTaken) {
  RunRanks(2, [](Comm& comm) {
    int32_t value = 3, other = 0;
    if (comm.rank() == 0) {
      const Event sent = comm.Send(Int(value), 1);
      comm.Barrier();
      EXPECT_FALSE(sent.Done());
      comm.Barrier();
      sent.Wait();
    } else {
      comm.Barrier();
      comm.Barrier();
      comm.Recv(Int(other), 0).Wait();
      EXPECT_EQ(other, 3);
    }
  });
}

TEST(Comm, SubgroupsOverlapAndInterleave) {
  const int width = std::min(3, MostRanks() / 2);
  RunRanks(2 * width, [&](Comm& world) {
    const int r = world.rank();
    // Rows {0,1,2}, {3,4,5}; columns {0,3}, … in turned order; the even ranks from the last on; and a second
    // group of the rows. (Or rows of two.)
    const std::vector<int> column = {r % width + width, r % width};
    std::vector<int> row, even;
    for (int i = 0; i < width; ++i) {
      row.push_back(r / width * width + i);
      even.push_back(2 * ((width - 1 + i) % width));
    }
    const auto rows = world.Subgroup(row), columns = world.Subgroup(column), again = world.Subgroup(row);
    const auto evens = r % 2 == 0 ? world.Subgroup(even) : nullptr;
    EXPECT_EQ(rows->rank(), r % width);
    EXPECT_EQ(columns->rank(), r / width == 1 ? 0 : 1);

    const auto gather = [&](Comm& comm, int32_t& mine, std::vector<int32_t>& all) {
      all.resize(static_cast<size_t>(comm.size()));
      return comm.AllGather(Int(mine), Tensor(all.data(), DType::kInt32, {comm.size()}));
    };
    for (int round = 0; round < 10; ++round) {
      int32_t in_row = 100 * round + r, in_column = in_row + 1000, in_again = in_row + 2000,
              in_even = in_row + 3000;
      std::vector<int32_t> of_row, of_column, of_again, of_even;
      // Ranks post in different orders; within a group the order is the same.
      std::vector<Event> events;
      if (r % 2 == 0) events.push_back(gather(*evens, in_even, of_even));
      if (r < width) events.push_back(gather(*columns, in_column, of_column));
      events.push_back(gather(*rows, in_row, of_row));
      events.push_back(gather(*again, in_again, of_again));
      if (r >= width) events.push_back(gather(*columns, in_column, of_column));
      for (const Event& event : events) event.Wait();
      const auto want = [&](const std::vector<int>& members, int base) {
        std::vector<int32_t> values;
        for (const int member : members) values.push_back(base + 100 * round + member);
        return values;
      };
      EXPECT_EQ(of_row, want(row, 0));
      EXPECT_EQ(of_column, want(column, 1000));
      EXPECT_EQ(of_again, want(row, 2000));
      if (r % 2 == 0) {
        EXPECT_EQ(of_even, want(even, 3000));
      }
    }
    // A group of a group: the last and the first of the row, in that order.
    if (rows->rank() != 0 && rows->rank() != width - 1) return;
    const std::vector<int> ends = {width - 1, 0};
    const auto nested = rows->Subgroup(ends);
    int32_t mine = r;
    std::vector<int32_t> all;
    gather(*nested, mine, all).Wait();
    EXPECT_EQ(all, (std::vector<int32_t>{row.back(), row[0]}));
  });
}

// More of them than MPI has communicators, or than there are tags.
TEST(Comm, OfGroupsThatAreGoneNothingIsLeft) {
  constexpr int kGroups = 10000;
  RunRanks(3, [&](Comm& world) {
    const std::vector<int> turned = {2, 0, 1};
    const auto make = [&](int count) {
      for (int i = 0; i < count; ++i) {
        const auto group = world.Subgroup(turned);
        if (i % 100 == 0) {
          EXPECT_EQ(group->SumOverRanks(group->rank() + i), 3 + 3 * i);
        }
      }
      world.Barrier();
      const size_t in_use = mallinfo2().uordblks;
      world.Barrier();
      return in_use;
    };
    const size_t before = make(kGroups / 10), after = make(kGroups);
    EXPECT_LT(after, before + 16 * kGroups);  // bytes
  });
}

// All ranks make the same random list of operations, post them with random pauses, and wait for them in
// random order.
TEST(Comm, ManyOperationsAtOnce) {
  constexpr int kOperations = 60;
  const int ranks = std::min(5, MostRanks());
  RunRanks(ranks, [&](Comm& comm) {
    const std::vector<int> most = ranks == 5 ? std::vector{3, 1, 0, 2} : std::vector{2, 0, 1};
    const auto sub = comm.rank() < ranks - 1 ? comm.Subgroup(most) : nullptr;
    const CounterRandom common(1, "operations"), own(static_cast<uint64_t>(comm.rank()), "pauses");
    struct Running {
      Event event;
      std::vector<float> send, recv, want;
    };
    std::vector<Running> running(kOperations);
    for (uint64_t i = 0; i < kOperations; ++i) {
      Comm* group = common.Below(2, 3 * i) == 0 ? &comm : sub.get();
      const int64_t n = static_cast<int64_t>(common.Below(3000, 3 * i + 1));
      Running& op = running[i];
      if (group == nullptr) continue;
      const int size = group->size();
      std::vector<std::vector<float>> theirs;
      for (int p = 0; p < size; ++p)
        theirs.push_back(Contribution(
            100 * static_cast<int>(i) + (group == &comm ? p : most[static_cast<size_t>(p)]), n * size));
      op.send = theirs[static_cast<size_t>(group->rank())];
      if (common.Below(2, 3 * i + 2) == 0) {
        op.recv.resize(op.send.size() * static_cast<size_t>(size));
        for (const auto& values : theirs) op.want.insert(op.want.end(), values.begin(), values.end());
        op.event = group->AllGather(Floats(op.send), Floats(op.recv));
      } else {
        op.recv.resize(static_cast<size_t>(n));
        for (int64_t k = group->rank() * n; k < (group->rank() + 1) * n; ++k) {
          float sum = theirs[0][static_cast<size_t>(k)];
          for (size_t p = 1; p < theirs.size(); ++p) sum += theirs[p][static_cast<size_t>(k)];
          op.want.push_back(sum);
        }
        op.event = group->ReduceScatter(Floats(op.send), Floats(op.recv));
      }
      if (own.Below(4, i) == 0) std::this_thread::sleep_for(std::chrono::microseconds(own.Below(300, i)));
      if (own.Below(3, i + kOperations) == 0) running[own.Below(i + 1, i)].event.Wait();
    }
    for (Running& op : running) {
      op.event.Wait();
      EXPECT_TRUE(op.recv.size() == op.want.size() &&
                  SameBits(op.recv.data(), op.want.data(), op.want.size()));
    }
  });
}

}  // namespace
}  // namespace longspan
