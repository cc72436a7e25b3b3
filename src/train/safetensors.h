// Safetensors: reading by name from a mapping, and writing in order. Format: huggingface/safetensors README.
//
// A file is the length of its header (8 bytes, little-endian), the header (JSON: name → dtype, shape, range
// of bytes) and the data, with neither holes nor overlaps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/tensor.h"
#include "train/safetensors_types.h"

namespace longspan {

// One file. Opening checks the whole header against the file: size, JSON, duplicate names, dtypes, shapes ×
// size = range, ranges in bounds, no overlap, no hole; each error names the file and the tensor.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  struct Entry {
    const ElementType* type = nullptr;
    std::vector<int64_t> shape;
    int64_t begin = 0, end = 0;  // bytes, from the start of the data
    int64_t num_elements() const { return (end - begin) / type->bytes; }
  };
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  // The strings under `__metadata__`.
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }
  bool Has(std::string_view name) const { return entries_.contains(name); }
  // Throws Error unless the tensor is there, has this shape, and is of floats.
  void Check(std::string_view name, std::span<const int64_t> shape) const;
  // Converts to f32 into `out`, whose shape must be the tensor's: Check, then read.
  void ReadFloat32(std::string_view name, Tensor out) const;
  // Its elements [first, first + out.size()), in row-major order, of whose file only some pages are mapped at
  // once; throws Error unless it is of floats.
  void ReadFloat32(std::string_view name, int64_t first, std::span<float> out) const;
  // As many elements from `first` on as `out` has room for, as they are stored.
  void ReadStored(std::string_view name, int64_t first, std::span<std::byte> out) const;

 private:
  void CheckRanges(int64_t data_size) const;
  const Entry& At(std::string_view name) const;
  void CheckFloat(std::string_view name, const Entry& entry) const;
  // The bytes of n elements, in the mapping.
  std::span<const std::byte> Elements(const Entry& entry, int64_t first, int64_t n) const;

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
  using Texts = std::map<std::string, std::string, std::less<>>;

  SafetensorsDirectory(const std::string& directory, const std::string& stem);
  // Whether it has files of this stem at all.
  static bool IsIn(const std::string& directory, const std::string& stem);

  bool Has(std::string_view name) const;
  const std::vector<int64_t>& Shape(std::string_view name) const { return At(name).shape; }
  const SafetensorsReader::Entry& At(std::string_view name) const;
  // As those of a reader.
  void Check(std::string_view name, std::span<const int64_t> shape) const;
  void ReadFloat32(std::string_view name, Tensor out) const;
  void ReadFloat32(std::string_view name, int64_t first, std::span<float> out) const;
  void ReadStored(std::string_view name, int64_t first, std::span<std::byte> out) const;
  // Of what is stored, in the order of files and of the data in them; aliases are not among them.
  std::vector<std::string> Names() const;
  Texts Aliases() const;   // name → stored name
  Texts Metadata() const;  // the files' other `__metadata__`; of a key that files say differently, the first

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

// What is written: a tensor, wherever its elements come from.
struct SafetensorsSource {
  std::string name;
  const ElementType* type = nullptr;  // in the file
  std::vector<int64_t> shape;
  // Puts as many elements from `first` on into `out`, as they are stored, as it has room for; called in
  // order, with a few megabytes at a time.
  std::function<void(int64_t first, std::span<std::byte> out)> read;
  std::vector<std::string> aliases = {};  // other names of it

  int64_t num_elements() const;
  int64_t num_bytes() const { return num_elements() * type->bytes; }
};

// The files that tensors go into, in the order given: `<stem>.safetensors`, or numbered shards and an index
// where the data exceed max_shard_bytes (a larger tensor is a shard of its own). A file is its head, and then
// the data of its tensors one after the other.
struct SafetensorsLayout {
  struct File {
    std::string name;
    std::string head;           // the header, and its length before it
    size_t begin = 0, end = 0;  // the tensors in it
    int64_t num_bytes = 0;      // of all of it
  };
  std::vector<File> files;
  std::vector<int64_t> offsets;        // of each tensor's data in its file
  std::string index_name, index_json;  // empty: there is one file
};
// Nothing is read. `metadata` goes into each file, with {"format": "pt"} unless it says another.
SafetensorsLayout LayOutSafetensors(const std::string& stem, std::span<const SafetensorsSource> tensors,
                                    const SafetensorsDirectory::Texts& metadata, int64_t max_shard_bytes);
// Writes the files of that layout, which must not exist. All are synced to the disk; the directory isn't.
// Throws Error(kResource).
void WriteSafetensors(const std::string& directory, const std::string& stem,
                      std::span<const SafetensorsSource> tensors, const SafetensorsDirectory::Texts& metadata,
                      int64_t max_shard_bytes);

}  // namespace longspan
