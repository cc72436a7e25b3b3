// all_gather: every rank gathers all keys and values and attends once; backward gathers again, and each
// rank's share of dK and dV goes to its owner, which sums in f32.
#include "parallel/accumulator.h"
#include "parallel/key_mean.h"
#include "parallel/strategy.h"

namespace longspan {
namespace {

class AllGather final : public AttentionStrategy {
 public:
  explicit AllGather(Comm& comm) : comm_(comm) {}

  void Forward(Backend& backend, const SequenceShards& shards, Tensor q, Tensor k, Tensor v, Tensor out,
               Tensor lse) override {
    const Arena::Scope scope(backend.arena());
    const std::vector<Range> key_spans = JoinSpans(shards.spans);
    const auto [all_k, all_v] = Gather(backend, k, v);
    backend.AttentionForward(Call(shards, key_spans), q, all_k, all_v, /*first=*/true, /*last=*/true, {}, out,
                             lse);
  }

  void Backward(Backend& backend, const SequenceShards& shards, Tensor q, Tensor k, Tensor v, Tensor dout,
                Tensor lse, Tensor delta, Tensor dq, Tensor dk, Tensor dv) override {
    const Arena::Scope scope(backend.arena());
    const std::vector<Range> key_spans = JoinSpans(shards.spans);
    Accumulator dq_sum(backend, "all_gather.dq", dq), dk_sum(backend, "all_gather.dk", dk),
        dv_sum(backend, "all_gather.dv", dv);
    const auto [all_k, all_v] = Gather(backend, k, v);
    const Tensor all_dk = Whole(backend, "all_gather.all_dk", dk_sum.sum());
    const Tensor all_dv = Whole(backend, "all_gather.all_dv", dv_sum.sum());
    backend.Zero(all_dk);
    backend.Zero(all_dv);
    AttentionCall call = Call(shards, key_spans);
    call.key_mean = KeyMean(backend, comm_, shards, k);
    backend.AttentionBackward(call, q, all_k, all_v, dout, lse, delta, dq_sum.sum(), all_dk, all_dv);
    if (comm_.size() > 1) {
      const Event dk_done = comm_.ReduceScatter(all_dk, dk_sum.sum());
      const Event dv_done = comm_.ReduceScatter(all_dv, dv_sum.sum());
      backend.Wait(dk_done);
      backend.Wait(dv_done);
    }
    dq_sum.Finish();
    dk_sum.Finish();
    dv_sum.Finish();
  }

 private:
  AttentionCall Call(const SequenceShards& shards, std::span<const Range> key_spans) const {
    CHECK(static_cast<int>(shards.spans.size()) == comm_.size());
    return {.mask = shards.mask,
            .query_spans = shards.spans[static_cast<size_t>(comm_.rank())],
            .key_spans = key_spans,
            .kv_of = shards.kv_of,
            .scale = shards.scale,
            .soft_cap = shards.soft_cap,
            .sinks = shards.sinks};
  }

  // Scratch for all ranks' rows of `mine` (t, heads, width), in rank order; `mine` itself where there is one
  // rank.
  Tensor Whole(Backend& backend, std::string_view name, Tensor mine) const {
    if (comm_.size() == 1) return mine;
    return backend.arena().Allocate(name, mine.dtype(),
                                    {comm_.size() * mine.dim(0), mine.dim(1), mine.dim(2)});
  }

  std::pair<Tensor, Tensor> Gather(Backend& backend, Tensor k, Tensor v) {
    const Tensor all_k = Whole(backend, "all_gather.k", k), all_v = Whole(backend, "all_gather.v", v);
    if (comm_.size() > 1) {
      const Event k_here = comm_.AllGather(k, all_k);
      const Event v_here = comm_.AllGather(v, all_v);
      backend.Wait(k_here);
      backend.Wait(v_here);
    }
    return {all_k, all_v};
  }

  Comm& comm_;
};

}  // namespace

std::unique_ptr<AttentionStrategy> MakeAllGather(Comm& comm) { return std::make_unique<AllGather>(comm); }

}  // namespace longspan
