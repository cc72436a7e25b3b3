// usp: an all-to-all around any inner strategy; with one ring member it is ulysses.
//
// Two forms of a tensor: *token form* (t, heads, width), all heads of my rows; *head form* (U·t, my heads,
// width), my heads of all rows of my Ulysses group, in rank order. Tensors come and go in token form;
// attention runs in head form. A KV head that several ranks use goes to each of them, and its gradients are
// summed in f32.
#include "parallel/ulysses.h"

#include <algorithm>

#include "parallel/accumulator.h"
#include "parallel/strategy.h"

namespace longspan {

std::vector<HeadShare> DealHeads(std::span<const int32_t> kv_of, int num_ranks) {
  const auto num_heads = static_cast<int64_t>(kv_of.size());
  CHECK(num_ranks <= num_heads && std::ranges::is_sorted(kv_of));
  std::vector<HeadShare> shares;
  for (int64_t p = 0; p < num_ranks; ++p) {
    HeadShare share;
    share.query_heads = {p * num_heads / num_ranks, (p + 1) * num_heads / num_ranks};
    const auto mine = kv_of.subspan(static_cast<size_t>(share.query_heads.begin),
                                    static_cast<size_t>(share.query_heads.size()));
    share.kv_heads = {mine.front(), mine.back() + 1};
    for (const int32_t kv : mine) share.kv_of.push_back(kv - mine.front());
    shares.push_back(std::move(share));
  }
  return shares;
}

namespace {

// Exchanges tensors whose heads are dealt as `heads` says, one range per rank of `comm`.
class HeadExchange {
 public:
  HeadExchange(Backend& backend, Comm& comm, std::vector<Range> heads)
      : backend_(backend), comm_(comm), heads_(std::move(heads)) {}

  int64_t num_local_heads() const { return heads_[static_cast<size_t>(comm_.rank())].size(); }

  // Scratch for the head form of `tokens`.
  Tensor AllocateHeadForm(std::string_view name, Tensor tokens, DType dtype) const {
    return backend_.arena().Allocate(name, dtype,
                                     {comm_.size() * tokens.dim(0), num_local_heads(), tokens.dim(2)});
  }

  // Begins to bring `tokens` into head form. The pieces sent are packed into scratch of the arena's open
  // Scope, which must stay open until the event.
  Event ToHeads(Tensor tokens, Tensor head_form) {
    const Tensor packed = AllocatePacked(tokens, tokens.dtype());
    for (int p = 0; p < comm_.size(); ++p) {
      const Range heads = heads_[static_cast<size_t>(p)];
      backend_.CopyHeads(tokens, heads.begin, Piece(packed, tokens, p), 0, heads.size());
    }
    return comm_.AllToAll(packed, PieceBytes(packed, tokens), head_form, LocalBytes(head_form));
  }

  // Begins to bring back to their tokens the heads that I have computed; `packed` is from AllocatePacked.
  Event ToTokens(Tensor head_form, Tensor packed, Tensor tokens) {
    return comm_.AllToAll(head_form, LocalBytes(head_form), packed, PieceBytes(packed, tokens));
  }
  // What follows its event: puts the heads in their places, or adds those that several ranks hold (f32).
  void Unpack(Tensor packed, Tensor tokens) {
    for (int p = 0; p < comm_.size(); ++p) {
      const Range heads = heads_[static_cast<size_t>(p)];
      backend_.CopyHeads(Piece(packed, tokens, p), 0, tokens, heads.begin, heads.size());
    }
  }
  void UnpackAdding(Tensor packed, Tensor tokens) {
    for (int p = 0; p < comm_.size(); ++p) {
      const Range heads = heads_[static_cast<size_t>(p)];
      backend_.AddHeads(Piece(packed, tokens, p), 0, tokens, heads.begin, heads.size());
    }
  }

  // Scratch for the pieces of all ranks of `tokens`, one after the other: rank p's is (t, its heads, width).
  Tensor AllocatePacked(Tensor tokens, DType dtype) const {
    return backend_.arena().Allocate("usp.packed", dtype,
                                     {FirstHead(comm_.size()) * tokens.dim(0) * tokens.dim(2)});
  }

 private:
  // Heads of the ranks before p, those that several ranks hold counted for each.
  int64_t FirstHead(int p) const {
    int64_t first = 0;
    for (int before = 0; before < p; ++before) first += heads_[static_cast<size_t>(before)].size();
    return first;
  }

  Tensor Piece(Tensor packed, Tensor tokens, int p) const {
    const int64_t per_head = tokens.dim(0) * tokens.dim(2);
    return packed.Rows(FirstHead(p) * per_head, FirstHead(p + 1) * per_head)
        .Reshape({tokens.dim(0), heads_[static_cast<size_t>(p)].size(), tokens.dim(2)});
  }

  std::vector<int64_t> PieceBytes(Tensor packed, Tensor tokens) const {
    std::vector<int64_t> bytes;
    for (int p = 0; p < comm_.size(); ++p) bytes.push_back(Piece(packed, tokens, p).num_bytes());
    return bytes;
  }

  std::vector<int64_t> LocalBytes(Tensor head_form) const {
    return std::vector<int64_t>(static_cast<size_t>(comm_.size()), head_form.num_bytes() / comm_.size());
  }

  Backend& backend_;
  Comm& comm_;
  const std::vector<Range> heads_;
};

Tensor WithWidth(Tensor per_head) { return per_head.Reshape({per_head.dim(0), per_head.dim(1), 1}); }

class Usp final : public AttentionStrategy {
 public:
  Usp(Comm& ulysses, int num_ring, std::unique_ptr<AttentionStrategy> inner)
      : ulysses_(ulysses), num_ring_(num_ring), inner_(std::move(inner)) {}

  void Forward(Backend& backend, const SequenceShards& shards, Tensor q, Tensor k, Tensor v, Tensor out,
               Tensor lse) override {
    if (ulysses_.size() == 1) return inner_->Forward(backend, shards, q, k, v, out, lse);
    const Arena::Scope scope(backend.arena());
    Dealt dealt = Deal(backend, shards);
    HeadExchange &query = dealt.query, &kv = dealt.kv;
    const Tensor lse_tokens = WithWidth(lse);
    const Tensor head_q = query.AllocateHeadForm("usp.q", q, q.dtype());
    const Tensor head_k = kv.AllocateHeadForm("usp.k", k, k.dtype());
    const Tensor head_v = kv.AllocateHeadForm("usp.v", v, v.dtype());
    const Tensor head_out = query.AllocateHeadForm("usp.out", out, out.dtype());
    const Tensor head_lse = query.AllocateHeadForm("usp.lse", lse_tokens, DType::kFloat32);
    {
      const Arena::Scope packing(backend.arena());
      WaitAll(backend, {query.ToHeads(q, head_q), kv.ToHeads(k, head_k), kv.ToHeads(v, head_v)});
    }
    inner_->Forward(backend, dealt.inner, head_q, head_k, head_v, head_out, PerHead(head_lse));
    const Tensor packed_out = query.AllocatePacked(out, out.dtype());
    const Tensor packed_lse = query.AllocatePacked(lse_tokens, DType::kFloat32);
    WaitAll(backend,
            {query.ToTokens(head_out, packed_out, out), query.ToTokens(head_lse, packed_lse, lse_tokens)});
    query.Unpack(packed_out, out);
    query.Unpack(packed_lse, lse_tokens);
  }

  void Backward(Backend& backend, const SequenceShards& shards, Tensor q, Tensor k, Tensor v, Tensor dout,
                Tensor lse, Tensor delta, Tensor dq, Tensor dk, Tensor dv) override {
    if (ulysses_.size() == 1) return inner_->Backward(backend, shards, q, k, v, dout, lse, delta, dq, dk, dv);
    const Arena::Scope scope(backend.arena());
    Dealt dealt = Deal(backend, shards);
    HeadExchange &query = dealt.query, &kv = dealt.kv;
    const Tensor lse_tokens = WithWidth(lse), delta_tokens = WithWidth(delta);
    Accumulator dk_sum(backend, "usp.dk_sum", dk), dv_sum(backend, "usp.dv_sum", dv);
    const Tensor head_dq = query.AllocateHeadForm("usp.dq", dq, dq.dtype());
    const Tensor head_dk = kv.AllocateHeadForm("usp.dk", dk, DType::kFloat32);
    const Tensor head_dv = kv.AllocateHeadForm("usp.dv", dv, DType::kFloat32);
    {
      const Arena::Scope inputs(backend.arena());
      const Tensor head_q = query.AllocateHeadForm("usp.q", q, q.dtype());
      const Tensor head_k = kv.AllocateHeadForm("usp.k", k, k.dtype());
      const Tensor head_v = kv.AllocateHeadForm("usp.v", v, v.dtype());
      const Tensor head_dout = query.AllocateHeadForm("usp.dout", dout, dout.dtype());
      const Tensor head_lse = query.AllocateHeadForm("usp.lse", lse_tokens, DType::kFloat32);
      const Tensor head_delta = query.AllocateHeadForm("usp.delta", delta_tokens, DType::kFloat32);
      {
        const Arena::Scope packing(backend.arena());
        WaitAll(backend, {query.ToHeads(q, head_q), kv.ToHeads(k, head_k), kv.ToHeads(v, head_v),
                          query.ToHeads(dout, head_dout), query.ToHeads(lse_tokens, head_lse),
                          query.ToHeads(delta_tokens, head_delta)});
      }
      inner_->Backward(backend, dealt.inner, head_q, head_k, head_v, head_dout, PerHead(head_lse),
                       PerHead(head_delta), head_dq, head_dk, head_dv);
    }
    const Tensor packed_dq = query.AllocatePacked(dq, dq.dtype());
    const Tensor packed_dk = kv.AllocatePacked(dk, DType::kFloat32);
    const Tensor packed_dv = kv.AllocatePacked(dv, DType::kFloat32);
    WaitAll(backend, {query.ToTokens(head_dq, packed_dq, dq), kv.ToTokens(head_dk, packed_dk, dk_sum.sum()),
                      kv.ToTokens(head_dv, packed_dv, dv_sum.sum())});
    query.Unpack(packed_dq, dq);
    kv.UnpackAdding(packed_dk, dk_sum.sum());
    kv.UnpackAdding(packed_dv, dv_sum.sum());
    dk_sum.Finish();
    dv_sum.Finish();
  }

 private:
  // What the inner strategy sees: ring member r holds the rows of its Ulysses group, and this rank some
  // heads.
  // `inner` refers to the vectors beside it.
  struct Dealt {
    HeadExchange query, kv;
    std::vector<std::vector<Range>> ring_spans;
    std::vector<int32_t> kv_of;
    SequenceShards inner;
  };

  Dealt Deal(Backend& backend, const SequenceShards& shards) {
    const auto size = static_cast<size_t>(ulysses_.size());
    CHECK(shards.spans.size() == size * static_cast<size_t>(num_ring_));
    std::vector<HeadShare> shares = DealHeads(shards.kv_of, ulysses_.size());
    const Range mine = shares[static_cast<size_t>(ulysses_.rank())].query_heads;
    std::vector<Range> query_heads, kv_heads;
    for (const HeadShare& share : shares) {
      query_heads.push_back(share.query_heads);
      kv_heads.push_back(share.kv_heads);
    }
    Dealt dealt{.query = {backend, ulysses_, std::move(query_heads)},
                .kv = {backend, ulysses_, std::move(kv_heads)},
                .ring_spans = {},
                .kv_of = std::move(shares[static_cast<size_t>(ulysses_.rank())].kv_of),
                .inner = {}};
    for (size_t r = 0; r < static_cast<size_t>(num_ring_); ++r)
      dealt.ring_spans.push_back(JoinSpans(shards.spans.subspan(r * size, size)));
    dealt.inner = {.mask = shards.mask,
                   .spans = dealt.ring_spans,
                   .kv_of = dealt.kv_of,
                   .scale = shards.scale,
                   .soft_cap = shards.soft_cap,
                   .sinks = shards.sinks.IsNull() ? Tensor() : shards.sinks.Rows(mine.begin, mine.end)};
    return dealt;
  }

  static Tensor PerHead(Tensor with_width) {
    return with_width.Reshape({with_width.dim(0), with_width.dim(1)});
  }

  static void WaitAll(Backend& backend, std::initializer_list<Event> events) {
    for (const Event& event : events) backend.Wait(event);
  }

  Comm& ulysses_;
  const int num_ring_;
  const std::unique_ptr<AttentionStrategy> inner_;
};

}  // namespace

std::unique_ptr<AttentionStrategy> MakeUsp(Comm& ulysses, int num_ring,
                                           std::unique_ptr<AttentionStrategy> inner) {
  return std::make_unique<Usp>(ulysses, num_ring, std::move(inner));
}

}  // namespace longspan
