#include "core/work.h"

#include <array>

namespace longspan {

std::string_view Name(Lane lane) {
  static constexpr std::array<std::string_view, kNumLanes> kNames = {"compute", "link", "host", "disk"};
  return kNames[static_cast<size_t>(lane)];
}

Lane LaneOf(WorkKind kind) {
  switch (kind) {
    case WorkKind::kMatmul:
    case WorkKind::kAttentionForward:
    case WorkKind::kAttentionBackward:
    case WorkKind::kPointwise:
      return Lane::kCompute;
    case WorkKind::kSend:
    case WorkKind::kRecv:
    case WorkKind::kAllGather:
    case WorkKind::kReduceScatter:
    case WorkKind::kAllToAll:
      return Lane::kLink;
    case WorkKind::kToHost:
    case WorkKind::kFromHost:
      return Lane::kHost;
    case WorkKind::kToDisk:
    case WorkKind::kFromDisk:
      return Lane::kDisk;
  }
  CHECK(false);
  return Lane::kCompute;
}

std::string_view Name(WorkKind kind) {
  static constexpr std::array<std::string_view, 13> kNames = {
      "matmul",    "attention_forward", "attention_backward", "pointwise",  "send",
      "recv",      "all_gather",        "reduce_scatter",     "all_to_all", "to_host",
      "from_host", "to_disk",           "from_disk"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace longspan
