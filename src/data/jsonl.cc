#include "data/jsonl.h"

#include "core/check.h"
#include "core/target.h"
#include "data/json.h"

namespace longspan {
namespace {

using nlohmann::json;

bool IsIdBelow(const json& value, int64_t vocab_size) {
  return value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(vocab_size);
}

bool IsNoTarget(const json& value) {
  return value.is_number_integer() && !value.is_number_unsigned() && value.get<int64_t>() == kIgnoreTarget;
}

const json& ListAt(const json& line, const char* key, const std::string& where) {
  const json& list = line.at(key);
  Require(list.is_array(), "{}: \"{}\" is {}; a list is wanted", where, key, Quoted(list));
  return list;
}

// The list at `key`, which must be as long as the ids.
const json& ListBesideIds(const json& line, const char* key, size_t num_ids, const std::string& where) {
  const json& list = ListAt(line, key, where);
  Require(list.size() == num_ids,
          "{}: \"{}\" has {} entries but \"input_ids\" has {}; they must be equally many", where, key,
          list.size(), num_ids);
  return list;
}

std::vector<int32_t> ReadIds(const json& list, int64_t vocab_size, const std::string& where) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const json& id : list) {
    Require(IsIdBelow(id, vocab_size),
            "{}: input_ids[{}] is {}; an integer from 0 to {} is wanted (the model's vocab_size is {})",
            where, ids.size(), Quoted(id), vocab_size - 1, vocab_size);
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::vector<int32_t> ReadLabels(const json& list, int64_t vocab_size, const std::string& where) {
  std::vector<int32_t> labels;
  labels.reserve(list.size());
  for (const json& label : list) {
    Require(IsNoTarget(label) || IsIdBelow(label, vocab_size),
            "{}: labels[{}] is {}; {} (no target) or an integer from 0 to {} is wanted (the model's "
            "vocab_size is {})",
            where, labels.size(), Quoted(label), kIgnoreTarget, vocab_size - 1, vocab_size);
    labels.push_back(label.get<int32_t>());
  }
  return labels;
}

std::vector<int32_t> ReadLossMask(const json& list, const std::vector<int32_t>& ids,
                                  const std::string& where) {
  std::vector<int32_t> labels;
  labels.reserve(ids.size());
  for (const json& flag : list) {
    const size_t i = labels.size();
    const bool counts = flag == true || flag == 1;  // numbers compare by value: 1 and 1.0
    Require(counts || flag == false || flag == 0, "{}: loss_mask[{}] is {}; 0, 1, false or true is wanted",
            where, i, Quoted(flag));
    labels.push_back(counts ? ids[i] : kIgnoreTarget);
  }
  return labels;
}

}  // namespace

JsonlDocument ParseJsonlLine(std::string_view text, int64_t vocab_size, const std::string& where) {
  const json line = ParseJson(text, where);
  Require(line.is_object(), "{}: the line is {}; an object with \"text\" or \"input_ids\" is wanted", where,
          Quoted(line));
  const bool has_ids = line.contains("input_ids");
  const bool has_mask = line.contains("loss_mask"), has_labels = line.contains("labels");
  Require(has_ids != line.contains("text"),
          "{}: the line has {} \"text\" {} \"input_ids\"; one of them is wanted", where,
          has_ids ? "both" : "neither", has_ids ? "and" : "nor");
  Require(!(has_mask && has_labels),
          "{}: the line has both \"loss_mask\" and \"labels\"; at most one is wanted", where);

  JsonlDocument document;
  if (!has_ids) {
    Require(!has_mask && !has_labels, "{}: \"{}\" needs \"input_ids\", but the line has \"text\"", where,
            has_mask ? "loss_mask" : "labels");
    const json& value = line.at("text");
    Require(value.is_string(), "{}: \"text\" is {}; a string is wanted", where, Quoted(value));
    document.text = value.get<std::string>();
    return document;
  }
  document.ids = ReadIds(ListAt(line, "input_ids", where), vocab_size, where);
  if (has_labels)
    document.labels =
        ReadLabels(ListBesideIds(line, "labels", document.ids.size(), where), vocab_size, where);
  if (has_mask)
    document.labels =
        ReadLossMask(ListBesideIds(line, "loss_mask", document.ids.size(), where), document.ids, where);
  return document;
}

}  // namespace longspan
