// DryBackend: measures a step without computing it. It checks the same shapes as a real backend, counts the
// same matrix products, reports each operation to a recorder, and touches nothing. What a device's kernels
// need besides their operands is its subclass's to add: none, for an accelerator.
#pragma once

#include <initializer_list>
#include <string_view>

#include "backend/backend.h"
#include "backend/pair_counts.h"

namespace longspan {

class DryBackend : public Backend {
 public:
  explicit DryBackend(WorkRecorder* recorder) : Backend(Arena::Mode::kMeasure, recorder) {}

  std::string Describe() const override { return "dry run of an accelerator"; }
  bool dry() const override { return true; }
  int num_threads() const override { return 1; }
  bool shares_host_memory() const override { return false; }
  void CountTimes(int64_t times) override;

  void Zero(Tensor x) override;
  void Copy(Tensor src, Tensor dst) override;
  void Cast(Tensor src, Tensor dst) override;
  void Add(Tensor x, Tensor y) override;
  void Scale(float factor, Tensor x) override;
  void CopyHeads(Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) override;
  void AddHeads(Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n) override;

  void Matmul(const MatmulArgs& args) override;
  int64_t PackedBytes(Tensor) override { return 0; }
  void Pack(Tensor matrix, Tensor packed) override;

  void Embedding(Tensor tokens, Tensor table, Tensor out) override;
  void EmbeddingBackward(Tensor tokens, Tensor dout, int64_t padding_idx, Tensor dtable) override;
  void AddBias(Tensor bias, Tensor y) override;
  void AddBiasBackward(Tensor dy, Tensor dbias) override;
  void RmsNorm(Tensor x, const Norm& norm, Tensor y) override;
  void AddRmsNorm(Tensor x, Tensor sum, const Norm& norm, Tensor y) override;
  void RmsNormBackward(Tensor x, const Norm& norm, Tensor dy, Tensor dx, Tensor dweight,
                       bool accumulate) override;
  void Rope(Tensor x, Tensor positions, const RopeTables& tables, bool inverse) override;
  void Glu(GateActivation activation, Tensor gate, Tensor up, Tensor out) override;
  void GluBackward(GateActivation activation, Tensor gate, Tensor up, Tensor dout, Tensor dgate,
                   Tensor dup) override;

  void AttentionForward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, bool first, bool last,
                        const AttentionState& state, Tensor out, Tensor lse) override;
  void AttentionDelta(Tensor out, Tensor dout, Tensor delta) override;
  void AttentionSinksBackward(Tensor sinks, Tensor lse, Tensor delta, Tensor dsinks) override;
  void MeanOfRows(Tensor x, std::span<const Range> rows, int64_t num_rows, Tensor mean) override;
  void AttentionBackward(const AttentionCall& call, Tensor q, Tensor k, Tensor v, Tensor dout, Tensor lse,
                         Tensor delta, Tensor dq, Tensor dk, Tensor dv) override;

  void SoftCap(float cap, Tensor logits) override;
  void SoftCapBackward(Tensor capped, float cap, Tensor dlogits) override;
  double CrossEntropy(Tensor logits, Tensor targets) override;
  void TokenLosses(Tensor logits, Tensor targets, Tensor losses, Tensor argmax) override;
  double CrossEntropyBackward(Tensor logits, Tensor targets, float scale, Tensor dlogits) override;

  void SumsOfSquares(Tensor x, Tensor sums) override;
  void AdamW(const AdamWArgs& args, Tensor grad, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
             Tensor compute) override;
  void Sgd(double learning_rate, double grad_scale, Tensor grad, Tensor master, Tensor compute) override;

 protected:
  // For as long as an operation: `name` is a string literal (Arena).
  void TakeWorkspace(std::string_view name, int64_t bytes);

 private:
  // Reports what takes as long as these are read and written; one that is both is given twice. The first that
  // isn't ids says the dtype.
  void Touch(std::string_view name, std::initializer_list<Tensor> tensors);
  void Report(Work work);

  PairCounts pair_counts_;
  int64_t times_ = 1;
};

}  // namespace longspan
