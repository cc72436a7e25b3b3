// Numbers as a person reads and writes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace longspan {

std::string Grouped(int64_t n);                          // 1234567 → "1,234,567"
std::string Plural(int64_t n, const char* noun);         // "1 rank", "1,024 ranks"
std::string Percent(double fraction, int decimals = 1);  // 0.125 → "12.5 %"

std::string FormatBytes(int64_t bytes);  // "1.50 GiB", "12.3 MiB", "640 B"
// "24GiB", "80 GB", "1.5MiB", "4096": bytes, of which KiB, MiB, GiB and TiB count by 1024, KB, MB, GB and TB
// by 1000. Nothing of what is no such number, is below 0 or doesn't fit.
std::optional<int64_t> ParseBytes(std::string_view text);

}  // namespace longspan
