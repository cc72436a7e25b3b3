// A JSON object whose every field must be known: what is not read is refused, never ignored.
#pragma once

#include <set>
#include <string>

#include "core/check.h"
#include "data/json.h"

namespace longspan {

// Each error begins with `where` and names the field. Of a field that may be missing, null is the same as
// nothing.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {
    Require(object.is_object(), "{} is {}; an object is wanted", where_, Quoted(object));
  }

  const std::string& where() const { return where_; }
  std::string Path(const std::string& key) const { return where_ + "." + key; }

  // The field, or a null pointer.
  const nlohmann::json* Find(const std::string& key) {
    known_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  const nlohmann::json& Get(const std::string& key) {
    const nlohmann::json* value = Find(key);
    Require(value != nullptr, "{} has no \"{}\"", where_, key);
    return *value;
  }
  const nlohmann::json& List(const std::string& key) {
    const nlohmann::json& value = Get(key);
    Require(value.is_array(), "{} is {}; a list is wanted", Path(key), Quoted(value));
    return value;
  }

  std::string String(const std::string& key) {
    const nlohmann::json& value = Get(key);
    Require(value.is_string(), "{} is {}; a string is wanted", Path(key), Quoted(value));
    return value.get<std::string>();
  }
  std::string String(const std::string& key, const std::string& missing) {
    return Find(key) == nullptr ? missing : String(key);
  }
  bool Bool(const std::string& key) {
    const nlohmann::json& value = Get(key);
    Require(value.is_boolean(), "{} is {}; true or false is wanted", Path(key), Quoted(value));
    return value.get<bool>();
  }
  bool Bool(const std::string& key, bool missing) { return Find(key) == nullptr ? missing : Bool(key); }
  int64_t Integer(const std::string& key, int64_t below) {  // in [0, below)
    return CheckedInteger(Get(key), below, Path(key));
  }

  static int64_t CheckedInteger(const nlohmann::json& value, int64_t below, const std::string& where) {
    Require(value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(below),
            "{} is {}; an integer from 0 to {} is wanted", where, Quoted(value), below - 1);
    return value.get<int64_t>();
  }

  // Knows the field, whatever it is: it changes no ids.
  void Skip(const std::string& key) { known_.insert(key); }
  // Throws Error for the first field that was not asked for.
  void Finish() const {
    for (const auto& [key, value] : object_.items())
      Require(known_.contains(key), "{}.{} is not known, so what it changes is not implemented", where_, key);
  }

 private:
  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string> known_;
};

}  // namespace longspan
