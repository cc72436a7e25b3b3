// The forward driver. A task is one query block of one head, or a short document's blocks of a KV head's
// query heads. It walks over the key blocks in reach, which are packed when first needed and kept for all
// query heads of their KV head, a few KV heads at a time. A task owns its rows, so results don't depend on
// the number of threads.
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
    heads_at_once = std::max<int64_t>(1, std::min(kPackedBytes / head_bytes, k.dim(1)));
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

// Query blocks of some query heads that read one KV head, for one thread.
struct ForwardTask {
  int64_t kv_head;
  std::span<const int64_t> heads;
  Range blocks;
};

// The first of the blocks before `end` that share keys with block end − 1 or with each other.
int64_t BeginOfRun(std::span<const Reach> reaches, int64_t end) {
  int64_t begin = end - 1;
  int64_t first_panel = reaches[static_cast<size_t>(begin)].begin();
  while (begin > 0) {
    const Reach& before = reaches[static_cast<size_t>(begin - 1)];
    if (before.empty() || before.end() <= first_panel) break;
    first_panel = std::min(first_panel, before.begin());
    --begin;
  }
  return begin;
}

int64_t PanelsIn(std::span<const Reach> reaches) {
  int64_t panels = 0;
  for (const Reach& reach : reaches) panels += reach.parts[0].size() + reach.parts[1].size();
  return panels;
}

// For KV heads `kv_heads`. Late rows see the most under most masks: they go first. Blocks that share keys
// with no others are one task where that still leaves every thread many: its core has the keys that it has
// packed. Else as many blocks as there are threads take turns for each head, so that a thread tends to stay
// with one.
std::vector<ForwardTask> MakeTasks(std::span<const Reach> reaches,
                                   const std::vector<std::vector<int64_t>>& heads_of, Range kv_heads,
                                   int num_threads) {
  constexpr int64_t kTasksOfThread = 16;
  const int64_t most_panels = PanelsIn(reaches) * kv_heads.size() / (kTasksOfThread * num_threads);
  std::vector<ForwardTask> tasks;
  for (int64_t end = std::ssize(reaches), begin; end > 0; end = begin) {
    begin = BeginOfRun(reaches, end);
    const auto run = reaches.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    if (PanelsIn(run) <= most_panels) {
      for (int64_t kv = kv_heads.begin; kv < kv_heads.end; ++kv)
        tasks.push_back({kv, heads_of[static_cast<size_t>(kv)], {begin, end}});
      continue;
    }
    for (int64_t turn = end; turn > begin; turn -= num_threads)
      for (int64_t kv = kv_heads.begin; kv < kv_heads.end; ++kv)
        for (const int64_t& head : heads_of[static_cast<size_t>(kv)])
          for (int64_t b = turn; b > std::max(begin, turn - num_threads); --b)
            tasks.push_back({kv, {&head, 1}, {b - 1, b}});
  }
  return tasks;
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

  const ForwardPlan plan(kernels, num_panels, k, v);
  const auto scratch = static_cast<float*>(workspace.raw());
  float* const packed = scratch + num_threads * plan.scratch_floats;
  const auto heads_of = QueryHeadsOf(call, k.dim(1));

  for (int64_t kv_begin = 0; kv_begin < k.dim(1); kv_begin += plan.heads_at_once) {
    const Range kv_heads = {kv_begin, std::min(k.dim(1), kv_begin + plan.heads_at_once)};
    PackedPanels packed_panels(kv_heads.size(), num_panels);
    const std::vector<ForwardTask> tasks = MakeTasks(reaches, heads_of, kv_heads, num_threads);
    ParallelTasks(num_threads, std::ssize(tasks), [&](int64_t i, int thread) {
      const ForwardTask& task = tasks[static_cast<size_t>(i)];
      float* const keys = packed + (task.kv_head - kv_begin) * num_panels * plan.panel_floats;
      float* const mine = scratch + thread * plan.scratch_floats;
      ForwardHead head;
      head.width = k.dim(2);
      head.value_width = v.dim(2);
      head.scale = call.scale;
      head.soft_cap = call.soft_cap;
      head.first = first;
      head.last = last;
      head.has_sink = last && !call.sinks.IsNull();
      QueryRows rows;
      TileMasks masks;
      for (int64_t b = task.blocks.end - 1; b >= task.blocks.begin; --b) {
        const Reach& reach = reaches[static_cast<size_t>(b)];
        if (!first && !last && reach.empty()) continue;
        blocks.Load(b, rows);
        for (const int64_t h : task.heads) {
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
          kernels.forward_begin(head, rows.block(), mine);
          for (const Range& part : reach.parts) {
            for (int64_t p = part.begin; p < part.end; p += kernels.forward_block.panels) {
              const int64_t n = std::min<int64_t>(kernels.forward_block.panels, part.end - p);
              if (!masks.Classify(rows,
                                  std::span(panels).subspan(static_cast<size_t>(p), static_cast<size_t>(n))))
                continue;
              packed_panels.Need(task.kv_head - kv_begin, {p, p + n}, [&](int64_t panel) {
                kernels.pack_panel(HeadOf(k, task.kv_head), HeadOf(v, task.kv_head), k.dim(2), v.dim(2),
                                   panels[static_cast<size_t>(panel)], keys + panel * plan.panel_floats);
              });
              kernels.forward_keys(head, rows.block(), keys + p * plan.panel_floats, static_cast<int>(n),
                                   masks.tiles(), mine);
            }
          }
          kernels.forward_end(head, rows.block(), mine);
        }
      }
    });
  }
}

}  // namespace longspan::cpu
