// Contractions: products whose rows, columns or depth are several loops, or whose operands lie at
// indices of several loops. A convolution is one, its window read where it lies, and so is each output
// of an operator that has several products. Operands are read element by element into the fragments of
// the micro-kernel; sums go to a tile in shared memory.
#include <algorithm>

#include "codegen/cuda/emitter.h"

namespace tilewright::cuda {
namespace {

constexpr std::int64_t kFullDepth = 12;  ///< of a block of 16: from here on one loop is the depth

bool indexes(const Affine& i, LoopId loop) {
  return std::ranges::any_of(i.terms, [&](const Term& t) { return t.loop == loop; });
}
bool indexes(const Access& a, LoopId loop) {
  return std::ranges::any_of(a.index, [&](const Affine& i) { return indexes(i, loop); });
}

/// Whether an index lies outside its dimension for some points.
bool leaves(const Workload& w, const Access& a, std::size_t d) {
  std::int64_t least = a.index[d].offset, most = least;
  for (const Term& t : a.index[d].terms)
    (t.coefficient < 0 ? least : most) += t.coefficient * (w.loop(t.loop).extent - 1);
  return least < 0 || most >= w.tensor(a.tensor).shape[d];
}
/// Dimensions whose index, where it may leave the tensor, the depth has a part in: whether an element is
/// there is known for a row or column and a point of the depth together.
std::vector<std::size_t> checked_together(const Workload& w, const Operator& op, const Access& a,
                                          const std::vector<int>& depth) {
  std::vector<std::size_t> found;
  for (std::size_t d = 0; d < a.index.size(); ++d)
    if (leaves(w, a, d) && std::ranges::any_of(depth, [&](int l) {
          return indexes(a.index[d], op.loops[static_cast<std::size_t>(l)]);
        }))
      found.push_back(d);
  return found;
}

}  // namespace

/// One output as a contraction that the micro-kernel takes; nothing where it is none, or so narrow that
/// it would leave most of a block of 16 x 8 unused.
std::optional<Contraction> KernelEmitter::as_contraction(NodeId id, int write,
                                                         const SymRanges& ranges) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const OutputUse& use = n.writes[static_cast<std::size_t>(write)];
  const Output& out = op.outputs[static_cast<std::size_t>(use.output)];
  const Expr& e = out.value;
  if (p_.f64 || !micro_kernel().elements || workload_.gathers(n.op) || out.rescale ||
      out.combine != Combine::sum || e.kind != Expr::Kind::call || e.function != "mul" ||
      e.args[0].kind != Expr::Kind::input || e.args[1].kind != Expr::Kind::input ||
      e.args[0].input == e.args[1].input || out.target.index.empty())
    return std::nullopt;
  Contraction c{.write = write, .left = e.args[0].input, .right = e.args[1].input};
  const auto access = [&](int input) -> const Access& {
    return op.inputs[static_cast<std::size_t>(input)];
  };
  // Neighbours at home are columns.
  for (const Term& t : out.target.index.back().terms)
    if (!indexes(access(c.right), t.loop) && indexes(access(c.left), t.loop)) {
      std::swap(c.left, c.right);
      break;
    }
  const DType type = workload_.tensor(access(c.left).tensor).dtype;
  if (workload_.tensor(access(c.right).tensor).dtype != type || !micro_kernel().takes(type))
    return std::nullopt;
  std::int64_t rows = 1, columns = 1;
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const int at = static_cast<int>(l);
    const std::int64_t most = range(ranges, n.op, at).most;
    if (most == 1) continue;
    const LoopId loop = op.loops[l];
    const bool left = indexes(access(c.left), loop), right = indexes(access(c.right), loop);
    if (!indexes(out.target, loop)) {
      c.depth.push_back(at);
    } else if (left && right) {
      c.products.push_back(at);
    } else if (right) {
      c.columns.push_back(at);
      columns *= most;
    } else {
      c.rows.push_back(at);
      rows *= most;
    }
  }
  if (c.depth.empty() || 8 * rows * columns < ceil_div(rows, 16) * ceil_div(columns, 8) * 16 * 8)
    return std::nullopt;
  // One long loop fills the depth's blocks; short ones fill them together.
  const auto longest = std::ranges::max_element(
      c.depth, {}, [&](int l) { return range(ranges, n.op, l).most; });
  if (range(ranges, n.op, *longest).most >= kFullDepth || !micro_kernel().blocks) {
    for (int l : c.depth)
      if (l != *longest) c.turns.push_back(l);
    c.depth = {*longest};
  }
  for (int input : {c.left, c.right})  // At has room for two of them
    if (checked_together(workload_, op, access(input), c.depth).size() > 2) return std::nullopt;
  return c;
}

/// Every output of a compute as a contraction, or none of them.
std::vector<Contraction> KernelEmitter::contractions(NodeId id, const SymRanges& ranges) const {
  std::vector<Contraction> all;
  const std::size_t writes = k_.node(id).writes.size();
  for (std::size_t w = 0; w < writes; ++w)
    if (auto c = as_contraction(id, static_cast<int>(w), ranges)) all.push_back(std::move(*c));
  if (all.size() != writes) all.clear();
  return all;
}

/// Names for the loops of a group, out of their number together; `loops` gets them, by position.
std::string KernelEmitter::loops_of(NodeId id, const std::vector<int>& group, const std::string& from,
                                    const SymRanges& ranges, std::vector<std::string>& loops) const {
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
  const TilePlace& p = places_[b.index()];
  const SymBox& tile = *fixed_[b.index()];
  const std::vector<std::size_t> together = checked_together(workload_, op, a, depth);
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
    else if (whole && leaves(workload_, a, d))
      exists += (exists.empty() ? "" : " && ") + ("(" + at + ") >= 0 && (" + at + ") < ") +
                std::to_string(workload_.tensor(a.tensor).shape[d]);
    const std::string from_tile = whole ? variables_.text(low - tile[d].lo, true) : "0";
    const std::string in_tile = add(from_tile, index);
    if (in_tile.empty() || in_tile == "0") continue;
    if (d + 1 == a.index.size())
      column = in_tile;
    else if (p.most[d] > 1 || measuring_)
      row = add(row, p.stride[d] == 1 ? in_tile
                                      : "(" + in_tile + ") * " + std::to_string(p.stride[d]));
  }
  std::string fields = (row.empty() ? "0" : row) + ", " + column + mixed;
  for (auto commas = std::ranges::count(mixed, ','); commas < 2; ++commas) fields += ", 0";
  return "At{" + fields + ", " + (exists.empty() ? "true" : exists) + "}";
}

void KernelEmitter::contract(NodeId id, const Contraction& c, const SymRanges& ranges,
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
  const auto most = [&](const std::vector<int>& group) {
    std::int64_t product = 1;
    for (int l : group) product *= range(ranges, n.op, l).most;
    return product;
  };
  // As large blocks as give every warp one.
  const std::int64_t warps = threads() / 32;
  std::int64_t high = 1, wide = micro_kernel().fours ? 2 : 1;
  for (const auto& [m, w] : {std::pair{2, 4}, {1, 4}, {2, 2}, {1, 2}})
    if (ceil_div(most(c.rows), 16) >= m && ceil_div(most(c.columns), 8) >= w &&
        ceil_div(most(c.rows), 16 * m) * ceil_div(most(c.columns), 8 * w) * most(c.products) >=
            warps) {
      high = m, wide = w;
      break;
    }
  out_.line(meet());
  out_.open("");
  out_.line("const int rows = " + total(c.rows) + ", columns = " + total(c.columns) + ", depth = " +
            total(c.depth) + ";");
  out_.line("const int down = (rows + " + std::to_string(16 * high - 1) + ") / " +
            std::to_string(16 * high) + ", across = (columns + " + std::to_string(8 * wide - 1) +
            ") / " + std::to_string(8 * wide) + ";");
  out_.line("TW_NO_UNROLL");
  out_.open("for (int item = warp; item < down * across * " + total(c.products) + "; item += " +
            std::to_string(warps) + ")");
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
  out_.line("  (void)r, (void)l; " + row_loops + column_loops + "const At a = " +
            at_text(id, target, use.buffer, at_row, true, ranges, {}) + ", b = " +
            at_text(id, target, use.buffer, at_column, false, ranges, {}) + ";");
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
    const BufferId b = buffer_of_input(n, input);
    std::vector<std::string> outer = here, inner(count);
    const std::string outer_loops = loops_of(id, group, "i", ranges, outer),
                      inner_loops = loops_of(id, c.depth, "k", ranges, inner);
    std::string inside;
    for (std::size_t d : checked_together(workload_, op, a, c.depth)) {
      const std::string field = inside.empty() ? "first" : "second";
      const std::string at = "a." + field + " + b." + field;
      inside += (inside.empty() ? "" : " && ") + at + " >= 0 && " + at + " < " +
                std::to_string(workload_.tensor(a.tensor).shape[d]);
    }
    const std::string text = names_.fresh("operand");
    out_.line("const auto " + text + " = elements(" + tile_text(b) + ",");
    out_.line("    [&](int n) { const int i = least(n, " + limit + " - 1); (void)i; " + outer_loops +
              "return " + at_text(id, a, b, outer, true, ranges, c.depth) + "; },");
    out_.line("    [&](int k) { " + inner_loops + "return " +
              at_text(id, a, b, inner, false, ranges, c.depth, "k < depth") + "; },");
    out_.line("    [](const At& a, const At& b) { (void)a, (void)b; return " +
              (inside.empty() ? "true" : inside) + "; });");
    return text;
  };
  const std::string left = operand(c.left, c.rows, "rows"),
                    right = operand(c.right, c.columns, "columns");
  const DType type =
      workload_.tensor(op.inputs[static_cast<std::size_t>(c.left)].tensor).dtype;
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
  out_.line(meet());
}

}  // namespace tilewright::cuda
