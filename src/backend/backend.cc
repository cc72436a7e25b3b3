#include "backend/backend.h"

#include <chrono>

namespace longspan {

void Backend::Wait(const Event& event) {
  if (recorder_ != nullptr) recorder_->Wait(event);
  if (event.Done()) {
    event.Wait();  // rethrows its failure
    return;
  }
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto account = [&] { wait_seconds_ += std::chrono::duration<double>(Clock::now() - start).count(); };
  try {
    event.Wait();
  } catch (...) {
    account();
    throw;
  }
  account();
}

}  // namespace longspan
