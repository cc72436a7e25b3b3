#pragma once

#include <chrono>

namespace longspan {

// Seconds of a clock that only goes forward, from some moment on.
inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace longspan
