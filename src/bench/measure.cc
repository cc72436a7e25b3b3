#include "bench/measure.h"

#include <algorithm>

#include "core/check.h"
#include "core/clock.h"
#include "core/random.h"

namespace longspan::bench {

double Median(std::vector<double> values) {
  CHECK(!values.empty());
  std::ranges::sort(values);
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

Measured Summarize(std::vector<double> seconds, const CpuPeak& peak) {
  Measured measured;
  measured.seconds_min = std::ranges::min(seconds);
  measured.seconds_max = std::ranges::max(seconds);
  measured.seconds = Median(std::move(seconds));
  measured.peak = peak;
  return measured;
}

Measured Measure(DType dtype, int num_threads, int64_t num_runs, const std::function<void()>& run) {
  constexpr int64_t kBursts = 5;
  run();
  CpuPeak best;
  std::vector<double> seconds;
  for (int64_t i = 0; i < std::max(num_runs, kBursts); ++i) {
    const CpuPeak peak = MeasureCpuPeak(dtype, num_threads);
    if (peak.flops_per_second > best.flops_per_second) best = peak;
    if (i >= num_runs) continue;
    const double start = Now();
    run();
    seconds.push_back(Now() - start);
  }
  return Summarize(std::move(seconds), best);
}

Buffer RandomBuffer(std::string_view name, DType dtype, std::initializer_list<int64_t> shape) {
  Buffer buffer(dtype, shape);
  const CounterRandom random(0, name);
  const auto fill = [&]<class T>(T* out) {
    for (int64_t i = 0; i < buffer.tensor().num_elements(); ++i)
      out[i] = T(static_cast<float>(random.Normal(static_cast<uint64_t>(i))));
  };
  if (dtype == DType::kFloat32)
    fill(buffer.tensor().data<float>());
  else
    fill(buffer.tensor().data<BFloat16>());
  return buffer;
}

Backend& Backends::On(int num_threads) {
  std::unique_ptr<Backend>& backend = backends_[num_threads];
  if (!backend) backend = MakeCpuBackend(num_threads);
  return *backend;
}

}  // namespace longspan::bench
