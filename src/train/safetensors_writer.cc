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

// The head of a file of these tensors. Sets where the data of each lies in it.
std::string MakeHead(std::span<const SafetensorsSource> tensors, const SafetensorsDirectory::Texts& metadata,
                     std::span<int64_t> offsets) {
  nlohmann::json strings = {{"format", "pt"}};
  for (const auto& [key, text] : metadata) strings[key] = text;
  int64_t begin = 0;
  std::string entries;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SafetensorsSource& tensor = tensors[i];
    for (const std::string& alias : tensor.aliases) strings[alias] = tensor.name;
    const int64_t end = begin + tensor.num_bytes();
    const nlohmann::ordered_json entry = {
        {"dtype", tensor.type->name}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    entries += fmt::format(",{}:{}", nlohmann::json(tensor.name).dump(), entry.dump());
    offsets[i] = begin;
    begin = end;
  }
  std::string text = fmt::format("{{\"__metadata__\":{}{}}}", strings.dump(), entries);
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  const uint64_t size = text.size();
  std::string head(reinterpret_cast<const char*>(&size), sizeof(size));
  head += text;
  for (int64_t& offset : offsets) offset += std::ssize(head);
  return head;
}

}  // namespace

int64_t SafetensorsSource::num_elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

SafetensorsLayout LayOutSafetensors(const std::string& stem, std::span<const SafetensorsSource> tensors,
                                    const SafetensorsDirectory::Texts& metadata, int64_t max_shard_bytes) {
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

  SafetensorsLayout layout;
  layout.offsets.resize(tensors.size());
  nlohmann::json index;
  index["metadata"]["total_size"] = total_bytes;
  size_t begin = 0;
  for (const size_t end : shard_ends) {
    SafetensorsLayout::File& file = layout.files.emplace_back();
    file.name = shard_ends.size() == 1 ? fmt::format("{}.safetensors", stem)
                                       : fmt::format("{}-{:05}-of-{:05}.safetensors", stem,
                                                     layout.files.size(), shard_ends.size());
    file.begin = begin;
    file.end = end;
    file.head = MakeHead(tensors.subspan(begin, end - begin), metadata,
                         std::span(layout.offsets).subspan(begin, end - begin));
    file.num_bytes = std::ssize(file.head);
    for (; begin < end; ++begin) {
      file.num_bytes += tensors[begin].num_bytes();
      index["weight_map"][tensors[begin].name] = file.name;
    }
  }
  if (layout.files.size() > 1) {
    layout.index_name = fmt::format("{}.safetensors.index.json", stem);
    layout.index_json = index.dump(2) + "\n";
  }
  return layout;
}

void WriteSafetensors(const std::string& directory, const std::string& stem,
                      std::span<const SafetensorsSource> tensors, const SafetensorsDirectory::Texts& metadata,
                      int64_t max_shard_bytes) {
  const SafetensorsLayout layout = LayOutSafetensors(stem, tensors, metadata, max_shard_bytes);
  std::vector<std::byte> chunk;
  for (const SafetensorsLayout::File& file : layout.files) {
    FileWriter writer(fmt::format("{}/{}", directory, file.name));
    writer.Write(file.head.data(), file.head.size());
    for (size_t i = file.begin; i < file.end; ++i) WriteElements(writer, tensors[i], chunk);
    writer.Finish();
  }
  if (!layout.index_name.empty())
    WriteNewFile(fmt::format("{}/{}", directory, layout.index_name), layout.index_json);
}

}  // namespace longspan
