// Matrix products of the CPU backend: our own of bf16 on CPUs with tiles or without any products of bf16,
// else oneDNN, or plain loops on the scalar target.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/cpu/cpu_features.h"
#include "backend/cpu/kernels.h"
#include "backend/shapes.h"

namespace longspan::cpu {

// One per backend, for one rank. Keeps what oneDNN prepares for each shape.
class MatrixProducts {
 public:
  MatrixProducts(CpuTarget target, int num_threads);
  ~MatrixProducts();

  // Bytes of workspace of a product: a function of shapes and dtypes; the tensors' memory is not touched.
  int64_t Workspace(const MatmulArgs& args);
  // `workspace` has that many bytes.
  void Run(const MatmulArgs& args, Tensor workspace);

  // Of Backend.
  int64_t PackedBytes(const Tensor& matrix);
  void Pack(const Tensor& matrix, Tensor packed);

 private:
  class OneDnn;
  bool IsOnTiles(DType dtype) const;
  bool IsInVectors(DType dtype) const;
  // Whether oneDNN should be given b packed, and whether it is worth it to pack b for this product alone.
  bool GainsFromPacking(DType dtype) const;
  bool PacksFirst(const MatmulArgs& args) const;
  shapes::MatmulSizes Check(const MatmulArgs& args);

  CpuTarget target_;
  int num_threads_;
  std::unique_ptr<OneDnn> one_dnn_;  // none on the scalar target
};

// matmul_tiles.cc: bf16, on targets with tiles.
int64_t TileMatmulWorkspace(const MatmulArgs& args, int num_threads);
void TileMatmul(CpuTarget target, int num_threads, const MatmulArgs& args, Tensor workspace);
int64_t TilePackedBytes(const Tensor& matrix);
void TilePack(CpuTarget target, int num_threads, const Tensor& matrix, Tensor packed);

// matmul_vectors.cc: bf16, on targets with vectors of f32 alone.
int64_t VectorMatmulWorkspace(CpuTarget target, const MatmulArgs& args, int num_threads);
void VectorMatmul(CpuTarget target, int num_threads, const MatmulArgs& args, Tensor workspace);

// matmul_plain.cc
int64_t PlainMatmulWorkspace(const MatmulArgs& args);
void PlainMatmul(int num_threads, const MatmulArgs& args, Tensor workspace);

}  // namespace longspan::cpu
