#include "train/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "data/json.h"
#include "data/json_file.h"

namespace longspan {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors are little-endian, and are read in place");

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation

bool IsWhole(const json& value) {
  return value.is_number_unsigned() &&
         value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

bool AreWhole(const json& list) { return list.is_array() && std::all_of(list.begin(), list.end(), IsWhole); }

// One entry of the header; `where` names file and tensor.
SafetensorsReader::Entry ParseEntry(const json& value, const std::string& where) {
  Require(value.is_object() && value.contains("dtype") && value.contains("shape") &&
              value.contains("data_offsets"),
          "{}: the header's entry is no object with dtype, shape and data_offsets", where);
  const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  Require(dtype.is_string(), "{}: dtype is no string", where);
  Require(AreWhole(shape), "{}: shape is no list of whole numbers", where);
  Require(AreWhole(offsets) && offsets.size() == 2, "{}: data_offsets is no range of bytes [begin, end]",
          where);

  SafetensorsReader::Entry entry;
  entry.type = FindElementType(dtype.get_ref<const std::string&>());
  entry.shape = shape.get<std::vector<int64_t>>();
  entry.begin = offsets[0].get<int64_t>();
  entry.end = offsets[1].get<int64_t>();
  Require(entry.type != nullptr, "{}: unknown dtype {}", where, Quoted(dtype));
  int64_t bytes = entry.type->bytes;
  bool overflow = false;
  // Zeros first: they make a product of any other sizes fit.
  if (std::count(entry.shape.begin(), entry.shape.end(), 0) > 0) bytes = 0;
  for (const int64_t size : entry.shape) overflow = __builtin_mul_overflow(bytes, size, &bytes) || overflow;
  Require(!overflow, "{}: shape ({}) is larger than any file", where, fmt::join(entry.shape, ", "));
  Require(bytes == entry.end - entry.begin,
          "{}: shape ({}) of {} takes {} bytes, but data_offsets give it {}", where,
          fmt::join(entry.shape, ", "), entry.type->name, bytes, entry.end - entry.begin);
  return entry;
}

std::string SingleFile(const std::string& directory, const std::string& stem) {
  return fmt::format("{}/{}.safetensors", directory, stem);
}

std::string IndexFile(const std::string& directory, const std::string& stem) {
  return SingleFile(directory, stem) + ".index.json";
}

constexpr size_t kReadElements = 1 << 20;  // whose pages are mapped at once

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path), file_(path) {
  const std::string_view all = file_.text();
  uint64_t header_size = 0;
  Require(all.size() >= sizeof(header_size), "{}: no safetensors file, or truncated: it has {} bytes", path,
          all.size());
  std::memcpy(&header_size, all.data(), sizeof(header_size));
  Require(header_size <= kMaxHeaderBytes,
          "{}: no safetensors file: its header would have {} bytes, and {} is the most that is allowed", path,
          header_size, kMaxHeaderBytes);
  Require(header_size <= all.size() - sizeof(header_size),
          "{}: truncated: its header has {} bytes, but the file only {}", path, header_size, all.size());
  data_offset_ = sizeof(header_size) + static_cast<size_t>(header_size);

  const std::string_view header = all.substr(sizeof(header_size), static_cast<size_t>(header_size));
  Require(header.starts_with('{'), "{}: no safetensors file: its header does not begin with '{{'", path);
  const json parsed = ParseJson(header, path + ": header");
  for (const auto& [name, value] : parsed.items()) {
    if (name != "__metadata__") {
      entries_.emplace(name, ParseEntry(value, fmt::format("{}: tensor '{}'", path, name)));
      continue;
    }
    Require(value.is_object(), "{}: __metadata__ is no object", path);
    for (const auto& [key, text] : value.items()) {
      Require(text.is_string(), "{}: __metadata__ '{}' is no string", path, key);
      metadata_.emplace(key, text.get<std::string>());
    }
  }
  CheckRanges(static_cast<int64_t>(all.size() - data_offset_));
}

void SafetensorsReader::CheckRanges(int64_t data_size) const {
  using Named = std::map<std::string, Entry, std::less<>>::const_pointer;
  std::vector<Named> by_range;
  for (const auto& entry : entries_) by_range.push_back(&entry);
  std::sort(by_range.begin(), by_range.end(), [](Named a, Named b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  int64_t end = 0;
  for (const Named named : by_range) {
    const auto& [name, entry] = *named;
    Require(entry.begin == end,
            "{}: tensor '{}' begins at byte {} of the data, {} the end {} of the one before", path_, name,
            entry.begin, entry.begin < end ? "before" : "with a hole after", end);
    Require(entry.end <= data_size,
            "{}: truncated: tensor '{}' ends at byte {} of the data, but there are only {}", path_, name,
            entry.end, data_size);
    end = entry.end;
  }
  Require(end == data_size, "{}: the tensors end at byte {} of the data, but there are {}", path_, end,
          data_size);
}

const SafetensorsReader::Entry& SafetensorsReader::At(std::string_view name) const {
  const auto it = entries_.find(name);
  Require(it != entries_.end(), "{}: there is no tensor '{}'", path_, name);
  return it->second;
}

void SafetensorsReader::CheckFloat(std::string_view name, const Entry& entry) const {
  Require(entry.type->kind == ElementKind::kFloat,
          "{}: tensor '{}' is {}, but F32, BF16, F16, F64, F8_E4M3 or F8_E5M2 is wanted", path_, name,
          entry.type->name);
}

void SafetensorsReader::Check(std::string_view name, std::span<const int64_t> shape) const {
  const Entry& entry = At(name);
  Require(std::equal(shape.begin(), shape.end(), entry.shape.begin(), entry.shape.end()),
          "{}: tensor '{}' has shape ({}), but ({}) is wanted", path_, name, fmt::join(entry.shape, ", "),
          fmt::join(shape, ", "));
  CheckFloat(name, entry);
}

std::span<const std::byte> SafetensorsReader::Elements(const Entry& entry, int64_t first, int64_t n) const {
  CHECK(first >= 0 && n >= 0 && n <= entry.num_elements() - first);
  const auto begin = static_cast<size_t>(entry.begin + first * entry.type->bytes);
  return file_.bytes().subspan(data_offset_ + begin, static_cast<size_t>(n * entry.type->bytes));
}

void SafetensorsReader::ReadFloat32(std::string_view name, int64_t first, std::span<float> out) const {
  const Entry& entry = At(name);
  CheckFloat(name, entry);
  while (!out.empty()) {
    const std::span<float> now = out.first(std::min(kReadElements, out.size()));
    const std::span<const std::byte> stored = Elements(entry, first, static_cast<int64_t>(now.size()));
    ToFloat32(*entry.type, stored.data(), now);
    file_.Unload(stored);
    first += static_cast<int64_t>(now.size());
    out = out.subspan(now.size());
  }
}

void SafetensorsReader::ReadStored(std::string_view name, int64_t first, std::span<std::byte> out) const {
  const Entry& entry = At(name);
  const int64_t n = static_cast<int64_t>(out.size()) / entry.type->bytes;
  const std::span<const std::byte> stored = Elements(entry, first, n);
  std::copy(stored.begin(), stored.end(), out.begin());
  file_.Unload(stored);
}

void SafetensorsReader::ReadFloat32(std::string_view name, Tensor out) const {
  Check(name, out.shape());
  ReadFloat32(name, 0, {out.data<float>(), static_cast<size_t>(out.num_elements())});
}

SafetensorsDirectory::SafetensorsDirectory(const std::string& directory, const std::string& stem)
    : directory_(directory), stem_(stem) {
  const std::string single = SingleFile(directory, stem), index = IndexFile(directory, stem);
  if (Exists(single)) {
    Require(!shards_.emplace_back(single).entries().empty(), "{}: there are no tensors in it", single);
  } else {
    Require(Exists(index), "{}: there is neither {}.safetensors nor {}.safetensors.index.json", directory,
            stem, stem);
    OpenShards(index);
  }
  for (size_t i = 0; i < shards_.size(); ++i)
    for (const auto& [name, entry] : shards_[i].entries())
      Require(shard_of_.emplace(name, i).second, "{}: tensor '{}' is in two shards of {}", directory, name,
              stem);
}

void SafetensorsDirectory::OpenShards(const std::string& index_path) {
  const json index = ReadJsonFile(index_path);
  Require(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
          "{}: there is no object \"weight_map\"", index_path);
  Require(!index["weight_map"].empty(), "{}: there are no tensors in its \"weight_map\"", index_path);
  std::map<std::string, std::vector<std::string>> names_of_file;
  for (const auto& [name, value] : index["weight_map"].items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    Require(!file.empty() && file != "." && file != ".." && file.find('/') == file.npos &&
                file.find('\0') == file.npos,
            "{}: the file of tensor '{}' is {}; a name without a folder is wanted", index_path, name,
            Quoted(value));
    names_of_file[file].push_back(name);
  }
  for (const auto& [file, names] : names_of_file) {
    const std::string path = fmt::format("{}/{}", directory_, file);
    Require(Exists(path), "{}: the shard {} of tensor '{}' is missing", index_path, path, names.front());
    const SafetensorsReader& shard = shards_.emplace_back(path);
    for (const std::string& name : names)
      Require(shard.Has(name), "{}: tensor '{}' should be in {} but is not", index_path, name, path);
  }
}

SafetensorsDirectory::Place SafetensorsDirectory::Find(std::string_view name) const {
  if (const auto it = shard_of_.find(name); it != shard_of_.end()) return {&shards_[it->second], it->first};
  for (const SafetensorsReader& shard : shards_) {
    const auto alias = shard.metadata().find(name);
    if (alias != shard.metadata().end() && shard.Has(alias->second)) return {&shard, alias->second};
  }
  return {};
}

SafetensorsDirectory::Place SafetensorsDirectory::MustFind(std::string_view name) const {
  const Place place = Find(name);
  Require(place.shard != nullptr, "{}: there is no tensor '{}' in {}.safetensors or its shards", directory_,
          name, stem_);
  return place;
}

bool SafetensorsDirectory::Has(std::string_view name) const { return Find(name).shard != nullptr; }

const SafetensorsReader::Entry& SafetensorsDirectory::At(std::string_view name) const {
  const Place place = MustFind(name);
  return place.shard->entries().find(place.name)->second;
}

void SafetensorsDirectory::Check(std::string_view name, std::span<const int64_t> shape) const {
  const Place place = MustFind(name);
  place.shard->Check(place.name, shape);
}

void SafetensorsDirectory::ReadFloat32(std::string_view name, Tensor out) const {
  const Place place = MustFind(name);
  place.shard->ReadFloat32(place.name, out);
}

void SafetensorsDirectory::ReadFloat32(std::string_view name, int64_t first, std::span<float> out) const {
  const Place place = MustFind(name);
  place.shard->ReadFloat32(place.name, first, out);
}

void SafetensorsDirectory::ReadStored(std::string_view name, int64_t first, std::span<std::byte> out) const {
  const Place place = MustFind(name);
  place.shard->ReadStored(place.name, first, out);
}

std::vector<std::string> SafetensorsDirectory::Names() const {
  std::vector<std::string> names;
  for (const SafetensorsReader& shard : shards_) {
    std::vector<std::pair<int64_t, std::string>> by_place;
    for (const auto& [name, entry] : shard.entries()) by_place.emplace_back(entry.begin, name);
    std::sort(by_place.begin(), by_place.end());
    for (auto& [begin, name] : by_place) names.push_back(std::move(name));
  }
  return names;
}

SafetensorsDirectory::Texts SafetensorsDirectory::Aliases() const {
  Texts aliases;
  for (const SafetensorsReader& shard : shards_)
    for (const auto& [key, text] : shard.metadata())
      if (shard.Has(text) && !shard_of_.contains(key)) aliases.emplace(key, text);
  return aliases;
}

SafetensorsDirectory::Texts SafetensorsDirectory::Metadata() const {
  const Texts aliases = Aliases();
  Texts metadata;
  for (const SafetensorsReader& shard : shards_)
    for (const auto& [key, text] : shard.metadata())
      if (!aliases.contains(key)) metadata.emplace(key, text);
  return metadata;
}

bool SafetensorsDirectory::IsIn(const std::string& directory, const std::string& stem) {
  return Exists(SingleFile(directory, stem)) || Exists(IndexFile(directory, stem));
}

}  // namespace longspan
