// What communication costs a ring of processes: attention over a sequence, forward and backward, with its
// messages and without any (the same ring over a dry communicator, which computes as much). Of three runs in
// turn the median, and the fastest and slowest. Run by
//   mpirun -np 2 build/release/mpi_overlap [ROWS]
// with ROWS of the sequence on each rank, 8192 by default: 4 KiB of keys and values a row, so that a hop is
// 32 MiB, and as many again of gradients twice over on the way back.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/backend.h"
#include "comm/dry_comm.h"
#include "comm/mpi_comm.h"
#include "core/clock.h"
#include "core/random.h"
#include "mask/mask.h"
#include "parallel/layout.h"
#include "parallel/strategy.h"

namespace longspan {
namespace {

constexpr int64_t kHeads = 8, kWidth = 128;
constexpr int kRuns = 3;

// One rank's tensors of the sequence.
class Problem {
 public:
  Problem(const Comm& comm, int64_t rows)
      : layout_(LayoutKind::kZigzag, rows * comm.size(), comm.size(), 1),
        mask_(MakeMask({}, std::vector{Range{0, layout_.length()}})),
        kv_of_(kHeads) {
    std::iota(kv_of_.begin(), kv_of_.end(), 0);
    for (int r = 0; r < comm.size(); ++r) spans_.push_back(layout_.spans(r));
    const CounterRandom random(static_cast<uint64_t>(comm.rank()), "overlap");
    uint64_t index = 0;
    for (Tensor* x : {&q_, &k_, &v_, &out_, &dout_, &dq_, &dk_, &dv_}) {
      *x = Add(DType::kBFloat16, {rows, kHeads, kWidth});
      for (int64_t i = 0; i < x->num_elements(); ++i)
        x->data<BFloat16>()[i] = BFloat16(static_cast<float>(random.Normal(index++ % 65536)));
    }
    lse_ = Add(DType::kFloat32, {rows, kHeads});
    delta_ = Add(DType::kFloat32, {rows, kHeads});
  }

  // Seconds of one pass there and back.
  double Run(Backend& backend, AttentionStrategy& ring) {
    const SequenceShards shards = {.mask = &mask_, .spans = spans_, .kv_of = kv_of_, .scale = 0.088f};
    const double begin = Now();
    ring.Forward(backend, shards, q_, k_, v_, out_, lse_);
    backend.AttentionDelta(out_, dout_, delta_);
    ring.Backward(backend, shards, q_, k_, v_, dout_, lse_, delta_, dq_, dk_, dv_);
    return Now() - begin;
  }

 private:
  Tensor Add(DType dtype, std::initializer_list<int64_t> shape) {
    return buffers_.emplace_back(dtype, shape).tensor();
  }

  const Layout layout_;
  const Mask mask_;
  std::vector<std::vector<Range>> spans_;
  std::vector<int32_t> kv_of_;
  std::vector<Buffer> buffers_;
  Tensor q_, k_, v_, out_, dout_, dq_, dk_, dv_, lse_, delta_;
};

void Measure(Comm& world, int64_t rows) {
  Problem problem(world, rows);
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  const std::unique_ptr<Comm> silent = MakeDryComm(world.rank(), world.size());
  const AbortOnUnwind guard(world);
  const std::unique_ptr<AttentionStrategy> ring = MakeRing(world), alone = MakeRing(*silent);
  std::vector<double> with, without, waited;
  for (int run = 0; run <= kRuns; ++run) {
    for (const bool sends : {true, false}) {
      world.Barrier();
      const double waited_before = backend->wait_seconds();
      const double mine = problem.Run(*backend, sends ? *ring : *alone);
      std::vector<double> all(static_cast<size_t>(world.size()));
      all[static_cast<size_t>(world.rank())] = mine;
      const double waiting = world.SumOverRanks(backend->wait_seconds() - waited_before) / world.size();
      world.SumOverRanks(all);
      if (run == 0) continue;  // which touches the memory
      (sends ? with : without).push_back(*std::ranges::max_element(all));
      if (sends) waited.push_back(waiting);
    }
  }
  if (world.rank() != 0) return;
  for (std::vector<double>* times : {&with, &without, &waited}) std::ranges::sort(*times);
  const auto median = [](const std::vector<double>& sorted) { return sorted[sorted.size() / 2]; };
  const auto seconds = [&](const std::vector<double>& sorted) {
    return fmt::format("{:.3f} s ({:.3f} to {:.3f})", median(sorted), sorted.front(), sorted.back());
  };
  fmt::print(
      "{} ranks, {} rows each, {} MiB a hop of keys and values\n"
      "with messages {}, of which a rank waits {}\nwithout {}: {:.3f} ×\n",
      world.size(), rows, rows * kHeads * kWidth * 4 >> 20, seconds(with), seconds(waited), seconds(without),
      median(with) / median(without));
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::max(1, std::atoi(argv[1])) : 8192;
  int code = 0;
  try {
    longspan::RunMpiRank([&](longspan::Comm& world) { longspan::Measure(world, rows); });
  } catch (const std::exception& error) {
    code = 1;
    std::fputs(fmt::format("mpi_overlap: {}\n", error.what()).c_str(), stderr);
  }
  longspan::LeaveMpi(code);
  return code;
}
