#include "backend/cpu/matmul.h"

#include <omp.h>

#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>

#include "backend/cpu/ops.h"
#include "backend/shapes.h"

namespace longspan::cpu {
namespace {

int64_t RoundUp64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

dnnl::memory::data_type TypeOf(DType dtype) {
  return dtype == DType::kFloat32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

}  // namespace

// One oneDNN primitive per shape. Its scratchpad is ours, so that a step's memory is all in the arena.
class MatrixProducts::OneDnn {
 public:
  // oneDNN picks its instructions itself. LONGSPAN_CPU_TARGET=avx2 must hold for it too, and that can be said
  // only before its first use in the process.
  explicit OneDnn(int num_threads) : num_threads_(num_threads) {
    static std::once_flag once;
    std::call_once(once, [] {
      if (ChooseTarget() == CpuTarget::kAvx2)
        CHECK(set_max_cpu_isa(dnnl::cpu_isa::avx2) == dnnl::status::success);
    });
    engine_ = dnnl::engine(dnnl::engine::kind::cpu, 0);
    stream_ = dnnl::stream(engine_);
  }

  // With `packs_b`, b comes in the form that PackB writes.
  int64_t Scratchpad(const MatmulArgs& args, bool packs_b) { return Find(args, packs_b).scratchpad_bytes; }

  // packed_b is null if b comes as it is.
  void Run(const MatmulArgs& args, void* packed_b, void* scratchpad) {
    const Entry& entry = Find(args, packed_b != nullptr);
    const auto memory = [&](const dnnl::memory::desc& desc, void* data) {
      return dnnl::memory(desc, engine_, data);
    };
    entry.primitive.execute(
        stream_, {{DNNL_ARG_SRC, memory(entry.a, args.a.raw())},
                  {DNNL_ARG_WEIGHTS, memory(entry.b, packed_b != nullptr ? packed_b : args.b.raw())},
                  {DNNL_ARG_DST, memory(entry.c, args.c.raw())},
                  {DNNL_ARG_SCRATCHPAD, memory(entry.scratchpad, scratchpad)}});
    stream_.wait();
  }

  // Of the form in which products read `matrix` as b, transposed or not, fastest: whatever m, the dtype of c
  // and the number of threads.
  int64_t PackedBytes(const Tensor& matrix, bool transposed) { return FindForm(matrix, transposed).bytes; }

  void PackB(const Tensor& matrix, bool transposed, void* packed) {
    const Form& form = FindForm(matrix, transposed);
    dnnl::memory from(form.plain, engine_, matrix.raw()), to(form.packed, engine_, packed);
    form.reorder.execute(stream_, from, to);
    stream_.wait();
  }

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, DType, DType, bool, bool, bool, bool>;
  struct Entry {
    dnnl::matmul primitive;
    dnnl::memory::desc a, b, c, scratchpad;
    int64_t scratchpad_bytes = 0;
  };
  struct Form {
    dnnl::reorder reorder;
    dnnl::memory::desc plain, packed;
    int64_t bytes = 0;
  };

  const Entry& Find(const MatmulArgs& args, bool packs_b) {
    omp_set_num_threads(num_threads_);  // of this thread's regions alone; oneDNN plans for as many
    const auto [m, n, k] = shapes::CheckMatmul(args);
    const Key key{
        m,      n, k, args.a.dtype(), args.c.dtype(), args.transpose_a, args.transpose_b, args.accumulate,
        packs_b};
    const auto found = entries_.find(key);
    return found != entries_.end() ? found->second
                                   : entries_.emplace(key, Make(args, m, n, k, packs_b)).first->second;
  }

  Entry Make(const MatmulArgs& args, int64_t m, int64_t n, int64_t k, bool packs_b) {
    const auto in = TypeOf(args.a.dtype()), out = TypeOf(args.c.dtype());
    using Dims = dnnl::memory::dims;
    Entry entry;
    entry.a = dnnl::memory::desc({m, k}, in, args.transpose_a ? Dims{1, m} : Dims{k, 1});
    entry.b = packs_b ? FindForm(args.b, args.transpose_b).packed : PlainB(k, n, in, args.transpose_b);
    entry.c = dnnl::memory::desc({m, n}, out, Dims{n, 1});
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    attr.set_fpmath_mode(dnnl::fpmath_mode::strict);  // f32 products stay f32 whatever the environment says
    if (args.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attr.set_post_ops(sum);
    }
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(entry.a, entry.b, entry.c), attr, engine_);
    entry.primitive = dnnl::matmul(desc);
    entry.scratchpad = desc.scratchpad_desc();
    entry.scratchpad_bytes = static_cast<int64_t>(entry.scratchpad.get_size());
    return entry;
  }

  static dnnl::memory::desc PlainB(int64_t k, int64_t n, dnnl::memory::data_type type, bool transposed) {
    using Dims = dnnl::memory::dims;
    return {{k, n}, type, transposed ? Dims{1, k} : Dims{n, 1}};
  }

  const Form& FindForm(const Tensor& matrix, bool transposed) {
    omp_set_num_threads(num_threads_);
    const int64_t k = matrix.dim(transposed ? 1 : 0), n = matrix.dim(transposed ? 0 : 1);
    const std::tuple key{k, n, matrix.dtype(), transposed};
    const auto found = forms_.find(key);
    if (found != forms_.end()) return found->second;
    constexpr int64_t kSomeRows = 1024;
    const auto type = TypeOf(matrix.dtype());
    using Dims = dnnl::memory::dims;
    const dnnl::matmul::primitive_desc desc(
        dnnl::matmul::desc({{kSomeRows, k}, type, Dims{k, 1}}, {{k, n}, type, dnnl::memory::format_tag::any},
                           {{kSomeRows, n}, type, Dims{n, 1}}),
        engine_);
    Form form{.reorder = {}, .plain = PlainB(k, n, type, transposed), .packed = desc.weights_desc()};
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::reorder::primitive_desc reorder(engine_, form.plain, engine_, form.packed, attr);
    CHECK(reorder.scratchpad_desc().get_size() == 0);
    form.reorder = dnnl::reorder(reorder);
    form.bytes = RoundUp64(static_cast<int64_t>(form.packed.get_size()));
    return forms_.emplace(key, std::move(form)).first->second;
  }

  int num_threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<Key, Entry> entries_;
  std::map<std::tuple<int64_t, int64_t, DType, bool>, Form> forms_;
};

MatrixProducts::MatrixProducts(CpuTarget target, int num_threads)
    : target_(target), num_threads_(num_threads) {
  if (target != CpuTarget::kScalar) one_dnn_ = std::make_unique<OneDnn>(num_threads);
}

MatrixProducts::~MatrixProducts() = default;

shapes::MatmulSizes MatrixProducts::Check(const MatmulArgs& args) {
  const shapes::MatmulSizes sizes = shapes::CheckMatmul(args);
  CHECK(args.packed_b.IsNull() || args.packed_b.num_bytes() == PackedBytes(args.b));
  return sizes;
}

bool MatrixProducts::IsOnTiles(DType dtype) const {
  return (target_ == CpuTarget::kAmx || target_ == CpuTarget::kAmxModel) && dtype == DType::kBFloat16;
}

bool MatrixProducts::IsInVectors(DType dtype) const {
  return (target_ == CpuTarget::kAvx2 || target_ == CpuTarget::kAvx512) && dtype == DType::kBFloat16;
}

// oneDNN gains 1 to 14 % from a packed b where bf16 is the CPU's own (docs/performance.md).
bool MatrixProducts::GainsFromPacking(DType dtype) const {
  return target_ == CpuTarget::kAvx512Bf16 && dtype == DType::kBFloat16;
}

// The gain is in proportion to m, the cost is not.
bool MatrixProducts::PacksFirst(const MatmulArgs& args) const {
  constexpr int64_t kFewestRows = 256;
  return GainsFromPacking(args.a.dtype()) && args.packed_b.IsNull() && args.c.dim(0) >= kFewestRows;
}

int64_t MatrixProducts::PackedBytes(const Tensor& matrix) {
  CHECK(matrix.rank() == 2 && shapes::IsFloat(matrix));
  if (matrix.num_elements() == 0) return 0;
  if (IsOnTiles(matrix.dtype())) return TilePackedBytes(matrix);
  if (!GainsFromPacking(matrix.dtype())) return 0;
  return one_dnn_->PackedBytes(matrix, true) + one_dnn_->PackedBytes(matrix, false);
}

void MatrixProducts::Pack(const Tensor& matrix, Tensor packed) {
  CHECK(packed.num_bytes() == PackedBytes(matrix));
  if (packed.num_bytes() == 0) return;
  if (IsOnTiles(matrix.dtype())) return TilePack(target_, num_threads_, matrix, packed);
  char* const to = static_cast<char*>(packed.raw());
  one_dnn_->PackB(matrix, true, to);
  one_dnn_->PackB(matrix, false, to + one_dnn_->PackedBytes(matrix, true));
}

int64_t MatrixProducts::Workspace(const MatmulArgs& args) {
  const auto [m, n, k] = Check(args);
  if (m == 0 || n == 0 || k == 0) return 0;
  if (target_ == CpuTarget::kScalar) return PlainMatmulWorkspace(args);
  if (IsOnTiles(args.a.dtype())) return TileMatmulWorkspace(args, num_threads_);
  if (IsInVectors(args.a.dtype())) return VectorMatmulWorkspace(target_, args, num_threads_);
  if (PacksFirst(args))
    return one_dnn_->PackedBytes(args.b, args.transpose_b) + one_dnn_->Scratchpad(args, true);
  return one_dnn_->Scratchpad(args, !args.packed_b.IsNull());
}

void MatrixProducts::Run(const MatmulArgs& args, Tensor workspace) {
  const auto [m, n, k] = Check(args);
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!args.accumulate) Zero({KernelsFor(target_), num_threads_}, args.c);
    return;
  }
  if (target_ == CpuTarget::kScalar) return PlainMatmul(num_threads_, args, workspace);
  if (IsOnTiles(args.a.dtype())) return TileMatmul(target_, num_threads_, args, workspace);
  if (IsInVectors(args.a.dtype())) return VectorMatmul(target_, num_threads_, args, workspace);
  char* const scratch = static_cast<char*>(workspace.raw());
  if (PacksFirst(args)) {
    one_dnn_->PackB(args.b, args.transpose_b, scratch);
    one_dnn_->Run(args, scratch, scratch + one_dnn_->PackedBytes(args.b, args.transpose_b));
  } else if (!args.packed_b.IsNull()) {  // the form for transposed b comes first
    char* const packed = static_cast<char*>(args.packed_b.raw());
    one_dnn_->Run(args, args.transpose_b ? packed : packed + one_dnn_->PackedBytes(args.b, true), scratch);
  } else {
    one_dnn_->Run(args, nullptr, scratch);
  }
}

}  // namespace longspan::cpu
