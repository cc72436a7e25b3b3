// The choice of a CPU target, and the measured peak.
#include <gtest/gtest.h>

#include <chrono>

#include "backend/backend.h"
#include "backend/cpu/cpu_features.h"
#include "core/check.h"
#include "unit/backend/backend_testing.h"

namespace longspan {
namespace {

using cpu::ChooseTarget;
using cpu::CpuFeatures;
using cpu::CpuTarget;

constexpr CpuFeatures kOld, kAvx2{.avx2 = true}, kAvx512{.avx2 = true, .avx512 = true};
constexpr CpuFeatures kFastDot{.avx2 = true, .avx512 = true, .avx512_bf16 = true, .fast_bf16_dot = true};
constexpr CpuFeatures kSlowDot{.avx2 = true, .avx512 = true, .avx512_bf16 = true};
constexpr CpuFeatures kTiles{.avx2 = true, .avx512 = true, .avx512_bf16 = true, .amx_bf16 = true};

TEST(CpuTargetTest, FastestUnlessForced) {
  EXPECT_EQ(ChooseTarget(kOld, ""), CpuTarget::kScalar);
  EXPECT_EQ(ChooseTarget(kAvx2, ""), CpuTarget::kAvx2);
  EXPECT_EQ(ChooseTarget(kAvx512, ""), CpuTarget::kAvx512);
  EXPECT_EQ(ChooseTarget(kFastDot, ""), CpuTarget::kAvx512Bf16);
  EXPECT_EQ(ChooseTarget(kSlowDot, ""), CpuTarget::kAvx512);
  EXPECT_EQ(ChooseTarget(kSlowDot, "avx512bf16"), CpuTarget::kAvx512Bf16);
  EXPECT_EQ(ChooseTarget(kTiles, ""), CpuTarget::kAmx);
  EXPECT_EQ(ChooseTarget(kTiles, "avx512"), CpuTarget::kAvx512);
  EXPECT_EQ(ChooseTarget(kAvx512, "amxmodel"), CpuTarget::kAmxModel);
  EXPECT_EQ(ChooseTarget(kAvx512, "avx2"), CpuTarget::kAvx2);
  EXPECT_EQ(ChooseTarget(kAvx512, "avx512"), CpuTarget::kAvx512);
  EXPECT_EQ(ChooseTarget(kAvx512, "scalar"), CpuTarget::kScalar);
}

void ExpectUsageError(const CpuFeatures& cpu, const char* forced, const char* part) {
  try {
    ChooseTarget(cpu, forced);
    ADD_FAILURE() << forced << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(CpuTargetTest, WrongNamesAndMissingInstructions) {
  ExpectUsageError(kAvx512, "avx51", "did you mean 'avx512'");
  ExpectUsageError(kAvx512, "neon-something", "scalar, avx2, avx512");
  ExpectUsageError(kAvx512, "avx512bf16", "BF16");
  ExpectUsageError(kFastDot, "amx", "AMX");
  ExpectUsageError(kAvx2, "amxmodel", "AVX-512");
  ExpectUsageError(kAvx2, "avx512", "the best that works here is avx2");
  ExpectUsageError(kOld, "avx2", "AVX2");
}

TEST(CpuPeakTest, Bf16IsAtLeastF32AndItTakesMilliseconds) {
  const auto start = std::chrono::steady_clock::now();
  const CpuPeak f32 = MeasureCpuPeak(DType::kFloat32, 1), bf16 = MeasureCpuPeak(DType::kBFloat16, 1);
  const CpuPeak both = MeasureCpuPeak(DType::kFloat32, test::kMostThreads);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_LT(elapsed.count(), 2);
  // Between a very slow core and more than any core does in a cycle.
  EXPECT_GT(f32.flops_per_second, 1e8);
  EXPECT_LT(f32.flops_per_second, 1e12);
  EXPECT_LT(bf16.flops_per_second, 1e13);
  EXPECT_GT(bf16.flops_per_second,
            0.5 * f32.flops_per_second);  // never slower; the rest is for a busy machine
  EXPECT_GT(both.flops_per_second, 0.5 * f32.flops_per_second);
  EXPECT_FALSE(f32.unit.empty());
  const CpuFeatures& cpu = cpu::DetectCpu();
  if (cpu.avx512_bf16) {
    EXPECT_EQ(bf16.unit, cpu.amx_bf16 ? "amx bf16" : "vdpbf16ps");
  }
}

}  // namespace
}  // namespace longspan
