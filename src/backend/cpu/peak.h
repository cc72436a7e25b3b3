// What a CPU's arithmetic units can do at most: loops in registers alone, one file per instruction set. The
// operands are ordinary numbers, no zeros: either one number everywhere, which is the peak, or random ones,
// with which more bits change from one instruction to the next, so that some CPUs lower the clock.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace longspan::cpu {

enum class PeakOperands { kConstant, kRandom };

// One unit of the CPU. `run` spins on one thread and keeps all its results in registers. `operands`:
// kPeakOperandWords of 32 bits, aligned to 64 bytes, each an f32 or, if `pairs`, two bf16; all of size 0.5
// to 1.
struct PeakUnit {
  const char* name;
  int64_t flops_per_iteration;
  bool pairs;
  void (*run)(int64_t iterations, const uint32_t* operands);
};
constexpr int64_t kPeakOperandWords = 4 * 256;  // four tiles

extern const PeakUnit kScalarPeak, kAvx2Peak, kAvx512Peak;  // f32
extern const PeakUnit kAvx512Bf16Peak, kAmxPeak;            // bf16 operands, f32 sums

// Whether `a` does a fifth more per second than `b`, or still more, on this thread: of equal ones neither
// does, whatever else the machine is busy with. Takes about a millisecond.
bool IsFaster(const PeakUnit& a, const PeakUnit& b);

// FLOP/s of one unit, on all the threads that were asked for together.
struct PeakRate {
  const char* unit;
  double flops_per_second;
};
// Every unit that this CPU has for operands of `dtype` (f32 or bf16), widest first; some milliseconds each.
std::vector<PeakRate> MeasurePeaks(DType dtype, int num_threads,
                                   PeakOperands operands = PeakOperands::kConstant);

}  // namespace longspan::cpu
