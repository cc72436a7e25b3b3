// Numbers as a person reads them.
#pragma once

#include <cstdint>
#include <string>

namespace longspan {

std::string Grouped(int64_t n);                          // 1234567 → "1,234,567"
std::string Plural(int64_t n, const char* noun);         // "1 rank", "1,024 ranks"
std::string Percent(double fraction, int decimals = 1);  // 0.125 → "12.5 %"

}  // namespace longspan
