// The element types of safetensors files, and the floats among them as float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/tensor.h"

namespace longspan {

enum class ElementKind {
  kFloat,    // F64, F32, F16, BF16, F8_E4M3 (no infinities, one NaN a sign), F8_E5M2: ToFloat32 reads them
  kInteger,  // with BOOL
  kOther,    // complex numbers, scales of quantised blocks, floats of 8 bits that only some chips have
};

struct ElementType {
  std::string_view name;  // in the file: "F32"
  int64_t bytes;          // of an element
  ElementKind kind;
};

// Null if the format has no such type, or one whose elements share a byte.
const ElementType* FindElementType(std::string_view name);

// Of what is written: float32 or bfloat16.
const ElementType* ElementTypeOf(DType dtype);

// As many elements of a kFloat type as `to` holds. All but F64 are exact; those round to nearest, and to
// infinity beyond float32's range. `from` need not be aligned.
void ToFloat32(const ElementType& type, const std::byte* from, std::span<float> to);
// Elements of `type`, F32 or BF16, of as many floats; bfloat16 rounds to nearest even. `to` is aligned.
void FromFloat32(const ElementType& type, std::span<const float> from, std::byte* to);

}  // namespace longspan
