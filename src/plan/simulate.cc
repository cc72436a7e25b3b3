#include "plan/simulate.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace longspan {
namespace {

constexpr double kUnknown = -1;

size_t Index(Lane lane) { return static_cast<size_t>(lane); }

// What does one transfer at a time: a lane, of which the one to the host goes both ways at once.
constexpr size_t kNumQueues = kNumLanes + 1;
size_t QueueOf(WorkKind kind) { return kind == WorkKind::kFromHost ? kNumLanes : Index(LaneOf(kind)); }
Lane LaneOfQueue(size_t queue) { return queue == kNumLanes ? Lane::kHost : static_cast<Lane>(queue); }

// The ends of transfers; of what is received, once the peer's message has been sent.
class Ends {
 public:
  explicit Ends(size_t num_entries) : end_(num_entries + 1, kUnknown) { end_[0] = 0; }

  void Set(int64_t work, double end) { end_[static_cast<size_t>(work)] = end; }
  // The n-th message that this rank gets from a group comes as its n-th leaves.
  void Sent(int group, int64_t work, double end) {
    Set(work, end);
    Mirror& mirror = mirrors_[group];
    mirror.sent.push_back(end);
    if (mirror.received.size() >= mirror.sent.size()) Set(mirror.received[mirror.sent.size() - 1], end);
  }
  void Received(int group, int64_t work) {
    Mirror& mirror = mirrors_[group];
    mirror.received.push_back(work);
    if (mirror.sent.size() >= mirror.received.size()) Set(work, mirror.sent[mirror.received.size() - 1]);
  }
  double Of(int64_t work) const {
    const double end = end_[static_cast<size_t>(work)];
    CHECK(end != kUnknown);  // waiting for a message before the like of it has been sent would never end
    return end;
  }

 private:
  struct Mirror {
    std::vector<double> sent;
    std::vector<int64_t> received;
  };
  std::vector<double> end_;
  std::map<int, Mirror> mirrors_;
};

// Those of `otherwise` where there are none.
KernelRates OrElse(KernelRates rates, const KernelRates& otherwise) {
  for (const auto map : kKernelRates)
    if ((rates.*map).empty()) rates.*map = otherwise.*map;
  return rates;
}

double AtThreads(const Hardware& hardware, KernelRates::Map efficiency, std::string_view key) {
  efficiency.try_emplace("1", "1");
  return Curve(efficiency, key, kAnyRate).At(static_cast<double>(hardware.rank_threads));
}

}  // namespace

std::string_view Timeline::bound_by() const {
  const std::pair<double, std::string_view> parts[] = {{attention, "attention"},
                                                       {matmul, "matmul"},
                                                       {pointwise, "memory"},
                                                       {waited[Index(Lane::kLink)], "link"},
                                                       {waited[Index(Lane::kHost)], "host"},
                                                       {waited[Index(Lane::kDisk)], "disk"}};
  return std::ranges::max_element(parts, {}, [](const auto& part) { return part.first; })->second;
}

Machine::Kernels::Kernels(const KernelRates& rates)
    : matmul(rates.matmul_efficiency, "matmul_efficiency"),
      input_gradient(rates.input_gradient_efficiency, "input_gradient_efficiency"),
      weight_gradient(rates.weight_gradient_efficiency, "weight_gradient_efficiency"),
      attention_forward(rates.attention_forward_efficiency, "attention_forward_efficiency"),
      attention_backward(rates.attention_backward_efficiency, "attention_backward_efficiency"),
      attention_forward_gbps(rates.attention_forward_gbps, "attention_forward_gbps", kAnyRate),
      attention_backward_gbps(rates.attention_backward_gbps, "attention_backward_gbps", kAnyRate),
      operation_gbps(RatesByName(rates.operation_gbps, "operation_gbps")) {}

const Curve& Machine::Kernels::EfficiencyOf(const Work& product) const {
  const Curve& own = product.product == ProductKind::kInputGradient    ? input_gradient
                     : product.product == ProductKind::kWeightGradient ? weight_gradient
                                                                       : matmul;
  return own.empty() ? matmul : own;
}

Machine::Machine(const Hardware& hardware, int num_ranks, int64_t sequences_a_group)
    : hardware_(hardware),
      topology_(hardware, num_ranks),
      bfloat16_(hardware.kernels),
      float32_(OrElse(hardware.kernels_float32, hardware.kernels)),
      one_sequence_(hardware.attention_backward_one_sequence, "attention_backward_one_sequence"),
      one_sequence_a_group_(sequences_a_group == 1),
      matmul_threads_(AtThreads(hardware, hardware.matmul_threads_efficiency, "matmul_threads_efficiency")),
      attention_threads_(
          AtThreads(hardware, hardware.attention_threads_efficiency, "attention_threads_efficiency")),
      operation_threads_(
          AtThreads(hardware, hardware.operation_threads_efficiency, "operation_threads_efficiency")),
      bandwidth_(hardware.memory_gbps * 1e9 * hardware.rank_cores) {}

double Machine::ComputeSeconds(const Work& work) const {
  const Kernels& kernels = work.dtype == DType::kFloat32 ? float32_ : bfloat16_;
  const double start = hardware_.operation_us * 1e-6;
  switch (work.kind) {
    case WorkKind::kMatmul:
      return start + MatmulSeconds(work, kernels);
    case WorkKind::kAttentionForward:
    case WorkKind::kAttentionBackward:
      return start + AttentionSeconds(work, kernels);
    case WorkKind::kPointwise:
      return start + OperationSeconds(work, kernels);
    default:
      CHECK(false);
      return 0;
  }
}

double Machine::MatmulSeconds(const Work& work, const Kernels& kernels) const {
  const double bytes = static_cast<double>(work.bytes);
  const double efficiency = kernels.EfficiencyOf(work).At(work.flops / std::max(1.0, bytes));
  return std::max(work.flops / (hardware_.peak_flops(work.dtype) * efficiency * matmul_threads_),
                  bytes / bandwidth_);
}

double Machine::AttentionSeconds(const Work& work, const Kernels& kernels) const {
  const double state = static_cast<double>(work.state_bytes) / bandwidth_;
  if (work.pairs == 0) return state;  // is skipped
  const bool forward = work.kind == WorkKind::kAttentionForward;
  const double width = static_cast<double>(work.width);
  double efficiency = (forward ? kernels.attention_forward : kernels.attention_backward).At(width);
  if (!forward && one_sequence_a_group_) efficiency *= one_sequence_.At(static_cast<double>(work.rows));
  const Curve& gbps = forward ? kernels.attention_forward_gbps : kernels.attention_backward_gbps;
  const double rate = gbps.At(width) * 1e9 * hardware_.rank_cores * attention_threads_;
  return hardware_.attention_call_us * 1e-6 +
         work.flops / (hardware_.peak_flops(work.dtype) * efficiency * attention_threads_) +
         (gbps.empty() ? state : static_cast<double>(work.bytes) / rate);
}

double Machine::OperationSeconds(const Work& work, const Kernels& kernels) const {
  const double bytes = static_cast<double>(work.bytes);
  const auto own = kernels.operation_gbps.find(work.name);
  if (own == kernels.operation_gbps.end()) return bytes / bandwidth_;
  return bytes / (own->second * 1e9 * hardware_.rank_cores * operation_threads_);
}

double Machine::CopySeconds(const Work& work) const {
  const Lane lane = LaneOf(work.kind);
  CHECK(lane == Lane::kHost || lane == Lane::kDisk);
  const double disk = work.kind == WorkKind::kFromDisk && hardware_.disk_read_gbps > 0
                          ? hardware_.disk_read_gbps
                          : hardware_.disk_gbps;
  return static_cast<double>(work.bytes) / ((lane == Lane::kHost ? hardware_.host_gbps : disk) * 1e9);
}

// A disk is waited for without computing.
double Machine::TransferWork(Lane lane) const {
  return lane == Lane::kLink || lane == Lane::kHost ? hardware_.transfer_work : 0;
}

Timeline Simulate(const WorkLog& log, const Machine& machine, int rank, bool with_spans) {
  std::vector<GroupShape> shapes;
  for (const std::vector<int>& group : log.groups()) shapes.push_back(machine.topology().ShapeOf(group));

  Timeline timeline;
  Ends ends(log.entries().size());
  double now = 0;  // of computing
  std::array<double, kNumQueues> free_at = {};
  const auto show = [&](const Work& work, std::string_view name, double begin, double end) {
    if (with_spans && end > begin)
      timeline.spans.push_back({rank, TraceLaneOf(work.kind), name, begin, end,
                                static_cast<double>(work.times) * work.flops, work.times * work.bytes});
  };
  for (size_t i = 0; i < log.entries().size(); ++i) {
    const WorkLog::Entry& entry = log.entries()[i];
    const Work& work = entry.work;
    const int64_t id = static_cast<int64_t>(i) + 1;
    switch (entry.step) {
      case WorkLog::Step::kCompute: {
        const double seconds = static_cast<double>(work.times) * machine.ComputeSeconds(work);
        (work.kind == WorkKind::kMatmul      ? timeline.matmul
         : work.kind == WorkKind::kPointwise ? timeline.pointwise
                                             : timeline.attention) += seconds;
        timeline.busy[Index(Lane::kCompute)] += seconds;
        show(work, work.name, now, now + seconds);
        double late = 0;  // by transfers that still go on when it begins, and take a part of the computing
        for (size_t queue = 0; queue < kNumQueues; ++queue) {
          const Lane lane = LaneOfQueue(queue);
          const double beside = std::clamp(free_at[queue] - now, 0.0, seconds);
          timeline.waited[Index(lane)] += machine.TransferWork(lane) * beside;
          late += machine.TransferWork(lane) * beside;
        }
        now += seconds + late;
        break;
      }
      case WorkLog::Step::kTransfer: {
        if (work.kind == WorkKind::kRecv) {
          ends.Received(entry.group, id);
          break;
        }
        const size_t queue = QueueOf(work.kind);
        const double seconds =
            LaneOf(work.kind) == Lane::kLink
                ? machine.topology().Seconds(work, shapes[static_cast<size_t>(entry.group)])
                : machine.CopySeconds(work);
        const double begin = std::max({now, ends.Of(entry.event), free_at[queue]});
        free_at[queue] = begin + seconds;
        timeline.busy[Index(LaneOf(work.kind))] += seconds;
        show(work, Name(work.kind), begin, begin + seconds);
        if (work.kind == WorkKind::kSend) {
          ends.Sent(entry.group, id, begin + seconds);
        } else {
          ends.Set(id, begin + seconds);
        }
        break;
      }
      case WorkLog::Step::kWait: {
        const double end = ends.Of(entry.event);
        if (end > now) {
          const WorkKind kind = log.entries()[static_cast<size_t>(entry.event) - 1].work.kind;
          timeline.waited[Index(LaneOf(kind))] += end - now;
          if (with_spans)
            timeline.spans.push_back({rank, TraceLane::kCompute, WaitName(kind), now, end, 0, 0});
          now = end;
        }
        break;
      }
    }
  }
  const auto last = std::ranges::max_element(free_at);
  if (*last > now) {  // the step ends with what is written last
    timeline.waited[Index(LaneOfQueue(static_cast<size_t>(last - free_at.begin())))] += *last - now;
    now = *last;
  }
  timeline.seconds = now;
  return timeline;
}

}  // namespace longspan
