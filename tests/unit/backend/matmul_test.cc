// Matrix products in every form against a double reference, on every target that runs here.
#include <omp.h>

#include <filesystem>
#include <thread>

#include "reference/pointwise.h"
#include "unit/backend/backend_testing.h"

namespace longspan::test {
namespace {

class MatmulTest : public TargetTest {};
LONGSPAN_FOR_TARGETS(MatmulTest);

struct Sizes {
  int64_t m, n, k;
};
constexpr Sizes kSizes[] = {{1, 1, 1},     {7, 5, 3},     {33, 65, 17}, {64, 48, 130}, {130, 1, 70},
                            {260, 40, 20}, {20, 30, 257}, {16, 16, 0},  {0, 5, 3},     {5, 0, 3}};

// Each element within the rounding of f32 sums of its own size: a bf16 or TF32 unit would be 1,000 times off.
void ExpectProduct(const Guarded& c, const std::vector<double>& want, const std::vector<double>& magnitude) {
  const auto got = c.Get();
  const double output = c.tensor().dtype() == DType::kBFloat16 ? 1.0 / 256 : 0;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-6 * magnitude[i] + output * std::abs(want[i])) << "element " << i;
  }
}

std::vector<double> Absolute(std::vector<double> x) {
  for (double& v : x) v = std::abs(v);
  return x;
}

TEST_P(MatmulTest, EveryFormOfProduct) {
  struct Form {
    DType out;
    bool accumulate;
  };
  std::vector<Form> forms = {{DType::kFloat32, false}, {DType::kFloat32, true}};
  if (dtype() == DType::kBFloat16) forms.push_back({DType::kBFloat16, false});
  const auto one_thread = Make(1), two_threads = Make(2);
  for (const auto& [m, n, k] : kSizes) {
    const size_t rows = static_cast<size_t>(m), columns = static_cast<size_t>(n),
                 depth = static_cast<size_t>(k);
    for (int bits = 0; bits < 4; ++bits) {
      const bool transpose_a = (bits & 1) != 0, transpose_b = (bits & 2) != 0;
      const auto a = Random(random_, rows * depth, dtype()), b = Random(random_, columns * depth, dtype());
      const auto start = Random(random_, rows * columns, DType::kFloat32);
      std::vector<double> product(rows * columns), magnitude(rows * columns, 1);
      reference::Matmul(a, transpose_a, b, transpose_b, rows, columns, depth, product);
      reference::Matmul(Absolute(a), transpose_a, Absolute(b), transpose_b, rows, columns, depth, magnitude);
      Guarded ta(dtype(), {transpose_a ? k : m, transpose_a ? m : k}, a);
      Guarded tb(dtype(), {transpose_b ? n : k, transpose_b ? k : n}, b);
      for (Backend* backend : {one_thread.get(), two_threads.get()}) {
        Guarded packed(DType::kByte, {backend->PackedBytes(tb)});
        backend->Pack(tb, packed);
        std::vector<Tensor> packed_forms = {Tensor()};
        if (packed.tensor().num_bytes() > 0) packed_forms.push_back(packed);
        for (const Form& form : forms) {
          for (const Tensor& packed_b : packed_forms) {
            SCOPED_TRACE(fmt::format("{}: m {} n {} k {}{}{}{}, out {}{}", backend->Describe(), m, n, k,
                                     transpose_a ? ", a transposed" : "", transpose_b ? ", b transposed" : "",
                                     packed_b.IsNull() ? "" : ", b packed", Name(form.out),
                                     form.accumulate ? " +=" : ""));
            Guarded c(form.out, {m, n});  // NaN: a product that reads c without being told to is seen
            if (form.accumulate) c.Set(start);
            auto want = product;
            for (size_t i = 0; form.accumulate && i < want.size(); ++i) want[i] += start[i];
            backend->Matmul({ta, tb, c, transpose_a, transpose_b, form.accumulate, packed_b});
            ExpectProduct(c, want, magnitude);
            EXPECT_EQ(backend->arena().used_bytes(), 0);
          }
        }
      }
    }
  }
}

// Whether there is a packed form is the target's; that it is read, and not b, is seen when they differ.
TEST_P(MatmulTest, PackedIsReadInsteadOfB) {
  const auto backend = Make(1);
  Guarded a(dtype(), {2, 2}, {1, 0, 0, 1}), b(dtype(), {2, 2}, {1, 2, 3, 4}), c(DType::kFloat32, {2, 2});
  const int64_t bytes = backend->PackedBytes(b);
  EXPECT_EQ(bytes > 0, dtype() == DType::kBFloat16 && target() >= CpuTarget::kAvx512Bf16);
  EXPECT_EQ(bytes, MakeDry(2)->PackedBytes(b));
  EXPECT_EQ(backend->PackedBytes(Tensor(nullptr, dtype(), {0, 3})), 0);
  if (bytes == 0) return;
  Guarded packed(DType::kByte, {bytes});
  backend->Pack(b, packed);
  b.Set({5, 6, 7, 8});
  backend->Matmul({.a = a, .b = b, .c = c, .packed_b = packed});
  EXPECT_EQ(c.Get(), (std::vector<double>{1, 2, 3, 4}));
  backend->Matmul({.a = a, .b = b, .c = c, .transpose_b = true, .packed_b = packed});
  EXPECT_EQ(c.Get(), (std::vector<double>{1, 3, 2, 4}));
  const Tensor smaller = packed.tensor().Rows(0, bytes - 1);
  EXPECT_THROW(backend->Matmul({.a = a, .b = b, .c = c, .packed_b = smaller}), std::logic_error);
  EXPECT_THROW(backend->Pack(b, smaller), std::logic_error);
}

TEST_P(MatmulTest, FlopsAreCounted) {
  const auto backend = Make(1);
  Guarded a(dtype(), {3, 5}, std::vector<double>(15, 1)), b(dtype(), {5, 7}, std::vector<double>(35, 1));
  Guarded c(DType::kFloat32, {3, 7});
  backend->Matmul({a, b, c});
  backend->Matmul({.a = a, .b = b, .c = c, .accumulate = true});
  EXPECT_EQ(backend->matmul_flops(), 2 * 2 * 3 * 5 * 7);
  EXPECT_EQ(c.Get(), std::vector<double>(21, 10));
}

TEST_P(MatmulTest, TheSameTwice) {
  const auto a = Random(random_, 65 * 300, dtype()), b = Random(random_, 300 * 33, dtype());
  std::vector<std::vector<double>> results;
  for (int i = 0; i < 3; ++i) {
    Guarded c(DType::kFloat32, {65, 33});
    Make(2)->Matmul({Guarded(dtype(), {65, 300}, a), Guarded(dtype(), {300, 33}, b), c});
    results.push_back(c.Get());
    EXPECT_EQ(results.front(), results.back());
  }
}

// 1,024 products of 1/1024 add up to 1: a weight's gradient over that many micro-steps.
TEST_P(MatmulTest, SmallContributionsAddUp) {
  const auto backend = Make(1);
  Guarded a(dtype(), {1, 2}, {1.0 / 32, 0}), b(dtype(), {2, 1}, {1.0 / 32, 0}),
      c(DType::kFloat32, {1, 1}, {0});
  for (int i = 0; i < 1024; ++i) backend->Matmul({.a = a, .b = b, .c = c, .accumulate = true});
  EXPECT_EQ(c.Get()[0], 1);
}

// A rank's products run on its own threads alone, whatever the OpenMP default of its thread was before.
TEST_P(MatmulTest, UsesOnlyTheRanksThreads) {
  const auto threads_of_process = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  for (const int num_threads : {1, 3}) {
    std::thread rank([&] {
      omp_set_num_threads(5);
      const auto before = threads_of_process();
      const auto backend = Make(num_threads);
      const std::vector<double> ones(256 * 256, 1);
      Guarded a(dtype(), {256, 256}, ones), c(DType::kFloat32, {256, 256});
      backend->Matmul({a, a, c});
      EXPECT_EQ(c.Get(), std::vector<double>(256 * 256, 256));
      EXPECT_LE(threads_of_process(),
                before + num_threads - 1);  // fewer if an earlier rank's were still ending
    });
    rank.join();
  }
}

TEST_P(MatmulTest, WrongShapesAreCaught) {
  const auto backend = Make(1);
  Guarded a(dtype(), {3, 5}), b(dtype(), {4, 7}), c(DType::kFloat32, {3, 7}),
      narrow(DType::kBFloat16, {3, 7});
  EXPECT_THROW(backend->Matmul({a, b, c}), std::logic_error);
  EXPECT_THROW(backend->Matmul({.a = a, .b = a, .c = c, .transpose_b = true}), std::logic_error);
  Guarded right(dtype(), {5, 7});
  EXPECT_THROW(backend->Matmul({.a = a, .b = right, .c = narrow, .accumulate = true}), std::logic_error);
  Guarded a32(DType::kFloat32, {3, 5}), b32(DType::kFloat32, {5, 7});
  EXPECT_THROW(backend->Matmul({a32, b32, narrow}), std::logic_error);
}

}  // namespace
}  // namespace longspan::test
