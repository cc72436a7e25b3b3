// Tensor: a view of contiguous row-major memory that never frees. Buffer: the move-only owner.
//
// Shape legend, used in every comment of the form `Tensor q;  // (t, H, D) bf16`:
//   T tokens of the sequence   t tokens on this rank   C width             L layers      V vocabulary
//   H query heads              K KV heads              D head width (q, k) E head width of v and out
//   F feed-forward width       P context ranks         N data ranks
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "core/check.h"

namespace longspan {

enum class DType : uint8_t { kFloat32, kBFloat16, kInt32, kInt64, kByte };

int64_t SizeOf(DType dtype);    // bytes of one element
const char* Name(DType dtype);  // "float32", "bfloat16", …

// The upper half of a float32. Rounds to nearest even; NaN stays NaN.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  explicit BFloat16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    bits = (u & 0x7fffffffu) > 0x7f800000u ? static_cast<uint16_t>((u >> 16) | 0x40u)
                                           : static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
static_assert(sizeof(BFloat16) == 2);

template <class T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<float>() {
  return DType::kFloat32;
}
template <>
constexpr DType DTypeOf<BFloat16>() {
  return DType::kBFloat16;
}
template <>
constexpr DType DTypeOf<int32_t>() {
  return DType::kInt32;
}
template <>
constexpr DType DTypeOf<int64_t>() {
  return DType::kInt64;
}
template <>
constexpr DType DTypeOf<uint8_t>() {
  return DType::kByte;
}

class Tensor {
 public:
  static constexpr int kMaxRank = 4;

  Tensor() = default;  // no tensor: IsNull()
  Tensor(void* data, DType dtype, std::span<const int64_t> shape);
  Tensor(void* data, DType dtype, std::initializer_list<int64_t> shape)
      : Tensor(data, dtype, std::span<const int64_t>(shape.begin(), shape.size())) {}

  bool IsNull() const { return data_ == nullptr; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  int64_t dim(int i) const {
    DCHECK(i >= 0 && i < rank_);
    return shape_[static_cast<size_t>(i)];
  }
  std::span<const int64_t> shape() const { return {shape_.data(), static_cast<size_t>(rank_)}; }
  int64_t num_elements() const { return num_elements_; }
  int64_t num_bytes() const { return num_elements_ * SizeOf(dtype_); }

  void* raw() const { return data_; }
  // Checked against the element type; const-ness is that of the data's use, as with std::span.
  template <class T>
  T* data() const {
    CHECK(dtype_ == DTypeOf<T>());
    return static_cast<T*>(data_);
  }

  // Rows [begin, end) of the first dimension; the same memory.
  Tensor Rows(int64_t begin, int64_t end) const;
  // The same elements under another shape.
  Tensor Reshape(std::initializer_list<int64_t> shape) const;
  std::string ShapeString() const;  // "(16384, 8, 64) bfloat16"

 private:
  void* data_ = nullptr;
  int64_t num_elements_ = 0;
  std::array<int64_t, kMaxRank> shape_{};
  DType dtype_ = DType::kFloat32;
  int8_t rank_ = 0;
};

// Where no machine has memory: what only describes sizes (a dry run) lies there, and whoever touches it
// crashes.
inline constexpr int64_t kNowhere = int64_t{1} << 62;

// Owns zero-filled memory, 64-byte aligned, on huge pages where the system gives them.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t num_bytes);  // throws Error(kResource)
  Buffer(DType dtype, std::initializer_list<int64_t> shape);
  // Of any size, and takes no memory: it is nowhere.
  static Buffer Measured(DType dtype, std::initializer_list<int64_t> shape);
  ~Buffer();
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  int64_t num_bytes() const { return num_bytes_; }
  const Tensor& tensor() const { return tensor_; }  // as shaped at construction; bytes otherwise

 private:
  void* data_ = nullptr;  // null or kNowhere: nothing to free
  int64_t num_bytes_ = 0;
  Tensor tensor_;
};

}  // namespace longspan
