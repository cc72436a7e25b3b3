#include "core/trace.h"

#include <fmt/format.h>

#include <array>
#include <set>
#include <utility>

namespace longspan {

TraceLane TraceLaneOf(WorkKind kind) {
  switch (LaneOf(kind)) {
    case Lane::kCompute:
      return TraceLane::kCompute;
    case Lane::kLink:
      return kind == WorkKind::kRecv ? TraceLane::kReceive : TraceLane::kLink;
    case Lane::kHost:
      return kind == WorkKind::kFromHost ? TraceLane::kFromHost : TraceLane::kToHost;
    case Lane::kDisk:
      return TraceLane::kDisk;
  }
  CHECK(false);
  return TraceLane::kCompute;
}

std::string_view Name(TraceLane lane) {
  static constexpr std::array<std::string_view, kNumTraceLanes> kNames = {"compute", "link",      "receive",
                                                                          "to host", "from host", "disk"};
  return kNames[static_cast<size_t>(lane)];
}

std::string ChromeTrace(std::span<const TraceSpan> spans) {
  std::string json = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  std::set<int> ranks;
  std::set<std::pair<int, TraceLane>> lanes;
  for (const TraceSpan& span : spans) {
    ranks.insert(span.rank);
    lanes.emplace(span.rank, span.lane);
  }
  for (const int rank : ranks)
    json += fmt::format(
        "{{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": {0}, \"args\": {{\"name\": \"rank "
        "{0}\"}}}},\n",
        rank);
  for (const auto& [rank, lane] : lanes)
    json += fmt::format(
        "{{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": {}, \"tid\": {}, \"args\": {{\"name\": "
        "\"{}\"}}}},\n",
        rank, static_cast<int>(lane), Name(lane));
  for (const TraceSpan& span : spans) {
    std::string arguments;
    if (span.flops != 0) arguments += fmt::format("\"flops\": {:.0f}", span.flops);
    if (span.bytes != 0)
      arguments += fmt::format("{}\"bytes\": {}", arguments.empty() ? "" : ", ", span.bytes);
    json += fmt::format(
        "{{\"ph\": \"X\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"ts\": {:.3f}, \"dur\": {:.3f}, "
        "\"args\": "
        "{{{}}}}},\n",
        span.name, span.rank, static_cast<int>(span.lane), span.begin * 1e6, (span.end - span.begin) * 1e6,
        arguments);
  }
  if (!spans.empty()) json.erase(json.size() - 2, 1);  // the last comma
  return json + "]}\n";
}

}  // namespace longspan
