// Contractions: products whose rows, columns or depth are several loops, or whose operands lie at
// indices of several loops. A convolution is one, its window read where it lies, and so is each
// output of an operator that has several products. Operands are read element by element into the
// fragments of the micro-kernel; sums go to a tile in shared memory.
#include <algorithm>

#include "codegen/cuda/emitter.h"

namespace tilewright::cuda {
/// Names for the loops of a group, out of their number together; `loops` gets them, by position.
std::string KernelEmitter::loops_of(NodeId id, const std::vector<int>& group,
                                    const std::string& from, const SymRanges& ranges,
                                    std::vector<std::string>& loops) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  std::string text, rest = from;
  for (std::size_t i = group.size(); i-- > 0;) {
    const auto l = static_cast<std::size_t>(group[i]);
    const SymRange& r = range(ranges, n.op, group[i]);
    const std::string size = "(" + size_text(r) + ")";
    loops[l] = identifier("c_", workload_.loop(op.loops[l]).name);
    text += "const int " + loops[l] + " = " + rest + (i == 0 ? "" : " % " + size) + "; ";
    rest = i + 1 == group.size() ? "(" + from + ") / " + size : rest + " / " + size;
  }
  return text;
}

/// At{...} of some loops of an access, which `loops` names, counted from where their ranges begin.
/// `whole`: with where all ranges begin; else as what is added to such an At.
std::string KernelEmitter::at_text(NodeId id, const Access& a, BufferId b,
                                   const std::vector<std::string>& loops, bool whole,
                                   const SymRanges& ranges, const std::vector<int>& depth,
                                   const std::string& there) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const BlockTile& p = block_.tile(b);
  const SymBox& tile = *fixed_[b.index()];
  const std::vector<std::size_t> together = lowering::checked_together(workload_, op, a, depth);
  std::string row, column = "0", mixed, exists = there;
  const auto add = [](const std::string& x, const std::string& y) {
    return x.empty() || x == "0" ? y : y.empty() || y == "0" ? x : x + " + " + y;
  };
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    std::string index;
    Linear low = number(a.index[d].offset);
    for (const Term& t : a.index[d].terms) {
      const int l = workload_.local_index(n.op, t.loop);
      const SymRange& r = range(ranges, n.op, l);
      low = low + t.coefficient * r.lo;
      const std::string& name = loops[static_cast<std::size_t>(l)];
      if (!name.empty()) index = add(index, times(t.coefficient, name));
    }
    const std::string begin = whole ? variables_.text(low, true) : "0";
    const std::string at = add(begin, index);
    if (std::ranges::find(together, d) != together.end())
      mixed += ", " + (at.empty() ? std::string("0") : at);
    else if (whole && lowering::leaves(workload_, a, d))
      exists += (exists.empty() ? "" : " && ") + ("(" + at + ") >= 0 && (" + at + ") < ") +
                std::to_string(workload_.tensor(a.tensor).shape[d]);
    const std::string from_tile = whole ? variables_.text(low - tile[d].lo, true) : "0";
    const std::string in_tile = add(from_tile, index);
    if (in_tile.empty() || in_tile == "0") continue;
    if (d + 1 == a.index.size())
      column = in_tile;
    else if (p.most[d] > 1 || measuring_)
      row = add(row,
                p.stride[d] == 1 ? in_tile : "(" + in_tile + ") * " + std::to_string(p.stride[d]));
  }
  std::string fields = (row.empty() ? "0" : row) + ", " + column + mixed;
  for (auto commas = std::ranges::count(mixed, ','); commas < 2; ++commas) fields += ", 0";
  return "At{" + fields + ", " + (exists.empty() ? "true" : exists) + "}";
}

void KernelEmitter::contract(NodeId id, const BlockContraction& c, const SymRanges& ranges,
                             const std::string& fresh) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const OutputUse& use = n.writes[static_cast<std::size_t>(c.write)];
  const Access& target = op.outputs[static_cast<std::size_t>(use.output)].target;
  const std::size_t count = op.loops.size();
  const auto total = [&](const std::vector<int>& group) {
    std::string text;
    for (int l : group)
      text += (text.empty() ? "(" : " * (") + size_text(range(ranges, n.op, l)) + ")";
    return text.empty() ? std::string("1") : text;
  };
  const std::int64_t warps = threads() / 32;
  const auto [high, wide] = block_.contraction_blocks(c, mosts(n.op, ranges));
  out_.open("");
  out_.line("const int rows = " + total(c.rows) + ", columns = " + total(c.columns) +
            ", depth = " + total(c.depth) + ";");
  out_.line("const int down = (rows + " + std::to_string(16 * high - 1) + ") / " +
            std::to_string(16 * high) + ", across = (columns + " + std::to_string(8 * wide - 1) +
            ") / " + std::to_string(8 * wide) + ";");
  out_.line("TW_NO_UNROLL");
  out_.open("for (int item = warp; item < down * across * " + total(c.products) +
            "; item += " + std::to_string(warps) + ")");
  out_.line("const int row = item / across % down * " + std::to_string(16 * high) +
            ", column = item % across * " + std::to_string(8 * wide) + ";");
  std::vector<std::string> here(count);
  if (!c.products.empty())
    out_.line(loops_of(id, c.products, "item / (down * across)", ranges, here));
  // Sums at an element: where it lies in its tile.
  std::vector<std::string> at_row = here, at_column(count);
  const std::string row_loops = loops_of(id, c.rows, "r", ranges, at_row),
                    column_loops = loops_of(id, c.columns, "l", ranges, at_column);
  out_.line("const auto result = [&](int r, int l) {");
  out_.line("  (void)r, (void)l; " + row_loops + column_loops +
            "const At a = " + at_text(id, target, use.buffer, at_row, true, ranges, {}) +
            ", b = " + at_text(id, target, use.buffer, at_column, false, ranges, {}) + ";");
  out_.line("  return " + tile_text(use.buffer) + ".at(a.row + b.row, a.column + b.column);");
  out_.line("};");
  const std::string shape = std::to_string(high) + ", " + std::to_string(wide);
  out_.line("Sums<" + shape + "> sums;");
  out_.line("const " + place_type() + " whole{0, 0, thread % 32};");
  if (fresh == "true") {
    out_.line("fill(sums, 0);");
  } else {
    out_.open("each<" + shape + ">(whole, 0, [&](int i, int j, int e, int r, int l)");
    out_.line("const bool there = row + r < rows && column + l < columns" +
              (fresh == "false" ? "" : " && !(" + fresh + ")") + ";");
    out_.line("sums.x[i][j][e] = there ? *result(row + r, column + l) : 0.0f;");
    out_.end();
    out_.line("});");
  }
  for (int l : c.turns) {
    const auto at = static_cast<std::size_t>(l);
    here[at] = names_.fresh(identifier("t_", workload_.loop(op.loops[at]).name));
    out_.line("TW_NO_UNROLL");
    out_.open("for (int " + here[at] + " = 0; " + here[at] + " < " +
              size_text(range(ranges, n.op, l)) + "; ++" + here[at] + ")");
  }
  const auto operand = [&](int input, const std::vector<int>& group, const std::string& limit) {
    const Access& a = op.inputs[static_cast<std::size_t>(input)];
    const BufferId b = block_.buffer_of_input(n, input);
    std::vector<std::string> outer = here, inner(count);
    const std::string outer_loops = loops_of(id, group, "i", ranges, outer),
                      inner_loops = loops_of(id, c.depth, "k", ranges, inner);
    std::string inside;
    for (std::size_t d : lowering::checked_together(workload_, op, a, c.depth)) {
      const std::string field = inside.empty() ? "first" : "second";
      const std::string at = "a." + field + " + b." + field;
      inside += (inside.empty() ? "" : " && ") + at + " >= 0 && " + at + " < " +
                std::to_string(workload_.tensor(a.tensor).shape[d]);
    }
    const std::string text = names_.fresh("operand");
    out_.line("const auto " + text + " = elements(" + tile_text(b) + ",");
    out_.line("    [&](int n) { const int i = least(n, " + limit + " - 1); (void)i; " +
              outer_loops + "return " + at_text(id, a, b, outer, true, ranges, c.depth) + "; },");
    out_.line("    [&](int k) { " + inner_loops + "return " +
              at_text(id, a, b, inner, false, ranges, c.depth, "k < depth") + "; },");
    out_.line("    [](const At& a, const At& b) { (void)a, (void)b; return " +
              (inside.empty() ? "true" : inside) + "; });");
    return text;
  };
  const std::string left = operand(c.left, c.rows, "rows"),
                    right = operand(c.right, c.columns, "columns");
  const DType type = workload_.tensor(op.inputs[static_cast<std::size_t>(c.left)].tensor).dtype;
  out_.line(kernel_text(type) + "::contract(sums, " + left + ", " + right +
            ", row, column, depth, thread % 32);");
  for (std::size_t i = 0; i < c.turns.size(); ++i) out_.close();
  out_.open("each<" + shape + ">(whole, 0, [&](int i, int j, int e, int r, int l)");
  out_.line("if (row + r < rows && column + l < columns) " +
            put_text(use.buffer, "result(row + r, column + l)", "sums.x[i][j][e]"));
  out_.end();
  out_.line("});");
  out_.close();
  out_.close();
}

}  // namespace tilewright::cuda
