#include "backend/profiled_backend.h"

#include <type_traits>
#include <utility>

#include "backend/dry_backend.h"
#include "core/clock.h"

namespace longspan {
namespace {

// Says of each operation what it is: the dry run of another backend.
class DryTwin final : public DryBackend {
 public:
  DryTwin(Backend& real, WorkRecorder* recorder) : DryBackend(recorder), real_(real) {}
  int64_t PackedBytes(Tensor matrix) override { return real_.PackedBytes(matrix); }

 private:
  Backend& real_;
};

class ProfiledBackend final : public Backend {
 public:
  ProfiledBackend(std::unique_ptr<Backend> backend, TraceRecorder& recorder)
      : Backend(*backend, &recorder),
        backend_(std::move(backend)),
        recorder_(recorder),
        twin_(*backend_, &recorder) {
    CHECK(!backend_->dry());
  }

  std::string Describe() const override { return backend_->Describe(); }
  int num_threads() const override { return backend_->num_threads(); }
  bool shares_host_memory() const override { return backend_->shares_host_memory(); }
  double matmul_flops() const override { return backend_->matmul_flops(); }
  int64_t PackedBytes(Tensor matrix) override { return backend_->PackedBytes(matrix); }

  void Zero(Tensor x) override {
    Do([&](Backend& b) { b.Zero(x); });
  }
  void Copy(Tensor src, Tensor dst) override {
    Do([&](Backend& b) { b.Copy(src, dst); });
  }
  void Cast(Tensor src, Tensor dst) override {
    Do([&](Backend& b) { b.Cast(src, dst); });
  }
  void Add(Tensor x, Tensor y) override {
    Do([&](Backend& b) { b.Add(x, y); });
  }
  void Scale(float factor, Tensor x) override {
    Do([&](Backend& b) { b.Scale(factor, x); });
  }
  void CopyHeads(Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) override {
    Do([&](Backend& b) { b.CopyHeads(src, src_head, dst, dst_head, n); });
  }
  void AddHeads(Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) override {
    Do([&](Backend& b) { b.AddHeads(src, src_head, dst, dst_head, n); });
  }

  void Matmul(const MatmulArgs& args) override {
    Do([&](Backend& b) { b.Matmul(args); });
  }
  void Pack(Tensor matrix, Tensor packed) override {
    Do([&](Backend& b) { b.Pack(matrix, packed); });
  }

  void Embedding(Tensor tokens, Tensor table, Tensor out) override {
    Do([&](Backend& b) { b.Embedding(tokens, table, out); });
  }
  void EmbeddingBackward(Tensor tokens, Tensor dout, int64_t padding_idx, Tensor dtable) override {
    Do([&](Backend& b) { b.EmbeddingBackward(tokens, dout, padding_idx, dtable); });
  }
  void AddBias(Tensor bias, Tensor y) override {
    Do([&](Backend& b) { b.AddBias(bias, y); });
  }
  void AddBiasBackward(Tensor dy, Tensor dbias) override {
    Do([&](Backend& b) { b.AddBiasBackward(dy, dbias); });
  }
  void RmsNorm(Tensor x, const Norm& norm, Tensor y) override {
    Do([&](Backend& b) { b.RmsNorm(x, norm, y); });
  }
  void AddRmsNorm(Tensor x, Tensor sum, const Norm& norm, Tensor y) override {
    Do([&](Backend& b) { b.AddRmsNorm(x, sum, norm, y); });
  }
  void RmsNormBackward(Tensor x, const Norm& norm, Tensor dy, Tensor dx, Tensor dweight,
                       bool accumulate) override {
    Do([&](Backend& b) { b.RmsNormBackward(x, norm, dy, dx, dweight, accumulate); });
  }
  void Rope(Tensor x, Tensor positions, const RopeTables& tables, bool inverse) override {
    Do([&](Backend& b) { b.Rope(x, positions, tables, inverse); });
  }
  void Glu(GateActivation activation, Tensor gate, Tensor up, Tensor out) override {
    Do([&](Backend& b) { b.Glu(activation, gate, up, out); });
  }
  void GluBackward(GateActivation activation, Tensor gate, Tensor up, Tensor dout, Tensor dgate,
                   Tensor dup) override {
    Do([&](Backend& b) { b.GluBackward(activation, gate, up, dout, dgate, dup); });
  }

  void AttentionForward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, bool first, bool last,
                        const AttentionState& state, Tensor out, Tensor lse) override {
    Do([&](Backend& b) { b.AttentionForward(call, q, k, v, first, last, state, out, lse); });
  }
  void AttentionDelta(Tensor out, Tensor dout, Tensor delta) override {
    Do([&](Backend& b) { b.AttentionDelta(out, dout, delta); });
  }
  void AttentionSinksBackward(Tensor sinks, Tensor lse, Tensor delta, Tensor dsinks) override {
    Do([&](Backend& b) { b.AttentionSinksBackward(sinks, lse, delta, dsinks); });
  }
  void MeanOfRows(Tensor x, std::span<const Range> rows, int64_t num_rows, Tensor mean) override {
    Do([&](Backend& b) { b.MeanOfRows(x, rows, num_rows, mean); });
  }
  void AttentionBackward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, Tensor dout, Tensor lse,
                         Tensor delta, Tensor dq, Tensor dk, Tensor dv) override {
    Do([&](Backend& b) { b.AttentionBackward(call, q, k, v, dout, lse, delta, dq, dk, dv); });
  }

  void SoftCap(float cap, Tensor logits) override {
    Do([&](Backend& b) { b.SoftCap(cap, logits); });
  }
  void SoftCapBackward(Tensor capped, float cap, Tensor dlogits) override {
    Do([&](Backend& b) { b.SoftCapBackward(capped, cap, dlogits); });
  }
  double CrossEntropy(Tensor logits, Tensor targets) override {
    return Do([&](Backend& b) { return b.CrossEntropy(logits, targets); });
  }
  void TokenLosses(Tensor logits, Tensor targets, Tensor losses, Tensor argmax) override {
    Do([&](Backend& b) { b.TokenLosses(logits, targets, losses, argmax); });
  }
  double CrossEntropyBackward(Tensor logits, Tensor targets, float scale, Tensor dlogits) override {
    return Do([&](Backend& b) { return b.CrossEntropyBackward(logits, targets, scale, dlogits); });
  }

  void SumsOfSquares(Tensor x, Tensor sums) override {
    Do([&](Backend& b) { b.SumsOfSquares(x, sums); });
  }
  void AdamW(const AdamWArgs& args, Tensor grad, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
             Tensor compute) override {
    Do([&](Backend& b) { b.AdamW(args, grad, master, exp_avg, exp_avg_sq, compute); });
  }
  void Sgd(double learning_rate, double grad_scale, Tensor grad, Tensor master, Tensor compute) override {
    Do([&](Backend& b) { b.Sgd(learning_rate, grad_scale, grad, master, compute); });
  }

 private:
  // The operation, of which its dry twin then reports what it was.
  template <class Operation>
  std::invoke_result_t<Operation, Backend&> Do(const Operation& operation) {
    if (!recorder_.on()) return operation(*backend_);
    const double begin = Now();
    if constexpr (std::is_void_v<std::invoke_result_t<Operation, Backend&>>) {
      operation(*backend_);
      recorder_.Took(begin, Now());
      operation(twin_);
    } else {
      const auto result = operation(*backend_);
      recorder_.Took(begin, Now());
      operation(twin_);
      return result;
    }
  }

  const std::unique_ptr<Backend> backend_;
  TraceRecorder& recorder_;
  DryTwin twin_;
};

}  // namespace

std::unique_ptr<Backend> MakeProfiledBackend(std::unique_ptr<Backend> backend, TraceRecorder& recorder) {
  return std::make_unique<ProfiledBackend>(std::move(backend), recorder);
}

}  // namespace longspan
