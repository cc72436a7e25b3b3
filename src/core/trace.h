// Spans of time on the lanes of ranks, and the file that shows them: Chrome's trace format, which
// chrome://tracing and ui.perfetto.dev open.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/work.h"

namespace longspan {

// What a trace shows beside each other of a rank, each with one thing at a time. The two ways of a link, and
// to the host and back, are two.
enum class TraceLane : uint8_t { kCompute, kLink, kReceive, kToHost, kFromHost, kDisk };
inline constexpr int kNumTraceLanes = 6;
TraceLane TraceLaneOf(WorkKind kind);
std::string_view Name(TraceLane lane);  // "compute", "link", "receive", "to host", "from host", "disk"

struct TraceSpan {
  int rank = 0;
  TraceLane lane = TraceLane::kCompute;
  std::string_view name;      // of static storage
  double begin = 0, end = 0;  // seconds
  double flops = 0;           // shown if not 0
  int64_t bytes = 0;          // shown if not 0
};

// JSON of spans in any order: a process for each rank, a thread for each lane.
std::string ChromeTrace(std::span<const TraceSpan> spans);

}  // namespace longspan
