// The matrix products of a layer as the model calls them: y = x·Wᵀ and its two gradients, the weights' added
// to in f32. As in a step, weights are packed beforehand where the backend has such a form.
#include "bench/bench.h"
#include "bench/cases.h"
#include "model/linear.h"

namespace longspan::bench {
namespace {

constexpr int64_t kRuns = 5;

void MeasureProduct(const Settings& settings, const ModelCase& model, const ModelConfig& config,
                    const Product& product, DType dtype, Backends& backends, Report& report) {
  const int64_t rows = ValueOr(settings.max_target_length, model.rows);
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
                  .head_dim = config.head_dim,
                  .query_heads = config.num_attention_heads,
                  .kv_heads = config.num_key_value_heads,
                  .threads = threads,
                  .flops = 2 * static_cast<double>(rows) * static_cast<double>(product.out * product.in),
                  .measured = Measure(dtype, threads, ValueOr(settings.runs, kRuns), run),
                  .figures = {}});
    };
    measure("forward", [&] { Linear(backend, x.tensor(), weight, y.tensor()); });
    measure("input_gradient", [&] { LinearBackwardInput(backend, dy.tensor(), weight, dx.tensor()); });
    measure("weight_gradient",
            [&] { LinearBackwardWeight(backend, dy.tensor(), x.tensor(), dweight.tensor()); });
  }
}

}  // namespace

void RunMatmul(const Settings& settings, Report& report) {
  const std::vector<DType> dtypes = settings.DTypes({DType::kBFloat16});
  report.Peaks(dtypes, settings.Threads());
  Backends backends;
  for (const DType dtype : dtypes)
    for (const ModelCase& model : ModelCases()) {
      if (!settings.model.empty() && settings.model != model.name) continue;
      const ModelConfig config = model.Config();
      for (const Product& product : ProductsOf(config, model.with_head, dtype))
        MeasureProduct(settings, model, config, product, dtype, backends, report);
    }
  report.Finish(true);
}

}  // namespace longspan::bench
