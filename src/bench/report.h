// What a benchmark prints: a table, row by row as it is measured, or one JSON object at the end.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "bench/accuracy.h"
#include "bench/measure.h"
#include "core/tensor.h"

namespace longspan::bench {

struct Figure {
  std::string key;  // in JSON
  std::variant<double, int64_t> value;
  const char* format;  // at the end of the table's row, "{:.3f} × causal's time a pair"; null: in JSON alone
};

struct Case {
  std::string name, pass;
  std::string shape;  // what the table shows of the sizes: "T 8192, D 128, heads 4/2"
  DType dtype = DType::kBFloat16;
  int64_t max_target_length = 0, head_dim = 0, query_heads = 0, kv_heads = 0;
  int threads = 1;
  double flops = 0;  // of useful work in a run
  Measured measured;
  std::vector<Figure> figures;  // what else there is to say of it

  double FractionOfPeak() const { return flops / measured.seconds / measured.peak.flops_per_second; }
};

class Report {
 public:
  explicit Report(bool json) : json_(json) {}

  // Measures and says what each unit of this CPU does; the object's peak is that of the first of `dtypes` on
  // the last of `threads`. Once, before the first case.
  void Peaks(const std::vector<DType>& dtypes, const std::vector<int>& threads);
  void Add(const Case& row);  // the first one below a heading
  void Add(const AccuracyCase& accuracy_case, const Accuracy& accuracy);
  // After the last case. `medians`: also the median fraction of peak of the cases of each pass, dtype and
  // number of threads.
  void Finish(bool medians);

 private:
  struct UnitPeak {
    std::string unit;
    DType dtype;
    int threads;
    double flops_per_second, random_flops_per_second;
  };
  struct PassMedian {
    std::string pass;
    DType dtype;
    int threads;
    int64_t num_cases;
    double fraction_of_peak;
  };
  std::vector<PassMedian> Medians() const;
  void PrintJson(const std::vector<PassMedian>& medians) const;

  bool json_;
  CpuPeak peak_;
  std::vector<UnitPeak> units_;
  std::vector<Case> cases_;
  std::vector<std::pair<AccuracyCase, Accuracy>> accuracies_;
};

}  // namespace longspan::bench
