// Convolutions as matrix products: the right operand's columns are points of one or two loops, its
// depth those of several, and it may be read beyond its edges.
#include <algorithm>

#include "codegen/cpu/emitter.h"

namespace tilewright::cpu {
namespace {

/// The dimension of the access that the loop moves; none where it is not exactly one.
std::optional<std::size_t> dimension_of(const Access& a, LoopId loop) {
  std::optional<std::size_t> found;
  for (std::size_t d = 0; d < a.index.size(); ++d)
    for (const Term& t : a.index[d].terms)
      if (t.loop == loop) {
        if (found) return std::nullopt;
        found = d;
      }
  return found;
}

std::int64_t coefficient_of(const Affine& a, LoopId loop) {
  std::int64_t sum = 0;
  for (const Term& t : a.terms)
    if (t.loop == loop) sum += t.coefficient;
  return sum;
}

/// Whether the index lies outside its dimension for some point of the operator.
bool leaves(const Workload& w, const Operator& op, const Access& a, std::size_t d) {
  std::vector<Interval> whole;
  for (LoopId l : op.loops) whole.push_back({0, w.loop(l).extent});
  return !contains(Interval{0, w.tensor(a.tensor).shape[d]}, footprint(op, a.index[d], whole));
}

}  // namespace

/// What an operator's loops are to a product: rows move the left operand and the result, columns
/// the right one and the result, the depth both operands. Nothing where the operator has others.
std::optional<KernelEmitter::Window> KernelEmitter::as_window(NodeId id, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  if (p_.vector_bytes == 0 || op.outputs.size() != 1 || w.gathers(n.op)) return std::nullopt;
  const auto factors = factors_of(op);
  const Output& out = op.outputs[0];
  if (!factors || out.target.index.empty()) return std::nullopt;
  const auto columns = out.target.index.back().plain_loop();
  if (!columns) return std::nullopt;
  for (int left : {0, 1}) {
    Window x{.left = (*factors)[static_cast<std::size_t>(left)],
             .right = (*factors)[static_cast<std::size_t>(1 - left)]};
    const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
    const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
    bool fits = !can_leave(w, op, a);
    for (int l = 0; l < static_cast<int>(op.loops.size()) && fits; ++l) {
      const LoopId loop = op.loops[static_cast<std::size_t>(l)];
      const bool in_a = has_loop(a, loop), in_b = has_loop(b, loop);
      const auto larger = [&](int than) {
        return than < 0 || range(ranges, n.op, l).most > range(ranges, n.op, than).most;
      };
      if (!has_loop(out.target, loop)) {
        fits = in_a && in_b;
        x.depth.push_back(l);
      } else if (loop == *columns) {
        fits = in_b && !in_a;
        x.columns = l;
      } else if (in_a && !in_b && larger(x.rows)) {
        x.rows = l;
      } else if (in_b && !in_a && larger(x.outer)) {
        x.outer = l;
      }
    }
    if (fits && x.columns >= 0 && !x.depth.empty() && finish_window(id, x, ranges)) return x;
  }
  return std::nullopt;
}

/// Looks at how the operands lie; false where the product is a plain one, or no window is its.
bool KernelEmitter::finish_window(NodeId id, Window& x, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  const Access& c = op.outputs[0].target;
  const BufferId in_a = buffer_of_input(n, x.left), in_b = buffer_of_input(n, x.right);
  const BufferId in_c = n.writes[0].buffer;
  const auto loop = [&](int l) { return op.loops[static_cast<std::size_t>(l)]; };
  const auto column_dim = dimension_of(b, loop(x.columns));
  if (!column_dim || stride_of(op, c, in_c, x.columns) != 1 ||
      layouts_[in_b.index()].stride[*column_dim] != 1)
    return false;
  x.column_dim = static_cast<int>(*column_dim);
  x.step = coefficient_of(b.index[*column_dim], loop(x.columns));
  if (x.step < 1) return false;

  const SymRange& width = range(ranges, n.op, x.columns);
  const Linear size = width.hi - width.lo;
  if (x.outer >= 0) {
    const auto d = dimension_of(b, loop(x.outer));
    const bool usable = d && *d != *column_dim && size.is_constant() &&
                        range(ranges, n.op, x.outer).most > 1 &&
                        dense(in_c, stride_of(op, c, in_c, x.outer), size.constant);
    if (usable)
      x.row_dim = static_cast<int>(*d);
    else
      x.outer = -1;
  }
  // One more dimension may be read beyond its edges: the rows' where these are columns too.
  bool padded = false;
  for (std::size_t d = 0; d < b.index.size(); ++d) {
    if (!leaves(w, op, b, d)) continue;
    padded = true;
    if (d == *column_dim || static_cast<int>(d) == x.row_dim) continue;
    if (x.row_dim >= 0) return false;
    x.row_dim = static_cast<int>(d);
  }
  // The left operand's steps follow one another where its depth loops, innermost last, are dense.
  std::ranges::stable_sort(x.depth, std::greater<>{},
                           [&](int l) { return stride_of(op, a, in_a, l); });
  int several = 0;
  std::int64_t next = 0;
  x.left_dense = true;
  for (std::size_t i = x.depth.size(); i-- > 0;) {
    const SymRange& r = range(ranges, n.op, x.depth[i]);
    if (r.most == 1) continue;
    const std::int64_t step = stride_of(op, a, in_a, x.depth[i]);
    const Linear extent = r.hi - r.lo;
    if (several++ == 0)
      x.left_step = step;
    else
      x.left_dense = x.left_dense && step == next;
    next = step * extent.constant;
    if (!extent.is_constant()) next = 0;
  }
  if (several == 0) x.left_step = 1;
  x.direct = !padded && several <= 1 && x.step == 1 &&
             (x.outer < 0 || dense(in_b, stride_of(op, b, in_b, x.outer), size.constant));
  return padded || several > 1 || x.step > 1 || x.outer >= 0;
}

/// Whether rows of a tile `width` wide follow one another without a gap. Asks for that where the
/// tile has an array of its own, for the next pass to find.
bool KernelEmitter::dense(BufferId b, std::int64_t stride, std::int64_t width) {
  if (stride == width) return true;
  const TileLayout& l = layouts_[b.index()];
  if (!packed_[b.index()].empty() && l.most.size() > 2 && l.most.back() == width)
    dense_[b.index()] = true;
  return false;
}

/// The steps of the depth, in an array: loops in the order in which the left operand has them.
std::string KernelEmitter::emit_steps(NodeId id, const Window& x, const SymRanges& ranges,
                                      std::int64_t& offset) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  const BufferId in_b = buffer_of_input(n, x.right);
  std::int64_t most = 1;
  for (int l : x.depth) {
    const auto all = checked_mul(most, range(ranges, n.op, l).most);
    if (!all || *all > (std::int64_t{1} << 32))
      throw Refused{"operator " + op.name + " sums over more than 2^32 steps at once"};
    most = *all;
  }
  const std::string steps = names_.fresh("steps"), depth = names_.fresh("depth");
  out_.line("Step* const " + steps + " = " + scratch(most * 16, offset, "Step") + ";");
  out_.line("int64_t " + depth + " = 0;");
  std::string where, row, column;
  const auto add = [](std::string& sum, std::int64_t factor, const std::string& x) {
    if (factor != 0) sum += (sum.empty() ? "" : " + ") + times(factor, x);
  };
  for (int l : x.depth) {
    const LoopId loop = op.loops[static_cast<std::size_t>(l)];
    const SymRange& r = range(ranges, n.op, l);
    const std::string p = names_.fresh(identifier("p_", p_.workload().loop(loop).name));
    out_.open("for (int64_t " + p + " = " + variables_.text(r.lo) + "; " + p + " < " +
              variables_.text(r.hi) + "; ++" + p + ")");
    add(where, stride_of(op, b, in_b, l), p);
    if (x.row_dim >= 0)
      add(row, coefficient_of(b.index[static_cast<std::size_t>(x.row_dim)], loop), p);
    add(column, coefficient_of(b.index[static_cast<std::size_t>(x.column_dim)], loop), p);
  }
  const auto number = [](const std::string& sum) {
    return sum.empty() ? std::string("0") : "static_cast<int32_t>(" + sum + ")";
  };
  out_.line(steps + "[" + depth + "++] = {" + (where.empty() ? "0" : where) + ", " + number(row) +
            ", " + number(column) + "};");
  for (std::size_t i = 0; i < x.depth.size(); ++i) out_.close();
  return steps;
}

/// An index of the right operand with the depth at its origin, as text.
std::string KernelEmitter::index_without_depth(NodeId id, const Window& x, int dim,
                                               const std::vector<std::string>& at) const {
  const Operator& op = p_.workload().op(k_.node(id).op);
  const Affine& index =
      op.inputs[static_cast<std::size_t>(x.right)].index[static_cast<std::size_t>(dim)];
  std::string text = std::to_string(index.offset);
  for (const Term& t : index.terms) {
    const int l = static_cast<int>(std::ranges::find(op.loops, t.loop) - op.loops.begin());
    if (std::ranges::find(x.depth, l) == x.depth.end())
      text += " + " + times(t.coefficient, "(" + at[static_cast<std::size_t>(l)] + ")");
  }
  return text;
}

void KernelEmitter::convolve(NodeId id, const Window& x, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& c = op.outputs[0].target;
  const BufferId in_c = n.writes[0].buffer;
  const std::int64_t points =
      range(ranges, n.op, x.columns).most * (x.outer < 0 ? 1 : range(ranges, n.op, x.outer).most);
  const MicroKernel kernel = kernel_of(n.op, x.rows, points, ranges);
  const std::string shape = std::to_string(kernel.rows) + ", " + std::to_string(kernel.vectors);
  if (op.outputs[0].rescale) rescale(id, ranges);

  std::vector<int> inner = {x.rows, x.columns, x.outer};
  inner.insert(inner.end(), x.depth.begin(), x.depth.end());
  const Surroundings s = surround(id, inner, ranges);
  std::string count = size_of_loop(n.op, x.columns, ranges);
  if (x.outer >= 0) count = "(" + size_of_loop(n.op, x.outer, ranges) + ") * " + count;
  const std::string sizes = "(" + size_of_loop(n.op, x.rows, ranges) + ", " + count + ", ";
  const std::string to = corner(op, c, in_c, s.at) + ", " +
                         std::to_string(stride_of(op, c, in_c, x.rows)) + ", " + s.fresh + ");";
  if (x.direct)
    multiply_through(id, x, s.at, "multiply<" + shape + ", false>" + sizes, to, ranges);
  else
    gather_through(id, x, s.at, "convolve<" + shape + ", " + std::to_string(x.step) + ">" + sizes,
                   to, ranges);
  for (int opened = s.opened; opened > 0; --opened) out_.close();
}

/// A window that moves by whole columns only is the right operand as it lies.
void KernelEmitter::multiply_through(NodeId id, const Window& x, const std::vector<std::string>& at,
                                     const std::string& call, const std::string& to,
                                     const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  const BufferId in_a = buffer_of_input(n, x.left), in_b = buffer_of_input(n, x.right);
  int depth = x.depth.front();
  for (int l : x.depth)
    if (range(ranges, n.op, l).most > 1) depth = l;
  out_.line(call + size_of_loop(n.op, depth, ranges) + ", " + corner(op, a, in_a, at) + ", " +
            std::to_string(stride_of(op, a, in_a, x.rows)) + ", " +
            std::to_string(stride_of(op, a, in_a, depth)) + ",");
  out_.line("         " + corner(op, b, in_b, at) + ", " +
            std::to_string(stride_of(op, b, in_b, depth)) + ", " + to);
}

void KernelEmitter::gather_through(NodeId id, const Window& x, const std::vector<std::string>& at,
                                   const std::string& call, const std::string& to,
                                   const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const BufferId in_a = buffer_of_input(n, x.left);
  p_.prelude.windows = true;
  out_.open("");
  std::int64_t offset = 0;
  const std::string steps = emit_steps(id, x, ranges, offset);
  std::string depth;
  for (int l : x.depth)
    if (range(ranges, n.op, l).most > 1)
      depth += (depth.empty() ? "(" : " * (") + size_of_loop(n.op, l, ranges) + ")";
  if (depth.empty()) depth = "1";
  std::string left = corner(op, a, in_a, at);
  std::string left_row = std::to_string(stride_of(op, a, in_a, x.rows));
  std::int64_t left_step = x.left_step;
  if (!x.left_dense) {
    left = pack_left(id, x, ranges, offset);
    left_row = depth, left_step = 1;
  }
  const std::string window = emit_window(id, x, at, ranges);
  out_.line(call + depth + ", " + left + ", " + left_row + ", " + std::to_string(left_step) + ", " +
            window + ", " + steps + ",");
  out_.line("         " + scratch(kGatheredBytes, offset, "Real") + ", " + to);
  out_.close();
}

/// The window's origin has every loop at its low end and the depth at zero. Where padding begins
/// there, it lies before the tensor, and no element of it is read.
std::string KernelEmitter::emit_window(NodeId id, const Window& x,
                                       const std::vector<std::string>& at,
                                       const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  const BufferId in_b = buffer_of_input(n, x.right);
  std::vector<std::string> origin = at;
  for (int l : x.depth) origin[static_cast<std::size_t>(l)] = "0";
  const auto extent = [&](int dim) {
    return std::to_string(w.tensor(b.tensor).shape[static_cast<std::size_t>(dim)]);
  };
  std::string rows = "0, 0, 1";
  if (x.row_dim >= 0) {
    const std::int64_t step = x.outer < 0
                                  ? 0
                                  : coefficient_of(b.index[static_cast<std::size_t>(x.row_dim)],
                                                   op.loops[static_cast<std::size_t>(x.outer)]);
    rows = index_without_depth(id, x, x.row_dim, at) + ", " + std::to_string(step) + ", " +
           extent(x.row_dim);
  }
  const std::string name = names_.fresh("window");
  out_.line("const Window " + name + " = {" + corner(op, b, in_b, origin) + ", " +
            size_of_loop(n.op, x.columns, ranges) + ", " +
            std::to_string(stride_of(op, b, in_b, x.outer)) + ",");
  out_.line("    " + rows + ", " + index_without_depth(id, x, x.column_dim, at) + ", " +
            extent(x.column_dim) + "};");
  return name;
}

/// The left operand with its steps one after the other, where they do not lie like that.
std::string KernelEmitter::pack_left(NodeId id, const Window& x, const SymRanges& ranges,
                                     std::int64_t& offset) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const BufferId in_a = buffer_of_input(n, x.left);
  std::int64_t elements = x.rows < 0 ? 1 : range(ranges, n.op, x.rows).most;
  std::vector<std::string> at;
  for (int l = 0; l < static_cast<int>(op.loops.size()); ++l)
    at.push_back(variables_.text(range(ranges, n.op, l).lo));
  const std::string packed = names_.fresh("packed"), next = names_.fresh("next");
  std::vector<int> loops = x.depth;
  if (x.rows >= 0) loops.insert(loops.begin(), x.rows);
  for (int l : x.depth) {
    const auto all = checked_mul(elements, range(ranges, n.op, l).most);
    if (!all || *all > (std::int64_t{1} << 36))
      throw Refused{"operator " + op.name + " packs more than 2^36 elements at once"};
    elements = *all;
  }
  out_.line("Real* const " + packed + " = " + scratch(elements * p_.element_bytes, offset, "Real") +
            ";");
  out_.line("int64_t " + next + " = 0;");
  for (int l : loops) {
    const SymRange& r = range(ranges, n.op, l);
    std::string& p = at[static_cast<std::size_t>(l)];
    p = names_.fresh(
        identifier("p_", p_.workload().loop(op.loops[static_cast<std::size_t>(l)]).name));
    out_.open("for (int64_t " + p + " = " + variables_.text(r.lo) + "; " + p + " < " +
              variables_.text(r.hi) + "; ++" + p + ")");
  }
  out_.line(packed + "[" + next + "++] = *(" + corner(op, a, in_a, at) + ");");
  for (std::size_t i = 0; i < loops.size(); ++i) out_.close();
  return packed;
}

}  // namespace tilewright::cpu
