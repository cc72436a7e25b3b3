#include "eval/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace longspan {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --back: #ffffff; --ink: #1c2230; --soft: #5b6475; --grid: #e3e7ee; --line: #1f5fbf;
        --hue: 31, 95, 191; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14171d; --ink: #e8ebf1; --soft: #a3adbd; --grid: #2c323d; --line: #7db0ff; --hue: 125, 176, 255; }
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
)";

// Of the marks on a linear axis that spans so much: 1, 2 or 5 times a power of ten.
double StepOf(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 5)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (span / (factor * power) <= 6) return factor * power;
  return 10 * power;
}

// Where the plot's inside lies.
constexpr double kWidth = 860, kHeight = 480, kLeft = 76, kRight = 840, kTop = 24, kBottom = 416;

struct Axis {
  double low, high, at_low, at_high;
  double At(double value) const { return at_low + (value - low) / (high - low) * (at_high - at_low); }
};

Axis VerticalAxis(const Plot& plot, double* step) {
  double low = plot.mean, high = plot.mean;
  for (const Plot::Point& p : plot.points) {
    low = std::min(low, p.y - p.deviation.value_or(0));
    high = std::max(high, p.y + p.deviation.value_or(0));
  }
  *step = StepOf(std::max(high - low, 1e-3));
  return {std::floor(low / *step) * *step, (std::floor(high / *step) + 1) * *step, kBottom, kTop};
}

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
  CHECK(!plot.points.empty());
  double step = 0;
  const Axis y = VerticalAxis(plot, &step);
  const double first = std::floor(std::log2(plot.points.front().x)),
               last = std::max(std::ceil(std::log2(plot.points.back().x)), first + 1);
  const Axis x = {first, last, kLeft, kRight};
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{} against {}\">\n",
                                kWidth, kHeight, EscapeHtml(plot.y_title), EscapeHtml(plot.x_title));
  const auto line = [&](double x1, double y1, double x2, double y2, std::string_view style) {
    svg += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2,
                       style);
  };
  const auto text = [&](double at_x, double at_y, std::string_view anchor, std::string_view what,
                        std::string_view more = "") {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", at_x, at_y,
                       anchor, more, EscapeHtml(what));
  };

  constexpr std::string_view kGrid = "stroke=\"var(--grid)\"";
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  for (double value = y.low; value < y.high + step / 2; value += step) {
    line(kLeft, y.At(value), kRight, y.At(value), kGrid);
    text(kLeft - 10, y.At(value) + 5, "end", fmt::format("{:.{}f}", value, decimals));
  }
  const int every = static_cast<int>((last - first) / 13) + 1;  // powers of two a mark
  for (int power = static_cast<int>(first); power <= static_cast<int>(last); power += every) {
    line(x.At(power), kTop, x.At(power), kBottom, kGrid);
    const int64_t value = int64_t{1} << power;
    text(x.At(power), kBottom + 22, "middle",
         value >= 1 << 20 ? fmt::format("{}M", value >> 20)
         : value >= 1024  ? fmt::format("{}K", value >> 10)
                          : std::to_string(value));
  }
  text((kLeft + kRight) / 2, kBottom + 52, "middle", plot.x_title);
  text(0, 0, "middle", plot.y_title,
       fmt::format("transform=\"translate(20 {:.1f}) rotate(-90)\"", (kTop + kBottom) / 2));
  line(kLeft, y.At(plot.mean), kRight, y.At(plot.mean), "stroke=\"var(--soft)\" stroke-dasharray=\"6 5\"");
  text(kLeft + 6, y.At(plot.mean) - 7, "start", plot.mean_label, "class=\"soft\"");

  std::string path;
  for (const Plot::Point& p : plot.points)
    path += fmt::format("{:.1f},{:.1f} ", x.At(std::log2(p.x)), y.At(p.y));
  svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"var(--line)\" stroke-width=\"2.5\"/>\n",
                     path);
  for (const Plot::Point& p : plot.points) {
    const double at = x.At(std::log2(p.x));
    if (p.deviation) {
      const double top = y.At(p.y + *p.deviation), bottom = y.At(p.y - *p.deviation);
      constexpr std::string_view kBar = "stroke=\"var(--line)\" stroke-width=\"1.5\"";
      line(at, top, at, bottom, kBar);
      line(at - 5, top, at + 5, top, kBar);
      line(at - 5, bottom, at + 5, bottom, kBar);
    }
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\" fill=\"var(--line)\"><title>{}</title></circle>\n", at,
        y.At(p.y), EscapeHtml(p.label));
  }
  return svg + "</svg>\n";
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

}  // namespace longspan
