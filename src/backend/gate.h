#pragma once

namespace longspan {

// Of the gate in a gated MLP: x · sigmoid(x), or GELU's tanh approximation (Hugging Face's silu and
// gelu_pytorch_tanh).
enum class GateActivation { kSilu, kGeluTanh };

}  // namespace longspan
