// The CPU backend's operations but for attention (attention.h) and matrix products (matmul.h). Shapes and
// meaning are those of Backend; shapes were checked. Work is cut into blocks whose size doesn't depend on the
// number of threads, and partial sums are added in the blocks' order, so results don't depend on it either.
//
// An operation that needs workspace has a function for its bytes, which a dry run calls too.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

namespace longspan::cpu {

struct Threads {
  const Kernels& kernels;
  int num;
};

// memory.cc
void Zero(Threads threads, Tensor x);
void Copy(Threads threads, Tensor src, Tensor dst);
void Cast(Threads threads, Tensor src, Tensor dst);
void Add(Threads threads, Tensor x, Tensor y);
void Scale(Threads threads, float factor, Tensor x);
void CopyHeads(Threads threads, Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n);
void AddHeads(Threads threads, Tensor src, int64_t src_head, Tensor dst, int64_t dst_head, int64_t n);

// embedding.cc
void Embedding(Threads threads, Tensor tokens, Tensor table, Tensor out);
void EmbeddingBackward(Threads threads, Tensor tokens, Tensor dout, int64_t padding_idx, Tensor dtable);

// bias.cc
void AddBias(Threads threads, Tensor bias, Tensor y);
int64_t AddBiasBackwardWorkspace(const Tensor& dy);
void AddBiasBackward(Threads threads, Tensor dy, Tensor dbias, Tensor workspace);

// norm.cc
void RmsNorm(Threads threads, Tensor x, const Norm& norm, Tensor y);
void AddRmsNorm(Threads threads, Tensor x, Tensor sum, const Norm& norm, Tensor y);
int64_t RmsNormBackwardWorkspace(const Tensor& x);
void RmsNormBackward(Threads threads, Tensor x, const Norm& norm, Tensor dy, Tensor dx, Tensor dweight,
                     bool accumulate, Tensor workspace);

// rope.cc
void Rope(Threads threads, Tensor x, Tensor positions, const RopeTables& tables, bool inverse);

// glu.cc
void Glu(Threads threads, GateActivation activation, Tensor gate, Tensor up, Tensor out);
void GluBackward(Threads threads, GateActivation activation, Tensor gate, Tensor up, Tensor dout,
                 Tensor dgate, Tensor dup);

// loss.cc
void SoftCap(Threads threads, float cap, Tensor logits);
void SoftCapBackward(Threads threads, Tensor capped, float cap, Tensor dlogits);
int64_t CrossEntropyWorkspace(const Tensor& logits);
double CrossEntropy(Threads threads, Tensor logits, Tensor targets, Tensor workspace);
void TokenLosses(Threads threads, Tensor logits, Tensor targets, Tensor losses, Tensor argmax);
double CrossEntropyBackward(Threads threads, Tensor logits, Tensor targets, float scale, Tensor dlogits,
                            Tensor workspace);

// attention_sums.cc
int64_t AttentionSinksBackwardWorkspace(const Tensor& lse);
void AttentionSinksBackward(Threads threads, Tensor sinks, Tensor lse, Tensor delta, Tensor dsinks,
                            Tensor workspace);
int64_t MeanOfRowsWorkspace(const Tensor& mean);
void MeanOfRows(Threads threads, Tensor x, std::span<const Range> rows, int64_t num_rows, Tensor mean,
                Tensor workspace);

// optimizer.cc
void SumsOfSquares(Threads threads, Tensor x, Tensor sums);
void AdamW(Threads threads, const AdamWArgs& args, Tensor grad, Tensor master, Tensor exp_avg,
           Tensor exp_avg_sq, Tensor compute);
void Sgd(Threads threads, double learning_rate, double grad_scale, Tensor grad, Tensor master,
         Tensor compute);

}  // namespace longspan::cpu
