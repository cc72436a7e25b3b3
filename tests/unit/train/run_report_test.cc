#include "train/run_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <regex>
#include <string>
#include <vector>

namespace longspan {
namespace {

StepMetrics MetricsOf(int64_t step) {
  StepMetrics m;
  m.step = step;
  m.loss = 100 + static_cast<double>(step);
  m.grad_norm = 7;
  m.step_seconds = 2;
  m.communication_wait_seconds = 0.5;
  m.memory_peak_bytes = (2 << 20) + step;
  m.mfu = 0.25;
  return m;
}

std::vector<StepMetrics> Steps(int64_t num) {
  std::vector<StepMetrics> steps;
  for (int64_t step = 1; step <= num; ++step) steps.push_back(MetricsOf(step));
  return steps;
}

Job MakeJob(int ranks) {
  Job job;
  job.config.run_name = "a<b";
  job.config.steps = 1000;
  job.mesh.ring = ranks;
  job.strategies = {"ring"};
  return job;
}

int Count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
}

bool Has(const std::string& page, const std::string& text) { return page.find(text) != page.npos; }

TEST(RunReport, ShowsEveryStepOfAShortRun) {
  const std::string page =
      RunPage(MakeJob(2), Steps(3), {{{"weights", 3 << 20}, {"step.logits", 1 << 20}}}, "steps: <3>\n");
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_TRUE(Has(page, "<h1>a&lt;b</h1>"));
  EXPECT_TRUE(Has(page, "<pre>steps: &lt;3&gt;\n</pre>"));
  // Loss, norm, MFU, step time: a curve each, of step time also its parts.
  EXPECT_EQ(Count(page, "<svg"), 4);
  EXPECT_EQ(Count(page, "<polyline"), 6);
  EXPECT_EQ(Count(page, "<circle"), 6 * 3);
  for (const char* text :
       {"step 1: 101<", "step 3: 103<", "step 2: 25<", "waiting for other ranks", "computing"})
    EXPECT_TRUE(Has(page, text)) << text;
  // Three quarters of a step is computing, and of the memory weights.
  EXPECT_TRUE(Has(page, "<td>computing</td><td>1.5 s</td><td>75.0 %</td>"));
  EXPECT_TRUE(Has(page, "<td>weights</td><td>3.00 MiB</td><td>75.0 %</td>"));
  EXPECT_FALSE(Has(page, "offloaded"));
  EXPECT_FALSE(Has(page, "held-out"));
  EXPECT_TRUE(Has(page, "<tr><td>loss</td><td>101.0000</td><td>103.0000</td><td>102.0000</td></tr>"));
}

TEST(RunReport, OfOneRankAllIsComputing) {
  const std::string page = RunPage(MakeJob(1), Steps(3), {}, "");
  EXPECT_TRUE(Has(page, "<td>computing</td><td>2 s</td><td>100.0 %</td>"));
  EXPECT_FALSE(Has(page, "waiting"));
}

// Nothing is fetched and nothing runs: a page opens anywhere, also from a mail.
TEST(RunReport, NeedsNothingButItself) {
  const std::string page = RunPage(MakeJob(2), Steps(100), {{{"weights", 1}}}, "");
  for (const char* text : {"http", "src=", "<script", "<link", "@import", "url("})
    EXPECT_FALSE(Has(page, text)) << text;
}

TEST(RunReport, ALongRunIsMeansOfManySteps) {
  const std::string page = RunPage(MakeJob(1), Steps(100'000), {}, "");
  EXPECT_LT(page.size(), 40'000u);
  const size_t line = page.find("<polyline points=\"");
  ASSERT_NE(line, page.npos);
  const std::string points = page.substr(line, page.find("fill", line) - line);
  EXPECT_EQ(std::count(points.begin(), points.end(), ','), 400);
  EXPECT_EQ(Count(page, "<circle"), 0);
  EXPECT_FALSE(Has(page, "waiting"));  // one rank, nothing offloaded
}

// Of numbers so large that doubles between them are rare, and that their sum is no number.
TEST(RunReport, ShowsARunThatWentAstray) {
  for (const double large : {2.5e12, 1e20, 1e99, 1e308, -1e308}) {
    std::vector<StepMetrics> steps = Steps(3);
    for (StepMetrics& step : steps) step.grad_norm = step.loss = step.step_seconds = large;
    steps[1].loss = -large;
    const std::string page = RunPage(MakeJob(2), steps, {}, "");
    EXPECT_LT(page.size(), 40'000u) << large;
    EXPECT_FALSE(Has(page, "nan") || Has(page, "inf")) << large;
    EXPECT_EQ(Has(page, "<h2>Loss</h2>"), std::abs(large) < 1e100) << large;
  }
}

TEST(RunReport, ShowsTracedStepsByOperation) {
  const RankReport rank = {.memory = {}, .traced_seconds = {{"attention", 3}, {"norm", 1}, {"product", 12}}};
  const std::string page = RunPage(MakeJob(1), Steps(2), rank, "");
  const size_t product = page.find("<td>product</td><td>12 s</td><td>75.0 %</td>"),
               attention = page.find("<td>attention</td><td>3 s</td><td>18.8 %</td>"),
               norm = page.find("<td>norm</td><td>1 s</td><td>6.2 %</td>");
  ASSERT_NE(norm, page.npos);
  EXPECT_LT(product, attention);
  EXPECT_LT(attention, norm);
  EXPECT_FALSE(Has(RunPage(MakeJob(1), Steps(2), {}, ""), "Traced"));
}

TEST(RunReport, ShowsWhatWasMeasuredAndNoMore) {
  std::vector<StepMetrics> steps = Steps(4);
  for (StepMetrics& step : steps) step.mfu.reset();
  steps[1].loss = std::numeric_limits<double>::quiet_NaN();
  steps[1].eval_loss = 55;
  steps[3].eval_loss = 44;
  const std::string page = RunPage(MakeJob(1), steps, {}, "");
  EXPECT_FALSE(Has(page, "MFU"));
  EXPECT_FALSE(Has(page, "nan"));
  EXPECT_FALSE(Has(page, "step 2: 102<"));
  EXPECT_TRUE(Has(page, "step 2: 55<"));
  EXPECT_TRUE(Has(page, "<tr><td>held-out loss</td><td>55.0000</td><td>44.0000</td><td>49.5000</td></tr>"));
}

}  // namespace
}  // namespace longspan
