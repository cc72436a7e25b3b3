#include "backend/backend.h"

#include <chrono>
#include <numeric>

namespace longspan {

double Backend::SumOfSquares(Tensor x) {
  const Arena::Scope scope(arena());
  const int64_t blocks = NormBlocks(x.num_elements());
  const Tensor sums =
      arena().Allocate("gradient norm workspace", DType::kByte, {blocks * int64_t{sizeof(double)}});
  SumsOfSquares(x, sums);
  if (dry()) return 0;
  const double* begin = static_cast<const double*>(sums.raw());
  return std::accumulate(begin, begin + blocks, 0.0);
}

void Backend::Wait(const Event& event) {
  const auto wait = [&] {
    if (recorder_ != nullptr) recorder_->Wait(event);
    event.Wait();  // rethrows its failure
  };
  if (event.Done()) return wait();
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto account = [&] { wait_seconds_ += std::chrono::duration<double>(Clock::now() - start).count(); };
  try {
    wait();
  } catch (...) {
    account();
    throw;
  }
  account();
}

}  // namespace longspan
