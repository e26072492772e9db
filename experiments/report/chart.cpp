#include "experiments/report/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/base/format.h"

namespace tilewright::harness {
namespace {

// Okabe and Ito's colours, told apart by colour-blind readers; markers differ as well, for print.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73",
                                    "#cc79a7", "#56b4e9", "#e69f00"};
constexpr std::size_t kColourCount = std::size(kColours);
constexpr double kWidth = 720, kLineHeight = 15;
/// Characters of a caption's line at 11 pixels, over the picture's width.
constexpr std::size_t kCaptionColumns = 110;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string text_at(double x, double y, const std::string& what, const char* anchor = "start",
                    int size = 12, const char* more = "") {
  return formatted(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\"{}>{}</text>\n", x, y,
      anchor, size, more, escaped(what));
}

/// Characters, not bytes.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

/// Lines of at most so many characters, broken at blanks; a word that is longer, after its commas.
std::vector<std::string> wrapped(const std::string& text, std::size_t columns) {
  std::vector<std::string> lines(1);
  const auto add = [&](const std::string& piece, const char* between) {
    if (!lines.back().empty() &&
        width_of(lines.back()) + width_of(between) + width_of(piece) > columns)
      lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : between) + piece;
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (width_of(word) <= columns) add(word, " ");
    for (std::size_t from = 0; width_of(word) > columns && from < word.size();) {
      const std::size_t to = std::min(word.find(',', from), word.size() - 1) + 1;
      add(word.substr(from, to - from), from == 0 ? " " : "");
      from = to;
    }
    begin = end + 1;
  }
  return lines;
}

std::string head(double height) {
  return formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1:.0f}\" viewBox=\"0 0 "
      "{0} "
      "{1:.0f}\" font-family=\"DejaVu Sans, Arial, sans-serif\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, height);
}

std::string caption_at(double y, const std::string& caption) {
  std::string svg;
  for (const std::string& line : wrapped(caption, kCaptionColumns)) {
    svg += text_at(12, y, line, "start", 11, " fill=\"#444\"");
    y += kLineHeight;
  }
  return svg;
}

double caption_height(const std::string& caption) {
  return kLineHeight * static_cast<double>(wrapped(caption, kCaptionColumns).size());
}

/// Only circles are filled, so that marks in one place are all seen.
std::string marker(std::size_t kind, double x, double y) {
  const char* colour = kColours[kind % kColourCount];
  const std::string hollow =
      formatted("fill=\"none\" stroke=\"{}\" stroke-width=\"1.3\"/>\n", colour);
  switch (kind % 4) {
    case 0:
      return formatted("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n", x, y,
                       colour);
    case 1:
      return formatted("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"7\" height=\"7\" ", x - 3.5,
                       y - 3.5) +
             hollow;
    case 2:
      return formatted("<path d=\"M{:.1f} {:.1f}l5 9h-10z\" ", x, y - 5.5) + hollow;
    default:
      return formatted("<path d=\"M{:.1f} {:.1f}l6 6l-6 6l-6 -6z\" ", x, y - 6) + hollow;
  }
}

/// Of a chart's k-th line: the first is whole, the others are dashed, each in its own way.
std::string dashes(std::size_t k) { return k == 0 ? "none" : formatted("{} 3", 3 * k + 2); }

/// A logarithmic axis: from a range of numbers to a range of pixels.
struct Axis {
  double low = 0, high = 1;  ///< log10
  double from = 0, to = 1;   ///< pixels
  double at(double v) const { return from + (to - from) * (std::log10(v) - low) / (high - low); }
};

void widen(Axis& axis, double value) {
  axis.low = std::min(axis.low, std::log10(value));
  axis.high = std::max(axis.high, std::log10(value));
}

void round_out(Axis& axis) {
  const double margin = std::max(0.04 * (axis.high - axis.low), 0.02);
  axis.low -= margin;
  axis.high += margin;
}

/// 1, 2 and 5 times powers of ten within the axis; powers alone where those are many.
std::vector<double> ticks(const Axis& axis) {
  std::vector<double> all;
  const bool wide = axis.high - axis.low > 3;
  for (int e = static_cast<int>(std::floor(axis.low)); e <= std::ceil(axis.high); ++e)
    for (const double m : {1.0, 2.0, 5.0}) {
      const double v = m * std::pow(10, e);
      if ((wide && m != 1.0) || std::log10(v) < axis.low || std::log10(v) > axis.high) continue;
      all.push_back(v);
    }
  return all;
}

std::string number_text(double v) {
  constexpr struct {
    double unit;
    const char* name;
  } kUnits[] = {{1e12, "T"}, {1e9, "G"},  {1e6, "M"},  {1e3, "k"},
                {1, ""},     {1e-3, "m"}, {1e-6, "µ"}, {1e-9, "n"}};
  for (const auto& [unit, name] : kUnits)
    // Powers of ten are not exact: 0.001 / 1e-3 may be a little less than 1.
    if (std::abs(v) >= unit * (1 - 1e-9))
      return formatted("{:g}{}{}", v / unit, *name ? " " : "", name);
  return formatted("{:g}", v);
}

bool drawable(const Series& s, std::size_t i) { return s.x[i] > 0 && s.y[i] > 0; }

struct Axes {
  Axis x, y;
};

Axes axes_of(const Chart& chart, double left, double right, double top, double bottom) {
  Axes a{.x = {.low = INFINITY, .high = -INFINITY, .from = left, .to = right},
         .y = {.low = INFINITY, .high = -INFINITY, .from = bottom, .to = top}};
  for (const Series& s : chart.series)
    for (std::size_t i = 0; i < s.x.size(); ++i)
      if (drawable(s, i)) {
        widen(a.x, s.x[i]);
        widen(a.y, s.y[i]);
      }
  if (!std::isfinite(a.x.low)) a.x.low = a.y.low = 0, a.x.high = a.y.high = 1;
  if (chart.identity) {
    a.x.low = a.y.low = std::min(a.x.low, a.y.low);
    a.x.high = a.y.high = std::max(a.x.high, a.y.high);
  }
  round_out(a.x);
  round_out(a.y);
  return a;
}

std::string grid(const Chart& chart, const Axes& a) {
  std::string svg = formatted(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" "
      "stroke=\"#888\"/>\n",
      a.x.from, a.y.to, a.x.to - a.x.from, a.y.from - a.y.to);
  const auto line = [&svg](double x1, double y1, double x2, double y2, const char* style) {
    svg += formatted("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, style);
  };
  for (const double v : ticks(a.x)) {
    line(a.x.at(v), a.y.from, a.x.at(v), a.y.to, "stroke=\"#ddd\"");
    svg += text_at(a.x.at(v), a.y.from + 16, number_text(v), "middle", 11);
  }
  for (const double v : ticks(a.y)) {
    line(a.x.from, a.y.at(v), a.x.to, a.y.at(v), "stroke=\"#ddd\"");
    svg += text_at(a.x.from - 6, a.y.at(v) + 4, number_text(v), "end", 11);
  }
  if (chart.identity)
    line(a.x.from, a.y.from, a.x.to, a.y.to, "stroke=\"#444\" stroke-dasharray=\"5 4\"");
  svg += text_at((a.x.from + a.x.to) / 2, a.y.from + 36, chart.x_label, "middle");
  const double middle = (a.y.from + a.y.to) / 2;
  svg += text_at(18, middle, chart.y_label, "middle", 12,
                 formatted(" transform=\"rotate(-90 18 {:.1f})\"", middle).c_str());
  return svg;
}

}  // namespace

std::string to_svg(const Chart& chart) {
  constexpr double kPlot = 400, kLeft = 84, kTitleHeight = 18;
  constexpr std::size_t kTitleColumns = 80;  // at 14 pixels
  const std::vector<std::string> title = wrapped(chart.title, kTitleColumns);
  const double top = 26 + kTitleHeight * static_cast<double>(title.size());
  const double legend = top + kPlot + 52;
  const double below = legend + kLineHeight * static_cast<double>(chart.series.size()) + 8;
  const Axes a = axes_of(chart, kLeft, kWidth - 24, top, top + kPlot);
  std::string svg = head(below + caption_height(chart.caption) + 12);
  for (std::size_t i = 0; i < title.size(); ++i)
    svg += text_at(kWidth / 2, 24 + kTitleHeight * static_cast<double>(i), title[i], "middle", 14);
  svg += grid(chart, a);
  for (std::size_t k = 0; k < chart.series.size(); ++k) {
    const Series& s = chart.series[k];
    std::string path;
    for (std::size_t i = 0; i < s.x.size(); ++i) {
      if (!drawable(s, i)) continue;
      const double x = a.x.at(s.x[i]), y = a.y.at(s.y[i]);
      if (chart.lines && !s.points)
        path += formatted("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
      else
        svg += marker(k, x, y);
    }
    if (!path.empty())
      svg += formatted(
          "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" "
          "stroke-dasharray=\"{}\"/>\n",
          path, kColours[k % kColourCount], dashes(k));
    const double y = legend + kLineHeight * static_cast<double>(k);
    const bool line = chart.lines && !s.points;
    svg += line ? formatted(
                      "<path d=\"M{0:.1f} {1:.1f}h44\" stroke=\"{2}\" stroke-width=\"2\" "
                      "stroke-dasharray=\"{3}\"/>\n",
                      kLeft, y - 4, kColours[k % kColourCount], dashes(k))
                : marker(k, kLeft + 4, y - 4);
    svg += text_at(kLeft + (line ? 52 : 16), y, s.name, "start", 11);
  }
  if (chart.identity) svg += text_at(kWidth - 24, legend, "dashed: y = x", "end", 11);
  return svg + caption_at(below, chart.caption) + "</svg>\n";
}

std::string pairs_svg(const std::string& title, std::span<const Pair> pairs,
                      const std::string& caption) {
  constexpr double kTop = 56, kLeft = 250, kBars = 300, kLabelLine = 13;
  constexpr std::size_t kLabelColumns = 36;  // of 11 pixels, left of the bars
  std::vector<std::vector<std::string>> labels;
  std::vector<double> tops;
  double rows_end = kTop;
  for (const Pair& p : pairs) {
    labels.push_back(wrapped(p.label, kLabelColumns));
    tops.push_back(rows_end);
    rows_end += std::max(44.0, kLabelLine * static_cast<double>(labels.back().size()) + 14);
  }
  const double below = rows_end + 18;
  std::string svg = head(below + caption_height(caption) + 12);
  // Hatched, so that it is told from ours in grey print, too.
  svg += formatted(
      "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#fff\"/>"
      "<rect width=\"3\" height=\"6\" fill=\"{}\"/></pattern></defs>\n",
      kColours[1]);
  const auto filled = [](std::size_t kind) {
    return kind == 0 ? formatted("fill=\"{}\"", kColours[0])
                     : formatted("fill=\"url(#hatch)\" stroke=\"{}\"", kColours[1]);
  };
  svg += text_at(kWidth / 2, 22, title, "middle", 14);
  const bool negative = std::any_of(pairs.begin(), pairs.end(),
                                    [](const Pair& p) { return p.ours < 0 || p.paper < 0; });
  const double zero = negative ? kLeft + kBars / 2 : kLeft, room = negative ? kBars / 2 : kBars;
  const auto legend = [&](double x, std::size_t kind, const char* name) {
    svg += formatted("<rect x=\"{}\" y=\"34\" width=\"10\" height=\"10\" {}/>\n", x, filled(kind));
    svg += text_at(x + 15, 43, name, "start", 11);
  };
  legend(kLeft, 0, "ours");
  legend(kLeft + 70, 1, "the paper's");
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Pair& p = pairs[i];
    const double y = tops[i];
    const double most = std::max({std::abs(p.ours), std::abs(p.paper), 1e-300});
    // The bars' middle is the label's, unless it has more than three lines.
    double line =
        y + 23 - kLabelLine * (std::min(static_cast<double>(labels[i].size()), 3.0) - 1) / 2;
    for (const std::string& part : labels[i]) {
      svg += text_at(kLeft - 10, line, part, "end", 11);
      line += kLabelLine;
    }
    const auto bar = [&](double value, double top, std::size_t kind, const std::string& text) {
      const double length = room * value / most;
      svg += formatted("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"13\" {}/>\n",
                       std::min(zero, zero + length), top, std::abs(length), filled(kind));
      svg += text_at(std::max(zero, zero + length) + 6, top + 11, text, "start", 11);
    };
    bar(p.ours, y + 4, 0, p.ours_text);
    bar(p.paper, y + 20, 1, p.paper_text);
  }
  svg += formatted("<line x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2:.1f}\" stroke=\"#444\"/>\n",
                   zero, kTop, below - 18);
  return svg + caption_at(below, caption) + "</svg>\n";
}

}  // namespace tilewright::harness
