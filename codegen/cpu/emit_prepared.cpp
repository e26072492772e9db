// Operands that are the same in every run: packed once, left ones as `convolve` takes them, right
// ones by panels of columns as `multiply_packed` does, into memory that the kernel keeps.
#include <algorithm>
#include <set>

#include "codegen/cpu/window_depth.h"
#include "core/lowering/window_points.h"

namespace tilewright::cpu {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 34;
/// A group of rows and the next one are in the second cache together: larger ones would come from
/// memory again for every panel of points, and packing them beside is faster.
constexpr std::int64_t kMostGroup = 192 << 10;

}  // namespace

/// Begins the text that packs an operand: `from`, its elements of that type, and `to`, where they
/// are kept; that place, as kernels find it.
std::string KernelEmitter::begin_packing(Lines& text, const std::string& type, TensorId of,
                                         const std::string& how, const Prepared& made) const {
  const Workload& w = p_.workload();
  const std::string kept =
      "tensors[" + std::to_string(w.tensors().size()) + "]) + " + std::to_string(made.offset);
  text.open("");
  text.comment(w.tensor(of).name + how);
  text.line("const " + type + "* const from = static_cast<const " + type + "*>(tensors[" +
            std::to_string(of.value) + "]);");
  text.line("Real* to = static_cast<Real*>(" + kept + ";");
  return "static_cast<const Real*>(" + kept;
}

/// Whether the operand lies at home, never changes, and steps of this compute's depth follow one
/// another when the whole depth is packed.
bool KernelEmitter::can_prepare(NodeId id, const Window& x, const SymRanges& ranges) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const BufferId in_a = buffer_of_input(n, x.left);
  if (!p_.constant[a.tensor.index()] || !is_plain(in_a) || !packed_[in_a.index()].empty() ||
      buffer(in_a).role != BufferRole::input)
    return false;
  std::set<LoopId> loops;
  for (const Affine& index : a.index) {
    const auto loop = index.plain_loop();
    if (!loop || !loops.insert(*loop).second) return false;
  }
  bool outermost = true;
  for (int l : x.depth) {
    const SymRange& r = range(ranges, n.op, l);
    const std::int64_t extent = p_.workload().loop(op.loops[static_cast<std::size_t>(l)]).extent;
    if (extent == 1) continue;
    const bool whole = r.lo == number(0) && r.hi.is_constant() && r.hi.constant == extent;
    if (!whole && !outermost) return false;
    outermost = false;
  }
  return true;
}

/// The same, and groups of so many rows are small enough.
bool KernelEmitter::prepares_left(NodeId id, const Window& x, std::int64_t group,
                                  const SymRanges& ranges) const {
  if (!can_prepare(id, x, ranges)) return false;
  const Operator& op = p_.workload().op(k_.node(id).op);
  std::int64_t steps = 1;
  for (int l : x.depth) steps *= p_.workload().loop(op.loops[static_cast<std::size_t>(l)]).extent;
  // Where points are broadcast, a block of the channels is walked at a time.
  const bool in_blocks = group >= 2 * p_.vector_bytes / p_.element_bytes;
  return x.direct || in_blocks || group * steps * p_.element_bytes <= kMostGroup;
}

/// "where it is packed, elements from one group of rows to the next", for convolve; empty: it is
/// not prepared. Rows that begin within a group find nothing there, and are packed as ever.
std::string KernelEmitter::prepared_left(NodeId id, const Window& x, std::int64_t group,
                                         const Surroundings& s, const SymRanges& ranges) {
  if (!prepares_left(id, x, group, ranges)) return "";
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const auto extent = [&](int l) {
    return l < 0 ? 1 : w.loop(op.loops[static_cast<std::size_t>(l)]).extent;
  };
  std::vector<int> others;  // their iterations have panels of their own
  for (int l = 0; l < static_cast<int>(op.loops.size()); ++l)
    if (l != x.rows && indexes(a, op.loops[static_cast<std::size_t>(l)]) &&
        std::ranges::find(x.depth, l) == x.depth.end())
      others.push_back(l);
  std::int64_t steps = 1, panels = 1;
  for (int l : x.depth) steps *= extent(l);
  for (int l : others) panels *= extent(l);
  const std::int64_t panel = ceil_div(extent(x.rows), group) * group * steps;
  const auto elements = checked_mul(panel, panels);
  if (!elements || *elements > kMostElements) return "";

  Prepared& made = prepared_[id];
  if (made.elements == 0) made.offset = p_.kept, made.elements = *elements, p_.kept += *elements;
  const auto at = [&](const std::string& number, int l) {
    const std::string low = l < 0 ? "0" : "(" + s.at[static_cast<std::size_t>(l)] + ")";
    return number == "0" ? low : "(" + number + ") * " + std::to_string(extent(l)) + " + " + low;
  };
  std::string number = "0", step = "0";
  for (int l : others) number = at(number, l);
  for (int l : x.depth) step = at(step, l);
  const std::string row = x.rows < 0 ? "0" : "(" + s.at[static_cast<std::size_t>(x.rows)] + ")";
  const std::string width = std::to_string(group);

  // The text that packs all of it.
  Lines text(1);
  const auto strides = home_strides(a.tensor);
  std::string from;
  const auto loop = [&](int l, const std::string& name) {
    text.open("for (int64_t " + name + " = 0; " + name + " < " + std::to_string(extent(l)) +
              "; ++" + name + ")");
  };
  const auto add = [&](int l, const std::string& name) {
    from += times(loop_stride(a, op.loops[static_cast<std::size_t>(l)], strides), name) + " + ";
  };
  const std::string kept =
      begin_packing(text, "Real", a.tensor, " by groups of " + op.name + "'s rows", made);
  int opened = 2;
  for (int l : others) loop(l, "l" + std::to_string(l)), add(l, "l" + std::to_string(l)), ++opened;
  text.open("for (int64_t g = 0; g < " + std::to_string(extent(x.rows)) + "; g += " + width + ")");
  for (int l : x.depth) loop(l, "l" + std::to_string(l)), add(l, "l" + std::to_string(l)), ++opened;
  if (x.rows >= 0) add(x.rows, "(g + i)");
  text.line("for (int64_t i = 0; i < " + width + "; ++i) *to++ = g + i < " +
            std::to_string(extent(x.rows)) + " ? from[" + from + "0] : Real(0);");
  for (; opened > 0; --opened) text.close();
  made.text = text.text();

  const std::string first = kept + " + " + std::to_string(panel) + " * (" + number + ") + " + row +
                            " * " + std::to_string(steps) + " + " + width + " * (" + step + ")";
  const std::string aligned = row == "0" || row == "(0)" ? "" : row + " % " + width + " == 0 ? ";
  return aligned + first + (aligned.empty() ? "" : " : nullptr") + ", " +
         std::to_string(group * steps);
}

/// How many columns are packed together, beginning with a panel of `width` of their own: all of
/// them where every tile begins at a panel, else those of one tile; 0: tiles begin within panels.
std::int64_t KernelEmitter::columns_packed_together(NodeId id, const Product& p, std::int64_t width,
                                                    const SymRanges& ranges) const {
  constexpr std::int64_t kMostPadded = 4;  // times as many columns as there are
  const std::int64_t lanes = p_.vector_bytes / p_.element_bytes;
  const OpId op = k_.node(id).op;
  const std::int64_t all =
      p_.workload().loop(p_.workload().op(op).loops[static_cast<std::size_t>(p.columns)]).extent;
  const std::int64_t begins = begins_of_tiles(op, p.columns);
  const SymRange& r = range(ranges, op, p.columns);
  if (begins == 0) {
    // One tile; where no loop cuts it, it may follow others' iterations.
    const bool cut = std::ranges::any_of(open_, [&](const OpenLoop& open) {
      return std::ranges::any_of(k_.node(open.id).cuts, [&](const OpLoop& c) {
        return c.op == op && c.local == p.columns;
      });
    });
    return cut || (r.lo.is_constant() && r.lo.constant % width == 0) ? all : 0;
  }
  if (begins % width == 0) return all;
  // A tile of several steps would lie in several groups.
  if (r.most > begins || round_up(begins, lanes) > kMostPadded * begins) return 0;
  return begins;
}

/// Whether a product's right operand never changes and tiles of its columns begin where panels of
/// `width` do: nothing but the panels is read of it.
bool KernelEmitter::wants_panels(NodeId id, const Product& p, std::int64_t width,
                                 const SymRanges& ranges) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
  const BufferId in_b = buffer_of_input(n, p.right);
  const bool whole = sums_whole(n.op);
  const bool is_real = whole || p_.workload().tensor(b.tensor).dtype == p_.prelude.real();
  // A panel of whole numbers has a row in front that its sums begin with.
  const SymRange& depth = range(ranges, n.op, p.depth);
  const std::int64_t steps = p_.workload().loop(op.loops[static_cast<std::size_t>(p.depth)]).extent;
  if (whole && (depth.lo != number(0) || !depth.hi.is_constant() || depth.hi.constant != steps ||
                !is_read_once(in_b)))
    return false;
  if (p_.vector_bytes == 0 || !is_real || !p_.constant[b.tensor.index()] ||
      buffer(in_b).role != BufferRole::input)
    return false;
  std::int64_t elements = 1;
  for (std::size_t l = 0; l < op.loops.size(); ++l)
    if (indexes(b, op.loops[l])) elements *= p_.workload().loop(op.loops[l]).extent;
  // Where an index has several loops, elements would be there several times.
  if (elements > p_.workload().tensor(b.tensor).elements().value) return false;
  return columns_packed_together(id, p, width, ranges) > 0;
}

/// The same, and it lies at home, not in tiles of its own.
bool KernelEmitter::can_prepare_right(NodeId id, const Product& p, std::int64_t width,
                                      const SymRanges& ranges) const {
  const BufferId in_b = buffer_of_input(k_.node(id), p.right);
  return is_plain(in_b) && packed_[in_b.index()].empty() && wants_panels(id, p, width, ranges);
}

/// How many columns a panel has, at most `width`. Those of a tile's own panels are as even as whole
/// vectors allow: what a panel is filled up with is read from memory, too.
std::int64_t KernelEmitter::columns_of_panel(NodeId id, const Product& p, std::int64_t width,
                                             std::int64_t lanes, const SymRanges& ranges) const {
  const Workload& w = p_.workload();
  const LoopId columns = w.op(k_.node(id).op).loops[static_cast<std::size_t>(p.columns)];
  const std::int64_t together = columns_packed_together(id, p, width, ranges);
  if (together >= w.loop(columns).extent) return width;
  return ceil_div(ceil_div(together, lanes), ceil_div(together, width)) * lanes;
}

/// Of a right operand that is packed once, what a tile's panels of at most `width` hold beside its
/// columns; 0 where all columns are packed together, INT64_MAX where it is not packed.
std::int64_t KernelEmitter::columns_filled(NodeId id, const Product& p, std::int64_t width,
                                           const SymRanges& ranges) const {
  if (!wants_panels(id, p, width, ranges)) return INT64_MAX;
  if (begins_of_tiles(k_.node(id).op, p.columns) % width == 0) return 0;
  const std::int64_t together = columns_packed_together(id, p, width, ranges);
  const std::int64_t lanes = p_.vector_bytes / p_.element_bytes;
  return round_up(together, columns_of_panel(id, p, width, lanes, ranges)) - together;
}

/// Where the product's first panel is, of as many columns as `of_panel`; `panel`: elements from one
/// to the next.
std::string KernelEmitter::prepared_right(NodeId id, const Product& p, std::int64_t width,
                                          std::int64_t of_panel, const SymRanges& ranges,
                                          const std::vector<std::string>& at, std::string& panel) {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
  const auto extent = [&](int l) { return w.loop(op.loops[static_cast<std::size_t>(l)]).extent; };
  std::vector<int> others;  // their iterations have panels of their own
  for (int l = 0; l < static_cast<int>(op.loops.size()); ++l)
    if (l != p.columns && l != p.depth && indexes(b, op.loops[static_cast<std::size_t>(l)]))
      others.push_back(l);
  const bool whole = sums_whole(n.op);
  const std::int64_t multiple = multiple_of_quads();
  const std::int64_t steps =
      whole ? 1 + round_up(ceil_div(extent(p.depth), p_.whole), multiple) : extent(p.depth);
  const std::int64_t elements = of_panel * steps;
  const std::int64_t together = columns_packed_together(id, p, width, ranges);
  const std::int64_t groups = ceil_div(extent(p.columns), together);
  const std::int64_t group = ceil_div(together, of_panel) * elements;
  const std::int64_t matrix = groups * group;
  std::int64_t all = matrix;
  for (int l : others) all *= extent(l);
  Prepared& made = prepared_[id];
  if (made.elements == 0) {
    p_.kept = round_up(p_.kept, width);
    made.offset = p_.kept, made.elements = all, p_.kept += all;
  }

  const auto strides = home_strides(b.tensor);
  std::int64_t first = 0;
  for (std::size_t d = 0; d < b.index.size(); ++d) first += b.index[d].offset * strides[d];
  Lines text(1);
  std::string from = std::to_string(first), number = "0";
  const auto name = [](int l) { return "l" + std::to_string(l); };
  const auto open = [&](int l) {
    text.open("for (int64_t " + name(l) + " = 0; " + name(l) + " < " + std::to_string(extent(l)) +
              "; ++" + name(l) + ")");
    from += " + " + times(loop_stride(b, op.loops[static_cast<std::size_t>(l)], strides), name(l));
  };
  const std::string kept = begin_packing(text, home_type(b.tensor), b.tensor,
                                         " by panels of " + op.name + "'s columns", made);
  for (int l : others) {
    open(l);
    const std::string& here = at[static_cast<std::size_t>(l)];
    number = number == "0"
                 ? "(" + here + ")"
                 : "(" + number + ") * " + std::to_string(extent(l)) + " + (" + here + ")";
  }
  const LoopId columns_loop = op.loops[static_cast<std::size_t>(p.columns)];
  const LoopId depth_loop = op.loops[static_cast<std::size_t>(p.depth)];
  const std::string columns = std::to_string(extent(p.columns));
  std::string begin = "0", end = columns;
  if (groups > 1) {
    begin = "t", end = "end";
    text.open("for (int64_t t = 0; t < " + columns + "; t += " + std::to_string(together) + ")");
    text.line("const int64_t end = t + " + std::to_string(together) + " < " + columns + " ? t + " +
              std::to_string(together) + " : " + columns + ";");
  }
  text.open("for (int64_t g = " + begin + "; g < " + end + "; g += " + std::to_string(of_panel) +
            ")");
  const std::string column =
      times(loop_stride(b, op.loops[static_cast<std::size_t>(p.columns)], strides), "(g + i)");
  const std::string each = "for (int64_t i = 0; i < " + std::to_string(of_panel) + "; ++i)";
  if (whole) {
    text.line("to = " + together_name(n.op) + "_of_panel(" + std::to_string(of_panel) + ", min(" +
              end + " - g, " + std::to_string(of_panel) + "), " + std::to_string(extent(p.depth)) +
              ", from + " + from + " + " + times(loop_stride(b, columns_loop, strides), "g") +
              ", " + std::to_string(loop_stride(b, depth_loop, strides)) + ", " +
              std::to_string(loop_stride(b, columns_loop, strides)) + ", to" +
              (p_.whole == 4 ? ", " + std::to_string(multiple) : "") + ");");
  } else {
    open(p.depth);
    text.line(each + " *to++ = g + i < " + end + " ? from[" + from + " + " + column +
              "] : Real(0);");
  }
  for (std::size_t opened = others.size() + (groups > 1 ? 3 : 2) + (whole ? 0 : 1); opened > 0;
       --opened)
    text.close();
  made.text = text.text();
  const std::string& first_column = at[static_cast<std::size_t>(p.columns)];
  const std::string first_panel = groups > 1 ? std::to_string(group) + " * ((" + first_column +
                                                   ") / " + std::to_string(together) + ")"
                                             : "(" + first_column + ") * " + std::to_string(steps);
  panel = std::to_string(elements);
  return kept + " + " + std::to_string(matrix) + " * (" + number + ") + " + first_panel +
         (whole
              ? ""
              : " + (" + at[static_cast<std::size_t>(p.depth)] + ") * " + std::to_string(of_panel));
}

/// Whether points, a vector of which a plain product has as its columns, leave more lanes idle than
/// rows do that are packed already.
bool KernelEmitter::wastes_lanes(NodeId id, const Window& x, const SymRanges& ranges) const {
  constexpr double kTurned = 1.06;  // what it costs to turn vectors of rows into rows of points
  const OpId op = k_.node(id).op;
  if (p_.micro_kernel || !can_prepare(id, x, ranges)) return false;
  const std::int64_t lanes = p_.vector_bytes / p_.element_bytes;
  const auto waste = [&](std::int64_t n) {
    return static_cast<double>(ceil_div(n, lanes) * lanes) / static_cast<double>(n);
  };
  const std::int64_t rows = x.rows < 0 ? 1 : range(ranges, op, x.rows).most;
  const std::int64_t points =
      range(ranges, op, x.columns).most * (x.outer < 0 ? 1 : range(ranges, op, x.outer).most);
  return waste(points) > kTurned * waste(rows);
}

}  // namespace tilewright::cpu
