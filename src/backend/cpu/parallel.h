// Parallel loops of a rank's threads. One thread enters no OpenMP region at all, so that a thread-sanitized
// build (libgomp is not instrumented) sees nothing but plain code.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

namespace longspan::cpu {

// Calls body(i) for every i in [0, count), on at most `num_threads` threads in contiguous shares. `body` must
// not throw.
template <class Body>
void ParallelFor(int num_threads, int64_t count, const Body& body) {
  if (num_threads == 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(num_threads)
  for (int64_t i = 0; i < count; ++i) body(i);
}

// Calls body(thread, threads) on as many threads as the system grants, at most `num_threads`.
template <class Body>
void ParallelRegion(int num_threads, const Body& body) {
  if (num_threads == 1) return body(0, 1);
#pragma omp parallel num_threads(num_threads)
  body(omp_get_thread_num(), omp_get_num_threads());
}

// Cuts [0, size) into blocks of `block` and calls body(begin, end) for each. The cut does not depend on the
// number of threads, so partial sums of blocks that are added in order don't either.
template <class Body>
void ParallelBlocks(int num_threads, int64_t size, int64_t block, const Body& body) {
  ParallelFor(num_threads, (size + block - 1) / block,
              [&](int64_t i) { body(i * block, std::min(size, (i + 1) * block)); });
}

// Calls body(i, thread) for every i in [0, count), thread in [0, num_threads): each in turn goes to the next
// thread that is free, so when i starts, all before it have started. `body` must not throw.
template <class Body>
void ParallelTasks(int num_threads, int64_t count, const Body& body) {
  if (num_threads == 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  std::atomic<int64_t> next = 0;
  ParallelRegion(num_threads, [&](int thread, int) {
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) body(i, thread);
  });
}

// Waits for another task of the same region, which must have started, to set `state` to `value`.
template <class T>
void WaitUntil(const std::atomic<T>& state, T value) {
  for (int spins = 0; state.load(std::memory_order_acquire) != value; ++spins)
    if (spins >= 64) std::this_thread::yield();
}

}  // namespace longspan::cpu
