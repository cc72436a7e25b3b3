// Strict JSON: what a person or another program wrote, with an error that says where it is wrong.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace longspan {

// Parses one JSON value with nothing after it; Json is nlohmann::json or nlohmann::ordered_json (keys stay in
// order). Throws Error, beginning with `where`, for whatever RFC 8259 refuses (invalid UTF-8 too) and for a
// key that an object has twice, which the parser alone would let pass.
template <class Json = nlohmann::json>
Json ParseJson(std::string_view text, const std::string& where);

}  // namespace longspan
