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

std::string_view WaitName(WorkKind transfer) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "wait for send",           "wait for recv",       "wait for all_gather",
      "wait for reduce_scatter", "wait for all_to_all", "wait for to_host",
      "wait for from_host",      "wait for to_disk",    "wait for from_disk"};
  CHECK(LaneOf(transfer) != Lane::kCompute);
  return kNames[static_cast<size_t>(transfer) - static_cast<size_t>(WorkKind::kSend)];
}

}  // namespace longspan
