// Pictures of an experiment's numbers, as SVG: what the command draws by itself. `tilewright plot`
// draws more kinds of them.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace tilewright::harness {

/// Points of one kind; x and y of the same length.
struct Series {
  std::string name;
  std::vector<double> x, y;
  bool points = false;  ///< markers in a chart of lines
};

/// Points or lines over two logarithmic axes; what is not positive is left out.
struct Chart {
  std::string title, x_label, y_label;
  std::string caption;    ///< machine, source of each number
  bool lines = false;     ///< joined from left to right
  bool identity = false;  ///< with the line y = x, both axes over the same range
  std::vector<Series> series;
  bool empty() const { return series.empty(); }
};
std::string to_svg(const Chart& chart);

/// Ours and the paper's of one thing.
struct Pair {
  std::string label, ours_text, paper_text;
  double ours = 0, paper = 0;
};
/// Two bars a pair, each pair to its own scale, because their units differ; the numbers beside
/// them.
std::string pairs_svg(const std::string& title, std::span<const Pair> pairs,
                      const std::string& caption);

}  // namespace tilewright::harness
