#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "core/check.h"
#include "data/json.h"
#include "train/safetensors.h"

namespace longspan {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;  // what is converted and handed to the system at once
constexpr size_t kHeaderAlignment = 8;    // so that data of any type are aligned in a mapping

void WriteElements(FileWriter& file, const SafetensorsSource& tensor, std::vector<std::byte>& chunk) {
  const int64_t size = tensor.type->bytes, num_elements = tensor.num_elements();
  for (int64_t first = 0; first < num_elements; first += kChunkBytes / size) {
    chunk.resize(static_cast<size_t>(std::min(kChunkBytes / size, num_elements - first) * size));
    tensor.read(first, chunk);
    file.Write(chunk.data(), chunk.size());
  }
}

void WriteFile(const std::string& path, std::span<const SafetensorsSource> tensors,
               const SafetensorsDirectory::Texts& metadata) {
  nlohmann::json strings = {{"format", "pt"}};
  for (const auto& [key, text] : metadata) strings[key] = text;
  int64_t begin = 0;
  std::string entries;
  for (const SafetensorsSource& tensor : tensors) {
    for (const std::string& alias : tensor.aliases) strings[alias] = tensor.name;
    const int64_t end = begin + tensor.num_bytes();
    const nlohmann::ordered_json entry = {
        {"dtype", tensor.type->name}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    entries += fmt::format(",{}:{}", nlohmann::json(tensor.name).dump(), entry.dump());
    begin = end;
  }
  std::string text = fmt::format("{{\"__metadata__\":{}{}}}", strings.dump(), entries);
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');

  FileWriter file(path);
  const uint64_t size = text.size();
  file.Write(&size, sizeof(size));
  file.Write(text.data(), text.size());
  std::vector<std::byte> chunk;
  for (const SafetensorsSource& tensor : tensors) WriteElements(file, tensor, chunk);
  file.Finish();
}

}  // namespace

int64_t SafetensorsSource::num_elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

void WriteSafetensors(const std::string& directory, const std::string& stem,
                      std::span<const SafetensorsSource> tensors, const SafetensorsDirectory::Texts& metadata,
                      int64_t max_shard_bytes) {
  CHECK(max_shard_bytes > 0);
  std::vector<size_t> shard_ends;  // indices into `tensors`
  int64_t total_bytes = 0, shard_bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t bytes = tensors[i].num_bytes();
    if (shard_bytes > 0 && bytes > max_shard_bytes - shard_bytes) {
      shard_ends.push_back(i);
      shard_bytes = 0;
    }
    shard_bytes += bytes;
    total_bytes += bytes;
  }
  shard_ends.push_back(tensors.size());
  if (shard_ends.size() == 1)
    return WriteFile(fmt::format("{}/{}.safetensors", directory, stem), tensors, metadata);

  nlohmann::json index;
  index["metadata"]["total_size"] = total_bytes;
  size_t begin = 0;
  for (size_t shard = 0; shard < shard_ends.size(); ++shard) {
    const size_t end = shard_ends[shard];
    const std::string name = fmt::format("{}-{:05}-of-{:05}.safetensors", stem, shard + 1, shard_ends.size());
    WriteFile(fmt::format("{}/{}", directory, name), tensors.subspan(begin, end - begin), metadata);
    for (; begin < end; ++begin) index["weight_map"][tensors[begin].name] = name;
  }
  WriteNewFile(fmt::format("{}/{}.safetensors.index.json", directory, stem), index.dump(2) + "\n");
}

}  // namespace longspan
