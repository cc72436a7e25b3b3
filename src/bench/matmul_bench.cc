// The matrix products of a layer as the model calls them.
#include "bench/bench.h"
#include "bench/cases.h"
#include "bench/product_problem.h"

namespace longspan::bench {
namespace {

constexpr int64_t kRuns = 5;

void MeasureProduct(const Settings& settings, const ModelCase& model, const ModelConfig& config,
                    const Product& product, DType dtype, Backends& backends, Report& report) {
  const int64_t rows = ValueOr(settings.max_target_length, model.rows);
  ProductProblem problem(product, rows, dtype);
  for (const int threads : settings.Threads()) {
    Backend& backend = backends.On(threads);
    problem.Pack(backend);
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
    measure("forward", [&] { problem.Forward(backend); });
    measure("input_gradient", [&] { problem.InputGradient(backend); });
    measure("weight_gradient", [&] { problem.WeightGradient(backend); });
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
