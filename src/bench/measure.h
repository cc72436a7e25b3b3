// How anything is timed here: one run to warm up, then the median of some; and between the runs the peak of
// the machine, which is so the peak of the same moment and the same clock.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "core/tensor.h"

namespace longspan::bench {

double Median(std::vector<double> values);  // of an even number: the mean of the middle two; not of none

struct Measured {
  double seconds = 0, seconds_min = 0, seconds_max = 0;  // a run's median, fastest and slowest
  CpuPeak peak;  // best of at least five bursts around the runs, on so many threads
};
Measured Summarize(std::vector<double> seconds, const CpuPeak& peak);  // of at least one run
Measured Measure(DType dtype, int num_threads, int64_t num_runs, const std::function<void()>& run);

// New memory filled with normal random numbers (mean 0, deviation 1) that `name` alone determines.
Buffer RandomBuffer(std::string_view name, DType dtype, std::initializer_list<int64_t> shape);

// One backend for each number of threads, made when it is first asked for.
class Backends {
 public:
  Backend& On(int num_threads);

 private:
  std::map<int, std::unique_ptr<Backend>> backends_;
};

}  // namespace longspan::bench
