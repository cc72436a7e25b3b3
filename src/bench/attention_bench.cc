// The attention kernel as the model calls it: one rank, all keys in one call.
#include <algorithm>
#include <map>

#include "bench/attention_problem.h"
#include "bench/bench.h"
#include "bench/cases.h"
#include "core/check.h"
#include "mask/mask.h"

namespace longspan::bench {
namespace {

constexpr int64_t kLengths[] = {2048, 4096, 8192, 16384, 32768};
constexpr int64_t kSparseFrom = 32768;
constexpr int64_t kRuns = 5;

// Left to itself the table skips what would take minutes: f32 and one thread at the longest lengths.
int64_t LongestByDefault(DType dtype, int threads) {
  if (dtype == DType::kFloat32) return 8192;
  return threads == 1 ? 16384 : 32768;
}

AttentionSizes SizesFor(const Settings& s, int64_t length, int64_t head_dim) {
  const int64_t query_heads =
      ValueOr(s.query_heads, s.kv_heads != 0 ? 2 * s.kv_heads : QueryHeadsFor(length));
  const int64_t kv_heads = ValueOr(s.kv_heads, query_heads % 2 == 0 ? query_heads / 2 : query_heads);
  Require(ExitCode::kUsage, query_heads % kv_heads == 0,
          "command line: query_heads {} is no multiple of kv_heads {}", query_heads, kv_heads);
  return {length, head_dim, query_heads, kv_heads};
}

// Every mask and pass of one problem on one number of threads.
void MeasureProblem(const Settings& settings, const AttentionProblem& problem, Backend& backend, int threads,
                    Report& report) {
  const AttentionSizes& sizes = problem.sizes;
  std::map<std::string, double> causal_seconds_per_pair;  // by pass
  for (const MaskCase& named : MaskCases()) {
    // Masks that see little are measured where the sequence is long.
    if (named.name != "causal" && sizes.length < kSparseFrom) continue;
    const Mask mask = named.Make(sizes.length);
    const double pairs = static_cast<double>(mask.CountPairs());
    // Two products of 2·D operations a pair forward; five backward, which makes the scores anew.
    const double forward_flops = 4 * pairs * static_cast<double>(sizes.query_heads * sizes.head_dim);
    const auto measure = [&](const std::string& pass, double flops, const std::function<void()>& run) {
      Case row = {.name = std::string(named.name),
                  .pass = pass,
                  .shape = fmt::format("T {}, D {}, heads {}/{}", sizes.length, sizes.head_dim,
                                       sizes.query_heads, sizes.kv_heads),
                  .dtype = problem.dtype,
                  .max_target_length = sizes.length,
                  .head_dim = sizes.head_dim,
                  .query_heads = sizes.query_heads,
                  .kv_heads = sizes.kv_heads,
                  .threads = threads,
                  .flops = flops,
                  .measured = Measure(problem.dtype, threads, ValueOr(settings.runs, kRuns), run),
                  .figures = {}};
      const double seconds_per_pair = row.measured.seconds / pairs;
      const auto [causal, is_causal] = causal_seconds_per_pair.try_emplace(pass, seconds_per_pair);
      if (!is_causal)
        row.figures.push_back(
            {"relative_to_causal", seconds_per_pair / causal->second, "{:.3f} × causal's time a pair"});
      report.Add(row);
    };
    if (settings.Wants("forward"))
      measure("forward", forward_flops, [&] { problem.Forward(backend, mask); });
    else
      problem.Forward(backend, mask);  // the output and log-sum-exp that the backward pass reads
    if (settings.Wants("backward"))
      measure("backward", 2.5 * forward_flops, [&] { problem.Backward(backend, mask); });
  }
}

// With the whole table, or alone; then max_target_length and head_dim narrow it.
void MeasureAccuracies(const Settings& settings, Backends& backends, Report& report) {
  const bool alone = settings.pass == "accuracy";
  if (!alone && (settings.max_target_length != 0 || !settings.pass.empty() || settings.dtype == "float32"))
    return;
  const int threads = settings.Threads().back();
  for (AccuracyCase accuracy_case : AccuracyCases()) {
    accuracy_case.length = ValueOr(settings.max_target_length, accuracy_case.length);
    if (ValueOr(settings.head_dim, accuracy_case.head_dim) != accuracy_case.head_dim) continue;
    report.Add(accuracy_case, MeasureAccuracy(accuracy_case, backends.On(threads), threads));
  }
}

}  // namespace

void RunAttention(const Settings& settings, Report& report) {
  std::vector<int64_t> lengths(std::begin(kLengths), std::end(kLengths));
  std::vector<int64_t> widths(HeadDims().begin(), HeadDims().end());
  if (settings.max_target_length != 0) lengths = {settings.max_target_length};
  if (settings.head_dim != 0) widths = {settings.head_dim};
  const bool timed = settings.Wants("forward") || settings.Wants("backward");
  const std::vector<DType> dtypes = timed ? settings.DTypes({DType::kBFloat16, DType::kFloat32})
                                          : std::vector<DType>{DType::kBFloat16};  // accuracy is of bf16
  const std::vector<int> threads = settings.Threads();
  SizesFor(settings, lengths[0], widths[0]);  // refuses heads that do not fit before anything is measured

  report.Peaks(dtypes, threads);
  Backends backends;
  for (const DType dtype : dtypes) {
    for (const int64_t length : timed ? lengths : std::vector<int64_t>()) {
      std::vector<int> measured_threads;
      for (const int n : threads)
        if (settings.max_target_length != 0 || length <= LongestByDefault(dtype, n))
          measured_threads.push_back(n);
      if (measured_threads.empty()) continue;
      for (const int64_t width : widths) {
        const AttentionProblem problem(SizesFor(settings, length, width), dtype);
        for (const int n : measured_threads) MeasureProblem(settings, problem, backends.On(n), n, report);
      }
    }
  }
  MeasureAccuracies(settings, backends, report);
  report.Finish(false);
}

}  // namespace longspan::bench
