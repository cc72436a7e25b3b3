// Rows in chunks: what keeps the widest tensors of a layer from ever having all rows of a rank at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/backend.h"

namespace longspan {

// f(begin, end) for each chunk of at most `chunk` rows, one after the other, in an arena scope of its own. A
// dry backend is shown equal chunks once, and told how many they are.
template <class F>
void ForEachChunk(Backend& backend, int64_t rows, int64_t chunk, F f) {
  const int64_t whole = rows / chunk;
  int64_t begin = 0;
  if (backend.dry() && whole > 1) {
    const Arena::Scope scope(backend.arena());
    backend.CountTimes(whole);
    f(0, chunk);
    backend.CountTimes(1);
    begin = whole * chunk;
  }
  for (; begin < rows; begin += chunk) {
    const Arena::Scope scope(backend.arena());
    f(begin, std::min(rows, begin + chunk));
  }
}

}  // namespace longspan
