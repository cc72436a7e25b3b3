#include "core/page.h"

#include <gtest/gtest.h>

#include <string>

namespace longspan {
namespace {

// The marks below a plot of steps 1 to `last`: "1 2 3 ".
std::string StepMarks(int last) {
  Plot plot;
  plot.linear_x = true;
  plot.series.resize(1);
  for (int step = 1; step <= last; ++step)
    plot.series[0].points.push_back({static_cast<double>(step), 0.5, std::nullopt, "p"});
  const std::string svg = SvgPlot(plot), below = "y=\"438.0\" text-anchor=\"middle\" >";
  std::string marks;
  for (size_t at = svg.find(below); at != svg.npos; at = svg.find(below, at + 1)) {
    const size_t begin = at + below.size();
    marks += svg.substr(begin, svg.find('<', begin) - begin) + " ";
  }
  return marks;
}

TEST(Plot, AnAxisOfStepsEndsWhereTheyDo) {
  EXPECT_EQ(StepMarks(1), "1 2 ");
  EXPECT_EQ(StepMarks(2), "1 2 ");
  EXPECT_EQ(StepMarks(6), "1 2 3 4 5 6 ");
  EXPECT_EQ(StepMarks(40), "0 10 20 30 40 ");
  EXPECT_EQ(StepMarks(41), "0 10 20 30 40 50 ");
}

}  // namespace
}  // namespace longspan
