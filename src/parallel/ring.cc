// ring: keys and values travel from rank to rank while the block before is computed.
//
// At hop h a rank attends to the keys of rank − h, which came from its left neighbour, and passes them on to
// its right one; the online softmax goes on where the hop before left it. In the backward pass K and V go
// round again. The f32 gradients of what a rank owns begin at its right neighbour (hop 1), follow one hop
// behind their keys, each rank adding its part, and come home after P − 1 hops, where the owner's own part
// (hop 0) waits.
#include <array>

#include "parallel/accumulator.h"
#include "parallel/key_mean.h"
#include "parallel/strategy.h"

namespace longspan {
namespace {

// Keys and values of one rank, or their gradients.
struct KvBlock {
  Tensor k;  // (t, K, D)
  Tensor v;  // (t, K, E)
};

KvBlock AllocateBlock(Backend& backend, std::string_view name, const KvBlock& like, DType dtype) {
  Arena& arena = backend.arena();
  const Tensor k = arena.Allocate(name, dtype, {like.k.dim(0), like.k.dim(1), like.k.dim(2)});
  const Tensor v = arena.Allocate(name, dtype, {like.v.dim(0), like.v.dim(1), like.v.dim(2)});
  return {k, v};
}

// A block that leaves and one that arrives: when all have happened, both buffers may be used again.
using Passing = std::array<Event, 4>;

class Ring final : public AttentionStrategy {
 public:
  explicit Ring(Comm& comm) : comm_(comm), hops_(comm.size()) {}

  void Forward(Backend& backend, const SequenceShards& shards, Tensor q, Tensor k, Tensor v, Tensor out,
               Tensor lse) override {
    const Arena::Scope scope(backend.arena());
    AttentionState state;
    if (hops_ > 1) {
      Arena& arena = backend.arena();
      state.out = arena.Allocate("ring.state", DType::kFloat32, {out.dim(0), out.dim(1), out.dim(2)});
      state.max = arena.Allocate("ring.state", DType::kFloat32, {out.dim(0), out.dim(1)});
      state.sum = arena.Allocate("ring.state", DType::kFloat32, {out.dim(0), out.dim(1)});
    }
    KvBlock block = {k, v};
    const std::array<KvBlock, 2> buffers = AllocatePair(backend, "ring.kv", block, k.dtype());
    for (int hop = 0; hop < hops_; ++hop) {
      const bool last = hop == hops_ - 1;
      const KvBlock& next = buffers[static_cast<size_t>(hop % 2)];
      Passing passing;
      if (!last) passing = Pass(block, next);
      backend.AttentionForward(Call(shards, hop), q, block.k, block.v, hop == 0, last, state, out, lse);
      Finish(backend, passing);
      block = next;
    }
  }

  void Backward(Backend& backend, const SequenceShards& shards, Tensor q, Tensor k, Tensor v, Tensor dout,
                Tensor lse, Tensor delta, Tensor dq, Tensor dk, Tensor dv) override {
    const Arena::Scope scope(backend.arena());
    Accumulator dq_sum(backend, "ring.dq", dq), dk_sum(backend, "ring.dk", dk),
        dv_sum(backend, "ring.dv", dv);
    const KvBlock own = {dk_sum.sum(), dv_sum.sum()};
    KvBlock block = {k, v};
    const std::array<KvBlock, 2> buffers = AllocatePair(backend, "ring.kv", block, k.dtype());
    const std::array<KvBlock, 2> gradients = AllocatePair(backend, "ring.dkv", own, DType::kFloat32);
    const Tensor key_mean = KeyMean(backend, comm_, shards, k);  // the same at every hop
    KvBlock arriving;
    if (hops_ > 1) arriving = AllocateBlock(backend, "ring.dkv", own, DType::kFloat32);

    for (int hop = 0; hop < hops_; ++hop) {
      const KvBlock& next = buffers[static_cast<size_t>(hop % 2)];
      const KvBlock& gradient = hop == 0 ? own : gradients[static_cast<size_t>((hop + 1) % 2)];
      const KvBlock& previous = gradients[static_cast<size_t>(hop % 2)];  // of the hop before
      Passing passing, gradient_passing;
      if (hop + 1 < hops_) passing = Pass(block, next);
      if (hop > 1) gradient_passing = Pass(previous, arriving);
      if (hop > 0) {
        backend.Zero(gradient.k);
        backend.Zero(gradient.v);
      }
      AttentionCall call = Call(shards, hop);
      call.key_mean = key_mean;
      backend.AttentionBackward(call, q, block.k, block.v, dout, lse, delta, dq_sum.sum(), gradient.k,
                                gradient.v);
      Finish(backend, passing);
      if (hop > 1) {
        Finish(backend, gradient_passing);
        backend.Add(arriving.k, gradient.k);
        backend.Add(arriving.v, gradient.v);
      }
      block = next;
    }
    if (hops_ > 1) {
      Finish(backend, Pass(gradients[static_cast<size_t>(hops_ % 2)], arriving));
      backend.Add(arriving.k, own.k);
      backend.Add(arriving.v, own.v);
    }
    dq_sum.Finish();
    dk_sum.Finish();
    dv_sum.Finish();
  }

 private:
  AttentionCall Call(const SequenceShards& shards, int hop) const {
    CHECK(static_cast<int>(shards.spans.size()) == hops_);
    const int owner = (comm_.rank() - hop + hops_) % hops_;
    return {.mask = shards.mask,
            .query_spans = shards.spans[static_cast<size_t>(comm_.rank())],
            .key_spans = shards.spans[static_cast<size_t>(owner)],
            .kv_of = shards.kv_of,
            .scale = shards.scale,
            .soft_cap = shards.soft_cap,
            .sinks = shards.sinks};
  }

  // Two blocks that the hops use in turn, as one is computed while the other travels; a ring of two ranks
  // needs the first only, one rank none.
  std::array<KvBlock, 2> AllocatePair(Backend& backend, std::string_view name, const KvBlock& like,
                                      DType dtype) const {
    std::array<KvBlock, 2> pair;
    if (hops_ > 1) pair[0] = AllocateBlock(backend, name, like, dtype);
    if (hops_ > 2) pair[1] = AllocateBlock(backend, name, like, dtype);
    return pair;
  }

  // Begins to send `leaving` to the right and to receive `arriving` from the left.
  Passing Pass(const KvBlock& leaving, const KvBlock& arriving) {
    const int right = (comm_.rank() + 1) % hops_, left = (comm_.rank() + hops_ - 1) % hops_;
    return {comm_.Recv(arriving.k, left), comm_.Recv(arriving.v, left), comm_.Send(leaving.k, right),
            comm_.Send(leaving.v, right)};
  }

  void Finish(Backend& backend, const Passing& passing) {
    for (const Event& event : passing) backend.Wait(event);
  }

  Comm& comm_;
  const int hops_;
};

}  // namespace

std::unique_ptr<AttentionStrategy> MakeRing(Comm& comm) { return std::make_unique<Ring>(comm); }

}  // namespace longspan
