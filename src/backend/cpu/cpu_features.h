// Which instructions this CPU has, and which of the compiled targets a backend runs.
#pragma once

#include <span>
#include <string_view>

namespace longspan::cpu {

// One target is one set of kernel files, compiled with that target's flags. In order of speed, as a rule.
// kAvx512Bf16 is kAvx512 with bf16 attention on dot products and weights packed for products; kAmx is kAvx512
// with bf16 attention and matrix products on tiles; kAmxModel is kAmx with the tiles in plain C++
// (tile_model.h), slowly: never chosen, it is there for the tests.
enum class CpuTarget { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAmx, kAmxModel };

// What the processor has and the operating system saves.
struct CpuFeatures {
  bool avx2 = false;         // with FMA and F16C
  bool avx512 = false;       // F, BW, DQ and VL
  bool avx512_bf16 = false;  // on top of avx512
  bool amx_bf16 = false;     // on top of avx512_bf16; the system has granted this process the tiles
  // Whether vdpbf16ps does more than f32 FMA, measured: twice as much on some CPUs, half as much on others.
  bool fast_bf16_dot = false;
};
const CpuFeatures& DetectCpu();

std::string_view Name(CpuTarget target);  // "scalar", "avx2", "avx512", "avx512bf16", "amx", "amxmodel"
std::span<const CpuTarget> AllTargets();
bool Runs(const CpuFeatures& cpu, CpuTarget target);

// The fastest target of `cpu` (kAvx512Bf16 only with fast_bf16_dot, kAmxModel never), or the one that
// `forced` names unless it is empty (the value of LONGSPAN_CPU_TARGET). Throws Error(kUsage) if `forced`
// names no target, or one that `cpu` lacks.
CpuTarget ChooseTarget(const CpuFeatures& cpu, std::string_view forced);
// The same for this machine and this process's environment.
CpuTarget ChooseTarget();

}  // namespace longspan::cpu
