// The target's vectors come first.
// clang-format off
#include "backend/cpu/vector_avx512.h"
#include "backend/cpu/attention_forward_impl.h"
#include "backend/cpu/attention_backward_impl.h"
#include "backend/cpu/attention_impl.h"
// clang-format on

namespace longspan::cpu {

const AttentionKernels kAvx512Attention = kAttention;

}  // namespace longspan::cpu
