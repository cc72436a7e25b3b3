#include "comm/dry_comm.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/thread_comm.h"
#include "core/arena.h"
#include "core/work_log.h"

namespace longspan {
namespace {

using Traffic = Comm::Traffic;

// What one rank puts on the wire in each kind of call; also what a test below expects of it. `arena` may have
// no memory behind it.
std::map<std::string, Traffic> CountEverything(Comm& comm, Arena& arena) {
  std::map<std::string, Traffic> counts;
  const int n = comm.size(), me = comm.rank();
  const auto count = [&](const char* name, auto act) {
    const Traffic before = comm.traffic();
    act();
    const Traffic after = comm.traffic();
    counts[name] = {after.bytes_sent - before.bytes_sent, after.messages_sent - before.messages_sent};
  };
  const auto bytes = [&](int64_t size) { return arena.Allocate("bytes", DType::kByte, {size}); };
  const auto floats = [&](int64_t size) { return arena.Allocate("floats", DType::kFloat32, {size}); };

  count("all_gather", [&] { comm.AllGather(bytes(10), bytes(10 * n)).Wait(); });
  count("reduce_scatter", [&] { comm.ReduceScatter(floats(7 * n), floats(7)).Wait(); });
  count("all_to_all", [&] {  // from r to p: (r + 2p) mod 3 bytes, so some are empty
    std::vector<int64_t> out, in;
    int64_t sent = 0, received = 0;
    for (int p = 0; p < n; ++p) {
      out.push_back((me + 2 * p) % 3);
      in.push_back((p + 2 * me) % 3);
      sent += out.back();
      received += in.back();
    }
    comm.AllToAll(bytes(sent), out, bytes(received), in).Wait();
  });
  count("ring", [&] {
    const Event sent = comm.Send(bytes(100), (me + 1) % n);
    comm.Recv(bytes(100), (me + n - 1) % n).Wait();
    sent.Wait();
  });
  count("empty", [&] { comm.AllGather(bytes(0), bytes(0)).Wait(); });
  count("all_reduce", [&] { comm.AllReduceSum(floats(5 * n + 1)); });
  std::vector<Range> pieces;
  int64_t end = 0;
  for (int p = 0; p < n; ++p) {
    pieces.push_back({end, end + (p % 3 == 2 ? 0 : p + 1)});
    end = pieces.back().end;
  }
  const int64_t piece = pieces[static_cast<size_t>(me)].size();
  count("uneven_reduce_scatter", [&] { comm.ReduceScatter(floats(end), floats(piece), pieces).Wait(); });
  count("uneven_all_gather", [&] { comm.AllGather(floats(piece), floats(end), pieces).Wait(); });
  count("sum", [&] { comm.SumOverRanks(1.0); });
  count("barrier", [&] { comm.Barrier(); });
  count("subgroup", [&] {
    std::vector<int> half;
    for (int p = me % 2; p < n; p += 2) half.push_back(p);
    const std::unique_ptr<Comm> group = comm.Subgroup(half);
    group->AllGather(bytes(3), bytes(3 * group->size())).Wait();
    EXPECT_EQ(group->traffic(), comm.traffic());
  });
  return counts;
}

TEST(DryComm, CountsAsThreadsDo) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    std::vector<std::map<std::string, Traffic>> real(static_cast<size_t>(ranks));
    RunThreadRanks(ranks, [&](Comm& comm) {
      Arena arena;
      real[static_cast<size_t>(comm.rank())] = CountEverything(comm, arena);
    });
    for (int rank = 0; rank < ranks; ++rank) {
      Arena arena(Arena::Mode::kMeasure);
      const auto counts = CountEverything(*MakeDryComm(rank, ranks), arena);
      EXPECT_EQ(counts, real[static_cast<size_t>(rank)]);

      const int64_t peers = ranks - 1;
      EXPECT_EQ(counts.at("all_gather"), (Traffic{10 * peers, peers}));
      EXPECT_EQ(counts.at("reduce_scatter"), (Traffic{28 * peers, peers}));
      Traffic all_to_all;
      for (int p = 0; p < ranks; ++p) {
        const int64_t size = (rank + 2 * p) % 3;
        if (p == rank || size == 0) continue;
        all_to_all.bytes_sent += size;
        all_to_all.messages_sent += 1;
      }
      EXPECT_EQ(counts.at("all_to_all"), all_to_all);
      EXPECT_EQ(counts.at("ring"), ranks == 1 ? Traffic{} : (Traffic{100, 1}));
      EXPECT_EQ(counts.at("empty"), Traffic{});
      EXPECT_EQ(counts.at("sum"), (Traffic{8 * peers, peers}));
      EXPECT_EQ(counts.at("barrier"), (Traffic{peers, peers}));
      // Everyone's pieces but mine, then mine to everyone. The last rank's is 6 elements, the others' 5.
      const int64_t total = 5 * ranks + 1, mine = rank + 1 == ranks ? 6 : 5;
      EXPECT_EQ(counts.at("all_reduce"), (Traffic{4 * (total - mine + mine * peers), 2 * peers}));
      // Pieces of rank + 1 elements, but of 0 of every third rank.
      int64_t others = 0, others_bytes = 0;
      for (int p = 0; p < ranks; ++p) {
        if (p == rank || p % 3 == 2) continue;
        others += 1;
        others_bytes += 4 * (p + 1);
      }
      const bool sends = rank % 3 != 2;
      EXPECT_EQ(counts.at("uneven_reduce_scatter"), (Traffic{others_bytes, others}));
      EXPECT_EQ(counts.at("uneven_all_gather"), (sends ? Traffic{4 * (rank + 1) * peers, peers} : Traffic{}));
      const int64_t half = (ranks + 1 - rank % 2) / 2 - 1;
      EXPECT_EQ(counts.at("subgroup"), (Traffic{3 * half, half}));
    }
  }
}

TEST(DryComm, IsAnyRankAndMovesNothing) {
  const std::unique_ptr<Comm> comm = MakeDryComm(700, 1000);
  EXPECT_EQ(comm->rank(), 700);
  EXPECT_EQ(comm->size(), 1000);
  const std::vector<int> ranks = {3, 700, 5};
  const std::unique_ptr<Comm> group = comm->Subgroup(ranks);
  EXPECT_EQ(group->rank(), 1);
  EXPECT_EQ(group->size(), 3);
  int32_t mine = 1, theirs[3] = {7, 8, 9};
  group->AllGather(Tensor(&mine, DType::kInt32, {1}), Tensor(theirs, DType::kInt32, {3})).Wait();
  EXPECT_EQ(std::vector(theirs, theirs + 3), (std::vector{7, 8, 9}));
  EXPECT_THROW(MakeDryComm(4, 4), std::logic_error);
}

TEST(DryComm, SumsAsIfTheRanksWereEqual) {
  std::vector<double> values = {1, 2.5};
  MakeDryComm(0, 4)->SumOverRanks(values);
  EXPECT_EQ(values, (std::vector{4.0, 10.0}));
}

// What is reported are the bytes that are counted, in groups as the whole job numbers their ranks.
TEST(DryComm, ReportsWhatItCounts) {
  WorkLog log;
  Arena arena(Arena::Mode::kMeasure);
  const std::unique_ptr<Comm> comm = MakeDryComm(2, 5, &log);
  CountEverything(*comm, arena);
  int64_t sent = 0;
  for (const WorkLog::Entry& entry : log.entries()) {
    if (entry.step != WorkLog::Step::kTransfer) continue;
    EXPECT_EQ(LaneOf(entry.work.kind), Lane::kLink);
    EXPECT_GT(entry.work.bytes, 0);
    if (entry.work.kind != WorkKind::kRecv) sent += entry.work.bytes;
  }
  EXPECT_EQ(sent, comm->traffic().bytes_sent);
  ASSERT_EQ(log.groups().size(), 2u);
  EXPECT_EQ(log.groups()[0], (std::vector{0, 1, 2, 3, 4}));
  EXPECT_EQ(log.groups()[1], (std::vector{0, 2, 4}));
}

TEST(DryComm, ReportsWhatComesAfterWhat) {
  WorkLog log;
  const std::unique_ptr<Comm> world = MakeDryComm(6, 8, &log);
  const std::vector<int> odd = {4, 6};
  const std::unique_ptr<Comm> pair = world->Subgroup(odd);
  const Tensor bytes(nullptr, DType::kByte, {16});
  const Event first = pair->Send(bytes, 0);
  const Event second = world->Recv(bytes, 3, first);
  world->Send(bytes, 6);  // to itself: nothing travels
  pair->AllReduceSum(Tensor(nullptr, DType::kFloat32, {4}));
  const auto entries = log.entries();
  ASSERT_EQ(entries.size(), 6u);
  EXPECT_EQ(first.work(), 1);
  EXPECT_EQ(entries[0].work.kind, WorkKind::kSend);
  EXPECT_EQ(entries[0].work.peer, 0);
  EXPECT_EQ(log.groups()[static_cast<size_t>(entries[0].group)], odd);
  EXPECT_EQ(entries[0].event, 0);
  EXPECT_EQ(second.work(), 2);
  EXPECT_EQ(entries[1].work.kind, WorkKind::kRecv);
  EXPECT_EQ(entries[1].event, 1);
  // Both halves of the sum are waited for.
  EXPECT_EQ(entries[2].work.kind, WorkKind::kReduceScatter);
  EXPECT_EQ(entries[2].work.bytes, 8);
  EXPECT_EQ(entries[3].step, WorkLog::Step::kWait);
  EXPECT_EQ(entries[3].event, 3);
  EXPECT_EQ(entries[4].work.kind, WorkKind::kAllGather);
  EXPECT_EQ(entries[5].event, 5);
}

TEST(DryComm, AnOperationHappensWithWhatItComesAfter) {
  EventSource source;
  const std::unique_ptr<Comm> comm = MakeDryComm(0, 2);
  const Event sent = comm->Send(Tensor(nullptr, DType::kByte, {8}), 1, source.event());
  EXPECT_FALSE(sent.Done());
  source.Fail([] { throw std::runtime_error(""); });
  EXPECT_THROW(sent.Wait(), std::runtime_error);
}

}  // namespace
}  // namespace longspan
