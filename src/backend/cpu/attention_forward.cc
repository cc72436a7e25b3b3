// The forward driver. A task is one query block of one head: it walks over the key blocks in its reach, which
// are packed when first needed and kept for all query heads of their KV head, a few KV heads at a time. A
// task owns its rows, so results don't depend on the number of threads.
#include <algorithm>
#include <atomic>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_heads.h"
#include "backend/cpu/attention_tiles.h"
#include "backend/cpu/parallel.h"
#include "core/check.h"

namespace longspan::cpu {
namespace {

// Packed KV heads are in memory together up to this many bytes; one always is.
constexpr int64_t kPackedBytes = int64_t{64} << 20;

struct ForwardPlan {
  int64_t panel_floats, scratch_floats;
  int64_t heads_at_once;  // KV heads

  ForwardPlan(const AttentionKernels& kernels, int64_t num_panels, const Tensor& k, const Tensor& v)
      : panel_floats(kernels.panel_floats(k.dim(2), v.dim(2))),
        scratch_floats(kernels.forward_scratch_floats(k.dim(2), v.dim(2))) {
    const int64_t head_bytes = std::max<int64_t>(1, num_panels * panel_floats * SizeOf(DType::kFloat32));
    heads_at_once = std::clamp<int64_t>(kPackedBytes / head_bytes, 1, k.dim(1));
  }
};

// The packed panels of some KV heads. Whoever first needs one packs it and has it in its core's cache; others
// that come meanwhile pack the next and then wait.
class PackedPanels {
 public:
  PackedPanels(int64_t num_heads, int64_t num_panels)
      : num_panels_(num_panels), states_(static_cast<size_t>(num_heads * num_panels)) {}

  // Calls pack(panel) for those of a head's panels that nobody has begun; returns when all are packed.
  template <class Pack>
  void Need(int64_t head, Range needed, const Pack& pack) {
    std::atomic<State>* const states = states_.data() + head * num_panels_;
    for (int64_t p = needed.begin; p < needed.end; ++p) {
      State state = states[p].load(std::memory_order_relaxed);
      if (state != kUntouched || !states[p].compare_exchange_strong(state, kBegun)) continue;
      pack(p);
      states[p].store(kPacked, std::memory_order_release);
    }
    for (int64_t p = needed.begin; p < needed.end; ++p) WaitUntil(states[p], kPacked);
  }

 private:
  enum State : uint8_t { kUntouched, kBegun, kPacked };
  int64_t num_panels_;
  std::vector<std::atomic<State>> states_;
};

}  // namespace

int64_t AttentionForwardWorkspace(const AttentionCall& call, const Tensor& q, const Tensor& k,
                                  const Tensor& v, CpuTarget target, int num_threads) {
  CheckAttention(call, q, k, v);
  const auto num_panels = static_cast<int64_t>(CutIntoPanels(call.key_spans).size());
  const ForwardPlan plan(AttentionKernelsFor(target, q.dtype()), num_panels, k, v);
  return SizeOf(DType::kFloat32) *
         (num_threads * plan.scratch_floats + plan.heads_at_once * num_panels * plan.panel_floats);
}

void AttentionForward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, bool first, bool last,
                      const AttentionState& state, Tensor out, Tensor lse, Tensor workspace, CpuTarget target,
                      int num_threads) {
  CHECK(workspace.num_bytes() >= AttentionForwardWorkspace(call, q, k, v, target, num_threads));
  const AttentionKernels& kernels = AttentionKernelsFor(target, q.dtype());
  const std::vector<KeyPanel> panels = CutIntoPanels(call.key_spans);
  const auto num_panels = static_cast<int64_t>(panels.size());
  const QueryBlocks blocks(*call.mask, PlacesToCut(*call.mask), call.query_spans, kernels.forward_block);
  std::vector<Reach> reaches(static_cast<size_t>(blocks.size()));
  ParallelFor(num_threads, blocks.size(),
              [&](int64_t b) { reaches[static_cast<size_t>(b)] = blocks.ReachOf(b, panels); });

  const ForwardPlan plan(kernels, num_panels, k, v);
  const auto scratch = static_cast<float*>(workspace.raw());
  float* const packed = scratch + num_threads * plan.scratch_floats;
  const auto heads_of = QueryHeadsOf(call, k.dim(1));

  struct Work {
    int64_t kv_head, head;
  };
  std::vector<Work> work;
  for (int64_t kv_begin = 0; kv_begin < k.dim(1); kv_begin += plan.heads_at_once) {
    const int64_t kv_end = std::min(k.dim(1), kv_begin + plan.heads_at_once);
    const auto packed_head = [&](int64_t kv) {
      return packed + (kv - kv_begin) * num_panels * plan.panel_floats;
    };
    PackedPanels packed_panels(kv_end - kv_begin, num_panels);

    work.clear();
    for (int64_t kv = kv_begin; kv < kv_end; ++kv)
      for (const int64_t h : heads_of[static_cast<size_t>(kv)]) work.push_back({kv, h});
    const auto num_heads = static_cast<int64_t>(work.size());
    // Late rows see the most under most masks: they go first. As many blocks as there are threads take turns
    // for each head, so that a thread tends to stay with a block, whose keys its core has, for all heads.
    ParallelTasks(num_threads, num_heads * blocks.size(), [&](int64_t task, int thread) {
      const int64_t group = task / (num_heads * num_threads) * num_threads;
      const int64_t width = std::min<int64_t>(num_threads, blocks.size() - group);
      const int64_t b = blocks.size() - 1 - group - (task - group * num_heads) % width;
      const auto [kv, h] = work[static_cast<size_t>((task - group * num_heads) / width)];
      const Reach& reach = reaches[static_cast<size_t>(b)];
      if (!first && !last && reach.empty()) return;
      ForwardHead head;
      head.width = k.dim(2);
      head.value_width = v.dim(2);
      head.scale = call.scale;
      head.soft_cap = call.soft_cap;
      head.first = first;
      head.last = last;
      head.has_sink = last && !call.sinks.IsNull();
      if (head.has_sink) head.sink = call.sinks.data<float>()[h];
      head.q = HeadOf(q, h);
      if (!first || !last) {
        head.state_out = FloatHeadOf(state.out, h);
        head.state_max = FloatHeadOf(state.max, h);
        head.state_sum = FloatHeadOf(state.sum, h);
      }
      if (last) {
        head.out = static_cast<char*>(out.raw()) + h * out.dim(2) * SizeOf(out.dtype());
        head.out_stride = out.dim(1) * out.dim(2);
        head.out_is_bf16 = out.dtype() == DType::kBFloat16;
        head.lse = FloatHeadOf(lse, h);
      }
      QueryRows rows;
      TileMasks masks;
      blocks.Load(b, rows);
      float* const mine = scratch + thread * plan.scratch_floats;
      kernels.forward_begin(head, rows.block(), mine);
      for (const Range& part : reach.parts) {
        for (int64_t p = part.begin; p < part.end; p += kernels.forward_block.panels) {
          const int64_t n = std::min<int64_t>(kernels.forward_block.panels, part.end - p);
          if (!masks.Classify(rows,
                              std::span(panels).subspan(static_cast<size_t>(p), static_cast<size_t>(n))))
            continue;
          packed_panels.Need(kv - kv_begin, {p, p + n}, [&, kv = kv](int64_t panel) {
            kernels.pack_panel(HeadOf(k, kv), HeadOf(v, kv), k.dim(2), v.dim(2),
                               panels[static_cast<size_t>(panel)],
                               packed_head(kv) + panel * plan.panel_floats);
          });
          kernels.forward_keys(head, rows.block(), packed_head(kv) + p * plan.panel_floats,
                               static_cast<int>(n), masks.tiles(), mine);
        }
      }
      kernels.forward_end(head, rows.block(), mine);
    });
  }
}

}  // namespace longspan::cpu
