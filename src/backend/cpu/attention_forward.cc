// The forward driver. KV heads are packed a few at a time, only panels that some row sees; then each task is
// one query block of one head, which walks over the key blocks in its reach. A task owns its rows, so results
// don't depend on the number of threads.
#include <algorithm>

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

// The panels that some query block reaches.
std::vector<int64_t> ReachedPanels(std::span<const Reach> reaches, int64_t num_panels) {
  std::vector<int64_t> change(static_cast<size_t>(num_panels) +
                              1);  // of the number of blocks that reach a panel
  for (const Reach& reach : reaches) {
    for (const Range& part : reach.parts) {
      if (part.empty()) continue;
      ++change[static_cast<size_t>(part.begin)];
      --change[static_cast<size_t>(part.end)];
    }
  }
  std::vector<int64_t> reached;
  int64_t blocks = 0;
  for (int64_t p = 0; p < num_panels; ++p) {
    blocks += change[static_cast<size_t>(p)];
    if (blocks > 0) reached.push_back(p);
  }
  return reached;
}

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
  const std::vector<int64_t> reached = ReachedPanels(reaches, num_panels);

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
    const auto num_reached = static_cast<int64_t>(reached.size());
    ParallelFor(num_threads, (kv_end - kv_begin) * num_reached, [&](int64_t i) {
      const int64_t kv = kv_begin + i / num_reached, p = reached[static_cast<size_t>(i % num_reached)];
      if (heads_of[static_cast<size_t>(kv)].empty()) return;
      kernels.pack_panel(HeadOf(k, kv), HeadOf(v, kv), k.dim(2), v.dim(2), panels[static_cast<size_t>(p)],
                         packed_head(kv) + p * plan.panel_floats);
    });

    work.clear();
    for (int64_t kv = kv_begin; kv < kv_end; ++kv)
      for (const int64_t h : heads_of[static_cast<size_t>(kv)]) work.push_back({kv, h});
    const auto num_heads = static_cast<int64_t>(work.size());
    // Late rows see the most under most masks: they go first.
    ParallelTasks(num_threads, num_heads * blocks.size(), [&](int64_t task, int thread) {
      const int64_t b = blocks.size() - 1 - task / num_heads;
      const auto [kv, h] = work[static_cast<size_t>(task % num_heads)];
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
          kernels.forward_keys(head, rows.block(), packed_head(kv) + p * plan.panel_floats,
                               static_cast<int>(n), masks.tiles(), mine);
        }
      }
      kernels.forward_end(head, rows.block(), mine);
    });
  }
}

}  // namespace longspan::cpu
