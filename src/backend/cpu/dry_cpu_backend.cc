// The dry twin of the CPU backend: takes the workspace that its kernels take.
#include "backend/cpu/attention.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/ops.h"
#include "backend/dry_backend.h"

namespace longspan {
namespace cpu {
namespace {

class DryCpuBackend final : public DryBackend {
 public:
  DryCpuBackend(CpuTarget target, int num_threads, WorkRecorder* recorder)
      : DryBackend(recorder), target_(target), num_threads_(num_threads), products_(target, num_threads) {
    CHECK(num_threads >= 1);
  }

  std::string Describe() const override { return fmt::format("dry run of cpu, {}", Name(target_)); }
  int num_threads() const override { return num_threads_; }
  bool shares_host_memory() const override { return true; }

  void Matmul(const MatmulArgs& args) override {
    DryBackend::Matmul(args);
    TakeWorkspace("matmul workspace", products_.Workspace(args));
  }
  int64_t PackedBytes(Tensor matrix) override { return products_.PackedBytes(matrix); }

  void AddBiasBackward(Tensor dy, Tensor dbias) override {
    DryBackend::AddBiasBackward(dy, dbias);
    TakeWorkspace("bias workspace", AddBiasBackwardWorkspace(dy));
  }
  void RmsNormBackward(Tensor x, const Norm& norm, Tensor dy, Tensor dx, Tensor dweight,
                       bool accumulate) override {
    DryBackend::RmsNormBackward(x, norm, dy, dx, dweight, accumulate);
    TakeWorkspace("norm workspace", RmsNormBackwardWorkspace(x));
  }

  void AttentionForward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, bool first, bool last,
                        const AttentionState& state, Tensor out, Tensor lse) override {
    DryBackend::AttentionForward(call, q, k, v, first, last, state, out, lse);
    TakeWorkspace("attention workspace", AttentionForwardWorkspace(call, q, k, v, target_, num_threads_));
  }
  void AttentionSinksBackward(Tensor sinks, Tensor lse, Tensor delta, Tensor dsinks) override {
    DryBackend::AttentionSinksBackward(sinks, lse, delta, dsinks);
    TakeWorkspace("attention workspace", AttentionSinksBackwardWorkspace(lse));
  }
  void MeanOfRows(Tensor x, std::span<const Range> rows, int64_t num_rows, Tensor mean) override {
    DryBackend::MeanOfRows(x, rows, num_rows, mean);
    TakeWorkspace("mean workspace", MeanOfRowsWorkspace(mean));
  }
  void AttentionBackward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, Tensor dout, Tensor lse,
                         Tensor delta, Tensor dq, Tensor dk, Tensor dv) override {
    DryBackend::AttentionBackward(call, q, k, v, dout, lse, delta, dq, dk, dv);
    TakeWorkspace("attention workspace", AttentionBackwardWorkspace(call, q, k, v, target_, num_threads_));
  }

  double CrossEntropy(Tensor logits, Tensor targets) override {
    TakeWorkspace("loss workspace", CrossEntropyWorkspace(logits));
    return DryBackend::CrossEntropy(logits, targets);
  }
  double CrossEntropyBackward(Tensor logits, Tensor targets, float scale, Tensor dlogits) override {
    TakeWorkspace("loss workspace", CrossEntropyWorkspace(logits));
    return DryBackend::CrossEntropyBackward(logits, targets, scale, dlogits);
  }

 private:
  CpuTarget target_;
  int num_threads_;
  MatrixProducts products_;
};

}  // namespace

std::unique_ptr<Backend> MakeDryBackend(CpuTarget target, int num_threads, WorkRecorder* recorder) {
  return std::make_unique<DryCpuBackend>(target, num_threads, recorder);
}

}  // namespace cpu

std::unique_ptr<Backend> MakeDryBackend(int num_threads, WorkRecorder* recorder) {
  return cpu::MakeDryBackend(cpu::ChooseTarget(), num_threads, recorder);
}

}  // namespace longspan
