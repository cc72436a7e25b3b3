#include "eval/verify.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/format.h"
#include "model/params.h"
#include "train/trainer.h"

namespace longspan {
namespace {

constexpr double kLeastShare = 0.01;  // of the whole gradient's norm that a tensor's counts as
constexpr size_t kTensorsShown = 5;

double Squares(std::span<const float> values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * x;
  return sum;
}

double SquaresOfDifference(std::span<const float> a, std::span<const float> b) {
  CHECK(a.size() == b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  return sum;
}

// How far a is from b, relative to b; of no relation to nothing, the difference itself.
double Relative(double difference, double of) { return of > 0 ? difference / of : difference; }

std::span<const float> ValuesOf(Tensor flat) {
  return {flat.data<float>(), static_cast<size_t>(flat.num_elements())};
}

// One rank's step, whole.
struct Reference {
  StepMetrics metrics;
  std::vector<std::vector<float>> gradients, weights;  // by unit
  double squares_of_gradient = 0, squares_of_weights = 0, squares_of_update = 0;
};

Reference TakeReference(const Job& job, const std::string& checkpoint) {
  Reference reference;
  reference.metrics = TakeStep(job, checkpoint, [&](SeenTensor which, int unit, Tensor flat) {
    const std::span<const float> values = ValuesOf(flat);
    const size_t i = static_cast<size_t>(unit);
    switch (which) {
      case SeenTensor::kWeightsBefore:
        reference.weights.emplace_back(values.begin(), values.end());
        return;
      case SeenTensor::kGradient:
        reference.gradients.emplace_back(values.begin(), values.end());
        reference.squares_of_gradient += Squares(values);
        return;
      case SeenTensor::kWeightsAfter:
        reference.squares_of_update += SquaresOfDifference(values, reference.weights[i]);
        reference.squares_of_weights += Squares(values);
        reference.weights[i].assign(values.begin(), values.end());
    }
  });
  return reference;
}

std::string MeshText(const Job& job) {
  return fmt::format("data {} × fsdp {} × ring {} × ulysses {}", job.mesh.data, job.mesh.fsdp, job.mesh.ring,
                     job.mesh.ulysses);
}

std::string StrategiesOf(const Job& job) {
  return fmt::format("{}", fmt::join(std::set(job.strategies.begin(), job.strategies.end()), " and "));
}

// How far the mesh's step, which `take_step` takes, is from the reference.
Verification Compare(const Reference& reference, const Job& mesh,
                     const std::function<StepMetrics(const SeeUnit&)>& take_step) {
  const StepMetrics& wanted = reference.metrics;
  const double gradient_norm = std::sqrt(reference.squares_of_gradient);

  Verification v;
  double squares_of_weights = 0;  // of their differences
  const ParamTable table = MakeParamTable(mesh.model);
  const auto compare = [&](SeenTensor which, int unit, Tensor flat) {
    if (which == SeenTensor::kWeightsBefore) return;
    const std::vector<ParamRow>& rows = table.units[static_cast<size_t>(unit)].rows;
    const auto& whole = which == SeenTensor::kGradient ? reference.gradients : reference.weights;
    for (const ParamRow& row : rows) {
      const size_t offset = static_cast<size_t>(row.offset), size = static_cast<size_t>(row.num_elements);
      const std::span<const float> got = ValuesOf(flat).subspan(offset, size);
      const auto expected = std::span(whole[static_cast<size_t>(unit)]).subspan(offset, size);
      const double squares = SquaresOfDifference(got, expected);
      const double norm = std::sqrt(Squares(expected));
      if (which == SeenTensor::kGradient) {
        const double of = std::max(norm, kLeastShare * gradient_norm);
        v.tensors.push_back({row.name, Relative(std::sqrt(squares), of), 0});
        v.differences.gradient = std::max(v.differences.gradient, v.tensors.back().gradient);
      } else {
        const auto tensor = std::ranges::find(v.tensors, row.name, &TensorDifference::name);
        CHECK(tensor != v.tensors.end());
        tensor->weights = Relative(std::sqrt(squares), norm);
        squares_of_weights += squares;
      }
    }
  };
  const StepMetrics got = take_step(compare);

  const double weights_norm = std::sqrt(reference.squares_of_weights);
  v.step = got.step;
  v.loss[0] = wanted.loss;
  v.loss[1] = got.loss;
  v.grad_norm[0] = wanted.grad_norm;
  v.grad_norm[1] = got.grad_norm;
  v.differences.loss = Relative(std::abs(got.loss - wanted.loss), std::abs(wanted.loss));
  v.differences.grad_norm = Relative(std::abs(got.grad_norm - wanted.grad_norm), wanted.grad_norm);
  v.differences.weights = Relative(std::sqrt(squares_of_weights), weights_norm);
  v.tolerances = VerifyTolerances(mesh.dtype, Relative(std::sqrt(reference.squares_of_update), weights_norm));
  return v;
}

}  // namespace

bool Verification::passed() const {
  return differences.loss <= tolerances.loss && differences.grad_norm <= tolerances.grad_norm &&
         differences.gradient <= tolerances.gradient && differences.weights <= tolerances.weights;
}

StepDifferences VerifyTolerances(DType dtype, double update) {
  constexpr double kRounding = 0x1p-22;  // of the weights themselves, in float32
  if (dtype == DType::kFloat32)
    return {.loss = 1e-5, .grad_norm = 1e-4, .gradient = 1e-4, .weights = 0.01 * update + kRounding};
  return {.loss = 1e-3, .grad_norm = 1e-2, .gradient = 0.03, .weights = 0.3 * update + kRounding};
}

TrainConfig OnOneRank(const TrainConfig& resolved) {
  TrainConfig config = resolved;
  config.ranks = config.data_parallelism = config.fsdp_parallelism = 1;
  config.context_parallelism = config.ulysses_parallelism = 0;
  config.threads_per_rank = 0;
  config.shard_parameters = false;
  config.context_parallel_layout = "contiguous";
  config.device_memory_limit.clear();
  return config;
}

Verification VerifyStep(const Job& one_rank, const Job& mesh, const std::string& checkpoint) {
  return Compare(TakeReference(one_rank, checkpoint), mesh,
                 [&](const SeeUnit& see) { return TakeStep(mesh, checkpoint, see); });
}

std::optional<Verification> VerifyRankStep(const Job* one_rank, const Job& mesh,
                                           const std::string& checkpoint, Comm& world,
                                           std::span<const Host> hosts) {
  const bool is_first = world.rank() == 0;
  CHECK(is_first == (one_rank != nullptr));
  std::optional<Reference> reference;
  if (is_first) reference = TakeReference(*one_rank, checkpoint);
  world.Barrier();
  const auto take_step = [&](const SeeUnit& see) {
    return TakeRankStep(mesh, checkpoint, world, hosts, see);
  };
  if (is_first) return Compare(*reference, mesh, take_step);
  take_step([](SeenTensor, int, Tensor) {});
  return std::nullopt;
}

std::string VerifyTable(const Job& mesh, const Verification& v) {
  const TrainConfig& c = mesh.config;
  std::string text = fmt::format("step {} of {} in {}: {} of {} tokens\n", v.step, c.model_path, c.dtype,
                                 Plural(c.global_batch_size, "sequence"), Grouped(c.max_target_length));
  const auto run = [&](const std::string& name, int which) {
    text += fmt::format("  loss {:<20} gradient norm {:<20} {}\n", v.loss[which], v.grad_norm[which], name);
  };
  run("one rank", 0);
  run(fmt::format("{}: {}; strategy {}, layout {}{}", Plural(mesh.mesh.ranks(), "rank"), MeshText(mesh),
                  StrategiesOf(mesh), c.context_parallel_layout,
                  c.shard_parameters ? ", sharded weights" : ""),
      1);
  text += fmt::format("\n{:<18} {:>12} {:>12}\n", "largest relative", "difference", "tolerance");
  const auto line = [&](const char* name, double difference, double tolerance) {
    text += fmt::format("{:<18} {:>12.2e} {:>12.2e}{}\n", name, difference, tolerance,
                        difference <= tolerance ? "" : "  exceeded");
  };
  line("loss", v.differences.loss, v.tolerances.loss);
  line("gradient norm", v.differences.grad_norm, v.tolerances.grad_norm);
  line("gradient", v.differences.gradient, v.tolerances.gradient);
  line("updated weights", v.differences.weights, v.tolerances.weights);

  std::vector<TensorDifference> worst = v.tensors;
  std::ranges::stable_sort(worst, std::greater<>(), &TensorDifference::gradient);
  worst.resize(std::min(worst.size(), kTensorsShown));
  text += fmt::format("\n{:>12} {:>12}  of the gradients that differ most, and their weights\n", "gradient",
                      "weights");
  for (const TensorDifference& tensor : worst)
    text += fmt::format("{:>12.2e} {:>12.2e}  {}\n", tensor.gradient, tensor.weights, tensor.name);
  return text + (v.passed() ? "\nverdict: equal within rounding\n" : "\nverdict: different\n");
}

std::string VerifyJson(const Job& mesh, const Verification& v) {
  using Json = nlohmann::ordered_json;
  const TrainConfig& c = mesh.config;
  const auto result = [&](int which) {
    return Json{{"loss", v.loss[which]}, {"grad_norm", v.grad_norm[which]}};
  };
  const auto figures = [](const StepDifferences& d) {
    return Json{
        {"loss", d.loss}, {"grad_norm", d.grad_norm}, {"gradient", d.gradient}, {"weights", d.weights}};
  };
  Json json = {{"model_path", c.model_path},
               {"max_target_length", c.max_target_length},
               {"global_batch_size", c.global_batch_size},
               {"dtype", c.dtype},
               {"ranks", mesh.mesh.ranks()},
               {"data_parallelism", mesh.mesh.data},
               {"fsdp_parallelism", mesh.mesh.fsdp},
               {"context_parallelism", mesh.mesh.ring},
               {"ulysses_parallelism", mesh.mesh.ulysses},
               {"context_parallel_strategy", StrategiesOf(mesh)},
               {"context_parallel_layout", c.context_parallel_layout},
               {"shard_parameters", c.shard_parameters},
               {"step", v.step},
               {"one_rank", result(0)},
               {"mesh", result(1)},
               {"differences", figures(v.differences)},
               {"tolerances", figures(v.tolerances)},
               {"tensors", Json::array()},
               {"equal", v.passed()}};
  for (const TensorDifference& tensor : v.tensors)
    json["tensors"].push_back(
        {{"name", tensor.name}, {"gradient", tensor.gradient}, {"weights", tensor.weights}});
  return json.dump(2) + "\n";
}

}  // namespace longspan
