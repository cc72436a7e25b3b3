#include "core/tensor.h"

#include <fmt/ranges.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "core/memory.h"

namespace longspan {

int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
      return 2;
    case DType::kInt64:
      return 8;
    case DType::kByte:
      return 1;
  }
  CHECK(false);
  return 0;
}

const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kByte:
      return "byte";
  }
  CHECK(false);
  return "";
}

Tensor::Tensor(void* data, DType dtype, std::span<const int64_t> shape)
    : data_(data), num_elements_(1), dtype_(dtype), rank_(static_cast<int8_t>(shape.size())) {
  CHECK(shape.size() <= kMaxRank);
  for (size_t i = 0; i < shape.size(); ++i) {
    CHECK(shape[i] >= 0);
    shape_[i] = shape[i];
    num_elements_ *= shape[i];
  }
}

Tensor Tensor::Rows(int64_t begin, int64_t end) const {
  CHECK(rank_ >= 1 && 0 <= begin && begin <= end && end <= shape_[0]);
  const int64_t row_bytes = shape_[0] == 0 ? 0 : num_bytes() / shape_[0];
  std::array<int64_t, kMaxRank> shape = shape_;
  shape[0] = end - begin;
  return Tensor(static_cast<char*>(data_) + begin * row_bytes, dtype_,
                std::span<const int64_t>(shape.data(), static_cast<size_t>(rank_)));
}

Tensor Tensor::Reshape(std::initializer_list<int64_t> shape) const {
  Tensor result(data_, dtype_, shape);
  CHECK(result.num_elements() == num_elements_);
  return result;
}

std::string Tensor::ShapeString() const {
  return fmt::format("({}) {}", fmt::join(shape(), ", "), Name(dtype_));
}

namespace {
constexpr int64_t kHugePage = int64_t{2} << 20;
}

Buffer::Buffer(int64_t num_bytes) : num_bytes_(num_bytes) {
  CHECK(num_bytes >= 0);
  const int64_t alignment = num_bytes >= kHugePage ? kHugePage : 64;
  const int64_t rounded = std::max(alignment, (num_bytes + alignment - 1) / alignment * alignment);
  data_ = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded));
  Require(ExitCode::kResource, data_ != nullptr, "out of memory: {} bytes were refused by the system",
          num_bytes);
  if (alignment == kHugePage) madvise(data_, static_cast<size_t>(rounded), MADV_HUGEPAGE);
  std::memset(data_, 0, static_cast<size_t>(rounded));
  tensor_ = Tensor(data_, DType::kByte, {num_bytes});
}

Buffer::Buffer(DType dtype, std::initializer_list<int64_t> shape)
    : Buffer(Tensor(nullptr, dtype, shape).num_bytes()) {
  tensor_ = Tensor(data_, dtype, shape);
}

Buffer Buffer::Measured(DType dtype, std::initializer_list<int64_t> shape) {
  Buffer buffer;
  buffer.data_ = reinterpret_cast<void*>(kNowhere);
  buffer.tensor_ = Tensor(buffer.data_, dtype, shape);
  buffer.num_bytes_ = buffer.tensor_.num_bytes();
  return buffer;
}

Buffer::~Buffer() {
  if (data_ != reinterpret_cast<void*>(kNowhere) && !KeepsMemory()) std::free(data_);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(num_bytes_, other.num_bytes_);
  std::swap(tensor_, other.tensor_);
  return *this;
}

}  // namespace longspan
