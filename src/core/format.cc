#include "core/format.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace longspan {

std::string Grouped(int64_t n) {
  std::string text = std::to_string(n);
  for (int64_t i = static_cast<int64_t>(text.size()) - 3; i > 0; i -= 3)
    text.insert(static_cast<size_t>(i), 1, ',');
  return text;
}

std::string Plural(int64_t n, const char* noun) {
  return fmt::format("{} {}{}", Grouped(n), noun, n == 1 ? "" : "s");
}

std::string Percent(double fraction, int decimals) {
  return fmt::format("{:.{}f} %", 100 * fraction, decimals);
}

std::string FormatBytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double x = static_cast<double>(bytes);
  size_t unit = 0;
  while (x >= 1024 && unit + 1 < kUnits.size()) {
    x /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes)
                   : fmt::format("{:.{}f} {}", x,
                                 x < 10    ? 2
                                 : x < 100 ? 1
                                           : 0,
                                 kUnits[unit]);
}

std::optional<int64_t> ParseBytes(std::string_view text) {
  constexpr struct {
    std::string_view name;
    double bytes;
  } kUnits[] = {{"", 1},         {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                {"TiB", 0x1p40}, {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  std::string_view name = text.substr(static_cast<size_t>(end - text.data()));
  if (name.starts_with(' ')) name.remove_prefix(1);
  for (const auto& unit : kUnits) {
    if (unit.name != name) continue;
    const double bytes = number * unit.bytes;
    if (!(bytes >= 0 && bytes < 0x1p62)) return std::nullopt;
    return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

}  // namespace longspan
