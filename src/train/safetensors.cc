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

namespace longspan {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors are little-endian, and are read in place");

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation

struct StoredType {
  std::string_view name;
  int64_t bytes;
};
constexpr StoredType kStoredTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U16", 2}, {"I16", 2}, {"F16", 2},
    {"BF16", 2}, {"U32", 4}, {"I32", 4}, {"F32", 4},     {"U64", 8},     {"I64", 8}, {"F64", 8}, {"C64", 8}};

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
  entry.dtype = dtype.get<std::string>();
  entry.shape = shape.get<std::vector<int64_t>>();
  entry.begin = offsets[0].get<int64_t>();
  entry.end = offsets[1].get<int64_t>();
  const auto type = std::find_if(std::begin(kStoredTypes), std::end(kStoredTypes),
                                 [&](const StoredType& t) { return t.name == entry.dtype; });
  Require(type != std::end(kStoredTypes), "{}: unknown dtype {}", where, Quoted(dtype));
  int64_t bytes = type->bytes;
  bool overflow = false;
  // Zeros first: they make a product of any other sizes fit.
  if (std::count(entry.shape.begin(), entry.shape.end(), 0) > 0) bytes = 0;
  for (const int64_t size : entry.shape) overflow = __builtin_mul_overflow(bytes, size, &bytes) || overflow;
  Require(!overflow, "{}: shape ({}) is larger than any file", where, fmt::join(entry.shape, ", "));
  Require(bytes == entry.end - entry.begin,
          "{}: shape ({}) of {} takes {} bytes, but data_offsets give it {}", where,
          fmt::join(entry.shape, ", "), entry.dtype, bytes, entry.end - entry.begin);
  return entry;
}

float FromHalf(uint16_t half) {
  // A float's exponent and mantissa, 13 bits further left, are off by 2^112: the biases are 127 and 15.
  // Multiplying mends normal and subnormal numbers alike, exactly.
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  const bool finite = (half & 0x7c00u) != 0x7c00u;
  const uint32_t bits =
      finite ? std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f) : magnitude | 0x7f800000u;
  return std::bit_cast<float>(sign | bits);
}

// n elements of Stored, wherever they lie, through `convert` to floats.
template <class Stored, class Convert>
void ConvertAll(const std::byte* from, int64_t n, float* to, Convert convert) {
  for (int64_t i = 0; i < n; ++i) {
    Stored stored;
    std::memcpy(&stored, from + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
    to[i] = convert(stored);
  }
}

bool IsReadable(std::string_view dtype) {
  return dtype == "F64" || dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

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

void SafetensorsReader::Check(std::string_view name, std::span<const int64_t> shape) const {
  const auto it = entries_.find(name);
  Require(it != entries_.end(), "{}: there is no tensor '{}'", path_, name);
  const Entry& entry = it->second;
  Require(std::equal(shape.begin(), shape.end(), entry.shape.begin(), entry.shape.end()),
          "{}: tensor '{}' has shape ({}), but ({}) is wanted", path_, name, fmt::join(entry.shape, ", "),
          fmt::join(shape, ", "));
  Require(IsReadable(entry.dtype), "{}: tensor '{}' is {}, but F32, BF16, F16 or F64 is wanted", path_, name,
          entry.dtype);
}

void SafetensorsReader::ReadFloat32(std::string_view name, Tensor out) const {
  Check(name, out.shape());
  const Entry& entry = entries_.find(name)->second;
  const std::byte* from = file_.bytes().data() + data_offset_ + entry.begin;
  float* to = out.data<float>();
  const int64_t n = out.num_elements();
  if (entry.dtype == "F32") {
    if (n > 0) std::memcpy(to, from, static_cast<size_t>(out.num_bytes()));
  } else if (entry.dtype == "F64") {
    ConvertAll<double>(from, n, to, [](double x) { return static_cast<float>(x); });
  } else if (entry.dtype == "BF16") {
    ConvertAll<BFloat16>(from, n, to, [](BFloat16 x) { return static_cast<float>(x); });
  } else {
    ConvertAll<uint16_t>(from, n, to, FromHalf);
  }
}

SafetensorsDirectory::SafetensorsDirectory(const std::string& directory, const std::string& stem)
    : directory_(directory), stem_(stem) {
  const std::string single = fmt::format("{}/{}.safetensors", directory, stem);
  const std::string index = single + ".index.json";
  if (Exists(single)) {
    shards_.emplace_back(single);
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
  const json index = ParseJson(ReadTextFile(index_path), index_path);
  Require(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
          "{}: there is no object \"weight_map\"", index_path);
  std::map<std::string, size_t> shard_of_file;
  for (const auto& [name, file] : index["weight_map"].items()) {
    Require(file.is_string() && file.get_ref<const std::string&>().find('/') == std::string::npos,
            "{}: the file of tensor '{}' is {}; a name without a folder is wanted", index_path, name,
            Quoted(file));
    const std::string path = fmt::format("{}/{}", directory_, file.get_ref<const std::string&>());
    const auto [shard, is_new] = shard_of_file.emplace(path, shards_.size());
    if (is_new) {
      Require(Exists(path), "{}: the shard {} is missing", index_path, path);
      shards_.emplace_back(path);
    }
    Require(shards_[shard->second].Has(name), "{}: tensor '{}' should be in {} but is not", index_path, name,
            path);
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

const std::vector<int64_t>& SafetensorsDirectory::Shape(std::string_view name) const {
  const Place place = MustFind(name);
  return place.shard->entries().find(place.name)->second.shape;
}

void SafetensorsDirectory::Check(std::string_view name, std::span<const int64_t> shape) const {
  const Place place = MustFind(name);
  place.shard->Check(place.name, shape);
}

void SafetensorsDirectory::ReadFloat32(std::string_view name, Tensor out) const {
  const Place place = MustFind(name);
  place.shard->ReadFloat32(place.name, out);
}

std::vector<std::string> SafetensorsDirectory::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, shard] : shard_of_) names.push_back(name);
  return names;
}

}  // namespace longspan
