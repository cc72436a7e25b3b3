// Safetensors: reading by name from a mapping, and writing in order. Format: huggingface/safetensors README.
//
// A file is the length of its header (8 bytes, little-endian), the header (JSON: name → dtype, shape, range
// of bytes) and the data, with neither holes nor overlaps.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/tensor.h"

namespace longspan {

// One file. Opening checks the whole header against the file: size, JSON, duplicate names, dtypes, shapes ×
// size = range, ranges in bounds, no overlap, no hole; each error names the file and the tensor.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  struct Entry {
    std::string dtype;  // "F32", "BF16", "F16", "F64", …
    std::vector<int64_t> shape;
    int64_t begin = 0, end = 0;  // bytes, from the start of the data
  };
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  // The strings under `__metadata__`.
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }
  bool Has(std::string_view name) const { return entries_.contains(name); }
  // Throws Error unless the tensor is there, has this shape, and is F64, F32, BF16 or F16.
  void Check(std::string_view name, std::span<const int64_t> shape) const;
  // Converts to f32 into `out`, whose shape must be the tensor's: Check, then read.
  void ReadFloat32(std::string_view name, Tensor out) const;

 private:
  void CheckRanges(int64_t data_size) const;

  std::string path_;
  MappedFile file_;
  size_t data_offset_ = 0;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

// The tensors of `<stem>.safetensors`, or of the shards that `<stem>.safetensors.index.json` names. The stem
// of a Hugging Face model directory is "model". A name that is not stored may be an alias of one that is
// (tied weights:
// `__metadata__` has name → stored name).
class SafetensorsDirectory {
 public:
  SafetensorsDirectory(const std::string& directory, const std::string& stem);

  bool Has(std::string_view name) const;
  const std::vector<int64_t>& Shape(std::string_view name) const;
  void Check(std::string_view name, std::span<const int64_t> shape) const;
  void ReadFloat32(std::string_view name, Tensor out) const;
  std::vector<std::string> Names() const;  // of what is stored, sorted; aliases are not among them

 private:
  // Where a tensor is, under which name; no shard: nowhere.
  struct Place {
    const SafetensorsReader* shard = nullptr;
    std::string_view name;
  };
  Place Find(std::string_view name) const;
  Place MustFind(std::string_view name) const;
  void OpenShards(const std::string& index_path);

  std::string directory_, stem_;
  std::vector<SafetensorsReader> shards_;
  std::map<std::string, size_t, std::less<>> shard_of_;
};

struct SafetensorsTensor {
  std::string name;
  Tensor values;  // f32; written as `dtype`
  std::vector<int64_t> shape;
};
// Writes `<stem>.safetensors`, or numbered shards and an index where the data exceed max_shard_bytes (a
// larger tensor is a shard of its own), with the tensors in the order given; `dtype` is float32 or bfloat16.
// The files must not exist. All are synced to the disk; the directory isn't. Throws Error(kResource).
void WriteSafetensors(const std::string& directory, const std::string& stem,
                      const std::vector<SafetensorsTensor>& tensors, DType dtype, int64_t max_shard_bytes);

}  // namespace longspan
