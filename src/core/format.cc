#include "core/format.h"

#include <fmt/format.h>

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

}  // namespace longspan
