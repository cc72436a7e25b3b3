#include "model/generation_config.h"

#include "core/check.h"
#include "core/file.h"
#include "data/json.h"
#include "data/json_file.h"

namespace longspan {

std::vector<int32_t> EosTokens(const std::string& model_directory, int64_t vocab_size) {
  for (const char* name : {"/generation_config.json", "/config.json"}) {
    const std::string path = model_directory + name;
    if (!Exists(path)) continue;
    const nlohmann::json json = ReadJsonFile(path);
    if (!json.is_object() || !json.contains("eos_token_id") || json["eos_token_id"].is_null()) continue;
    const nlohmann::json& value = json["eos_token_id"];
    std::vector<int32_t> ids;
    for (const nlohmann::json& id : value.is_array() ? value : nlohmann::json::array({value})) {
      Require(id.is_number_integer() && id >= 0 && id < vocab_size,
              "{}: eos_token_id is {}; ids from 0 to {} are wanted", path, Quoted(value), vocab_size - 1);
      ids.push_back(id.get<int32_t>());
    }
    return ids;
  }
  return {};
}

}  // namespace longspan
