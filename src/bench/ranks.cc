#include "bench/ranks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>

#include "bench/measure.h"
#include "comm/thread_comm.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/scratch_file.h"
#include "core/work_log.h"

namespace longspan::bench {
namespace {

double SecondsOf(const std::function<void()>& f) {
  const double start = Now();
  f();
  return Now() - start;
}

// Of one operation on one rank.
struct Runs {
  std::vector<double> seconds;
  bool disturbed = false;
};

// Of one rank: the seconds of a run of each operation, `runs` times, at the same time as the others.
std::vector<Runs> TimeOfRank(Comm& comm, Backend& backend, int64_t runs,
                             const std::vector<Operation>& operations) {
  constexpr double kShortest = 0.010;  // of what is timed in one go
  constexpr double kOwn = 0.95;        // of the time, that ranks have their cores to themselves
  std::vector<Runs> all;
  for (const Operation& operation : operations) {
    const auto run = [&] { operation(backend); };
    const auto of_all = [&](double mine) { return comm.SumOverRanks(mine) / comm.size(); };
    int64_t times = 1;
    // The first touches memory for the first time, which tells little of one that is short.
    if (of_all(SecondsOf(run)) < 4 * kShortest)
      times =
          std::max<int64_t>(1, std::llround(std::ceil(kShortest / std::max(1e-9, of_all(SecondsOf(run))))));
    Runs& kept = all.emplace_back();
    for (int64_t tries = 1; std::ssize(kept.seconds) < runs; ++tries) {
      comm.Barrier();
      const double before = ThreadSeconds();
      const double seconds = SecondsOf([&] {
        for (int64_t n = 0; n < times; ++n) run();
      });
      // Of several threads one may wait for the others, which looks the same.
      const bool disturbed =
          backend.num_threads() == 1 && of_all(ThreadSeconds() - before) < kOwn * of_all(seconds);
      if (disturbed && tries <= runs) continue;  // so many again at most: a busy machine stays busy
      kept.disturbed = kept.disturbed || disturbed;
      kept.seconds.push_back(seconds / static_cast<double>(times));
    }
  }
  return all;
}

// Of each operation, which reports one piece of work.
std::vector<Work> WorkOf(const std::vector<Operation>& operations, int threads) {
  WorkLog log;
  const std::unique_ptr<Backend> backend = MakeDryBackend(threads, &log);
  std::vector<Work> work;
  for (const Operation& operation : operations) {
    operation(*backend);
    CHECK(log.entries().size() == work.size() + 1);
    work.push_back(log.entries().back().work);
  }
  return work;
}

}  // namespace

std::vector<TimedOperation> TimeOnRanks(int ranks, int threads, int64_t runs, const MakeOperations& make) {
  std::mutex mutex;  // guards both
  std::vector<Work> work;
  std::vector<Runs> runs_of;  // by operation, of all ranks
  RunThreadRanks(ranks, [&](Comm& comm) {
    const std::unique_ptr<Backend> backend = MakeCpuBackend(threads);
    const std::vector<Operation> operations = make(*backend);
    const std::vector<Runs> mine = TimeOfRank(comm, *backend, runs, operations);
    const std::lock_guard lock(mutex);
    if (work.empty()) work = WorkOf(operations, threads);
    runs_of.resize(mine.size());
    for (size_t i = 0; i < mine.size(); ++i) {
      Runs& of = runs_of[i];
      of.seconds.insert(of.seconds.end(), mine[i].seconds.begin(), mine[i].seconds.end());
      of.disturbed = mine[i].disturbed;
    }
  });
  std::vector<TimedOperation> timed;
  for (size_t i = 0; i < work.size(); ++i)
    timed.push_back({.work = work[i],
                     .seconds = Median(std::move(runs_of[i].seconds)),
                     .disturbed = runs_of[i].disturbed});
  return timed;
}

LinkRates MeasureLinks(int ranks, int64_t runs) {
  constexpr int64_t kBytes = int64_t{16} << 20, kMessages = 20;
  LinkRates rates;
  RunThreadRanks(ranks, [&](Comm& comm) {
    const Buffer sent(DType::kByte, {kBytes}), received(DType::kByte, {kBytes});
    std::memset(sent.data(), 1, static_cast<size_t>(kBytes));
    const AbortOnUnwind guard(comm);
    const int next = (comm.rank() + 1) % comm.size(),
              previous = (comm.rank() + comm.size() - 1) % comm.size();
    const auto pass_on = [&](int64_t bytes) {
      const Event here = comm.Recv(received.tensor().Rows(0, bytes), previous);
      const Event taken = comm.Send(sent.tensor().Rows(0, bytes), next);
      here.Wait();
      taken.Wait();
    };
    std::vector<double> large, small;
    pass_on(kBytes);
    for (int64_t i = 0; i < runs; ++i) {
      comm.Barrier();
      large.push_back(SecondsOf([&] { pass_on(kBytes); }));
      comm.Barrier();
      small.push_back(SecondsOf([&] {
        for (int64_t message = 0; message < kMessages; ++message) pass_on(1);
      }));
    }
    comm.Barrier();  // nobody's buffers go before all have read them
    // The quickest is what a message takes; others waited for a rank that had no core.
    const double of_message = std::ranges::min(small) / static_cast<double>(kMessages);
    const double of_bytes = std::max(Median(large) - of_message, Median(large) / 2);
    if (comm.rank() == 0)
      rates = {.gbps = static_cast<double>(kBytes) / of_bytes / 1e9, .message_us = of_message * 1e6};
  });
  return rates;
}

DiskRates MeasureDisk(const std::string& directory, int64_t runs) {
  constexpr int64_t kBytes = int64_t{128} << 20;
  ScratchFile file(directory, kBytes);
  Arena arena(Arena::Mode::kReal, kBytes + ScratchFile::kAlignment);
  const Tensor memory = arena.Allocate("disk", DType::kByte, {kBytes});  // an arena begins with a page
  std::memset(memory.raw(), 1, static_cast<size_t>(kBytes));
  std::vector<double> writing, reading;
  for (int64_t i = 0; i <= runs; ++i) {
    const double written = SecondsOf([&] { file.Write(0, memory.raw(), kBytes); });
    const double read = SecondsOf([&] { file.Read(0, memory.raw(), kBytes); });
    if (i == 0) continue;  // which finds the blocks
    writing.push_back(written);
    reading.push_back(read);
  }
  const double gb = static_cast<double>(kBytes) / 1e9;
  return {.write_gbps = gb / Median(writing), .read_gbps = gb / Median(reading), .direct = file.direct()};
}

}  // namespace longspan::bench
