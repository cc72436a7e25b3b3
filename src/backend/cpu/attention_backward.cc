// The backward driver. A task is one key block of one KV head: it owns these keys' gradients and walks over
// the query blocks that reach them, of every query head of the group. Nothing is packed beforehand: a task
// packs its keys once, and each query block as it comes. dq is shared by the tasks of different key blocks;
// they add to a query block in increasing order of the keys, whoever is early waits. So results don't depend
// on the number of threads.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_heads.h"
#include "backend/cpu/attention_tiles.h"
#include "backend/cpu/parallel.h"
#include "core/check.h"

namespace longspan::cpu {
namespace {

// Which key blocks each query block reaches, and the reverse.
class BlockReaches {
 public:
  BlockReaches(const QueryBlocks& blocks, std::span<const KeyPanel> panels,
               std::span<const int64_t> key_begins, int num_threads)
      : reaches_(static_cast<size_t>(blocks.size())),
        last_end_(reaches_.size()),
        first_begin_(reaches_.size()) {
    ParallelFor(num_threads, blocks.size(), [&](int64_t b) {
      reaches_[static_cast<size_t>(b)] = blocks.ReachOf(b, panels).InBlocks(key_begins);
    });
    int64_t end = 0, begin = std::numeric_limits<int64_t>::max();
    for (size_t b = 0; b < reaches_.size(); ++b) {
      if (!reaches_[b].empty()) end = std::max(end, reaches_[b].end());
      last_end_[b] = end;
    }
    for (size_t b = reaches_.size(); b-- > 0;) {
      if (!reaches_[b].empty()) begin = std::min(begin, reaches_[b].begin());
      first_begin_[b] = begin;
    }
  }

  const Reach& operator[](int64_t query_block) const { return reaches_[static_cast<size_t>(query_block)]; }

  // All query blocks that reach a key block lie in this range. Tight for masks whose later rows see later
  // keys.
  Range QueryBlocksOf(int64_t key_block) const {
    return {std::ranges::upper_bound(last_end_, key_block) - last_end_.begin(),
            std::ranges::upper_bound(first_begin_, key_block) - first_begin_.begin()};
  }

 private:
  std::vector<Reach> reaches_;
  std::vector<int64_t> last_end_;     // largest end up to this query block
  std::vector<int64_t> first_begin_;  // smallest begin from this query block on
};

// The mean of a KV head's keys, or null: none, or one that a key which is not finite has spoilt for all rows.
const float* KeyMeanOf(const AttentionCall& call, int64_t kv, int64_t width) {
  if (call.key_mean.IsNull()) return nullptr;
  const float* mean = call.key_mean.data<float>() + kv * width;
  return std::all_of(mean, mean + width, [](float x) { return std::isfinite(x); }) ? mean : nullptr;
}

}  // namespace

int64_t AttentionBackwardWorkspace(const AttentionCall& call, const Tensor& q, const Tensor& k,
                                   const Tensor& v, CpuTarget target, int num_threads) {
  CheckAttention(call, q, k, v);
  return SizeOf(DType::kFloat32) * num_threads *
         AttentionKernelsFor(target, q.dtype()).backward_scratch_floats(k.dim(2), v.dim(2));
}

void AttentionBackward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, Tensor dout, Tensor lse,
                       Tensor delta, Tensor dq, Tensor dk, Tensor dv, Tensor workspace, CpuTarget target,
                       int num_threads) {
  CHECK(workspace.num_bytes() >= AttentionBackwardWorkspace(call, q, k, v, target, num_threads));
  const AttentionKernels& kernels = AttentionKernelsFor(target, q.dtype());
  const std::vector<KeyPanel> panels = CutIntoPanels(call.key_spans);
  const std::vector<int64_t> places = PlacesToCut(*call.mask);
  const QueryBlocks blocks(*call.mask, places, call.query_spans, kernels.backward_block);
  // In panels.
  const std::vector<int64_t> key_begins = CutIntoBlocks(panels, kernels.backward_block.panels, places);
  const BlockReaches reaches(blocks, panels, key_begins, num_threads);
  const auto heads_of = QueryHeadsOf(call, k.dim(1));
  const int64_t scratch_floats = kernels.backward_scratch_floats(k.dim(2), v.dim(2));
  // How many key blocks have been added to dq, by head and query block.
  std::vector<std::atomic<int32_t>> added(static_cast<size_t>(q.dim(1) * blocks.size()));

  // Tasks start in this order, and one waits only for tasks before it: there is always one that can go on.
  // Key blocks are the slow index, so that with several KV heads neighbours seldom meet.
  const int64_t num_key_blocks = std::ssize(key_begins) - 1;
  ParallelTasks(num_threads, num_key_blocks * k.dim(1), [&](int64_t task, int thread) {
    const int64_t key_block = task / k.dim(1), kv = task % k.dim(1);
    const Range candidates = reaches.QueryBlocksOf(key_block);
    const std::vector<int64_t>& heads = heads_of[static_cast<size_t>(kv)];
    if (candidates.empty() || heads.empty()) return;

    const int64_t first_panel = key_begins[static_cast<size_t>(key_block)];
    const int64_t end_panel = key_begins[static_cast<size_t>(key_block) + 1];
    const auto keys = std::span(panels).subspan(static_cast<size_t>(first_panel),
                                                static_cast<size_t>(end_panel - first_panel));
    const int num_keys = static_cast<int>(keys.size());
    float* const scratch = static_cast<float*>(workspace.raw()) + thread * scratch_floats;
    BackwardHead head;
    head.width = k.dim(2);
    head.value_width = v.dim(2);
    head.scale = call.scale;
    head.soft_cap = call.soft_cap;
    head.key_mean = KeyMeanOf(call, kv, k.dim(2));
    head.k = HeadOf(k, kv);
    head.v = HeadOf(v, kv);
    head.dk = FloatHeadOf(dk, kv);
    head.dv = FloatHeadOf(dv, kv);
    QueryRows rows;
    TileMasks masks;
    kernels.backward_begin(head, keys.data(), num_keys, scratch);
    // Late rows first, which see the keys of most tasks: a task then seldom finds that the one before it,
    // with more rows to walk, has yet to reach its rows.
    for (int64_t b = candidates.end - 1; b >= candidates.begin; --b) {
      if (!reaches[b].Contains(key_block)) continue;
      blocks.Load(b, rows);
      const bool visible = masks.Classify(rows, keys);
      for (const int64_t h : heads) {
        head.q = HeadOf(q, h);
        head.dout = HeadOf(dout, h);
        head.lse = FloatHeadOf(lse, h);
        head.delta = FloatHeadOf(delta, h);
        head.dq = FloatHeadOf(dq, h);
        if (visible) kernels.backward_queries(head, rows.block(), num_keys, masks.tiles(), scratch);
        std::atomic<int32_t>& turn = added[static_cast<size_t>(h * blocks.size() + b)];
        WaitUntil(turn, static_cast<int32_t>(reaches[b].CountBelow(key_block)));
        if (visible) kernels.backward_dq(head, rows.block(), num_keys, masks.tiles(), scratch);
        turn.fetch_add(1, std::memory_order_release);
      }
    }
    kernels.backward_end(head, keys.data(), num_keys, scratch);
  });
}

}  // namespace longspan::cpu
