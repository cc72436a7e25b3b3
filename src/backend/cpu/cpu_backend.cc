#include "backend/cpu/cpu_backend.h"

#include "backend/cpu/attention.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/ops.h"
#include "backend/shapes.h"

namespace longspan {
namespace cpu {
namespace {

// Checks shapes, takes workspace, and leaves the rest to the operation's own file.
class CpuBackend final : public Backend {
 public:
  CpuBackend(CpuTarget target, int num_threads)
      : Backend(Arena::Mode::kReal),
        target_(target),
        threads_{KernelsFor(target), num_threads},
        products_(target, num_threads) {
    CHECK(num_threads >= 1);
  }

  std::string Describe() const override {
    return fmt::format("cpu, {}, {} thread{}", Name(target_), threads_.num, threads_.num == 1 ? "" : "s");
  }

  int num_threads() const override { return threads_.num; }
  bool shares_host_memory() const override { return true; }

  void Zero(Tensor x) override { cpu::Zero(threads_, x); }
  void Copy(Tensor src, Tensor dst) override {
    shapes::CheckCopy(src, dst);
    cpu::Copy(threads_, src, dst);
  }
  void Cast(Tensor src, Tensor dst) override {
    shapes::CheckCast(src, dst);
    cpu::Cast(threads_, src, dst);
  }
  void Add(Tensor x, Tensor y) override {
    shapes::CheckAdd(x, y);
    cpu::Add(threads_, x, y);
  }
  void Scale(float factor, Tensor x) override {
    CHECK(shapes::IsFloat(x));
    cpu::Scale(threads_, factor, x);
  }
  void CopyHeads(Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) override {
    shapes::CheckHeads(src, src_head, dst, dst_head, n);
    cpu::CopyHeads(threads_, src, src_head, dst, dst_head, n);
  }
  void AddHeads(Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) override {
    shapes::CheckHeads(src, src_head, dst, dst_head, n);
    cpu::AddHeads(threads_, src, src_head, dst, dst_head, n);
  }

  void Matmul(const MatmulArgs& args) override {
    const Arena::Scope scope(arena());
    products_.Run(args, Workspace("matmul workspace", products_.Workspace(args)));
    matmul_flops_ += shapes::MatmulFlops(args);
  }
  int64_t PackedBytes(Tensor matrix) override { return products_.PackedBytes(matrix); }
  void Pack(Tensor matrix, Tensor packed) override { products_.Pack(matrix, packed); }

  void Embedding(Tensor tokens, Tensor table, Tensor out) override {
    shapes::CheckEmbedding(tokens, table, out);
    cpu::Embedding(threads_, tokens, table, out);
  }
  void EmbeddingBackward(Tensor tokens, Tensor dout, int64_t padding_idx, Tensor dtable) override {
    shapes::CheckEmbeddingBackward(tokens, dout, dtable);
    cpu::EmbeddingBackward(threads_, tokens, dout, padding_idx, dtable);
  }

  void AddBias(Tensor bias, Tensor y) override {
    shapes::CheckAddBias(bias, y);
    cpu::AddBias(threads_, bias, y);
  }
  void AddBiasBackward(Tensor dy, Tensor dbias) override {
    shapes::CheckAddBiasBackward(dy, dbias);
    const Arena::Scope scope(arena());
    cpu::AddBiasBackward(threads_, dy, dbias, Workspace("bias workspace", AddBiasBackwardWorkspace(dy)));
  }

  void RmsNorm(Tensor x, const Norm& norm, Tensor y) override {
    shapes::CheckRmsNorm(x, norm, y);
    cpu::RmsNorm(threads_, x, norm, y);
  }
  void AddRmsNorm(Tensor x, Tensor sum, const Norm& norm, Tensor y) override {
    shapes::CheckAddRmsNorm(x, sum, norm, y);
    cpu::AddRmsNorm(threads_, x, sum, norm, y);
  }
  void RmsNormBackward(Tensor x, const Norm& norm, Tensor dy, Tensor dx, Tensor dweight,
                       bool accumulate) override {
    shapes::CheckRmsNormBackward(x, norm, dy, dx, dweight);
    const Arena::Scope scope(arena());
    const Tensor workspace = Workspace("norm workspace", RmsNormBackwardWorkspace(x));
    cpu::RmsNormBackward(threads_, x, norm, dy, dx, dweight, accumulate, workspace);
  }

  void Rope(Tensor x, Tensor positions, const RopeTables& tables, bool inverse) override {
    shapes::CheckRope(x, positions, tables);
    cpu::Rope(threads_, x, positions, tables, inverse);
  }

  void Glu(GateActivation activation, Tensor gate, Tensor up, Tensor out) override {
    shapes::CheckGlu(gate, up, out);
    cpu::Glu(threads_, activation, gate, up, out);
  }
  void GluBackward(GateActivation activation, Tensor gate, Tensor up, Tensor dout, Tensor dgate,
                   Tensor dup) override {
    shapes::CheckGluBackward(gate, up, dout, dgate, dup);
    cpu::GluBackward(threads_, activation, gate, up, dout, dgate, dup);
  }

  void AttentionForward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, bool first, bool last,
                        const AttentionState& state, Tensor out, Tensor lse) override {
    shapes::CheckAttentionForward(call, q, k, v, first, last, state, out, lse);
    const Arena::Scope scope(arena());
    const Tensor workspace =
        Workspace("attention workspace", AttentionForwardWorkspace(call, q, k, v, target_, threads_.num));
    cpu::AttentionForward(call, q, k, v, first, last, state, out, lse, workspace, target_, threads_.num);
  }
  void AttentionDelta(Tensor out, Tensor dout, Tensor delta) override {
    shapes::CheckAttentionDelta(out, dout, delta);
    cpu::AttentionDelta(out, dout, delta, target_, threads_.num);
  }
  void AttentionSinksBackward(Tensor sinks, Tensor lse, Tensor delta, Tensor dsinks) override {
    shapes::CheckAttentionSinksBackward(sinks, lse, delta, dsinks);
    const Arena::Scope scope(arena());
    const Tensor workspace = Workspace("attention workspace", AttentionSinksBackwardWorkspace(lse));
    cpu::AttentionSinksBackward(threads_, sinks, lse, delta, dsinks, workspace);
  }
  void MeanOfRows(Tensor x, std::span<const Range> rows, int64_t num_rows, Tensor mean) override {
    shapes::CheckMeanOfRows(x, rows, num_rows, mean);
    const Arena::Scope scope(arena());
    const Tensor workspace = Workspace("mean workspace", MeanOfRowsWorkspace(mean));
    cpu::MeanOfRows(threads_, x, rows, num_rows, mean, workspace);
  }
  void AttentionBackward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, Tensor dout, Tensor lse,
                         Tensor delta, Tensor dq, Tensor dk, Tensor dv) override {
    shapes::CheckAttentionBackward(call, q, k, v, dout, lse, delta, dq, dk, dv);
    const Arena::Scope scope(arena());
    const Tensor workspace =
        Workspace("attention workspace", AttentionBackwardWorkspace(call, q, k, v, target_, threads_.num));
    cpu::AttentionBackward(call, q, k, v, dout, lse, delta, dq, dk, dv, workspace, target_, threads_.num);
  }

  void SoftCap(float cap, Tensor logits) override {
    shapes::CheckSoftCap(cap, logits);
    cpu::SoftCap(threads_, cap, logits);
  }
  void SoftCapBackward(Tensor capped, float cap, Tensor dlogits) override {
    shapes::CheckSoftCapBackward(capped, cap, dlogits);
    cpu::SoftCapBackward(threads_, capped, cap, dlogits);
  }
  double CrossEntropy(Tensor logits, Tensor targets) override {
    shapes::CheckCrossEntropy(logits, targets);
    const Arena::Scope scope(arena());
    return cpu::CrossEntropy(threads_, logits, targets,
                             Workspace("loss workspace", CrossEntropyWorkspace(logits)));
  }
  void TokenLosses(Tensor logits, Tensor targets, Tensor losses, Tensor argmax) override {
    shapes::CheckTokenLosses(logits, targets, losses, argmax);
    cpu::TokenLosses(threads_, logits, targets, losses, argmax);
  }
  double CrossEntropyBackward(Tensor logits, Tensor targets, float scale, Tensor dlogits) override {
    shapes::CheckCrossEntropyBackward(logits, targets, dlogits);
    const Arena::Scope scope(arena());
    const Tensor workspace = Workspace("loss workspace", CrossEntropyWorkspace(logits));
    return cpu::CrossEntropyBackward(threads_, logits, targets, scale, dlogits, workspace);
  }

  void SumsOfSquares(Tensor x, Tensor sums) override {
    shapes::CheckSumsOfSquares(x, sums);
    cpu::SumsOfSquares(threads_, x, sums);
  }
  void AdamW(const AdamWArgs& args, Tensor grad, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
             Tensor compute) override {
    shapes::CheckAdamW(args, grad, master, exp_avg, exp_avg_sq, compute);
    cpu::AdamW(threads_, args, grad, master, exp_avg, exp_avg_sq, compute);
  }
  void Sgd(double learning_rate, double grad_scale, Tensor grad, Tensor master, Tensor compute) override {
    shapes::CheckSgd(grad, master, compute);
    cpu::Sgd(threads_, learning_rate, grad_scale, grad, master, compute);
  }

 private:
  // `name` is a string literal (Arena). Call inside a scope.
  Tensor Workspace(std::string_view name, int64_t bytes) {
    return arena().Allocate(name, DType::kByte, {bytes});
  }

  CpuTarget target_;
  Threads threads_;
  MatrixProducts products_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(CpuTarget target, int num_threads) {
  CHECK(Runs(DetectCpu(), target));
  return std::make_unique<CpuBackend>(target, num_threads);
}

}  // namespace cpu

std::unique_ptr<Backend> MakeCpuBackend(int num_threads) {
  return cpu::MakeCpuBackend(cpu::ChooseTarget(), num_threads);
}

std::string CpuTargetName() { return std::string(cpu::Name(cpu::ChooseTarget())); }

}  // namespace longspan
