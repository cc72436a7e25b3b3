// Work: what a rank does in a step, operation by operation, and where it is reported: the planner's log of a
// dry run (core/work_log.h), or a trace of a real one (core/trace_recorder.h).
//
// A rank has four lanes, each of which does one thing at a time and which go on beside each other: its device
// computes, its links carry messages, and copies go to and from the host's memory and a disk. What computes,
// reports Compute; what is asynchronous reports Transfer, with the event it begins after; who waits for an
// event reports Wait. Nobody has to report: a null recorder is the rule.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/event.h"
#include "core/tensor.h"

namespace longspan {

enum class Lane : uint8_t { kCompute, kLink, kHost, kDisk };
inline constexpr int kNumLanes = 4;
std::string_view Name(Lane lane);  // "compute", "link", "host", "disk"

enum class WorkKind : uint8_t {
  // Computing: products; attention; what takes as long as its memory is read and written.
  kMatmul,
  kAttentionForward,
  kAttentionBackward,
  kPointwise,
  // Between ranks.
  kSend,
  kRecv,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  // Between a device and its host's memory; between that and a disk.
  kToHost,
  kFromHost,
  kToDisk,
  kFromDisk,
};
Lane LaneOf(WorkKind kind);
std::string_view Name(WorkKind kind);  // "matmul", "send", "all_gather", "to_disk", …
// Of the time in which computing stands still for a transfer: "wait for send", …
std::string_view WaitName(WorkKind transfer);

// What a product is for: y = x·Wᵀ and what is like it, dx = dy·W, dW += dyᵀ·x.
enum class ProductKind : uint8_t { kForward, kInputGradient, kWeightGradient };

struct Work {
  WorkKind kind = WorkKind::kPointwise;
  std::string_view name;  // of the operation or of what is moved; of static storage
  int64_t times = 1;      // it is done so many times, one after the other; the rest is of one of them
  DType dtype = DType::kBFloat16;  // of what is multiplied, or else of the first operand that isn't ids
  ProductKind product = ProductKind::kForward;  // kMatmul
  // 2·m·n·k of a product; of attention two products forward and five backward of the allowed pairs alone.
  double flops = 0;
  // Computing: read and written. A message or a collective: what this rank sends to others; kRecv: what it
  // gets. Copies: what is copied.
  int64_t bytes = 0;

  // kAttention*: allowed (row, key) pairs of a head; rows of queries and of keys; query heads; their width.
  int64_t pairs = 0, rows = 0, keys = 0, heads = 0, width = 0;
  // Of them, what carries the online softmax from call to call: read and written.
  int64_t state_bytes = 0;

  // Between ranks: the group's, as numbered in the whole job (valid during the call), and the place in it of
  // whom a message goes to or comes from.
  std::span<const int> ranks;
  int peer = -1;
};

class WorkRecorder {
 public:
  virtual ~WorkRecorder() = default;

  // A device's operation, in the order in which they are done.
  virtual void Compute(const Work& work) = 0;
  // Begins once `after` has happened, and what was computed before; `done` says when it ends. Returns the
  // event that the caller hands on: `done`, or in a dry run, where everything has happened, one that stands
  // for this work (Event::OfWork).
  virtual Event Transfer(const Work& work, const Event& after, const Event& done) = 0;
  // What follows is done once `event` has happened. May wait for it.
  virtual void Wait(const Event& event) = 0;
};

}  // namespace longspan
