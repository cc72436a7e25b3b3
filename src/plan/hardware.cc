#include "plan/hardware.h"

#include <charconv>
#include <cmath>

#include "core/check.h"

namespace longspan {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

double Number(const std::string& text, std::string_view key) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  Require(ExitCode::kUsage, error == std::errc() && end == text.data() + text.size() && std::isfinite(value),
          "{}: '{}' is no number; give a map of sizes to fractions like {{64: 0.4, 128: 0.55}}", key, text);
  return value;
}

}  // namespace

int64_t Hardware::usable_memory_bytes() const {
  return static_cast<int64_t>((device_memory_gib - device_memory_reserved_gib) * kGiB);
}

int64_t Hardware::host_memory_bytes() const {
  return static_cast<int64_t>(host_memory_gib * kGiB) / ranks_per_host;
}

Curve::Curve(const std::map<std::string, std::string>& points, std::string_view key) {
  for (const auto& [size_text, fraction_text] : points) {
    const double size = Number(size_text, key), fraction = Number(fraction_text, key);
    Require(ExitCode::kUsage, size > 0 && fraction > 0 && fraction <= 1,
            "{}: {} at {}; sizes are above 0, fractions above 0 and at most 1", key, fraction, size);
    points_[std::log2(size)] = fraction;
  }
}

double Curve::At(double size) const {
  if (points_.empty()) return 1;
  const double x = std::log2(size);
  const auto above = points_.lower_bound(x);
  if (above == points_.end()) return points_.rbegin()->second;
  if (above == points_.begin()) return above->second;
  const auto below = std::prev(above);
  const double part = (x - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

}  // namespace longspan
