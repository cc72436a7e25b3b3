#include "backend/cpu/peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_features.h"
#include "backend/cpu/parallel.h"

namespace longspan {
namespace cpu {
namespace {

constexpr int kChains = 12;

// SSE2, which every x86-64 has: products and sums apart.
void RunScalar(int64_t iterations) {
  typedef float Vector __attribute__((vector_size(16)));
  Vector sum[kChains];
#pragma GCC unroll 32  // every index a constant, or the sums live in memory
  for (int i = 0; i < kChains; ++i) sum[i] = Vector{} + static_cast<float>(i + 1);
  Vector factor = Vector{} + 0.75f, term = Vector{} + 0.3f;
  __asm__ volatile("" : "+x"(factor), "+x"(term));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      sum[i] = sum[i] * factor + term;
      __asm__ volatile("" : "+x"(sum[i]));
    }
  }
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr double kBurstSeconds = 2e-4, kMeasureSeconds = 4e-3;

// Iterations that take one thread about a burst.
int64_t Calibrate(const PeakUnit& unit) {
  for (int64_t iterations = 1000;; iterations *= 2) {
    double fastest = kBurstSeconds;  // of a few, as any of them may have been interrupted
    for (int i = 0; i < 3; ++i) {
      const double start = Seconds();
      unit.run(iterations);
      fastest = std::min(fastest, Seconds() - start);
    }
    if (fastest >= kBurstSeconds / 2) return iterations;
  }
}

// FLOP/s of all threads together: the sum of their best bursts while all are at work.
double Measure(const PeakUnit& unit, int num_threads) {
  const int64_t iterations = Calibrate(unit);
  const double flops = static_cast<double>(unit.flops_per_iteration) * static_cast<double>(iterations);
  std::vector<double> rates(static_cast<size_t>(num_threads));
  std::atomic<int> num_ready = 0;
  ParallelFor(num_threads, num_threads, [&](int64_t thread) {
    num_ready.fetch_add(1);
    while (num_ready.load() < num_threads) std::this_thread::yield();
    double best = 0, now = Seconds();
    for (const double end = now + kMeasureSeconds; now < end;) {
      const double start = now;
      unit.run(iterations);
      now = Seconds();
      best = std::max(best, flops / (now - start));
    }
    rates[static_cast<size_t>(thread)] = best;
  });
  double total = 0;
  for (const double rate : rates) total += rate;
  return total;
}

// Widest first.
std::vector<const PeakUnit*> UnitsFor(DType dtype, const CpuFeatures& cpu) {
  std::vector<const PeakUnit*> units;
  if (dtype == DType::kBFloat16) {
    if (cpu.amx_bf16) units.push_back(&kAmxPeak);
    if (cpu.avx512_bf16) units.push_back(&kAvx512Bf16Peak);
  }
  if (cpu.avx512) units.push_back(&kAvx512Peak);
  if (cpu.avx2) units.push_back(&kAvx2Peak);
  units.push_back(&kScalarPeak);
  return units;
}

}  // namespace

bool IsFaster(const PeakUnit& a, const PeakUnit& b) {
  constexpr int64_t kIterations = 2000;  // some 10 µs
  // Best of bursts that take turns: interruptions are too few to hit all of one unit's.
  double rates[2] = {0, 0};
  for (int burst = 0; burst < 20; ++burst) {
    for (const PeakUnit* unit : {&a, &b}) {
      const double start = Seconds();
      unit->run(kIterations);
      const double rate = static_cast<double>(unit->flops_per_iteration * kIterations) / (Seconds() - start);
      double& best = rates[unit == &a ? 0 : 1];
      best = std::max(best, rate);
    }
  }
  return rates[0] > rates[1];
}

std::vector<PeakRate> MeasurePeaks(DType dtype, int num_threads) {
  CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16);
  CHECK(num_threads >= 1);
  std::vector<PeakRate> rates;
  for (const PeakUnit* unit : UnitsFor(dtype, DetectCpu()))
    rates.push_back({unit->name, Measure(*unit, num_threads)});
  return rates;
}

const PeakUnit kScalarPeak = {"sse2 multiply and add", kChains * 4 * 2, RunScalar};

}  // namespace cpu

CpuPeak MeasureCpuPeak(DType dtype, int num_threads) {
  CpuPeak best;
  for (const auto& [unit, rate] : cpu::MeasurePeaks(dtype, num_threads)) {
    // Some CPUs run narrow and wide vectors at one rate; noise should not choose between their names.
    if (rate > 1.02 * best.flops_per_second) best = {rate, unit};
  }
  return best;
}

}  // namespace longspan
