#include "core/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"

namespace longspan {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --back: #ffffff; --ink: #1c2230; --soft: #5b6475; --grid: #e3e7ee; --hue: 31, 95, 191;
        --line0: #1f5fbf; --line1: #c2410c; --line2: #15803d; --line3: #7e22ce; --line4: #0e7490; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14171d; --ink: #e8ebf1; --soft: #a3adbd; --grid: #2c323d; --hue: 125, 176, 255;
          --line0: #7db0ff; --line1: #fb923c; --line2: #4ade80; --line3: #c084fc; --line4: #22d3ee; }
}
body { background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto;
       max-width: 56rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { color: var(--soft); margin: .25rem 0 1.25rem; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; }
svg text { fill: var(--ink); font: 14px system-ui, sans-serif; }
svg .soft { fill: var(--soft); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
th { color: var(--soft); font-weight: 600; }
tbody tr { border-top: 1px solid var(--grid); }
.share { background: var(--line0); height: .7rem; min-width: 1px; }
td.bar { width: 20rem; }
pre { overflow-x: auto; }
)";

// Of the marks on a linear axis that spans so much: 1, 2 or 5 times a power of ten.
double StepOf(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 5)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (span / (factor * power) <= 6) return factor * power;
  return 10 * power;
}

// Where the plot's inside lies.
constexpr double kWidth = 860, kHeight = 480, kLeft = 92, kRight = 840, kTop = 24, kBottom = 416;

struct Axis {
  double low, high, at_low, at_high;
  double At(double value) const { return at_low + (value - low) / (high - low) * (at_high - at_low); }
};

struct Limits {
  double low, high;
};

Limits LimitsOf(const Plot& plot, double Plot::Point::*coordinate) {
  Limits limits = {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const Plot::Series& series : plot.series) {
    for (const Plot::Point& p : series.points) {
      const double deviation = coordinate == &Plot::Point::y ? p.deviation.value_or(0) : 0;
      limits.low = std::min(limits.low, p.*coordinate - deviation);
      limits.high = std::max(limits.high, p.*coordinate + deviation);
    }
  }
  return limits;
}

// Whole powers of two around the limits.
Axis LogarithmicAxis(const Limits& limits, double at_low, double at_high) {
  const double first = std::floor(std::log2(limits.low)), last = std::ceil(std::log2(limits.high));
  return {first, std::max(last, first + 1), at_low, at_high};
}

Axis LinearAxis(const Limits& limits, double step, double at_low, double at_high) {
  return {std::floor(limits.low / step) * step, (std::floor(limits.high / step) + 1) * step, at_low, at_high};
}

// That of steps ends with the last one where there is a mark.
Axis StepAxis(const Limits& limits, double step, double at_low, double at_high) {
  const double first = std::floor(limits.low / step), last = std::ceil(limits.high / step);
  return {first * step, std::max(last, first + 1) * step, at_low, at_high};
}

std::string PowerText(int power) {
  const int64_t value = int64_t{1} << power;
  if (value >= 1 << 20) return fmt::format("{}M", value >> 20);
  return value >= 1024 ? fmt::format("{}K", value >> 10) : std::to_string(value);
}

// Draws one plot.
class SvgWriter {
 public:
  explicit SvgWriter(const Plot& plot) : plot_(plot) {
    svg_ = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{} against {}\">\n", kWidth,
                       kHeight, EscapeHtml(plot.y_title), EscapeHtml(plot.x_title));
    const Limits x = LimitsOf(plot, &Plot::Point::x);
    Limits y = LimitsOf(plot, &Plot::Point::y);
    if (plot.mean) y = {std::min(y.low, *plot.mean), std::max(y.high, *plot.mean)};
    x_step_ = std::max(1.0, StepOf(std::max(x.high - x.low, 1.0)));
    // Marks are farther apart than the doubles there.
    y_step_ = StepOf(std::max({y.high - y.low, 1e-3, 1e-9 * std::max(std::abs(y.low), std::abs(y.high))}));
    x_ = plot.linear_x ? StepAxis(x, x_step_, kLeft, kRight) : LogarithmicAxis(x, kLeft, kRight);
    y_ = plot.logarithmic_y ? LogarithmicAxis(y, kBottom, kTop) : LinearAxis(y, y_step_, kBottom, kTop);
  }

  std::string Draw() {
    DrawAxes();
    if (plot_.mean) {
      Line(kLeft, y_.At(*plot_.mean), kRight, y_.At(*plot_.mean),
           "stroke=\"var(--soft)\" stroke-dasharray=\"6 5\"");
      Text(kLeft + 6, y_.At(*plot_.mean) - 7, "start", plot_.mean_label, "class=\"soft\"");
    }
    for (size_t i = 0; i < plot_.series.size(); ++i) DrawSeries(i);
    return svg_ + "</svg>\n";
  }

 private:
  double AtX(double x) const { return x_.At(plot_.linear_x ? x : std::log2(x)); }
  double AtY(double y) const { return y_.At(plot_.logarithmic_y ? std::log2(y) : y); }

  void Line(double x1, double y1, double x2, double y2, std::string_view style) {
    svg_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2,
                        y2, style);
  }
  void Text(double x, double y, std::string_view anchor, std::string_view what, std::string_view more = "") {
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor,
                        more, EscapeHtml(what));
  }

  // Of a linear axis, from end to end.
  template <class Mark>
  static void ForMarks(const Axis& axis, double step, const Mark& mark) {
    const int64_t last = std::llround((axis.high - axis.low) / step);
    for (int64_t i = 0; i <= last; ++i) mark(axis.low + static_cast<double>(i) * step);
  }

  void DrawAxes() {
    constexpr std::string_view kGrid = "stroke=\"var(--grid)\"";
    const auto mark_y = [&](double at, const std::string& text) {
      Line(kLeft, at, kRight, at, kGrid);
      Text(kLeft - 10, at + 5, "end", text);
    };
    if (plot_.logarithmic_y) {
      for (int power = static_cast<int>(y_.low); power <= static_cast<int>(y_.high); ++power)
        mark_y(y_.At(power), PowerText(power));
    } else {
      const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(y_step_) + 1e-9)));
      ForMarks(y_, y_step_,
               [&](double value) { mark_y(y_.At(value), fmt::format("{:.{}f}", value, decimals)); });
    }
    const auto mark_x = [&](double at, const std::string& text) {
      Line(at, kTop, at, kBottom, kGrid);
      Text(at, kBottom + 22, "middle", text);
    };
    if (plot_.linear_x) {
      ForMarks(x_, x_step_, [&](double value) { mark_x(x_.At(value), fmt::format("{:.0f}", value)); });
    } else {
      const int first = static_cast<int>(x_.low), last = static_cast<int>(x_.high);
      const int every = (last - first) / 13 + 1;  // powers of two a mark
      for (int power = first; power <= last; power += every) mark_x(x_.At(power), PowerText(power));
    }
    Text((kLeft + kRight) / 2, kBottom + 52, "middle", plot_.x_title);
    Text(0, 0, "middle", plot_.y_title,
         fmt::format("transform=\"translate(16 {:.1f}) rotate(-90)\"", (kTop + kBottom) / 2));
  }

  void DrawSeries(size_t index) {
    const Plot::Series& series = plot_.series[index];
    const std::string color = fmt::format("var(--line{})", index);
    std::string path;
    for (const Plot::Point& p : series.points) path += fmt::format("{:.1f},{:.1f} ", AtX(p.x), AtY(p.y));
    svg_ += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.5\"/>\n", path,
                        color);
    for (const Plot::Point& p : series.points) {
      const double at = AtX(p.x);
      if (p.deviation) {
        const double top = AtY(p.y + *p.deviation), bottom = AtY(p.y - *p.deviation);
        const std::string bar = fmt::format("stroke=\"{}\" stroke-width=\"1.5\"", color);
        Line(at, top, at, bottom, bar);
        Line(at - 5, top, at + 5, top, bar);
        Line(at - 5, bottom, at + 5, bottom, bar);
      }
      if (series.points.size() > Plot::kMostMarks) continue;
      svg_ += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\" fill=\"{}\"><title>{}</title></circle>\n", at,
          AtY(p.y), color, EscapeHtml(p.label));
    }
    if (plot_.series.size() == 1) return;
    // On the side that the lines leave free.
    const std::vector<Plot::Point>& first = plot_.series[0].points;
    const double side = first.back().y < first.front().y ? kRight - 220 : kLeft + 12;
    const double legend = kTop + 18 + 20 * static_cast<double>(index);
    Line(side, legend - 5, side + 24, legend - 5, fmt::format("stroke=\"{}\" stroke-width=\"2.5\"", color));
    Text(side + 32, legend, "start", series.name);
  }

  const Plot& plot_;
  std::string svg_;
  Axis x_{}, y_{};
  double x_step_ = 0, y_step_ = 0;
};

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string HtmlPage(std::string_view title, std::string_view subtitle, std::string_view body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, "
      "initial-scale=1\">\n<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n"
      "<h1>{0}</h1>\n<p>{2}</p>\n{3}</body>\n</html>\n",
      EscapeHtml(title), kStyle, EscapeHtml(subtitle), body);
}

std::string SvgPlot(const Plot& plot) {
  CHECK(!plot.series.empty() && plot.series.size() <= Plot::kMostSeries);
  for (const Plot::Series& series : plot.series) CHECK(!series.points.empty());
  return SvgWriter(plot).Draw();
}

std::string HtmlHeatMap(const HeatMap& map) {
  std::string html = fmt::format("<table>\n<thead><tr><th>{}</th>", EscapeHtml(map.corner));
  for (const std::string& column : map.columns) html += fmt::format("<th>{}</th>", EscapeHtml(column));
  html += "</tr></thead>\n<tbody>\n";
  for (size_t r = 0; r < map.rows.size(); ++r) {
    html += fmt::format("<tr><td>{}</td>", EscapeHtml(map.rows[r]));
    for (const double value : map.values[r])
      html +=
          fmt::format("<td style=\"background: rgba(var(--hue), {:.2f})\">{:.2f}</td>", 0.55 * value, value);
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table>\n";
}

std::string HtmlTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<table>\n<thead><tr>";
  for (const std::string& cell : header) html += fmt::format("<th>{}</th>", EscapeHtml(cell));
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    html += "<tr>";
    for (const std::string& cell : row) html += fmt::format("<td>{}</td>", EscapeHtml(cell));
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table>\n";
}

std::string HtmlShares(const std::vector<Share>& shares) {
  std::string html = "<table>\n<tbody>\n";
  for (const Share& share : shares)
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.1f} %</td><td class=\"bar\"><div class=\"share\" "
        "style=\"width: {:.1f}%\"></div></td></tr>\n",
        EscapeHtml(share.name), EscapeHtml(share.text), 100 * share.fraction, 100 * share.fraction);
  return html + "</tbody>\n</table>\n";
}

}  // namespace longspan
