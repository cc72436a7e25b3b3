// Waits for what another thread or process does.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace longspan::testing {

// Looks again and again until it is so, for as long as a busy machine may take.
inline bool WaitUntil(const std::function<bool()>& is_so, double seconds = 60) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace longspan::testing
