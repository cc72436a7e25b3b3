#include "bench/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "bench/attention_problem.h"
#include "bench/cases.h"
#include "bench/operations.h"
#include "bench/product_problem.h"
#include "bench/ranks.h"
#include "core/check.h"
#include "core/machine.h"

namespace longspan::bench {
namespace {

constexpr DType kDTypes[] = {DType::kBFloat16, DType::kFloat32};
constexpr int64_t kProductRows = 1024;  // as the chunks of a layer
constexpr int64_t kProductWidths[] = {64, 128, 256, 512, 1024, 2048};
constexpr int64_t kHeadWidths[] = {32, 64, 128, 256};
// What is measured by threads as well, in bf16: what is long enough that the start of several threads, which
// is measured by itself, counts for little.
constexpr int64_t kThreadsProductWidths[] = {1024, 2048};
constexpr int64_t kThreadsHeadWidths[] = {64, 128};

// Four digits say more than a measurement knows.
std::string Text(double value) { return fmt::format("{:.4g}", value); }
double Rounded(double value) { return std::stod(Text(value)); }

// y = x·Wᵀ with a square W, and its two gradients.
MakeOperations Products(DType dtype, int64_t width) {
  return [=](Backend& backend) {
    const Product product{.name = "square", .in = width, .out = width, .out_dtype = dtype};
    const auto problem = std::make_shared<ProductProblem>(product, kProductRows, dtype);
    problem->Pack(backend);
    return std::vector<Operation>{[problem](Backend& b) { problem->Forward(b); },
                                  [problem](Backend& b) { problem->InputGradient(b); },
                                  [problem](Backend& b) { problem->WeightGradient(b); }};
  };
}

// Two query heads on one KV head: forward and backward of short documents, then of one.
MakeOperations Attention(DType dtype, int64_t width, int64_t length) {
  return [=](Backend&) {
    const auto problem = std::make_shared<AttentionProblem>(AttentionSizes{length, width, 2, 1}, dtype);
    std::vector<Operation> operations;
    for (const size_t mask_case : {size_t{1}, size_t{0}}) {
      const auto mask = std::make_shared<const Mask>(MaskCases()[mask_case].Make(length));
      operations.push_back([problem, mask](Backend& b) { problem->Forward(b, *mask); });
      operations.push_back([problem, mask](Backend& b) { problem->BackwardAlone(b, *mask); });
    }
    return operations;
  };
}

MakeOperations Others(DType dtype) {
  return [=](Backend& backend) { return OtherOperations(dtype, backend); };
}

MakeOperations Smallest() {
  return [](Backend&) { return std::vector{SmallestOperation()}; };
}

// 2, 4, 8, … and all.
std::vector<int> ThreadCounts(int cores) {
  std::vector<int> counts;
  for (int threads = 2; threads < cores; threads *= 2) counts.push_back(threads);
  if (cores > 1) counts.push_back(cores);
  return counts;
}

// How fast a rank of so many threads is beside as many ranks of one: the median over what both did.
double ThreadsEfficiency(const std::vector<TimedOperation>& one, const std::vector<TimedOperation>& several,
                         int threads) {
  std::vector<double> ratios;
  CHECK(one.size() == several.size());
  for (size_t i = 0; i < one.size(); ++i) ratios.push_back(one[i].seconds / several[i].seconds / threads);
  return Median(std::move(ratios));
}

class Calibrator {
 public:
  explicit Calibrator(const CalibrateSettings& settings) : settings_(settings), runs_(settings.runs) {}

  Calibration Run(const std::function<void(int64_t, int64_t)>& progress) {
    AddSteps();
    for (size_t i = 0; i < steps_.size(); ++i) {
      progress(static_cast<int64_t>(i), std::ssize(steps_));
      MeasurePeaks();
      steps_[i]();
    }
    Conclude();
    return std::move(result_);
  }

 private:
  using Timed = std::vector<TimedOperation>;
  using Case = std::pair<DType, int64_t>;  // with a width

  void AddSteps();
  Timed Time(int ranks, int threads, const MakeOperations& make);
  Timed TimeAlone(const MakeOperations& make) { return Time(cores_, 1, make); }  // on ranks of one thread
  void MeasurePeaks();
  void Conclude();
  void ConcludeProducts(Case c);
  void ConcludeAttention(Case c);
  void MeasureCall();
  void MeasureOthers(DType dtype);
  void MeasureThreads(int threads);
  void MeasureTransfers();

  Hardware& hardware() { return result_.hardware; }
  KernelRates& RatesOf(DType dtype) {
    return dtype == DType::kFloat32 ? hardware().kernels_float32 : hardware().kernels;
  }
  double Efficiency(const TimedOperation& timed, double seconds) {
    return timed.work.flops / (seconds * hardware().peak_flops(timed.work.dtype));
  }

  const CalibrateSettings& settings_;
  const int64_t runs_;
  const int cores_ = NumCores();
  std::vector<std::function<void()>> steps_;
  std::map<DType, CpuPeak> peaks_;              // of all cores, the best so far
  std::map<Case, Timed> products_, attention_;  // on ranks of one thread
  std::map<DType, Timed> others_;
  double smallest_seconds_ = 0;
  Calibration result_;
};

void Calibrator::AddSteps() {
  const auto add = [&](std::function<void()> step) { steps_.push_back(std::move(step)); };
  add([this] { MeasureTransfers(); });  // a disk without room is found early
  for (const DType dtype : kDTypes) {
    for (const int64_t width : kProductWidths)
      add([=, this] { products_[{dtype, width}] = TimeAlone(Products(dtype, width)); });
    for (const int64_t width : kHeadWidths)
      add([=, this] {
        attention_[{dtype, width}] = TimeAlone(Attention(dtype, width, settings_.max_target_length));
      });
    add([=, this] { MeasureOthers(dtype); });
  }
  add([this] { MeasureCall(); });
  for (const int threads : ThreadCounts(cores_)) add([=, this] { MeasureThreads(threads); });
}

Calibrator::Timed Calibrator::Time(int ranks, int threads, const MakeOperations& make) {
  Timed timed = TimeOnRanks(ranks, threads, runs_, make);
  for (const TimedOperation& operation : timed) result_.disturbed = result_.disturbed || operation.disturbed;
  return timed;
}

// Between any two cases: a guest's cores are not always its own, and the peak is what they do when they are.
void Calibrator::MeasurePeaks() {
  for (const DType dtype : kDTypes) {
    CpuPeak& best = peaks_[dtype];
    const CpuPeak peak = MeasureCpuPeak(dtype, cores_);
    if (peak.flops_per_second > best.flops_per_second) best = peak;
  }
}

// What needs the peaks, of which the best is known only at the end.
void Calibrator::Conclude() {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  Hardware& h = hardware();
  h.hardware_name = "this";
  h.kind = "cpu";
  h.cpu_model = CpuModel();
  h.cpu_target = CpuTargetName();
  h.cores = cores_;
  h.device_memory_gib = std::floor(static_cast<double>(PhysicalMemory()) / kGiB * 1000) / 1000;
  const auto of_a_core = [&](DType dtype) {
    return Rounded(peaks_.at(dtype).flops_per_second / cores_ / 1e12);
  };
  h.peak_tflops_bfloat16 = of_a_core(DType::kBFloat16);
  h.peak_tflops_float32 = of_a_core(DType::kFloat32);
  result_.bfloat16_unit = peaks_.at(DType::kBFloat16).unit;
  result_.float32_unit = peaks_.at(DType::kFloat32).unit;
  for (const auto& [c, timed] : products_) ConcludeProducts(c);
  for (const auto& [c, timed] : attention_) ConcludeAttention(c);
}

void Calibrator::ConcludeProducts(Case c) {
  const Timed& timed = products_.at(c);
  KernelRates& rates = RatesOf(c.first);
  const std::array maps = {&rates.matmul_efficiency, &rates.input_gradient_efficiency,
                           &rates.weight_gradient_efficiency};
  for (size_t pass = 0; pass < maps.size(); ++pass) {
    const Work& work = timed[pass].work;
    const double efficiency = Efficiency(timed[pass], timed[pass].seconds);
    (*maps[pass])[fmt::format("{:.3g}", work.flops / static_cast<double>(work.bytes))] =
        Text(std::min(1.0, efficiency));
  }
}

void Calibrator::ConcludeAttention(Case c) {
  const Timed& timed = attention_.at(c);
  KernelRates& rates = RatesOf(c.first);
  const auto fit = [&](const TimedOperation& few, const TimedOperation& many, KernelRates::Map& efficiency,
                       KernelRates::Map& gbps) {
    const AttentionCosts costs = FitAttention(many.work.flops, many.seconds, few.work.flops, few.seconds,
                                              static_cast<double>(many.work.bytes));
    const std::string key = std::to_string(c.second);
    efficiency[key] = Text(std::min(1.0, Efficiency(many, many.work.flops * costs.seconds_per_flop)));
    if (costs.seconds_per_byte > 0) gbps[key] = Text(1e-9 / costs.seconds_per_byte);
  };
  fit(timed[0], timed[2], rates.attention_forward_efficiency, rates.attention_forward_gbps);
  fit(timed[1], timed[3], rates.attention_backward_efficiency, rates.attention_backward_gbps);
}

void Calibrator::MeasureCall() {
  constexpr int64_t kFewRows = 16;
  double seconds = 0;
  const Timed calls = TimeAlone(Attention(DType::kBFloat16, kHeadWidths[0], kFewRows));
  for (const TimedOperation& call : calls) seconds += call.seconds / static_cast<double>(calls.size());
  hardware().attention_call_us = Rounded(seconds * 1e6);
  smallest_seconds_ = TimeAlone(Smallest())[0].seconds;
}

void Calibrator::MeasureOthers(DType dtype) {
  const Timed& timed = others_[dtype] = TimeAlone(Others(dtype));
  for (const TimedOperation& operation : timed) {
    const double gbps = static_cast<double>(operation.work.bytes) / operation.seconds / 1e9;
    RatesOf(operation.work.dtype).operation_gbps[std::string(operation.work.name)] = Text(gbps);
    if (operation.work.name == "copy") hardware().memory_gbps = Rounded(gbps);
  }
  hardware().host_gbps = Rounded(hardware().memory_gbps / 2);  // of which a copy reads and writes each byte
}

void Calibrator::MeasureThreads(int threads) {
  const int ranks = cores_ / threads;
  const std::string key = std::to_string(threads);
  constexpr DType kDType = DType::kBFloat16;
  const auto append = [](Timed& to, const Timed& more) { to.insert(to.end(), more.begin(), more.end()); };
  Timed one, several;
  for (const int64_t width : kThreadsProductWidths) {
    append(one, products_.at({kDType, width}));
    append(several, Time(ranks, threads, Products(kDType, width)));
  }
  hardware().matmul_threads_efficiency[key] = Text(ThreadsEfficiency(one, several, threads));
  one.clear();
  several.clear();
  for (const int64_t width : kThreadsHeadWidths) {
    append(one, attention_.at({kDType, width}));
    append(several, Time(ranks, threads, Attention(kDType, width, settings_.max_target_length)));
  }
  hardware().attention_threads_efficiency[key] = Text(ThreadsEfficiency(one, several, threads));
  hardware().operation_threads_efficiency[key] =
      Text(ThreadsEfficiency(others_.at(kDType), Time(ranks, threads, Others(kDType)), threads));
  const double smallest = Time(ranks, threads, Smallest())[0].seconds;
  hardware().threads_us[key] = Text(1e6 * std::max(1e-8, smallest - smallest_seconds_ / threads));
}

void Calibrator::MeasureTransfers() {
  Hardware& h = hardware();
  const int ranks = std::max(2, cores_);
  const LinkRates links = MeasureLinks(ranks, runs_);
  h.link_gbps = Rounded(links.gbps * ranks / cores_);
  h.message_us = Rounded(links.message_us);
  const DiskRates disk = MeasureDisk(settings_.offload_directory, runs_);
  h.disk_gbps = Rounded(disk.write_gbps);
  h.disk_read_gbps = Rounded(disk.read_gbps);
  result_.direct_disk = disk.direct;
}

}  // namespace

Calibration Calibrate(const CalibrateSettings& settings,
                      const std::function<void(int64_t done, int64_t total)>& progress) {
  return Calibrator(settings).Run(progress);
}

AttentionCosts FitAttention(double many_flops, double many_seconds, double few_flops, double few_seconds,
                            double bytes) {
  CHECK(many_flops > few_flops && few_flops > 0 && bytes > 0);
  const double slope = (many_seconds - few_seconds) / (many_flops - few_flops);
  const double rest = few_seconds - slope * few_flops;
  if (slope <= 0 || rest <= 0) return {.seconds_per_flop = many_seconds / many_flops, .seconds_per_byte = 0};
  return {.seconds_per_flop = slope, .seconds_per_byte = rest / bytes};
}

}  // namespace longspan::bench
