// Strict JSON: what a person or another program wrote, with an error that says where it is wrong.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/names.h"

namespace longspan {

// Parses one JSON value with nothing after it; Json is nlohmann::json or nlohmann::ordered_json (keys stay in
// order). Throws Error, beginning with `where`, for whatever RFC 8259 refuses (invalid UTF-8 too), for a key
// that an object has twice and for lists and objects more than 128 deep: those the parser alone would let
// pass, but whatever visits such a value recursively would run out of stack.
template <class Json = nlohmann::json>
Json ParseJson(std::string_view text, const std::string& where);

// A value as an error message shows it, cut short. The text is made where the message is, on failure only.
template <class Json>
struct Quoted {
  explicit Quoted(const Json& json) : value(json) {}
  const Json& value;
};

}  // namespace longspan

template <class Json>
struct fmt::formatter<longspan::Quoted<Json>> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const longspan::Quoted<Json>& quoted, Context& context) const {
    const std::string text = quoted.value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return fmt::formatter<std::string>::format(longspan::Shortened(text, 60), context);
  }
};
