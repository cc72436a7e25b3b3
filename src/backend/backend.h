// Backend: what a device must do. One object per rank; operations run in the order they are called.
//
// Conventions, held by every operation:
// - activations and compute weights are f32 or bf16 ("dtype" below), all the same within one call; sums are
// f32;
// - weight gradients accumulate (+=) in f32; activation gradients are written (=) unless the operation says
//   otherwise;
// - outputs may not overlap inputs unless the operation says "in place";
// - workspace comes from arena() inside the call and is gone after it; each operation that needs some has one
//   function for its size, so that a dry run takes exactly as much;
// - results repeat bit for bit for one binary, CPU target and number of threads.
// Shapes are checked (CHECK): a wrong one is a bug of ours, not a user's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend/gate.h"
#include "core/arena.h"
#include "core/event.h"
#include "core/target.h"
#include "core/tensor.h"
#include "core/work.h"
#include "mask/mask.h"

namespace longspan {

// c (m, n) = op(a) · op(b), or += with `accumulate`. op(a) is (m, k): a is stored (m, k), or (k, m) if
// transposed.
struct MatmulArgs {
  Tensor a, b, c;  // a, b f32 or bf16 (the same); c f32 or like them; sums in f32, f32 products strictly so
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;  // only into f32
  Tensor packed_b = {};     // b as Pack wrote it, which is then read in its stead; or null
};

// Which query rows see which keys, in one call of attention. Nothing is copied: the pointees outlive the
// call.
struct AttentionCall {
  const Mask* mask = nullptr;
  std::span<const Range> query_spans;  // global indices of the rows of q, in their order; sizes sum to t_q
  std::span<const Range> key_spans;    // … of the rows of k and v; sizes sum to t_k. Need not be sorted.
  std::span<const int32_t> kv_of;      // (H) the KV head in k and v of each query head
  float scale = 1;                     // scores are scale · q·k
  float soft_cap = 0;                  // c > 0: c · tanh(scale · q·k / c) instead; 0: no cap
  // (H) f32, or null: a learned logit per query head that joins the softmax of its rows once, in the call
  // with `last`, without a value of its own. Rows that see no key stay as without it. lse includes it.
  Tensor sinks = {};
  // (K, D) f32, or null; read by the backward pass alone, not with a soft cap or sinks. Any constant of a KV
  // head, the same in all calls of a row set: dq = Σ dS · (k − key_mean), equal as Σ dS = 0, and more exact
  // where keys have a common offset (docs/numerics.md).
  Tensor key_mean = {};
};

// The online softmax between two calls (the hops of a ring): unnormalised output, maximum and sum of each
// row, in units of the backend's own.
struct AttentionState {
  Tensor out;  // (t_q, H, E) f32
  Tensor max;  // (t_q, H) f32
  Tensor sum;  // (t_q, H) f32
};

// AdamW as in PyTorch (decoupled decay): m = β1·m + (1−β1)·g; v = β2·v + (1−β2)·g²;
// w −= lr·(m/c1 / (√(v/c2) + eps) + weight_decay·w), with c1 = 1−β1^step, c2 = 1−β2^step, g =
// grad·grad_scale.
struct AdamWArgs {
  double learning_rate = 0, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  double grad_scale = 1;  // clipping
  int64_t step = 1;       // of this update, from 1
};

// y = x / √(mean(x²) + epsilon) ∘ (offset + weight), over the last dimension, whose size `weight` has.
struct Norm {
  Tensor weight;
  float epsilon = 1e-5f;
  float offset = 0;  // 1 where the stored weight is what the gain exceeds 1 by (Gemma)
};

// Two tables from which a phase at any position is put together: angle(position) =
// angle(4096·⌊position/4096⌋) + angle(position mod 4096), each from double. Error below 2e-7 at any position
// (docs/numerics.md).
struct RopeTables {
  static constexpr int64_t kPeriod = 4096;
  Tensor coarse;  // (⌈positions/4096⌉, pairs, 2) f32: cos, sin; pairs ≤ D/2
  Tensor fine;    // (4096, pairs, 2) f32
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string Describe() const = 0;   // "cpu, avx512, 2 threads"
  virtual bool dry() const { return false; }  // true: tensors can't be read, results are unknown
  virtual int num_threads() const = 0;        // of this rank on the host
  // Whether its memory is the host's, from which a disk is written without another copy.
  virtual bool shares_host_memory() const = 0;
  Arena& arena() { return *arena_; }

  // Memory.
  virtual void Zero(Tensor x) = 0;
  virtual void Copy(Tensor src, Tensor dst) = 0;   // same dtype and number of elements
  virtual void Cast(Tensor src, Tensor dst) = 0;   // f32 ↔ bf16, or a copy; same number of elements
  virtual void Add(Tensor x, Tensor y) = 0;        // y += x, same dtype (f32 or bf16), in place
  virtual void Scale(float factor, Tensor x) = 0;  // x *= factor, in place
  // Heads [src_head, src_head + n) of src (t, ·, D) to heads [dst_head, …) of dst (t, ·, D): copied, or added
  // in f32.
  virtual void CopyHeads(Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) = 0;
  virtual void AddHeads(Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) = 0;

  virtual void Matmul(const MatmulArgs& args) = 0;
  // The order in which products read b is not the order of a matrix, so each begins by rewriting it. For a
  // matrix that stays the same for many products, a weight, that can be done once: Pack writes it in both
  // forms, for b and for transposed b: bf16 products read pairs of neighbours along k, and these differ.
  // PackedBytes: for a matrix of this shape and dtype, on any number of threads; 0 if products gain nothing
  // from it, and then there is no packed form. `packed` (PackedBytes) bytes.
  virtual int64_t PackedBytes(Tensor matrix) = 0;
  virtual void Pack(Tensor matrix, Tensor packed) = 0;

  // out (t, C) = table[tokens]; tokens (t) int32 in [0, V), table (V, C).
  virtual void Embedding(Tensor tokens, Tensor table, Tensor out) = 0;
  // dtable (V, C) f32 +=; rows with token `padding_idx` add nothing (as in PyTorch), −1: all add.
  virtual void EmbeddingBackward(Tensor tokens, Tensor dout, int64_t padding_idx, Tensor dtable) = 0;

  // y (…, F) += bias (F), in place, of one dtype.
  virtual void AddBias(Tensor bias, Tensor y) = 0;
  virtual void AddBiasBackward(Tensor dy, Tensor dbias) = 0;  // dbias (F) f32 += Σ over rows of dy (…, F)

  // The norm of x (…, C); y may be x itself.
  virtual void RmsNorm(Tensor x, const Norm& norm, Tensor y) = 0;
  // sum += x in place, then y = the norm of sum: one pass over a residual and its norm. All (…, C).
  virtual void AddRmsNorm(Tensor x, Tensor sum, const Norm& norm, Tensor y) = 0;
  // dy (…, C) f32, as it is a sum of products. dx =, or += with `accumulate` (rounded once); it may be x
  // itself without. dweight (C) f32 +=.
  virtual void RmsNormBackward(Tensor x, const Norm& norm, Tensor dy, Tensor dx, Tensor dweight,
                               bool accumulate) = 0;

  // Rotates pairs (i, i + pairs) of each head of x (t, heads, D), in place, by the phase of positions (t)
  // int64: (a, b) ← (a·cos − b·sin, b·cos + a·sin); what lies behind the pairs stays. `inverse` turns the
  // other way, which is the backward pass.
  virtual void Rope(Tensor x, Tensor positions, const RopeTables& tables, bool inverse) = 0;

  // out = activation(gate) ∘ up, all (t, F): SwiGLU, GeGLU.
  virtual void Glu(GateActivation activation, Tensor gate, Tensor up, Tensor out) = 0;
  virtual void GluBackward(GateActivation activation, Tensor gate, Tensor up, Tensor dout, Tensor dgate,
                           Tensor dup) = 0;

  // One block of keys after another: the first call of a row set starts the state, the last one writes out
  // (t_q, H, E) and lse (t_q, H) f32 (natural log; −∞ for a row that sees nothing, whose out is 0). With
  // first and last both true `state` is not touched and may be empty. q (t_q, H, D), k (t_k, K, D), v (t_k,
  // K, E).
  virtual void AttentionForward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, bool first,
                                bool last, const AttentionState& state, Tensor out, Tensor lse) = 0;
  // delta (t, H) f32 = rowsum(out ∘ dout); out, dout (t, H, E).
  virtual void AttentionDelta(Tensor out, Tensor dout, Tensor delta) = 0;
  // dsinks (H) f32 += −Σ over rows of e^(sink − lse) · delta, in f64; lse and delta (t, H) over all keys.
  // Rows with lse = −∞ add exactly nothing.
  virtual void AttentionSinksBackward(Tensor sinks, Tensor lse, Tensor delta, Tensor dsinks) = 0;
  // The part of a mean over num_rows rows that some of them make: mean (K, D) f32 = Σ over `rows` of x (t, K,
  // D) / num_rows; 0 for none.
  virtual void MeanOfRows(Tensor x, std::span<const Range> rows, int64_t num_rows, Tensor mean) = 0;
  // With lse and delta over all keys; adds (+=) what these keys contribute. dq (t_q, H, D), dk (t_k, K, D),
  // dv (t_k, K, E), all f32. Rows with lse = −∞ add exactly nothing.
  virtual void AttentionBackward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, Tensor dout,
                                 Tensor lse, Tensor delta, Tensor dq, Tensor dk, Tensor dv) = 0;

  // logits = cap · tanh(logits / cap), f32, in place; cap > 0.
  virtual void SoftCap(float cap, Tensor logits) = 0;
  // dlogits, of any dtype, in place: from the gradient of the capped logits to that of what they were.
  virtual void SoftCapBackward(Tensor capped, float cap, Tensor dlogits) = 0;

  // Σ over rows with a target of logsumexp(logits) − logits[target], in f64; logits (n, V) f32, targets (n)
  // int32.
  virtual double CrossEntropy(Tensor logits, Tensor targets) = 0;
  // The same row by row: losses (n) f32, 0 without a target; and the greedy choice, argmax (n) int32: the
  // lowest id of a row's largest logit. A row with a NaN has the loss NaN, and that NaN's id.
  virtual void TokenLosses(Tensor logits, Tensor targets, Tensor losses, Tensor argmax) = 0;
  // Also dlogits (n, V) of any dtype = (softmax(logits) − onehot) · scale, 0 in rows without a target.
  virtual double CrossEntropyBackward(Tensor logits, Tensor targets, float scale, Tensor dlogits) = 0;

  // f64 sums of squares of f32 x, one for each block of kNormBlock consecutive elements (the last one may be
  // shorter): `sums` are bytes, room for as many doubles.
  virtual void SumsOfSquares(Tensor x, Tensor sums) = 0;
  static constexpr int64_t kNormBlock = 4096;
  static constexpr int64_t NormBlocks(int64_t num_elements) {
    return (num_elements + kNormBlock - 1) / kNormBlock;
  }
  // Those sums, added in order. Dry: 0.
  double SumOfSquares(Tensor x);
  // All f32, flat; `compute` is the weight that the model reads: bf16, rounded from master, or empty.
  virtual void AdamW(const AdamWArgs& args, Tensor grad, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
                     Tensor compute) = 0;
  // master −= learning_rate · grad_scale · grad.
  virtual void Sgd(double learning_rate, double grad_scale, Tensor grad, Tensor master, Tensor compute) = 0;

  // Orders what follows after `event` (here a host wait). The time spent is what the run reports as waiting.
  void Wait(const Event& event);
  double wait_seconds() const { return wait_seconds_; }

  // Whom this rank's work is reported to; null: nobody asks.
  WorkRecorder* recorder() const { return recorder_; }
  // What follows, up to the next call, stands for `times` equal pieces of work of a dry run
  // (backend/chunks.h).
  virtual void CountTimes(int64_t times) { CHECK(times == 1); }

  // Floating-point operations of all matrix products so far (2·m·n·k each).
  virtual double matmul_flops() const { return matmul_flops_; }

 protected:
  explicit Backend(Arena::Mode mode, WorkRecorder* recorder = nullptr)
      : arena_(std::make_shared<Arena>(mode)), recorder_(recorder) {}
  // One before another, whose arena it shares.
  Backend(const Backend& other, WorkRecorder* recorder) : arena_(other.arena_), recorder_(recorder) {}
  double matmul_flops_ = 0;

 private:
  std::shared_ptr<Arena> arena_;
  WorkRecorder* recorder_;
  double wait_seconds_ = 0;
};

// A CPU rank with this many threads. The target is what this CPU does fastest, or LONGSPAN_CPU_TARGET
// (scalar, avx2, avx512, avx512bf16, amx, amxmodel); throws Error(kUsage) if that names no target or one that
// this CPU lacks.
std::unique_ptr<Backend> MakeCpuBackend(int num_threads);
// Computes nothing, touches no memory, takes the same workspace as the CPU backend with so many threads.
// Reports every operation to `recorder`, which outlives it, unless that is null.
std::unique_ptr<Backend> MakeDryBackend(int num_threads, WorkRecorder* recorder = nullptr);
// The same of a device whose kernels need nothing but their operands: no workspace, no packed weights.
std::unique_ptr<Backend> MakeDryAccelerator(WorkRecorder* recorder = nullptr);

// Name of the CPU target chosen, and the peak of this machine for a dtype: the best of its units, measured in
// registers alone for some milliseconds on `num_threads` threads at once. FLOP/s.
std::string CpuTargetName();
struct CpuPeak {
  double flops_per_second = 0;
  std::string unit;  // "avx512 fma", "vdpbf16ps", "amx bf16"
};
CpuPeak MeasureCpuPeak(DType dtype, int num_threads);

}  // namespace longspan
