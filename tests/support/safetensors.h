// Files of tensors that are in memory.
#pragma once

#include <string>
#include <vector>

#include "core/check.h"
#include "core/tensor.h"
#include "train/safetensors.h"

namespace longspan {

struct SafetensorsTensor {
  std::string name;
  Tensor values;  // f32; written as `dtype`
  std::vector<int64_t> shape;
};

// As the function of that name; `dtype` is float32 or bfloat16.
inline void WriteSafetensors(const std::string& directory, const std::string& stem,
                             const std::vector<SafetensorsTensor>& tensors, DType dtype,
                             int64_t max_shard_bytes) {
  const ElementType* const type = ElementTypeOf(dtype);
  std::vector<SafetensorsSource> sources;
  for (const SafetensorsTensor& tensor : tensors) {
    sources.push_back({.name = tensor.name, .type = type, .shape = tensor.shape, .read = {}});
    CHECK(sources.back().num_elements() == tensor.values.num_elements());
    sources.back().read = [values = tensor.values, type](int64_t first, std::span<std::byte> out) {
      FromFloat32(*type, {values.data<float>() + first, out.size() / static_cast<size_t>(type->bytes)},
                  out.data());
    };
  }
  WriteSafetensors(directory, stem, sources, {}, max_shard_bytes);
}

}  // namespace longspan
