// Norm, AdamW and SGD against double references, on every target that runs here.
#include "reference/pointwise.h"
#include "unit/backend/backend_testing.h"

namespace longspan::test {
namespace {

class OptimizerTest : public TargetTest {};  // bfloat16: with a rounded copy of the weights
LONGSPAN_FOR_TARGETS(OptimizerTest);

void ExpectRounded(const Guarded& compute, const Guarded& master) {
  const auto rounded = compute.Get(), exact = master.Get();
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_EQ(rounded[i], Rounded(exact[i], DType::kBFloat16)) << i;
}

TEST_P(OptimizerTest, AdamWIsPyTorchs) {
  for (const int64_t n : {0, 1, 33, 40'000}) {
    const size_t size = static_cast<size_t>(n);
    const auto weights = Random(random_, size, DType::kFloat32);
    std::vector<reference::AdamWState> states;
    for (const double weight : weights) states.push_back({weight});
    const auto backend = Make(n > 100 ? 3 : 1);
    Guarded master(DType::kFloat32, {n}, weights), grad(DType::kFloat32, {n}), compute(DType::kBFloat16, {n});
    Guarded exp_avg(DType::kFloat32, {n}, std::vector<double>(size));
    Guarded exp_avg_sq(DType::kFloat32, {n}, std::vector<double>(size));
    for (int step = 1; step <= 4; ++step) {
      auto gradient = Random(random_, size, DType::kFloat32, 1e-3);
      if (n > 2) gradient[2] = 0;
      AdamWArgs args;
      args.learning_rate = 0.01 / step;
      args.beta1 = 0.9;
      args.beta2 = 0.95;
      args.epsilon = 1e-6;
      args.weight_decay = 0.1;
      args.grad_scale = 0.7;
      args.step = step;
      grad.Set(gradient);
      backend->AdamW(args, grad, master, exp_avg, exp_avg_sq,
                     dtype() == DType::kBFloat16 ? compute.tensor() : Tensor());
      for (size_t i = 0; i < size; ++i) {
        reference::AdamW(states[i], gradient[i] * 0.7, 0.01 / step, 0.9, 0.95, 1e-6, 0.1, step);
      }
    }
    std::vector<double> w, m, v;
    for (const auto& state : states) {
      w.push_back(state.weight);
      m.push_back(state.exp_avg);
      v.push_back(state.exp_avg_sq);
    }
    ExpectClose(master.Get(), w, DType::kFloat32, "weights");
    ExpectClose(exp_avg.Get(), m, DType::kFloat32, "exp_avg");
    ExpectClose(exp_avg_sq.Get(), v, DType::kFloat32, "exp_avg_sq");
    if (dtype() == DType::kBFloat16) ExpectRounded(compute, master);
  }
}

// The moments start at zero, so the first update is the learning rate in size, whatever the gradient's.
TEST_P(OptimizerTest, FirstStepIsTheLearningRate) {
  Guarded master(DType::kFloat32, {3}, {1, 1, 1}), grad(DType::kFloat32, {3}, {1e-4, -5, 0});
  Guarded exp_avg(DType::kFloat32, {3}, {0, 0, 0}), exp_avg_sq(DType::kFloat32, {3}, {0, 0, 0});
  AdamWArgs args;
  args.learning_rate = 0.125;
  args.epsilon = 1e-12;
  Make(1)->AdamW(args, grad, master, exp_avg, exp_avg_sq, Tensor());
  const auto w = master.Get();
  EXPECT_NEAR(w[0], 0.875, 1e-6);
  EXPECT_NEAR(w[1], 1.125, 1e-6);
  EXPECT_EQ(w[2], 1);
}

// Learning rate 1: the weights' change is the gradient.
TEST_P(OptimizerTest, Sgd) {
  const auto weights = Random(random_, 40'001, DType::kFloat32),
             gradient = Random(random_, 40'001, DType::kFloat32);
  Guarded master(DType::kFloat32, {40'001}, weights), compute(DType::kBFloat16, {40'001});
  Make(3)->Sgd(1, 0.5, Guarded(DType::kFloat32, {40'001}, gradient), master,
               dtype() == DType::kBFloat16 ? compute.tensor() : Tensor());
  std::vector<double> want = weights;
  for (size_t i = 0; i < want.size(); ++i) want[i] = Rounded(want[i] - 0.5 * gradient[i], DType::kFloat32);
  EXPECT_EQ(master.Get(), want);
  if (dtype() == DType::kBFloat16) ExpectRounded(compute, master);
}

// An element's update does not depend on what lies beside it, so weights may be cut anywhere.
TEST_P(OptimizerTest, PartsAreUpdatedAsTheWhole) {
  constexpr int64_t kSize = 5000;
  constexpr int64_t kCuts[] = {0, 1, 8, 100, 133, 4096, 4097, kSize};
  const auto backend = Make(1);
  const auto weights = Random(random_, kSize, DType::kFloat32),
             gradient = Random(random_, kSize, DType::kFloat32),
             first = Random(random_, kSize, DType::kFloat32, 0.1);
  std::vector<double> second(first);
  for (double& x : second) x = Rounded(x * x, DType::kFloat32);
  std::vector<double> updated[2], by_sgd[2];
  for (const bool in_parts : {false, true}) {
    Guarded grad(DType::kFloat32, {kSize}, gradient), master(DType::kFloat32, {kSize}, weights),
        exp_avg(DType::kFloat32, {kSize}, first), exp_avg_sq(DType::kFloat32, {kSize}, second);
    const auto update = [&](int64_t begin, int64_t end) {
      const auto part = [&](Guarded& x) { return x.tensor().Rows(begin, end); };
      AdamWArgs args;
      args.learning_rate = 0.01;
      args.weight_decay = 0.1;
      args.grad_scale = 0.7;
      args.step = 3;
      backend->AdamW(args, part(grad), part(master), part(exp_avg), part(exp_avg_sq), Tensor());
    };
    const auto sgd = [&](int64_t begin, int64_t end) {
      backend->Sgd(0.01, 0.7, grad.tensor().Rows(begin, end), master.tensor().Rows(begin, end), Tensor());
    };
    const auto all = [&](const auto& act) {
      if (!in_parts) return act(0, kSize);
      for (size_t i = 1; i < std::size(kCuts); ++i) act(kCuts[i - 1], kCuts[i]);
    };
    all(update);
    std::vector<double>& numbers = updated[in_parts];
    for (Guarded* x : {&master, &exp_avg, &exp_avg_sq})
      for (const double value : x->Get()) numbers.push_back(value);
    all(sgd);
    by_sgd[in_parts] = master.Get();
  }
  EXPECT_TRUE(updated[0] == updated[1]);
  EXPECT_TRUE(by_sgd[0] == by_sgd[1]);
}

TEST_P(OptimizerTest, SumOfSquares) {
  for (const int64_t n : {0, 1, 7, 4095, 4096, 4097, 50'000}) {
    const auto x = Random(random_, static_cast<size_t>(n), DType::kFloat32);
    double want = 0;
    for (const double v : x) want += v * v;
    Guarded t(DType::kFloat32, {n}, x);
    const double one = Make(1)->SumOfSquares(t), three = Make(3)->SumOfSquares(t);
    EXPECT_NEAR(one, want, 1e-12 * want);
    EXPECT_EQ(one, three) << "depends on the number of threads";
    // Bit for bit the blocks' own sums, added in order.
    double blocks = 0;
    const Tensor flat = t.tensor();
    for (int64_t begin = 0; begin < n; begin += 4096) {
      blocks += Make(1)->SumOfSquares(flat.Rows(begin, std::min(n, begin + 4096)));
    }
    EXPECT_EQ(one, blocks);
  }
  const auto backend = Make(1);
  EXPECT_EQ(backend->SumOfSquares(Guarded(DType::kFloat32, {2}, {3, 4})) +
                backend->SumOfSquares(Guarded(DType::kFloat32, {2}, {12, 84})),
            85.0 * 85.0);
}

TEST(NormTest, ManySmallGradients) {
  constexpr int64_t kPiece = 1'024'000, kElements = 102'400'000;
  const Repeated ones(std::vector<float>(kPiece, 1), kElements / kPiece);
  const auto backend = MakeCpuBackend(kMostThreads);
  EXPECT_EQ(backend->SumOfSquares(Tensor(ones.data(), DType::kFloat32, {kElements})), 1.0 * kElements);
  const Repeated small(std::vector<float>(kPiece, 1e-4f), kElements / kPiece);
  EXPECT_NEAR(std::sqrt(backend->SumOfSquares(Tensor(small.data(), DType::kFloat32, {100'000'000}))), 1,
              1e-7);
}

TEST_P(OptimizerTest, WrongArgumentsAreCaught) {
  const auto backend = Make(1);
  Guarded x(DType::kFloat32, {4}), y(DType::kFloat32, {4}), z(DType::kFloat32, {4}), w(DType::kFloat32, {4});
  Guarded longer(DType::kFloat32, {5}), wide(DType::kFloat32, {4});
  AdamWArgs args;
  args.step = 0;
  EXPECT_THROW(backend->AdamW(args, x, y, z, w, Tensor()), std::logic_error);
  args.step = 1;
  EXPECT_THROW(backend->AdamW(args, x, y, longer, w, Tensor()), std::logic_error);
  EXPECT_THROW(backend->Sgd(1, 1, x, y, wide), std::logic_error);
}

}  // namespace
}  // namespace longspan::test
