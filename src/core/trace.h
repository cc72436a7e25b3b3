// Spans of time on the lanes of ranks, and the file that shows them: Chrome's trace format, which
// chrome://tracing and ui.perfetto.dev open.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/work.h"

namespace longspan {

struct TraceSpan {
  int rank = 0;
  Lane lane = Lane::kCompute;
  std::string_view name;      // of static storage
  double begin = 0, end = 0;  // seconds
  double flops = 0;           // shown if not 0
  int64_t bytes = 0;          // shown if not 0
};

// JSON of spans in any order: a process for each rank, a thread for each lane.
std::string ChromeTrace(std::span<const TraceSpan> spans);

}  // namespace longspan
