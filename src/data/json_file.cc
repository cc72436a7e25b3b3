#include "data/json_file.h"

#include "core/check.h"
#include "core/file.h"
#include "data/json.h"

namespace longspan {
namespace {

constexpr size_t kMostBytes = 100'000'000;  // as of a safetensors header

}  // namespace

nlohmann::json ReadJsonFile(const std::string& path) {
  const MappedFile file(path);
  Require(file.text().size() <= kMostBytes, "{}: it has {} bytes; {} are the most that such a file has", path,
          file.text().size(), kMostBytes);
  return ParseJson(file.text(), path);
}

}  // namespace longspan
