// A page of HTML that needs nothing but itself: what a report shows as a picture. Light or dark as the
// reader's system.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longspan {

std::string EscapeHtml(std::string_view text);

// A whole page: heading, a line below it, and `body`, which is HTML.
std::string HtmlPage(std::string_view title, std::string_view subtitle, std::string_view body);

// Lines through points over a logarithmic axis of powers of two, or a linear one of whole numbers.
struct Plot {
  struct Point {
    double x = 0, y = 0;              // x > 0
    std::optional<double> deviation;  // a bar of y ± this
    std::string label;                // shown when pointed at
  };
  struct Series {
    std::string name;           // in the legend, if there are several
    std::vector<Point> points;  // one at least, x ascending; more than kMostMarks are a line without marks
  };
  std::string x_title, y_title;
  std::vector<Series> series;  // one at least, at most kMostSeries
  bool linear_x = false;
  bool logarithmic_y = false;  // powers of two as well; then y > 0
  std::optional<double> mean;  // a dashed line
  std::string mean_label;
  static constexpr size_t kMostSeries = 5, kMostMarks = 60;
};
std::string SvgPlot(const Plot& plot);

// A table of fractions (0 … 1), each cell as dark as it is large.
struct HeatMap {
  std::string corner;  // above the rows' names
  std::vector<std::string> columns, rows;
  std::vector<std::vector<double>> values;  // (rows, columns)
};
std::string HtmlHeatMap(const HeatMap& map);

// A plain table; all columns but the first are numbers.
std::string HtmlTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows);

// What a whole is made of: names, how much each is, and a bar as long as its share (0 … 1).
struct Share {
  std::string name, text;
  double fraction = 0;
};
std::string HtmlShares(const std::vector<Share>& shares);

}  // namespace longspan
