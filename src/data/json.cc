#include "data/json.h"

#include <set>
#include <vector>

#include "core/check.h"

namespace longspan {
namespace {

constexpr int kMaxDepth = 128;     // of lists and objects; no file of a model or a text needs ten
constexpr size_t kMaxCause = 300;  // the parser quotes what it read last, which may be a whole line

// "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error …" from the place on; a
// text of one line needs no line number, since `where` gives one.
std::string Cause(std::string_view what, bool one_line) {
  size_t begin = what.find(one_line ? "column " : "line ");
  if (begin == what.npos) begin = what.find("] ") == what.npos ? 0 : what.find("] ") + 2;
  return Shortened(what.substr(begin), kMaxCause);
}

}  // namespace

template <class Json>
Json ParseJson(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, typename Json::parse_event_t event, Json& value) {
    Require(depth < kMaxDepth ||
                (event != Json::parse_event_t::object_start && event != Json::parse_event_t::array_start),
            "{}: lists and objects are nested more than {} deep", where, kMaxDepth);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto key = value.template get<std::string>();
      Require(keys.back().insert(key).second, "{}: key '{}' is given twice; remove one", where, key);
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const typename Json::exception& e) {
    const bool one_line = text.find('\n') == std::string_view::npos;
    throw Error(fmt::format("{}: not valid JSON: {}", where, Cause(e.what(), one_line)));
  }
}

template nlohmann::json ParseJson(std::string_view text, const std::string& where);
template nlohmann::ordered_json ParseJson(std::string_view text, const std::string& where);

}  // namespace longspan
