// Convolutions as matrix products: the right operand's columns are points of one or two loops, its
// depth those of several, and it may be read beyond its edges.
#include <algorithm>

#include "codegen/cpu/followers.h"
#include "codegen/cpu/window_depth.h"
#include "core/lowering/window_points.h"

namespace tilewright::cpu {
namespace {

constexpr std::int64_t kMostStep = std::int64_t{1} << 20;
constexpr std::int64_t kLongDepth = 16;       // steps, for which sums are worth to be loaded
constexpr std::int64_t kSumBytes = 64 << 10;  // of points that meet a block of channels

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
  const auto factors = factors_of(op.outputs[0]);
  const Output& out = op.outputs[0];
  if (!factors || out.target.index.empty()) return std::nullopt;
  const auto columns = out.target.index.back().plain_loop();
  if (!columns) return std::nullopt;
  for (int left : {0, 1}) {
    Window x{.left = (*factors)[static_cast<std::size_t>(left)],
             .right = (*factors)[static_cast<std::size_t>(1 - left)]};
    const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
    const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
    // Of numbers of 8 bits channels alone are taken together: rows that taps move come before
    // images.
    const auto moves = [&](int l) {
      return sums_whole(n.op) && l >= 0 && std::ranges::any_of(b.index, [&](const Affine& index) {
               return index.terms.size() > 1 &&
                      coefficient_of(index, op.loops[static_cast<std::size_t>(l)]) != 0;
             });
    };
    bool fits = !can_leave(w, op, a);
    for (int l = 0; l < static_cast<int>(op.loops.size()) && fits; ++l) {
      const LoopId loop = op.loops[static_cast<std::size_t>(l)];
      const bool in_a = indexes(a, loop), in_b = indexes(b, loop);
      const auto larger = [&](int than) {
        return than < 0 || range(ranges, n.op, l).most > range(ranges, n.op, than).most;
      };
      if (!indexes(out.target, loop)) {
        fits = in_a && in_b;
        x.depth.push_back(l);
      } else if (loop == *columns) {
        fits = in_b && !in_a;
        x.columns = l;
      } else if (in_a && !in_b && larger(x.rows)) {
        x.rows = l;
      } else if (in_b && !in_a && (moves(l) == moves(x.outer) ? larger(x.outer) : moves(l))) {
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
  if (x.step < 1 || x.step > kMostStep) return false;

  bool padded = false;
  for (std::size_t d = 0; d < b.index.size(); ++d) {
    if (!leaves(w, op, b, d)) continue;
    padded = true;
    if (d == *column_dim) continue;
    if (x.row_dim >= 0) return false;  // rows and columns of a window may be padded, no more
    x.row_dim = static_cast<int>(d);
  }
  if (x.outer >= 0) {
    const auto d = dimension_of(b, loop(x.outer));
    // Taps move the rows of a single row of points, too.
    if (sums_whole(n.op) && d && *d != *column_dim && x.row_dim < 0 && b.index[*d].terms.size() > 1)
      x.row_dim = static_cast<int>(*d);
    if (!d || *d == *column_dim || (x.row_dim >= 0 && static_cast<int>(*d) != x.row_dim) ||
        range(ranges, n.op, x.outer).most <= 1 || coefficient_of(b.index[*d], loop(x.outer)) < 1)
      x.outer = -1;
    else
      x.row_dim = static_cast<int>(*d);
  }
  std::vector<int> taps;
  for (int l : x.depth) {
    bool moves_window = false, moves_other = false;
    for (std::size_t d = 0; d < b.index.size(); ++d)
      if (coefficient_of(b.index[d], loop(l)) != 0)
        (d == *column_dim || static_cast<int>(d) == x.row_dim ? moves_window : moves_other) = true;
    if (moves_window && moves_other) return false;
    if (moves_window) taps.push_back(l);
  }
  // Of more taps than convolve takes, the longest loops stand around it.
  const auto most = [&](int l) { return range(ranges, n.op, l).most; };
  std::ranges::sort(taps, {}, most);
  std::int64_t count = 1;
  bool around = false;
  for (int l : taps) count = count > kMostTaps ? count : count * most(l);
  x.taps_are_channels = !padded && count > kMostTaps;
  count = 1;
  for (int l : taps) {
    if (x.taps_are_channels) break;
    around = around || most(l) > kMostTaps / count;
    if (around)
      std::erase(x.depth, l);
    else
      count *= most(l);
  }
  // The left operand's steps follow one another where its depth loops, innermost last, are dense.
  std::ranges::stable_sort(x.depth, std::greater<>{},
                           [&](int l) { return stride_of(op, a, in_a, l); });
  x.channels_first = true;
  bool tap = false;
  for (int l : x.depth) {
    if (most(l) == 1) continue;
    const bool is_tap = !x.taps_are_channels && std::ranges::find(taps, l) != taps.end();
    x.channels_first = x.channels_first && (is_tap || !tap);
    tap = tap || is_tap;
  }
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
  x.direct = !padded && !around && several <= 1 && x.step == 1;
  if (!around) x.bytes = loop_of_bytes(id, x, ranges);
  if (x.bytes >= 0) return true;
  // No window at all, but a depth of several loops: a long one of them is the depth of a plain
  // product, around which the others stand.
  if (!padded && taps.empty() && several > 1 && x.outer < 0 && x.step == 1)
    if (const auto plain = as_product(id, ranges);
        plain && range(ranges, n.op, plain->depth).most >= kLongDepth)
      return false;
  // A plain product of numbers of 8 bits is one of whole numbers; images here would be f32.
  if (x.direct && x.rows >= 0 && sums_whole(n.op) && as_product(id, ranges)) return false;
  if (x.direct && x.outer >= 0) {
    // Rows of points are columns of a plain product where they follow one another in both.
    const SymRange& width = range(ranges, n.op, x.columns);
    const Linear size = width.hi - width.lo;
    const auto follow = [&](const Access& access, BufferId buffer) {
      return dense(buffer, stride_of(op, access, buffer, x.outer), size.constant);
    };
    const bool both = size.is_constant() && follow(b, in_b) && follow(c, in_c);
    if (!both) x.outer = -1;
  }
  return !x.direct || x.outer >= 0;
}

/// Whether rows of a tile `width` wide follow one another without a gap. Asks for that where the
/// tile has an array of its own, for the next pass to find.
bool KernelEmitter::dense(BufferId b, std::int64_t stride, std::int64_t width) {
  const TileLayout& l = layouts_[b.index()];
  if (!packed_[b.index()].empty() && l.most.size() > 2 && l.most.back() == width)
    dense_[b.index()] = true;
  return stride == width;
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
  if (op.outputs[0].rescale) rescale(id, ranges);

  std::vector<int> inner = {x.rows, x.columns, x.outer};
  inner.insert(inner.end(), x.depth.begin(), x.depth.end());
  const Surroundings s = surround(id, inner, ranges);
  if (x.bytes < 0) take_reals(id, {x.left, x.right});
  if (x.bytes >= 0)
    read_bytes(id, x, s, ranges);
  else if (s.fresh == "true" && goes_transformed(id, x, ranges))
    read_transformed(id, x, s, ranges);
  else if (goes_by_lines(id, x, ranges))
    read_lines(id, x, s, ranges);
  else if (x.direct && !wastes_lanes(id, x, ranges))
    multiply_through(id, x, s, ranges);
  else
    read_through(id, x, s, ranges);
  for (int opened = s.opened; opened > 0; --opened) out_.close();
}

/// A window that moves by whole columns only is the right operand as it lies.
void KernelEmitter::multiply_through(NodeId id, const Window& x, const Surroundings& s,
                                     const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
  const Access& c = op.outputs[0].target;
  const BufferId in_a = buffer_of_input(n, x.left), in_b = buffer_of_input(n, x.right);
  const BufferId in_c = n.writes[0].buffer;
  const std::int64_t points =
      range(ranges, n.op, x.columns).most * (x.outer < 0 ? 1 : range(ranges, n.op, x.outer).most);
  int depth = x.depth.front();
  for (int l : x.depth)
    if (range(ranges, n.op, l).most > 1) depth = l;
  const MicroKernel kernel = kernel_of(n.op, x.rows, points, depth, ranges);
  std::string count = size_of_loop(n.op, x.columns, ranges);
  if (x.outer >= 0) count = "(" + size_of_loop(n.op, x.outer, ranges) + ") * " + count;
  out_.line("multiply<" + std::to_string(kernel.rows) + ", " + std::to_string(kernel.vectors) +
            ", " + known_size(n.op, x.rows, ranges) + ", " +
            (x.outer < 0 ? known_size(n.op, x.columns, ranges) : "0") + ">(" +
            size_of_loop(n.op, x.rows, ranges) + ", " + count + ", " +
            size_of_loop(n.op, depth, ranges) + ", " + corner(op, a, in_a, s.at) + ", " +
            std::to_string(stride_of(op, a, in_a, x.rows)) + ", " +
            std::to_string(stride_of(op, a, in_a, depth)) + ",");
  out_.line("         " + corner(op, b, in_b, s.at) + ", " +
            std::to_string(stride_of(op, b, in_b, depth)) + ", " + corner(op, c, in_c, s.at) +
            ", " + std::to_string(stride_of(op, c, in_c, x.rows)) + ", " + s.fresh + ");");
}

/// Any other window: vectors run across the rows of the left operand, and points are broadcast.
void KernelEmitter::read_through(NodeId id, const Window& any, const Surroundings& s,
                                 const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  Window x = any;  // its depth channel by channel
  if (!any.channels_first) {
    const Access& b = op.inputs[static_cast<std::size_t>(x.right)];
    std::stable_partition(x.depth.begin(), x.depth.end(), [&](int l) {
      const LoopId loop = op.loops[static_cast<std::size_t>(l)];
      const auto moves = [&](int dim) {
        return dim >= 0 && coefficient_of(b.index[static_cast<std::size_t>(dim)], loop) != 0;
      };
      return x.taps_are_channels || !(moves(x.row_dim) || moves(x.column_dim));
    });
    x.left_dense = false;
  }
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const Access& c = op.outputs[0].target;
  const BufferId in_a = buffer_of_input(n, x.left), in_c = n.writes[0].buffer;
  p_.prelude.products = p_.prelude.windows = true;
  const auto [points, vectors] = point_shape(id, x, ranges);
  const std::int64_t group = vectors * p_.vector_bytes / p_.element_bytes;
  const std::int64_t rows = x.rows < 0 ? 1 : range(ranges, n.op, x.rows).most;
  out_.open("");
  std::int64_t offset = 0;
  Depth depth(*this, id, x, ranges);
  const std::int64_t bytes = depth.room(ceil_div(rows, group) * group);
  const std::int64_t width = range(ranges, n.op, x.columns).most;
  const std::int64_t height = x.outer < 0 ? 1 : range(ranges, n.op, x.outer).most;
  const std::int64_t of_row = width * vectors * p_.vector_bytes;
  const std::int64_t band = std::clamp<std::int64_t>(kSumBytes / of_row, 1, height);
  const std::int64_t of_channel = group * depth.taps() * p_.element_bytes;
  const auto near = static_cast<std::int64_t>(points_of(id, x, ranges).near);
  const std::int64_t most =
      std::max<std::int64_t>(1, std::min(near / of_channel, kMostReads / depth.taps()));
  const std::int64_t blocks = ceil_div(depth.channels(), most);
  const std::int64_t block = ceil_div(depth.channels(), blocks);
  const std::string sums = scratch(band * of_row, offset, "Vector");
  const std::string kept = kept_for(id, x, bytes);
  const std::string room = kept.empty() ? scratch(bytes, offset, "char")
                                        : "memory + " + std::to_string(hoists_.at(id).offset);
  const std::string prepared =
      any.channels_first ? prepared_left(id, x, group, s, ranges) : std::string();
  const std::string steps =
      depth.emit(offset, "(" + room + ")", kept.empty() ? "nullptr" : "&" + kept,
                 prepared.empty() ? "nullptr, 0" : prepared);
  std::string left = corner(op, a, in_a, s.at);
  std::string left_row = std::to_string(stride_of(op, a, in_a, x.rows));
  std::int64_t left_step = x.left_step;
  if (!x.left_dense && prepared.empty()) {
    left = pack_left(id, x, s.at, ranges, offset);
    left_row = depth.steps(), left_step = 1;
  }
  const std::string window = emit_window(id, x, s.at, ranges);
  // What follows takes the sums as they are turned, where rows of points follow one another.
  const std::int64_t c_line = stride_of(op, c, in_c, x.outer);
  const std::int64_t known = std::stoll(known_size(n.op, x.columns, ranges));
  std::string after;
  std::unique_ptr<Followers> followers;
  if (s.opened == 0 && (x.outer < 0 || (known > 0 && c_line == known)) &&
      depth.channels() * depth.taps() >= kFewSteps)
    followers = followers_of_window(id, x, ranges, s.at, false, known, after);
  if (followers) p_.prelude.vectors = p_.prelude.functions = true;
  if (!after.empty()) after = ", " + after;
  out_.line("convolve<" + std::to_string(points) + ", " + std::to_string(vectors) + ", " +
            std::to_string(x.step) + ", " + known_size(n.op, x.rows, ranges) + ">(" +
            size_of_loop(n.op, x.rows, ranges) + ", " + left + ", " + left_row + ", " +
            std::to_string(left_step) + ", " + window + ", " + steps + ", " +
            std::to_string(block) + ", " + std::to_string(band) + ", " + sums + ",");
  out_.line("         " + corner(op, c, in_c, s.at) + ", " +
            std::to_string(stride_of(op, c, in_c, x.rows)) + ", " + std::to_string(c_line) + ", " +
            s.fresh + after + ");");
  if (followers) followers->end();
  out_.close();
}

/// The name of what says whether the left operand, as it was packed last, is wanted again: where it
/// lies at home, nobody changes it and its corner says which part of it is meant. Empty where it is
/// not, and in the first pass, which asks for memory that no other compute uses.
std::string KernelEmitter::kept_for(NodeId id, const Window& x, std::int64_t bytes) {
  const ScheduleNode& n = k_.node(id);
  const Access& a = p_.workload().op(n.op).inputs[static_cast<std::size_t>(x.left)];
  const BufferId in_a = buffer_of_input(n, x.left);
  const bool stays =
      is_plain(in_a) && packed_[in_a.index()].empty() && x.left_dense &&
      buffer(in_a).role == BufferRole::input && !p_.workload().producer(a.tensor).valid() &&
      std::ranges::all_of(a.index, [](const Affine& i) { return i.plain_loop().has_value(); });
  if (!stays || open_.empty() || parallel_grid_) return "";
  return hoists_.try_emplace(id, Hoist{.before = open_.front().id, .bytes = bytes, .kept = true})
      .first->second.name;
}

/// Points by vectors of the left operand's rows that stay in registers: the micro-kernel asked for,
/// or that which takes fewest cycles. From here on the program has it.
std::pair<int, int> KernelEmitter::point_shape(NodeId id, const Window& x,
                                               const SymRanges& ranges) {
  const std::int64_t vectors = vectors_beside_points(points_of(id, x, ranges));
  const std::pair<int, int> shape =
      p_.micro_kernel ? std::pair(p_.micro_kernel->rows, p_.micro_kernel->vectors)
                      : std::pair(static_cast<int>(points_in_registers(registers(), vectors)),
                                  static_cast<int>(vectors));
  const std::string name = std::to_string(shape.first) + "x" + std::to_string(shape.second);
  if (std::ranges::find(p_.used, name) == p_.used.end()) p_.used.push_back(name);
  return shape;
}

/// The window's origin has every loop at its low end and the depth at zero. Where padding begins
/// there, it lies before the tensor, and no element of it is read.
std::string KernelEmitter::emit_window(NodeId id, const Window& x,
                                       const std::vector<std::string>& at, const SymRanges& ranges,
                                       const std::string& source) {
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
  std::string source_row = "0", rows = "0, 0, 1";
  if (x.row_dim >= 0) {
    source_row = std::to_string(layouts_[in_b.index()].stride[static_cast<std::size_t>(x.row_dim)]);
    const Affine& index = b.index[static_cast<std::size_t>(x.row_dim)];
    const std::int64_t step =
        x.outer < 0 ? 0 : coefficient_of(index, op.loops[static_cast<std::size_t>(x.outer)]);
    rows = index_without_depth(id, x, x.row_dim, at) + ", " + std::to_string(step) + ", " +
           extent(x.row_dim);
  }
  const std::string name = names_.fresh("window");
  out_.line("const Window " + name + " = {" +
            (source.empty() ? corner(op, b, in_b, origin) : source) + ", " +
            size_of_loop(n.op, x.outer, ranges) + ", " + size_of_loop(n.op, x.columns, ranges) +
            ", " + source_row + ",");
  out_.line("    " + rows + ", " + index_without_depth(id, x, x.column_dim, at) + ", " +
            extent(x.column_dim) + "};");
  return name;
}

/// The left operand with its steps one after the other, where they do not lie like that; `at`:
/// where the loops around are, which may move it.
std::string KernelEmitter::pack_left(NodeId id, const Window& x, std::vector<std::string> at,
                                     const SymRanges& ranges, std::int64_t& offset) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(x.left)];
  const BufferId in_a = buffer_of_input(n, x.left);
  std::int64_t elements = x.rows < 0 ? 1 : range(ranges, n.op, x.rows).most;
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
