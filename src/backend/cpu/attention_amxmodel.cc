// bf16 attention on a model of tiles. The target's vectors and tiles come first.
// clang-format off
#include "backend/cpu/vector_avx512.h"
#include "backend/cpu/tile_model.h"
#include "backend/cpu/attention_amx_forward_impl.h"
#include "backend/cpu/attention_amx_backward_impl.h"
#include "backend/cpu/attention_impl.h"
// clang-format on

namespace longspan::cpu {

const AttentionKernels kAmxModelAttention = kAttention;

}  // namespace longspan::cpu
