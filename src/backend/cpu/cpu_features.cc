#include "backend/cpu/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "backend/cpu/peak.h"
#include "core/check.h"
#include "core/names.h"

namespace longspan::cpu {
namespace {

constexpr std::array kTargets = {CpuTarget::kScalar,     CpuTarget::kAvx2, CpuTarget::kAvx512,
                                 CpuTarget::kAvx512Bf16, CpuTarget::kAmx,  CpuTarget::kAmxModel};
constexpr std::array<std::string_view, 6> kNames = {"scalar",     "avx2", "avx512",
                                                    "avx512bf16", "amx",  "amxmodel"};

// Bits of CPUID and XCR0: Intel 64 and IA-32 Architectures Software Developer's Manual, volumes 1 (13.3) and
// 2A.
constexpr bool Bit(uint32_t word, int bit) { return ((word >> bit) & 1u) != 0; }

uint64_t SavedState() {
  uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t{high} << 32) | low;
}

// Asks for the tile registers, process-wide: once granted always granted. Linux,
// Documentation/arch/x86/xstate.rst.
bool RequestTiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuFeatures Detect() {
  CpuFeatures cpu;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return cpu;
  const bool os_saves = Bit(c, 27), fma = Bit(c, 12), f16c = Bit(c, 29), avx = Bit(c, 28);
  if (!os_saves || !avx) return cpu;
  constexpr uint64_t kVectors = 0x6, kMasks = 0xe0, kTiles = 0x60000;
  const uint64_t saved = SavedState();
  uint32_t a1 = 0, b1 = 0, c1 = 0, d1 = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return cpu;
  if (__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1) == 0) a1 = 0;
  cpu.avx2 = (saved & kVectors) == kVectors && Bit(b, 5) && fma && f16c;
  cpu.avx512 = cpu.avx2 && (saved & kMasks) == kMasks && Bit(b, 16) && Bit(b, 17) && Bit(b, 30) && Bit(b, 31);
  cpu.avx512_bf16 = cpu.avx512 && Bit(a1, 5);
  cpu.fast_bf16_dot = cpu.avx512_bf16 && IsFaster(kAvx512Bf16Peak, kAvx512Peak);
  cpu.amx_bf16 = cpu.avx512_bf16 && (saved & kTiles) == kTiles && Bit(d, 22) && Bit(d, 24) && RequestTiles();
  return cpu;
}

std::string_view Needs(CpuTarget target) {
  switch (target) {
    case CpuTarget::kScalar:
      return "nothing";
    case CpuTarget::kAvx2:
      return "AVX2, FMA and F16C";
    case CpuTarget::kAvx512:
      return "AVX-512 (F, BW, DQ, VL)";
    case CpuTarget::kAvx512Bf16:
      return "AVX-512 (F, BW, DQ, VL, BF16)";
    case CpuTarget::kAmx:
      return "AMX (TILE, BF16), with the system's permission to use it";
    case CpuTarget::kAmxModel:
      return "AVX-512 (F, BW, DQ, VL)";
  }
  return "";
}

}  // namespace

const CpuFeatures& DetectCpu() {
  static const CpuFeatures cpu = Detect();
  return cpu;
}

std::string_view Name(CpuTarget target) { return kNames[static_cast<size_t>(target)]; }
std::span<const CpuTarget> AllTargets() { return kTargets; }

bool Runs(const CpuFeatures& cpu, CpuTarget target) {
  switch (target) {
    case CpuTarget::kScalar:
      return true;
    case CpuTarget::kAvx2:
      return cpu.avx2;
    case CpuTarget::kAvx512:
      return cpu.avx512;
    case CpuTarget::kAvx512Bf16:
      return cpu.avx512_bf16;
    case CpuTarget::kAmx:
      return cpu.amx_bf16;
    case CpuTarget::kAmxModel:
      return cpu.avx512;
  }
  return false;
}

CpuTarget ChooseTarget(const CpuFeatures& cpu, std::string_view forced) {
  CpuTarget best = CpuTarget::kScalar;
  for (const CpuTarget target : kTargets) {
    if (target == CpuTarget::kAvx512Bf16 && !cpu.fast_bf16_dot) continue;
    if (target == CpuTarget::kAmxModel) continue;
    if (Runs(cpu, target)) best = target;
  }
  if (forced.empty()) return best;
  for (const CpuTarget target : kTargets) {
    if (Name(target) != forced) continue;
    Require(
        ExitCode::kUsage, Runs(cpu, target),
        "LONGSPAN_CPU_TARGET={} needs {}, which this CPU or its system lacks; the best that works here is {}",
        forced, Needs(target), Name(best));
    return target;
  }
  throw Error(fmt::format("LONGSPAN_CPU_TARGET={} is no CPU target{}", forced, Suggestion(forced, kNames)),
              ExitCode::kUsage);
}

CpuTarget ChooseTarget() {
  const char* forced = std::getenv("LONGSPAN_CPU_TARGET");
  return ChooseTarget(DetectCpu(), forced == nullptr ? "" : forced);
}

}  // namespace longspan::cpu
