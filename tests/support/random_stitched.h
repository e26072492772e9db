// Seeded random graphs of rows, and convolutions and stencils, each with a tree whose loops are
// bound to warps, lanes and threads, for an H200. Not every one is a legal plan.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/machine/machine.h"
#include "core/plan/file.h"
#include "core/plan/schedule.h"

namespace tilewright::testing::random_stitched {

enum class Shape : std::uint8_t { full, row, column };
struct Op {
  std::string name, text;
  Shape shape = Shape::full;    ///< of its result
  bool sums = false;            ///< over c (a row) or over r (a column)
  std::vector<int> reads = {};  ///< operators
};

/// Operators over rows r and columns c: element-wise, sums over either, tables looked up.
class RowMaker {
 public:
  /// `gathers`: operators also read tables by the values of ids; `indices`: and their loops'
  /// indices; `slices`: and one tensor at several offsets, with and without gaps in between.
  RowMaker(std::mt19937_64& random, bool gathers, bool indices = false, bool slices = false)
      : random_(random), gathers_(gathers), indices_(indices), slices_(slices) {}

  std::string workload(const std::string& type) {
    rows_ = pick(1, 20), columns_ = pick(1, 70);
    if (slices_)
      for (int at = 0; offsets_.size() < 3; at += columns_ + (chance(0.5) ? 0 : pick(1, 20)))
        offsets_.push_back(at);
    const int count = pick(2, 8);
    for (int i = 0; i < count; ++i) ops_.push_back(draw(i));
    std::string text = "name: rows\ndtype: " + type + "\nloops: {r: " + std::to_string(rows_) +
                       ", c: " + std::to_string(columns_) + "}\noperators:\n";
    for (const Op& op : ops_) text += "  - \"" + op.text + "\"\n";
    const std::string tables =
        std::string(used("T") ? "T: [7, c], " : "") + (used("S") ? "S: [7], " : "");
    if (!tables.empty())
      text += "tensors: {" + tables + "ids: [r]}\ndtypes: {ids: " + (chance(0.5) ? "i8" : "i32") +
              "}\n";
    if (used("Z"))
      text += "tensors: {Z: [r, " + std::to_string(offsets_.back() + columns_) + "]}\n";
    return text;
  }

  Kernel kernel() {
    Kernel k{.level = chance(0.7) ? "registers" : "shared", .tree = parse_tree(tree())};
    for (const Op& op : ops_)
      if (op.shape != Shape::column && chance(0.2) && read(op))
        k.pins["t" + op.name].level = "shared";
    return k;
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
  bool read(const Op& op) const {
    for (const Op& o : ops_)
      for (int i : o.reads)
        if (&ops_[static_cast<std::size_t>(i)] == &op) return true;
    return false;
  }

  Op draw(int i) {
    Op op{.name = "o" + std::to_string(i), .text = {}};
    const auto operand = [&](bool row_only) {
      std::vector<std::pair<std::string, int>> all = {
          {"m" + std::to_string(pick(0, 1)) + "[r]", -1}};
      if (!row_only) {
        all.push_back({"x" + std::to_string(pick(0, 1)) + "[r,c]", -1});
        all.push_back({"x0[r,c]", -1});
        all.push_back({"g[c]", -1});
      }
      for (int weight = 0; gathers_ && weight < 3; ++weight)
        all.push_back({row_only ? "S[ids[r]]" : "T[ids[r],c]", -1});
      for (int at : offsets_)
        all.push_back(
            {row_only ? "Z[r," + std::to_string(at) + "]" : "Z[r,c + " + std::to_string(at) + "]",
             -1});
      for (int p = 0; p < i; ++p) {
        const Op& o = ops_[static_cast<std::size_t>(p)];
        if (o.shape == Shape::column || (row_only && o.shape == Shape::full)) continue;
        for (int weight = 0; weight < 3; ++weight)
          all.push_back({"t" + o.name + (o.shape == Shape::full ? "[r,c]" : "[r]"), p});
      }
      const auto& [text, from] =
          all[static_cast<std::size_t>(pick(0, static_cast<int>(all.size()) - 1))];
      if (from >= 0) op.reads.push_back(from);
      if (!indices_ || chance(0.4)) return text;
      return row_only      ? "select(lt(r, 3), " + text + ", 0.125 * r)"
             : chance(0.5) ? "select(lt(c, 2 * r), " + text + ", 0.0625 * c)"
                           : "select(lt(c - 5, r), select(lt(c, r - 3), -1, " + text + "), 2)";
    };
    const std::string target = op.name + ": t" + op.name;
    switch (pick(0, 9)) {
      case 0:
      case 1:
        op.shape = Shape::row, op.sums = true;
        op.text = target + "[r] += " + operand(false) + " * x0[r,c]";
        break;
      case 2:
        op.shape = Shape::row, op.sums = true;
        op.text = target + "[r] max= " + operand(false) + " + x1[r,c]";
        break;
      case 3:
        op.shape = Shape::row;
        op.text = target + "[r] = tanh(" + operand(true) + ") + " + operand(true);
        break;
      case 4:
        op.shape = Shape::column, op.sums = true;
        op.text = target + "[c] += " + operand(false) + " + x0[r,c]";
        break;
      default:
        op.text = target + "[r,c] = tanh(" + operand(false) + ") - " + operand(false) + " * x" +
                  std::to_string(pick(0, 1)) + "[r,c]";
    }
    return op;
  }

  /// Runs of operators over c share a loop; one that reads a sum starts a new run.
  std::string rows_body(const std::string& before, const std::string& after) {
    std::string text, run;
    std::vector<int> in_run;
    const auto close = [&] {
      if (!run.empty()) text += before + "( " + run + ") " + after;
      run.clear(), in_run.clear();
    };
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      const bool waits = std::ranges::any_of(op.reads, [&](int r) {
        return ops_[static_cast<std::size_t>(r)].sums &&
               std::ranges::find(in_run, r) != in_run.end();
      });
      const bool outside = op.shape == Shape::row && !op.sums && chance(0.8);
      if (waits || outside || chance(0.15)) close();
      if (outside) {
        text += "C." + op.name + " ";
        continue;
      }
      run += "C." + op.name + " ";
      in_run.push_back(static_cast<int>(i));
    }
    close();
    for (const Op& op : ops_)
      if (op.shape == Shape::row && op.sums && !read(op) && chance(0.9))
        text += "S.t" + op.name + " ";
    for (const char* input : {"x0", "x1", "m0", "g", "Z"})
      if ((slices_ || input[0] != 'Z') && chance(0.25) && used(input))
        text = std::string("L.") + input + (chance(0.2) ? "@shared " : " ") + text;
    return text;
  }
  bool used(const std::string& input) const {
    return std::ranges::any_of(
        ops_, [&](const Op& op) { return op.text.find(input + "[") != std::string::npos; });
  }

  std::string step(const char* loop, int most, const char* unit) {
    const int extent = loop[0] == 'r' ? rows_ : columns_;
    return std::string(loop) + "/" + std::to_string(std::min(extent, pick(1, most))) + unit + " ";
  }

  std::string tree() {
    const int per_block = std::min(rows_, pick(1, 8)), per_warp = std::min(per_block, pick(1, 3));
    std::string stores;
    for (const Op& op : ops_)
      if (op.shape == Shape::column) stores += "S.t" + op.name + "!atomic ";
    const std::string grid = "r/" + std::to_string(per_block) + "@grid ( ";
    const std::string one = per_warp > 1 ? "r/1 " : "";
    const std::string warp = "r/" + std::to_string(per_warp) + "@warp " + one;
    switch (pick(0, 6)) {
      case 0:
      case 1:
        return grid + warp + "( " + rows_body(step("c", 5, "@lane"), "") + ") " + stores + ")";
      case 2: {
        const int piece = std::min(columns_, pick(8, 40));
        return grid + warp + "( " +
               rows_body("c/" + std::to_string(piece) + "@warp c/" +
                             std::to_string(std::min(piece, pick(1, 4))) + "@lane ",
                         "") +
               ") " + stores + ")";
      }
      case 3:
        return grid + "r/1 ( " + rows_body(step("c", 4, "@thread"), "Y.block ") + ") " + stores +
               ")";
      case 4:
        return grid + "r/1@thread ( " + rows_body(step("c", 4, ""), "") + ") " + stores + ")";
      case 5: {
        const int piece = std::min(columns_, pick(8, 40));
        return grid + warp + "( " +
               rows_body("c/" + std::to_string(piece) + " c/" +
                             std::to_string(std::min(piece, pick(1, 4))) + "@lane ",
                         "Y.warp ") +
               ") " + stores + ")";
      }
      default:
        return grid + warp + "( " + rows_body(step("c", 40, "@lane") + step("c", 4, "@lane"), "") +
               ") " + stores + ")";
    }
  }

  std::mt19937_64& random_;
  bool gathers_, indices_, slices_;
  std::vector<int> offsets_;  ///< of slices
  std::vector<Op> ops_;
  int rows_ = 1, columns_ = 1;
};

/// Convolutions and stencils of one or two dimensions: strides, padding, windows that reach past
/// both ends.
class WindowMaker {
 public:
  explicit WindowMaker(std::mt19937_64& random) : random_(random) {}

  std::string workload(const std::string& type) {
    const int stride = chance(0.3) ? 2 : 1;
    taps_ = pick(1, 5), shift_ = pick(0, taps_ - 1), outputs_ = pick(1, 70), rows_ = pick(1, 9);
    channels_ = pick(1, 4), biased_ = chance(0.5);
    const std::string at = (stride > 1 ? "2*y" : "y") +
                           (shift_ > 0 ? " + r - " + std::to_string(shift_) : std::string(" + r"));
    const int length = std::max(1, stride * (outputs_ - 1) + taps_ - pick(0, 2 * shift_));
    return "name: windows\ndtype: " + type + "\nloops: {b: " + std::to_string(rows_) +
           ", y: " + std::to_string(outputs_) + ", r: " + std::to_string(taps_) +
           ", c: " + std::to_string(channels_) + "}\ntensors: {I: [b, c, " +
           std::to_string(length) + "]}\noperators:\n  - \"conv: O[b,y] += I[b,c," + at +
           "] * W[c,r]\"\n" + (biased_ ? "  - \"bias: P[b,y] = O[b,y] + v[y]\"\n" : "");
  }

  Kernel kernel() {
    const auto step = [&](const char* loop, int extent, int most, const char* unit) {
      return std::string(loop) + "/" + std::to_string(std::min(extent, pick(1, most))) + unit + " ";
    };
    const std::string lanes = step("y", outputs_, 3, pick(0, 1) == 0 ? "@lane" : "@thread");
    const bool threads = lanes.find("thread") != std::string::npos;
    const std::string tail = biased_ ? "C.conv C.bias" : "C.conv";
    const std::string load = chance(0.7) ? "L.I " : "";
    std::string body = "b/1@grid " + step("y", outputs_, 40, "@grid ");
    if (!threads && chance(0.5)) body += step("y", outputs_, 20, "@warp");
    const std::string inner =
        chance(0.5) ? step("c", channels_, 2, "") + step("r", taps_, 3, "") : "";
    if (inner.empty())
      body += chance(0.5) ? "( " + load + lanes + "( " + tail + " ) )"
                          : lanes + "( " + load + tail + " )";
    else
      body += lanes + "( " + inner + "( " + load + "C.conv )" + (biased_ ? " C.bias" : "") + " )";
    return {.level = chance(0.6) ? "registers" : "shared", .tree = parse_tree(body)};
  }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }

  std::mt19937_64& random_;
  int taps_ = 1, shift_ = 0, outputs_ = 1, rows_ = 1, channels_ = 1;
  bool biased_ = false;
};

/// An H200 as `exact` counts it: no cache between home and blocks.
inline std::shared_ptr<const Machine> machine() {
  Machine m = named_machine("h200");
  std::erase_if(m.levels, [](const Level& l) { return l.kind == LevelKind::cache; });
  for (Level& l : m.levels)
    for (std::string& from : l.filled_by)
      if (from == "L2") from = "DRAM";
  return std::make_shared<const Machine>(m);
}

}  // namespace tilewright::testing::random_stitched
