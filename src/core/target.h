#pragma once

#include <cstdint>

namespace longspan {

// A target that is no target: this row adds neither loss nor gradient (Hugging Face's −100).
inline constexpr int32_t kIgnoreTarget = -100;

}  // namespace longspan
