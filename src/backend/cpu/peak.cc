#include "backend/cpu/peak.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_features.h"
#include "backend/cpu/parallel.h"
#include "core/clock.h"
#include "core/random.h"

namespace longspan {
namespace cpu {
namespace {

constexpr int kChains = 12;

// SSE2, which every x86-64 has: products and sums apart.
void RunScalar(int64_t iterations, const uint32_t* operands) {
  typedef float Vector __attribute__((vector_size(16)));
  Vector sum[kChains];
#pragma GCC unroll 32  // every index a constant, or the sums live in memory
  for (int i = 0; i < kChains; ++i) sum[i] = Vector{} + static_cast<float>(i + 1);
  Vector factor, term;
  std::memcpy(&factor, operands, sizeof factor);
  std::memcpy(&term, operands + 16, sizeof term);
  __asm__ volatile("" : "+x"(factor), "+x"(term));
  for (int64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      sum[i] = sum[i] * factor + term;
      __asm__ volatile("" : "+x"(sum[i]));
    }
  }
}

constexpr double kBurstSeconds = 2e-4, kMeasureSeconds = 4e-3;
constexpr int kMinBursts = 5;  // also where other work holds the core for longer than that

struct alignas(64) OperandTable {
  uint32_t words[kPeakOperandWords];
};
OperandTable MakeOperands(const PeakUnit& unit, PeakOperands kind) {
  const CounterRandom random(0, "peak");
  OperandTable table;
  for (int64_t i = 0; i < kPeakOperandWords; ++i) {
    // Sign and mantissa; the exponent makes it 0.5 … 1. The constant is 0.75.
    uint32_t& word = table.words[i];
    const bool constant = kind == PeakOperands::kConstant;
    const uint32_t bits = static_cast<uint32_t>(random.Bits(static_cast<uint64_t>(i)));
    if (unit.pairs)
      word = 0x3f003f00 | (constant ? 0x00400040 : bits & 0x807f807f);
    else
      word = 0x3f000000 | (constant ? 0x00400000 : bits & 0x807fffff);
  }
  return table;
}

// Iterations that take one thread about a burst.
int64_t Calibrate(const PeakUnit& unit, const OperandTable& operands) {
  for (int64_t iterations = 1000;; iterations *= 2) {
    double fastest = kBurstSeconds;  // of a few, as any of them may have been interrupted
    for (int i = 0; i < 3; ++i) {
      const double start = Now();
      unit.run(iterations, operands.words);
      fastest = std::min(fastest, Now() - start);
    }
    if (fastest >= kBurstSeconds / 2) return iterations;
  }
}

// FLOP/s of all threads together: the sum of their best bursts while all are at work.
double Measure(const PeakUnit& unit, int num_threads, PeakOperands kind) {
  const OperandTable operands = MakeOperands(unit, kind);
  const int64_t iterations = Calibrate(unit, operands);
  const double flops = static_cast<double>(unit.flops_per_iteration) * static_cast<double>(iterations);
  std::vector<double> rates(static_cast<size_t>(num_threads));
  std::atomic<int> num_ready = 0;
  // The system may grant a region fewer threads than it is asked for: these are all that a run would get,
  // too.
  const auto measure = [&](int thread, int num_granted) {
    num_ready.fetch_add(1);
    while (num_ready.load() < num_granted) std::this_thread::yield();
    double best = 0, now = Now();
    const double end = now + kMeasureSeconds;
    for (int burst = 0; now < end || burst < kMinBursts; ++burst) {
      const double start = now;
      unit.run(iterations, operands.words);
      now = Now();
      best = std::max(best, flops / (now - start));
    }
    rates[static_cast<size_t>(thread)] = best;
  };
  ParallelRegion(num_threads, measure);
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
  const OperandTable operands[2] = {MakeOperands(a, PeakOperands::kConstant),
                                    MakeOperands(b, PeakOperands::kConstant)};
  // Best of bursts that take turns: interruptions are too few to hit all of one unit's.
  double rates[2] = {0, 0};
  for (int burst = 0; burst < 20; ++burst) {
    for (const PeakUnit* unit : {&a, &b}) {
      const double start = Now();
      unit->run(kIterations, operands[unit == &a ? 0 : 1].words);
      const double rate = static_cast<double>(unit->flops_per_iteration * kIterations) / (Now() - start);
      double& best = rates[unit == &a ? 0 : 1];
      best = std::max(best, rate);
    }
  }
  return rates[0] > 1.2 * rates[1];
}

std::vector<PeakRate> MeasurePeaks(DType dtype, int num_threads, PeakOperands operands) {
  CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16);
  CHECK(num_threads >= 1);
  std::vector<PeakRate> rates;
  for (const PeakUnit* unit : UnitsFor(dtype, DetectCpu()))
    rates.push_back({unit->name, Measure(*unit, num_threads, operands)});
  return rates;
}

const PeakUnit kScalarPeak = {"sse2 multiply and add", kChains * 4 * 2, false, RunScalar};

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
