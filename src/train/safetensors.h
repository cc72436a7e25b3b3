// Safetensors: reading by name from a mapping, and writing in order. Format: huggingface/safetensors README.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/tensor.h"

namespace longspan {

// One file. Opening checks the whole header against the file: size, JSON, duplicate names, dtypes, shapes × size =
// range, ranges in bounds, no overlap, no hole; each error names the file and the tensor.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  struct Entry {
    std::string dtype;               // "F32", "BF16", "F16", "F64", …
    std::vector<int64_t> shape;
    int64_t begin = 0, end = 0;      // bytes, from the start of the data
  };
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool Has(std::string_view name) const { return entries_.contains(name); }
  // Converts to f32 (from F64, F32, BF16, F16) into `out`, whose shape must be the tensor's.
  void ReadFloat32(std::string_view name, Tensor out) const;

 private:
  std::string path_;
  MappedFile file_;
  size_t data_offset_ = 0;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::string> metadata_;
};

// A Hugging Face directory's weights: model.safetensors, or shards through model.safetensors.index.json. Aliases of
// tied weights (`__metadata__`: name → name stored) are followed.
class SafetensorsDirectory {
 public:
  // `stem` is "model" or "optimizer".
  SafetensorsDirectory(const std::string& directory, const std::string& stem);
  bool Has(std::string_view name) const;
  const std::vector<int64_t>& Shape(std::string_view name) const;
  void ReadFloat32(std::string_view name, Tensor out) const;
  std::vector<std::string> Names() const;

 private:
  const SafetensorsReader& Find(std::string_view name, std::string& stored_name) const;
  std::string directory_;
  std::vector<SafetensorsReader> shards_;
  std::map<std::string, size_t, std::less<>> shard_of_;
};

struct SafetensorsTensor {
  std::string name;
  Tensor values;      // f32; written as `dtype`
  std::vector<int64_t> shape;
};
// Writes `<stem>.safetensors`, or numbered shards and an index where the data exceed max_shard_bytes.
void WriteSafetensors(const std::string& directory, const std::string& stem, const std::vector<SafetensorsTensor>& tensors,
                      DType dtype, int64_t max_shard_bytes);

}  // namespace longspan
