#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

#include "core/check.h"
#include "data/json.h"
#include "train/safetensors.h"

namespace longspan {
namespace {

constexpr int64_t kChunkElements = 1 << 18;  // what is converted and handed to the system at once
constexpr size_t kHeaderAlignment = 8;       // so that data of any dtype are aligned in a mapping

void WriteValues(FileWriter& file, Tensor values, DType dtype, std::vector<BFloat16>& chunk) {
  const float* from = values.data<float>();
  for (int64_t begin = 0; begin < values.num_elements(); begin += kChunkElements) {
    const int64_t n = std::min(kChunkElements, values.num_elements() - begin);
    if (dtype == DType::kFloat32) {
      file.Write(from + begin, static_cast<size_t>(n) * sizeof(float));
      continue;
    }
    chunk.resize(static_cast<size_t>(n));
    std::transform(from + begin, from + begin + n, chunk.begin(), [](float x) { return BFloat16(x); });
    file.Write(chunk.data(), chunk.size() * sizeof(BFloat16));
  }
}

void WriteFile(const std::string& path, std::span<const SafetensorsTensor> tensors, DType dtype) {
  nlohmann::ordered_json header;
  header["__metadata__"]["format"] = "pt";
  int64_t begin = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const int64_t end = begin + tensor.values.num_elements() * SizeOf(dtype);
    header[tensor.name] = {{"dtype", dtype == DType::kFloat32 ? "F32" : "BF16"},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');

  FileWriter file(path);
  const uint64_t size = text.size();
  file.Write(&size, sizeof(size));
  file.Write(text.data(), text.size());
  std::vector<BFloat16> chunk;
  for (const SafetensorsTensor& tensor : tensors) WriteValues(file, tensor.values, dtype, chunk);
  file.Finish();
}

void WriteText(const std::string& path, const std::string& text) {
  FileWriter file(path);
  file.Write(text.data(), text.size());
  file.Finish();
}

}  // namespace

void WriteSafetensors(const std::string& directory, const std::string& stem,
                      const std::vector<SafetensorsTensor>& tensors, DType dtype, int64_t max_shard_bytes) {
  CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16);
  CHECK(max_shard_bytes > 0);
  std::vector<size_t> shard_ends;  // indices into `tensors`
  int64_t total_bytes = 0, shard_bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SafetensorsTensor& tensor = tensors[i];
    CHECK(std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>()) ==
          tensor.values.num_elements());
    const int64_t bytes = tensor.values.num_elements() * SizeOf(dtype);
    if (shard_bytes > 0 && bytes > max_shard_bytes - shard_bytes) {
      shard_ends.push_back(i);
      shard_bytes = 0;
    }
    shard_bytes += bytes;
    total_bytes += bytes;
  }
  shard_ends.push_back(tensors.size());
  if (shard_ends.size() == 1)
    return WriteFile(fmt::format("{}/{}.safetensors", directory, stem), tensors, dtype);

  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total_bytes;
  size_t begin = 0;
  for (size_t shard = 0; shard < shard_ends.size(); ++shard) {
    const size_t end = shard_ends[shard];
    const std::string name = fmt::format("{}-{:05}-of-{:05}.safetensors", stem, shard + 1, shard_ends.size());
    WriteFile(fmt::format("{}/{}", directory, name), std::span(tensors).subspan(begin, end - begin), dtype);
    for (; begin < end; ++begin) index["weight_map"][tensors[begin].name] = name;
  }
  WriteText(fmt::format("{}/{}.safetensors.index.json", directory, stem), index.dump(2) + "\n");
}

}  // namespace longspan
