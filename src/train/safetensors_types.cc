#include "train/safetensors_types.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "core/check.h"

namespace longspan {
namespace {

constexpr ElementType kElementTypes[] = {
    {"F64", 8, ElementKind::kFloat},         {"F32", 4, ElementKind::kFloat},
    {"F16", 2, ElementKind::kFloat},         {"BF16", 2, ElementKind::kFloat},
    {"F8_E4M3", 1, ElementKind::kFloat},     {"F8_E5M2", 1, ElementKind::kFloat},
    {"BOOL", 1, ElementKind::kInteger},      {"U8", 1, ElementKind::kInteger},
    {"I8", 1, ElementKind::kInteger},        {"U16", 2, ElementKind::kInteger},
    {"I16", 2, ElementKind::kInteger},       {"U32", 4, ElementKind::kInteger},
    {"I32", 4, ElementKind::kInteger},       {"U64", 8, ElementKind::kInteger},
    {"I64", 8, ElementKind::kInteger},       {"C64", 8, ElementKind::kOther},
    {"F8_E8M0", 1, ElementKind::kOther},     {"F8_E4M3FNUZ", 1, ElementKind::kOther},
    {"F8_E5M2FNUZ", 1, ElementKind::kOther},
};

// Of a float with fewer bits of exponent, its sign and magnitude shifted to where float32 has them: the
// biases still differ, by the exponent of `scale`. Multiplying mends normal and subnormal numbers alike,
// exactly.
float Rebias(uint32_t sign, uint32_t magnitude, float scale) {
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * scale));
}

float FromHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  if ((half & 0x7c00u) == 0x7c00u) return std::bit_cast<float>(sign | magnitude | 0x7f800000u);
  return Rebias(sign, magnitude, 0x1p112f);  // biases 127 and 15
}

float FromE4M3(uint8_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x80u) << 24;
  const uint32_t magnitude = x & 0x7fu;
  if (magnitude == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  return Rebias(sign, magnitude << 20, 0x1p120f);  // biases 127 and 7
}

// It is the upper half of a half.
float FromE5M2(uint8_t x) { return FromHalf(static_cast<uint16_t>(x << 8)); }

template <class Stored, class Convert>
void ConvertAll(const std::byte* from, std::span<float> to, Convert convert) {
  for (float& x : to) {
    Stored stored;
    std::memcpy(&stored, from, sizeof(Stored));
    x = convert(stored);
    from += sizeof(Stored);
  }
}

}  // namespace

const ElementType* FindElementType(std::string_view name) {
  const auto type = std::ranges::find(kElementTypes, name, &ElementType::name);
  return type == std::end(kElementTypes) ? nullptr : &*type;
}

const ElementType* ElementTypeOf(DType dtype) {
  CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16);
  return FindElementType(dtype == DType::kFloat32 ? "F32" : "BF16");
}

void ToFloat32(const ElementType& type, const std::byte* from, std::span<float> to) {
  CHECK(type.kind == ElementKind::kFloat);
  if (to.empty()) return;
  if (type.name == "F32") {
    std::memcpy(to.data(), from, to.size_bytes());
  } else if (type.name == "F64") {
    ConvertAll<double>(from, to, [](double x) { return static_cast<float>(x); });
  } else if (type.name == "BF16") {
    ConvertAll<BFloat16>(from, to, [](BFloat16 x) { return static_cast<float>(x); });
  } else if (type.name == "F16") {
    ConvertAll<uint16_t>(from, to, FromHalf);
  } else if (type.name == "F8_E4M3") {
    ConvertAll<uint8_t>(from, to, FromE4M3);
  } else {
    CHECK(type.name == "F8_E5M2");
    ConvertAll<uint8_t>(from, to, FromE5M2);
  }
}

void FromFloat32(const ElementType& type, std::span<const float> from, std::byte* to) {
  if (from.empty()) return;
  if (type.name == "F32") {
    std::memcpy(to, from.data(), from.size_bytes());
  } else {
    CHECK(type.name == "BF16");
    std::ranges::transform(from, reinterpret_cast<BFloat16*>(to), [](float x) { return BFloat16(x); });
  }
}

}  // namespace longspan
