// The matrix products of a layer as the model calls them: y = x·Wᵀ and its two gradients, the weights' added
// to in f32. As in a step, weights are packed beforehand where the backend has such a form.
#include "bench/bench.h"
#include "model/linear.h"

namespace longspan::bench {
namespace {

struct ModelShape {
  std::string_view name;
  int64_t rows;  // tokens at a time, by default
  int64_t hidden_size, intermediate_size, query_heads, kv_heads, head_dim;
  int64_t vocab_size;  // 0: without its head
};
constexpr ModelShape kModels[] = {
    {"100m", 4096, 768, 2048, 6, 2, 128, 32000}, {"8b", 1024, 4096, 14336, 32, 8, 128, 0},  // Llama 3.1 8B
};

struct Product {
  std::string_view name;
  int64_t in, out;
  DType out_dtype;  // of y; the loss wants logits in f32
};

// Each shape once: value is as key, and up as gate.
std::vector<Product> ProductsOf(const ModelShape& m, DType dtype) {
  const int64_t attention = m.query_heads * m.head_dim;
  std::vector<Product> products = {{"query", m.hidden_size, attention, dtype},
                                   {"key", m.hidden_size, m.kv_heads * m.head_dim, dtype},
                                   {"output", attention, m.hidden_size, dtype},
                                   {"gate", m.hidden_size, m.intermediate_size, dtype},
                                   {"down", m.intermediate_size, m.hidden_size, dtype}};
  if (m.vocab_size > 0) products.push_back({"head", m.hidden_size, m.vocab_size, DType::kFloat32});
  return products;
}

void MeasureProduct(const Settings& settings, const ModelShape& model, const Product& product, DType dtype,
                    Backends& backends, Report& report) {
  const int64_t rows = settings.max_target_length.value_or(model.rows);
  const Buffer x = RandomBuffer("x", dtype, {rows, product.in});
  const Buffer values = RandomBuffer("weight", dtype, {product.out, product.in});
  const Buffer dy = RandomBuffer("dy", dtype, {rows, product.out});
  const Buffer y(product.out_dtype, {rows, product.out}), dx(dtype, {rows, product.in});
  const Buffer dweight(DType::kFloat32, {product.out, product.in});

  for (const int threads : settings.Threads()) {
    Backend& backend = backends.On(threads);
    const Buffer packed(backend.PackedBytes(values.tensor()));
    backend.Pack(values.tensor(), packed.tensor());
    const Weight weight{.values = values.tensor(),
                        .packed = packed.num_bytes() > 0 ? packed.tensor() : Tensor()};
    const auto measure = [&](const std::string& pass, const std::function<void()>& run) {
      if (!settings.Wants(pass)) return;
      report.Add({.name = fmt::format("{} {}", model.name, product.name),
                  .pass = pass,
                  .shape = fmt::format("{} × {} × {}", rows, product.out, product.in),
                  .dtype = dtype,
                  .max_target_length = rows,
                  .head_dim = model.head_dim,
                  .query_heads = model.query_heads,
                  .kv_heads = model.kv_heads,
                  .threads = threads,
                  .flops = 2 * static_cast<double>(rows) * static_cast<double>(product.out * product.in),
                  .measured = Measure(dtype, threads, settings.num_runs(), run),
                  .relative_to_causal = {}});
    };
    measure("forward", [&] { Linear(backend, x.tensor(), weight, y.tensor()); });
    measure("input_gradient", [&] { LinearBackwardInput(backend, dy.tensor(), weight, dx.tensor()); });
    measure("weight_gradient",
            [&] { LinearBackwardWeight(backend, dy.tensor(), x.tensor(), dweight.tensor()); });
  }
}

}  // namespace

std::vector<Key> MatmulKeys() {
  using S = Settings;
  std::vector<std::string_view> models;
  for (const ModelShape& model : kModels) models.push_back(model.name);
  return {{"max_target_length", &S::max_target_length, "rows of x, that is tokens at a time", 1 << 20},
          {"model", &S::model, "one of the models alone", 0, models},
          {"dtype", &S::dtype, "of x, W and their products", 0, {"float32", "bfloat16"}},
          {"threads", &S::threads, "threads at work", 4096},
          {"pass", &S::pass, "one of the passes alone", 0, {"forward", "input_gradient", "weight_gradient"}},
          {"runs", &S::runs, "timed runs of a case", 1000}};
}

void RunMatmul(const Settings& settings, Report& report) {
  const std::vector<DType> dtypes = settings.DTypes({DType::kBFloat16});
  report.Peaks(dtypes, settings.Threads());
  Backends backends;
  for (const DType dtype : dtypes)
    for (const ModelShape& model : kModels)
      if (settings.model.empty() || settings.model == model.name)
        for (const Product& product : ProductsOf(model, dtype))
          MeasureProduct(settings, model, product, dtype, backends, report);
  report.Finish(true);
}

}  // namespace longspan::bench
