// The target's vectors come first.
// clang-format off
#include "backend/cpu/vector_scalar.h"
#include "backend/cpu/attention_forward_impl.h"
#include "backend/cpu/attention_backward_impl.h"
#include "backend/cpu/attention_impl.h"
// clang-format on

namespace longspan::cpu {

const AttentionKernels kScalarAttention = kAttention;

}  // namespace longspan::cpu
