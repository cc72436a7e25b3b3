// Measures a step without computing it: checks the same shapes as the CPU backend, takes the same workspace,
// counts the same matrix products, and touches nothing.
#include "backend/cpu/attention.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/ops.h"
#include "backend/shapes.h"

namespace longspan {
namespace cpu {
namespace {

class DryBackend final : public Backend {
 public:
  DryBackend(CpuTarget target, int num_threads)
      : Backend(Arena::Mode::kMeasure),
        target_(target),
        num_threads_(num_threads),
        products_(target, num_threads) {
    CHECK(num_threads >= 1);
  }

  std::string Describe() const override { return fmt::format("dry run of cpu, {}", Name(target_)); }
  bool dry() const override { return true; }
  int num_threads() const override { return num_threads_; }

  void Zero(Tensor) override {}
  void Copy(Tensor src, Tensor dst) override { shapes::CheckCopy(src, dst); }
  void Cast(Tensor src, Tensor dst) override { shapes::CheckCast(src, dst); }
  void Add(Tensor x, Tensor y) override { shapes::CheckAdd(x, y); }
  void Scale(float, Tensor x) override { CHECK(shapes::IsFloat(x)); }
  void CopyHeads(Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) override {
    shapes::CheckHeads(src, src_head, dst, dst_head, n);
  }
  void AddHeads(Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) override {
    shapes::CheckHeads(src, src_head, dst, dst_head, n);
  }

  void Matmul(const MatmulArgs& args) override {
    TakeWorkspace("matmul workspace", products_.Workspace(args));
    matmul_flops_ += shapes::MatmulFlops(args);
  }
  int64_t PackedBytes(Tensor matrix) override { return products_.PackedBytes(matrix); }
  void Pack(Tensor matrix, Tensor packed) override {
    CHECK(packed.num_bytes() == products_.PackedBytes(matrix));
  }

  void Embedding(Tensor tokens, Tensor table, Tensor out) override {
    shapes::CheckEmbedding(tokens, table, out);
  }
  void EmbeddingBackward(Tensor tokens, Tensor dout, Tensor dtable) override {
    shapes::CheckEmbeddingBackward(tokens, dout, dtable);
  }

  void AddBias(Tensor bias, Tensor y) override { shapes::CheckAddBias(bias, y); }
  void AddBiasBackward(Tensor dy, Tensor dbias) override {
    shapes::CheckAddBiasBackward(dy, dbias);
    TakeWorkspace("bias workspace", AddBiasBackwardWorkspace(dy));
  }

  void RmsNorm(Tensor x, const Norm& norm, Tensor y) override { shapes::CheckRmsNorm(x, norm, y); }
  void AddRmsNorm(Tensor x, Tensor sum, const Norm& norm, Tensor y) override {
    shapes::CheckAddRmsNorm(x, sum, norm, y);
  }
  void RmsNormBackward(Tensor x, const Norm& norm, Tensor dy, Tensor dx, Tensor dweight, bool) override {
    shapes::CheckRmsNormBackward(x, norm, dy, dx, dweight);
    TakeWorkspace("norm workspace", RmsNormBackwardWorkspace(x));
  }

  void Rope(Tensor x, Tensor positions, const RopeTables& tables, bool) override {
    shapes::CheckRope(x, positions, tables);
  }

  void Glu(GateActivation, Tensor gate, Tensor up, Tensor out) override { shapes::CheckGlu(gate, up, out); }
  void GluBackward(GateActivation, Tensor gate, Tensor up, Tensor dout, Tensor dgate, Tensor dup) override {
    shapes::CheckGluBackward(gate, up, dout, dgate, dup);
  }

  void AttentionForward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, bool first, bool last,
                        const AttentionState& state, Tensor out, Tensor lse) override {
    shapes::CheckAttentionForward(call, q, k, v, first, last, state, out, lse);
    TakeWorkspace("attention workspace", AttentionForwardWorkspace(call, q, k, v, target_, num_threads_));
  }
  void AttentionDelta(Tensor out, Tensor dout, Tensor delta) override {
    shapes::CheckAttentionDelta(out, dout, delta);
  }
  void AttentionSinksBackward(Tensor sinks, Tensor lse, Tensor delta, Tensor dsinks) override {
    shapes::CheckAttentionSinksBackward(sinks, lse, delta, dsinks);
    TakeWorkspace("attention workspace", AttentionSinksBackwardWorkspace(lse));
  }
  void MeanOfRows(Tensor x, std::span<const Range> rows, int64_t num_rows, Tensor mean) override {
    shapes::CheckMeanOfRows(x, rows, num_rows, mean);
    TakeWorkspace("mean workspace", MeanOfRowsWorkspace(mean));
  }
  void AttentionBackward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, Tensor dout, Tensor lse,
                         Tensor delta, Tensor dq, Tensor dk, Tensor dv) override {
    shapes::CheckAttentionBackward(call, q, k, v, dout, lse, delta, dq, dk, dv);
    TakeWorkspace("attention workspace", AttentionBackwardWorkspace(call, q, k, v, target_, num_threads_));
  }

  void SoftCap(float cap, Tensor logits) override { shapes::CheckSoftCap(cap, logits); }
  void SoftCapBackward(Tensor capped, float cap, Tensor dlogits) override {
    shapes::CheckSoftCapBackward(capped, cap, dlogits);
  }
  double CrossEntropy(Tensor logits, Tensor targets) override {
    shapes::CheckCrossEntropy(logits, targets);
    TakeWorkspace("loss workspace", CrossEntropyWorkspace(logits));
    return 0;
  }
  void TokenLosses(Tensor logits, Tensor targets, Tensor losses, Tensor argmax) override {
    shapes::CheckTokenLosses(logits, targets, losses, argmax);
  }
  double CrossEntropyBackward(Tensor logits, Tensor targets, float, Tensor dlogits) override {
    shapes::CheckCrossEntropyBackward(logits, targets, dlogits);
    TakeWorkspace("loss workspace", CrossEntropyWorkspace(logits));
    return 0;
  }

  double SumOfSquares(Tensor x) override {
    shapes::CheckSumOfSquares(x);
    TakeWorkspace("gradient norm workspace", SumOfSquaresWorkspace(x));
    return 0;
  }
  void AdamW(const AdamWArgs& args, Tensor grad, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
             Tensor compute) override {
    shapes::CheckAdamW(args, grad, master, exp_avg, exp_avg_sq, compute);
  }
  void Sgd(double, double, Tensor grad, Tensor master, Tensor compute) override {
    shapes::CheckSgd(grad, master, compute);
  }

 private:
  // `name` is a string literal (Arena).
  void TakeWorkspace(std::string_view name, int64_t bytes) {
    const Arena::Scope scope(arena());
    arena().Allocate(name, DType::kByte, {bytes});
  }

  CpuTarget target_;
  int num_threads_;
  MatrixProducts products_;
};

}  // namespace

std::unique_ptr<Backend> MakeDryBackend(CpuTarget target, int num_threads) {
  return std::make_unique<DryBackend>(target, num_threads);
}

}  // namespace cpu

std::unique_ptr<Backend> MakeDryBackend(int num_threads) {
  return cpu::MakeDryBackend(cpu::ChooseTarget(), num_threads);
}

}  // namespace longspan
