#include "model/block.h"

#include <algorithm>

#include "core/check.h"
#include "model/linear.h"

namespace longspan {
namespace {

constexpr size_t Index(Activation id) { return static_cast<size_t>(id); }

// Rows [begin, end) of x (t, heads, D) as a matrix (end − begin, heads · D).
Tensor Matrix(Tensor x, int64_t begin, int64_t end) {
  return x.Rows(begin, end).Reshape({end - begin, x.dim(1) * x.dim(2)});
}

struct Projection {
  Activation id;
  BlockParam weight, bias;
  BlockParam norm = kNumBlockParams;  // none
  bool rotates = false;
};
constexpr Projection kProjections[] = {
    {Activation::kQueryProj, kQueryProj, kQueryBias, kQueryNorm, true},
    {Activation::kKeyProj, kKeyProj, kKeyBias, kKeyNorm, true},
    {Activation::kValueProj, kValueProj, kValueBias},
};
// What Project and Attend write, and what follows.
constexpr Activation kAttention[] = {Activation::kQueryProj, Activation::kKeyProj, Activation::kValueProj,
                                     Activation::kContext, Activation::kContextLse};
constexpr Activation kFeedForward[] = {Activation::kOutProj, Activation::kMlpwi0, Activation::kMlpwi1,
                                       Activation::kMlpwo};

}  // namespace

Block::Block(const ModelConfig& config, const ModelOptions& options, Backend& backend,
             std::span<AttentionStrategy* const> strategies, ActivationStore& activations)
    : config_(config),
      options_(options),
      backend_(backend),
      strategies_(strategies.begin(), strategies.end()),
      activations_(activations),
      params_(BlockParams(config)) {
  CHECK(options.mlp_chunk_rows > 0);
  CHECK(static_cast<int64_t>(strategies_.size()) == config.num_hidden_layers);
  CHECK(config.layer_kind_of.size() == strategies_.size());
}

Block::Layer Block::LayerOf(int layer, const Sequence& sequence) const {
  const auto at = static_cast<size_t>(layer);
  return {.attention = *strategies_[at],
          .positions = sequence.positions,
          .inputs = sequence.kinds[static_cast<size_t>(config_.layer_kind_of[at])]};
}

Tensor Block::Allocate(std::string_view name, int64_t rows, int64_t width) {
  return backend_.arena().Allocate(name, options_.dtype, {rows, width});
}

Tensor Block::AllocateActivation(Activation id, int64_t rows) {
  const Tensor shape = ActivationShape(config_, id, rows, options_.dtype);
  return backend_.arena().Allocate(RowOf(id).name, shape.dtype(), shape.shape());
}

Block::Activations Block::RowsOf(const Activations& a, int64_t begin, int64_t end) {
  Activations rows;
  for (size_t i = 0; i < a.size(); ++i)
    if (!a[i].IsNull()) rows[i] = a[i].Rows(begin, end);
  return rows;
}

void Block::Forward(int layer, std::span<const Weight> weights, const Sequence& sequence, Tensor x, Tensor y,
                    bool keep) {
  const Weights w = ByBlockParam(params_, weights);
  const int64_t rows = x.dim(0);
  Arena::Scope scope(backend_.arena());

  const auto kept = [&](Activation id) { return keep && activations_.Kept(id); };
  const auto written = [&](std::span<const Activation> ids) {
    for (const Activation id : ids)
      if (kept(id)) activations_.Keep(layer, id);
  };
  Activations a;
  for (const Activation id : kAttention)
    a[Index(id)] = kept(id) ? activations_.Slot(layer, id) : AllocateActivation(id, rows);
  for (const Activation id : kFeedForward)
    if (kept(id)) a[Index(id)] = activations_.Slot(layer, id);
  const Layer at = LayerOf(layer, sequence);
  Project(at, w, x, a);
  Attend(at, a);
  written(kAttention);

  ForEachChunk(rows, [&](int64_t begin, int64_t end) {
    const Activations chunk = RowsOf(a, begin, end);
    const FeedForward f = FeedForwardIn(w, x.Rows(begin, end), chunk, /*recall=*/false);
    const Tensor sum = y.Rows(begin, end), slot = chunk[Index(Activation::kMlpwo)];
    const Tensor out = slot.IsNull() ? sum : slot;
    Linear(backend_, f.act, w[kDownProj], out, w[kDownBias].values);
    if (config_.sandwich_norms)
      backend_.RmsNorm(out, NormOf(w, kFeedForwardOutNorm), sum);
    else if (!slot.IsNull())
      backend_.Copy(out, sum);
    backend_.Add(f.h, sum);
  });
  written(kFeedForward);
}

void Block::Backward(int layer, std::span<const Weight> weights, std::span<const Tensor> gradients,
                     const Sequence& sequence, Tensor dresidual) {
  using enum Activation;
  const Weights w = ByBlockParam(params_, weights);
  const Gradients dw = ByBlockParam(params_, gradients);
  const int64_t rows = dresidual.dim(0);
  Arena& arena = backend_.arena();
  Arena::Scope scope(arena);

  const Layer at = LayerOf(layer, sequence);
  const Tensor x = activations_.Take(layer, kDecoderLayerInput);
  const Activations a = Recall(layer, at, w, x);
  const Tensor q = a[Index(kQueryProj)], k = a[Index(kKeyProj)], v = a[Index(kValueProj)];
  const Tensor context = a[Index(kContext)], lse = a[Index(kContextLse)];

  const Tensor dcontext = arena.Allocate("context_gradient", context.dtype(), context.shape());
  ForEachChunk(rows, [&](int64_t begin, int64_t end) {
    FeedForwardBackward(w, dw, x.Rows(begin, end), RowsOf(a, begin, end), dresidual.Rows(begin, end),
                        Matrix(dcontext, begin, end));
  });

  const Tensor delta = arena.Allocate("context_delta", lse.dtype(), lse.shape());
  const Tensor dq = arena.Allocate("query_gradient", q.dtype(), q.shape());
  const Tensor dk = arena.Allocate("key_gradient", k.dtype(), k.shape());
  const Tensor dv = arena.Allocate("value_gradient", v.dtype(), v.shape());
  backend_.AttentionDelta(context, dcontext, delta);
  at.attention.Backward(backend_, at.inputs.shards, q, k, v, dcontext, lse, delta, dq, dk, dv);
  backend_.Rope(dq, at.positions, at.inputs.rope, /*inverse=*/true);
  backend_.Rope(dk, at.positions, at.inputs.rope, /*inverse=*/true);
  ProjectBackward(w, dw, x, dq, dk, dv, dresidual);
}

Block::Activations Block::Recall(int layer, const Layer& at, const Weights& w, Tensor x) {
  using enum Activation;
  Activations a, missing;  // null: kept
  for (const Activation id : kAttention) {
    if (activations_.Kept(id))
      a[Index(id)] = activations_.Take(layer, id);
    else
      a[Index(id)] = missing[Index(id)] = AllocateActivation(id, x.dim(0));
  }
  for (const Activation id : kFeedForward)
    if (activations_.Kept(id)) a[Index(id)] = activations_.Take(layer, id);
  Project(at, w, x, missing);
  if (!missing[Index(kContext)].IsNull()) Attend(at, a);
  return a;
}

void Block::Project(const Layer& at, const Weights& w, Tensor x, const Activations& out) {
  if (std::all_of(std::begin(kProjections), std::end(kProjections),
                  [&](const Projection& p) { return out[Index(p.id)].IsNull(); }))
    return;
  ForEachChunk(x.dim(0), [&](int64_t begin, int64_t end) {
    const Tensor normed = Allocate("input_norm", end - begin, config_.hidden_size);
    backend_.RmsNorm(x.Rows(begin, end), NormOf(w, kInputNorm), normed);
    for (const Projection& p : kProjections) {
      if (out[Index(p.id)].IsNull()) continue;
      const Tensor heads = out[Index(p.id)].Rows(begin, end);
      Linear(backend_, normed, w[p.weight], Matrix(heads, 0, end - begin), w[p.bias].values);
      if (config_.query_key_norm && p.norm != kNumBlockParams)
        backend_.RmsNorm(heads, NormOf(w, p.norm), heads);
      if (p.rotates) backend_.Rope(heads, at.positions.Rows(begin, end), at.inputs.rope, /*inverse=*/false);
    }
  });
}

void Block::ProjectBackward(const Weights& w, const Gradients& dw, Tensor x, Tensor dq, Tensor dk, Tensor dv,
                            Tensor dresidual) {
  const Tensor gradients[] = {dq, dk, dv};  // in the order of kProjections
  ForEachChunk(x.dim(0), [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin, width = config_.hidden_size;
    const Tensor normed = Allocate("input_norm", n, width);
    backend_.RmsNorm(x.Rows(begin, end), NormOf(w, kInputNorm), normed);
    // Three products are summed, in f32.
    const Tensor sum = backend_.arena().Allocate("input_norm_gradient", DType::kFloat32, {n, width});
    for (size_t i = 0; i < std::size(gradients); ++i) {
      const Projection& p = kProjections[i];
      Arena::Scope scope(backend_.arena());
      const Tensor dheads = gradients[i].Rows(begin, end);
      Tensor dprojection = Matrix(dheads, 0, n);
      if (config_.query_key_norm && p.norm != kNumBlockParams) {
        const Tensor projection = Allocate("head_norm_input", n, dprojection.dim(1));
        Linear(backend_, normed, w[p.weight], projection, w[p.bias].values);
        const Tensor heads = projection.Reshape({n, dheads.dim(1), dheads.dim(2)});
        dprojection = Matrix(NormBackwardInPlace(w, dw, p.norm, heads, dheads), 0, n);
      }
      LinearBackwardWeight(backend_, dprojection, normed, dw[p.weight], dw[p.bias]);
      LinearBackwardInput(backend_, dprojection, w[p.weight], sum, /*accumulate=*/i > 0);
    }
    backend_.RmsNormBackward(x.Rows(begin, end), NormOf(w, kInputNorm), sum, dresidual.Rows(begin, end),
                             dw[kInputNorm], /*accumulate=*/true);
  });
}

void Block::Attend(const Layer& at, const Activations& a) {
  using enum Activation;
  at.attention.Forward(backend_, at.inputs.shards, a[Index(kQueryProj)], a[Index(kKeyProj)],
                       a[Index(kValueProj)], a[Index(kContext)], a[Index(kContextLse)]);
}

Block::FeedForward Block::FeedForwardIn(const Weights& w, Tensor x, const Activations& a, bool recall) {
  using enum Activation;
  const int64_t n = x.dim(0), width = config_.hidden_size;
  const auto is_kept = [&](Activation id) { return !a[Index(id)].IsNull(); };
  const auto place = [&](Activation id) { return is_kept(id) ? a[Index(id)] : AllocateActivation(id, n); };
  const auto product = [&](Activation id, Tensor in, BlockParam weight, Tensor out, BlockParam bias) {
    if (!recall || !is_kept(id)) Linear(backend_, in, w[weight], out, w[bias].values);
  };

  FeedForward f;
  f.h = Allocate("residual", n, width);
  f.attention_out = config_.sandwich_norms || is_kept(kOutProj) ? place(kOutProj) : f.h;
  f.m = Allocate("feed_forward_norm", n, width);
  f.gate = place(kMlpwi0);
  f.up = place(kMlpwi1);
  f.act = Allocate("mlpwo_input", n, config_.intermediate_size);

  product(kOutProj, Matrix(a[Index(kContext)], 0, n), BlockParam::kOutProj, f.attention_out, kOutBias);
  if (config_.sandwich_norms)
    backend_.RmsNorm(f.attention_out, NormOf(w, kAttentionOutNorm), f.h);
  else if (is_kept(kOutProj))
    backend_.Copy(f.attention_out, f.h);
  backend_.AddRmsNorm(x, f.h, NormOf(w, kFeedForwardNorm), f.m);
  product(kMlpwi0, f.m, kGateProj, f.gate, kGateBias);
  product(kMlpwi1, f.m, kUpProj, f.up, kUpBias);
  backend_.Glu(config_.gate_activation, f.gate, f.up, f.act);
  return f;
}

// dresidual (n, C): dy in, dh out. dcontext (n, H · E) is written.
void Block::FeedForwardBackward(const Weights& w, const Gradients& dw, Tensor x, const Activations& a,
                                Tensor dresidual, Tensor dcontext) {
  const int64_t n = x.dim(0), width = config_.hidden_size, inner = config_.intermediate_size;
  const Tensor context = Matrix(a[Index(Activation::kContext)], 0, n);
  const FeedForward f = FeedForwardIn(w, x, a, /*recall=*/true);

  const Tensor dact = Allocate("mlpwo_input_gradient", n, inner);
  {
    Arena::Scope scope(backend_.arena());
    Tensor dout = dresidual;
    if (config_.sandwich_norms) {
      Tensor out = a[Index(Activation::kMlpwo)];
      if (out.IsNull()) {
        out = AllocateActivation(Activation::kMlpwo, n);
        Linear(backend_, f.act, w[kDownProj], out, w[kDownBias].values);
      }
      dout = NormBackwardInPlace(w, dw, kFeedForwardOutNorm, out, dresidual);
    }
    LinearBackwardWeight(backend_, dout, f.act, dw[kDownProj], dw[kDownBias]);
    LinearBackwardInput(backend_, dout, w[kDownProj], dact);
  }

  const Tensor dgate = Allocate("mlpwi_0_gradient", n, inner), dup = Allocate("mlpwi_1_gradient", n, inner);
  backend_.GluBackward(config_.gate_activation, f.gate, f.up, dact, dgate, dup);
  LinearBackwardWeight(backend_, dgate, f.m, dw[kGateProj], dw[kGateBias]);
  LinearBackwardWeight(backend_, dup, f.m, dw[kUpProj], dw[kUpBias]);

  // Two products are summed, in f32.
  const Tensor sum = backend_.arena().Allocate("feed_forward_norm_gradient", DType::kFloat32, {n, width});
  LinearBackwardInput(backend_, dgate, w[kGateProj], sum);
  LinearBackwardInput(backend_, dup, w[kUpProj], sum, /*accumulate=*/true);
  backend_.RmsNormBackward(f.h, NormOf(w, kFeedForwardNorm), sum, dresidual, dw[kFeedForwardNorm],
                           /*accumulate=*/true);

  const Tensor dattention = config_.sandwich_norms
                                ? NormBackwardInPlace(w, dw, kAttentionOutNorm, f.attention_out, dresidual)
                                : dresidual;
  LinearBackwardWeight(backend_, dattention, context, dw[kOutProj], dw[kOutBias]);
  LinearBackwardInput(backend_, dattention, w[kOutProj], dcontext);
}

Norm Block::NormOf(const Weights& w, BlockParam param) const {
  return {w[param].values, config_.rms_norm_eps, static_cast<float>(config_.norm_offset)};
}

Tensor Block::NormBackwardInPlace(const Weights& w, const Gradients& dw, BlockParam param, Tensor x,
                                  Tensor dy) {
  Arena::Scope scope(backend_.arena());
  Tensor wide = dy;
  if (dy.dtype() != DType::kFloat32) {
    wide = backend_.arena().Allocate("norm_gradient", DType::kFloat32, dy.shape());
    backend_.Cast(dy, wide);
  }
  backend_.RmsNormBackward(x, NormOf(w, param), wide, x, dw[param], /*accumulate=*/false);
  return x;
}

}  // namespace longspan
