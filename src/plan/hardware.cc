#include "plan/hardware.h"

#include <algorithm>
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
          "{}: '{}' is no number; give one, or a map to numbers like {{64: 0.4, 128: 0.55}}", key, text);
  return value;
}

}  // namespace

Hardware Hardware::OfRank(int64_t ranks, int64_t threads_per_rank) const {
  CHECK(ranks >= 1 && threads_per_rank >= 1);
  Hardware rank = *this;
  if (!is_cpu()) return rank;
  const double n = static_cast<double>(ranks), threads = static_cast<double>(threads_per_rank);
  const double share = static_cast<double>(cores) / n;  // of the cores
  rank.rank_threads = threads_per_rank;
  rank.rank_cores = std::min(threads, share);
  // What copies takes a core from those that compute, unless one is left over.
  rank.transfer_work = ranks * threads_per_rank < cores ? 0 : 1 / std::max(1.0, rank.rank_cores);
  if (threads_per_rank > 1 && !threads_us.empty())
    rank.operation_us += Curve(threads_us, "threads_us", kAnyRate).At(threads);
  rank.device_memory_gib /= n;
  rank.device_memory_reserved_gib /= n;
  rank.link_gbps *= std::min(1.0, share);
  rank.host_gbps *= std::min(1.0, share);
  rank.disk_gbps /= n;
  rank.disk_read_gbps /= n;
  rank.island_ranks = ranks;
  return rank;
}

int64_t Hardware::usable_memory_bytes() const {
  return static_cast<int64_t>((device_memory_gib - device_memory_reserved_gib) * kGiB);
}

int64_t Hardware::host_memory_bytes() const {
  return static_cast<int64_t>(host_memory_gib * kGiB) / ranks_per_host;
}

Curve::Curve(const KernelRates::Map& points, std::string_view key, double most) {
  for (const auto& [size_text, value_text] : points) {
    const double size = size_text.empty() ? 1 : Number(size_text, key), value = Number(value_text, key);
    Require(ExitCode::kUsage, size > 0 && value > 0 && value <= most,
            "{}: {} at {}; sizes are above 0, values above 0{}", key, value, size,
            most == kAnyRate ? "" : fmt::format(" and at most {}", most));
    points_[std::log2(size)] = value;
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

std::map<std::string, double, std::less<>> RatesByName(const KernelRates::Map& rates, std::string_view key) {
  std::map<std::string, double, std::less<>> by_name;
  for (const auto& [name, text] : rates) {
    const double rate = Number(text, key);
    Require(ExitCode::kUsage, !name.empty() && rate > 0,
            "{}: {} for '{}'; give a map of operations to rates above 0, like {{rope: 3.5}}", key, rate,
            name);
    by_name[name] = rate;
  }
  return by_name;
}

}  // namespace longspan
