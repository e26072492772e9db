// Matrix products: which loops of an operator make one, and the call of the micro-kernel.
#include <algorithm>
#include <cstdlib>

#include "codegen/cpu/followers.h"
#include "core/lowering/product_loads.h"

namespace tilewright::cpu {
namespace {

/// Steps of the depth from which on a block of C is computed much longer than it is loaded.
constexpr std::int64_t kShortDepth = 32;
constexpr std::int64_t kLeftAtOnce =
    32;  // steps, whose lines of a left operand are in use together
constexpr double kLongProduct = 1 << 20;  // multiply-adds that take far longer than a call

}  // namespace

std::int64_t loop_stride(const Access& a, LoopId loop, const std::vector<std::int64_t>& stride) {
  std::int64_t sum = 0;
  for (std::size_t d = 0; d < a.index.size(); ++d)
    for (const Term& t : a.index[d].terms)
      if (t.loop == loop) sum += t.coefficient * stride[d];
  return sum;
}

/// The operator as a matrix product on its tiles, with the loops that are largest; nothing where it
/// is none, or reads beyond its tensors.
std::optional<KernelEmitter::Product> KernelEmitter::as_product(NodeId id,
                                                                const SymRanges& ranges) const {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  if (op.outputs.size() != 1 || w.gathers(n.op)) return std::nullopt;
  const Output& out = op.outputs[0];
  const auto factors = factors_of(op.outputs[0]);
  if (!factors) return std::nullopt;
  for (int i : *factors)
    if (can_leave(w, op, op.inputs[static_cast<std::size_t>(i)])) return std::nullopt;

  const auto stride_in = [&](const Access& a, BufferId b, LoopId l) {
    return loop_stride(a, l, layouts_[b.index()].stride);
  };
  std::optional<Product> best;
  std::int64_t best_size = -1;
  for (int left : {0, 1}) {
    Product p{.left = (*factors)[static_cast<std::size_t>(left)],
              .right = (*factors)[static_cast<std::size_t>(1 - left)]};
    const Access& a = op.inputs[static_cast<std::size_t>(p.left)];
    const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
    const auto pick = [&](int& slot, std::size_t l) {
      const auto most = [&](int local) { return range(ranges, n.op, local).most; };
      if (slot < 0 || most(static_cast<int>(l)) > most(slot)) slot = static_cast<int>(l);
    };
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
      const LoopId loop = op.loops[l];
      const bool in_a = indexes(a, loop), in_b = indexes(b, loop);
      const bool in_out = indexes(out.target, loop);
      if (in_out && in_b && !in_a && !out.target.index.empty() &&
          out.target.index.back().plain_loop() == loop &&
          stride_in(out.target, n.writes[0].buffer, loop) == 1)
        pick(p.columns, l);
      if (in_out && in_a && !in_b) pick(p.rows, l);
      if (!in_out && in_a && in_b) pick(p.depth, l);
    }
    if (p.columns < 0 || p.depth < 0) continue;
    p.packs = stride_in(b, buffer_of_input(n, p.right),
                        op.loops[static_cast<std::size_t>(p.columns)]) != 1;
    const auto most = [&](int local) { return local < 0 ? 1 : range(ranges, n.op, local).most; };
    const std::int64_t size = most(p.columns) * most(p.rows);
    if (size > best_size) best_size = size, best = p;
  }
  return best;
}

/// The micro-kernel for a product's box; from here on the program has it.
MicroKernel KernelEmitter::kernel_of(OpId op, int rows, std::int64_t columns, int depth,
                                     const SymRanges& ranges,
                                     const std::function<std::int64_t(std::int64_t)>& filled) {
  const std::int64_t most = rows < 0 ? 1 : range(ranges, op, rows).most;
  MicroKernel kernel = p_.micro_kernel
                           ? *p_.micro_kernel
                           : micro_kernel_fitting(p_.options.isa, most, columns,
                                                  range(ranges, op, depth).most, p_.element_bytes);
  // Tiles are two vectors wide.
  if (p_.tiles && sums_whole(op) && !p_.micro_kernel)
    kernel = *micro_kernel_for(p_.options.isa, "");
  // One whose panels the tiles' columns begin with, else one that fills up fewest of them: what is
  // no column is read from memory, too.
  const auto filled_by = [&](const MicroKernel& k) {
    return filled(std::int64_t{k.vectors} * k.vector_bytes / p_.element_bytes);
  };
  if (filled && !p_.micro_kernel)
    for (const MicroKernel& other : micro_kernels())
      if (other.isa == kernel.isa && other.vector_bytes > 0 && filled_by(other) < filled_by(kernel))
        kernel = other;
  p_.prelude.products = true;
  if (std::ranges::find(p_.used, kernel.name) == p_.used.end()) p_.used.emplace_back(kernel.name);
  return kernel;
}

/// Whether the micro-kernel keeps panels of the right operand's rows as it reads them, from home.
bool KernelEmitter::keeps_panels(NodeId id, const Product& p, const MicroKernel& m,
                                 const SymRanges& ranges) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
  if (p.packs || steps_at_once(n.op) > 1 || p_.vector_bytes == 0 ||
      p_.workload().tensor(b.tensor).dtype != p_.prelude.real() ||
      buffer(buffer_of_input(n, p.right)).role != BufferRole::input)
    return false;
  const auto at_home = [&](int local) {
    return loop_stride(b, op.loops[static_cast<std::size_t>(local)], home_strides(b.tensor));
  };
  const auto most = [&](int local) { return local < 0 ? 1 : range(ranges, n.op, local).most; };
  return at_home(p.columns) == 1 &&
         tilewright::keeps_panels(at_home(p.depth) * p_.element_bytes,
                                  std::int64_t{m.vectors} * m.vector_bytes, most(p.rows), m.rows,
                                  most(p.depth));
}

/// What the micro-kernel walks of each operand while it keeps a block of C in registers.
void KernelEmitter::record_panels(NodeId id, const Product& p, const MicroKernel& m,
                                  const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const std::int64_t lanes = std::max<std::int64_t>(1, m.vector_bytes / p_.element_bytes);
  const auto walked = [&](int local, std::int64_t steps) -> std::int64_t {
    const std::int64_t most = range(ranges, n.op, local).most;
    if (local == p.rows) return std::min<std::int64_t>(most, m.rows);
    if (local == p.columns) return std::min(most, m.vectors * lanes);
    return local == p.depth ? std::min(most, steps) : 1;
  };
  const auto add = [&](const Access& a, BufferId b, std::int64_t steps = INT64_MAX) {
    std::vector<std::int64_t> extents;
    for (const Affine& index : a.index) {
      std::int64_t extent = 1;
      for (const Term& t : index.terms) {
        const auto l = std::ranges::find(op.loops, t.loop) - op.loops.begin();
        extent += std::abs(t.coefficient) * (walked(static_cast<int>(l), steps) - 1);
      }
      extents.push_back(extent);
    }
    panels_[b.index()].insert(extents);
  };
  // A line of each row is read for so many steps, and then not before the next panel of columns,
  // when others have taken its place: only rows' lines of the same steps must not share sets.
  add(op.inputs[static_cast<std::size_t>(p.left)], buffer_of_input(n, p.left), kLeftAtOnce);
  // All columns in one panel: rows are read once, and need not stay.
  const std::int64_t all_columns =
      p_.workload().loop(op.loops[static_cast<std::size_t>(p.columns)]).extent;
  if (all_columns <= m.vectors * lanes && range(ranges, n.op, p.columns).most == all_columns)
    streamed_[buffer_of_input(n, p.left).index()] = true;
  const bool panels = wants_panels(id, p, m.vectors * lanes, ranges);
  take_reals(id, {});
  if (!sums_whole(n.op)) take_reals(id, {p.left, p.right});
  if (panels || keeps_panels(id, p, m, ranges))
    streamed_[buffer_of_input(n, p.right).index()] = true;
  else if (!p.packs)
    add(op.inputs[static_cast<std::size_t>(p.right)], buffer_of_input(n, p.right));
  // C's block is loaded before the depth and stored behind it: whether its rows share sets is of no
  // matter while a depth passes between.
  if (range(ranges, n.op, p.depth).most < kShortDepth)
    add(op.outputs[0].target, n.writes[0].buffer);
  else
    streamed_[n.writes[0].buffer.index()] = true;
}

/// Loops that the product leaves over stand around it; of reductions, only the first step starts
/// from zero.
KernelEmitter::Surroundings KernelEmitter::surround(NodeId id, const std::vector<int>& inner,
                                                    const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Workload& w = p_.workload();
  const Operator& op = w.op(n.op);
  Surroundings s{.at = std::vector<std::string>(op.loops.size()),
                 .fresh = initialises(n.op, ranges, n.writes[0].atomic)};
  for (std::size_t l = 0; l < op.loops.size(); ++l) {
    const SymRange& r = range(ranges, n.op, static_cast<int>(l));
    if (std::ranges::find(inner, static_cast<int>(l)) != inner.end() || r.most == 1) {
      s.at[l] = variables_.text(computed_range(ranges, n.op, static_cast<int>(l)).lo);
      continue;
    }
    s.at[l] = names_.fresh(identifier("p_", w.loop(op.loops[l]).name));
    out_.open("for (int64_t " + s.at[l] + " = " + variables_.text(r.lo) + "; " + s.at[l] + " < " +
              variables_.text(r.hi) + "; ++" + s.at[l] + ")");
    ++s.opened;
    if (!w.is_reduction(n.op, op.loops[l]) || s.fresh == "false") continue;
    const std::string first = s.at[l] + " == " + variables_.text(r.lo);
    s.fresh = s.fresh == "true" ? first : s.fresh + " && " + first;
  }
  return s;
}

std::string KernelEmitter::corner(const Operator& op, const Access& access, BufferId buffer,
                                  const std::vector<std::string>& at) const {
  std::vector<std::string> indices;
  for (const Affine& affine : access.index) {
    std::string index;
    for (const Term& t : affine.terms) {
      const auto l = std::ranges::find(op.loops, t.loop) - op.loops.begin();
      const std::string& x = at[static_cast<std::size_t>(l)];
      const bool simple = x.find(' ') == std::string::npos;
      index += (index.empty() ? "" : " + ") + times(t.coefficient, simple ? x : "(" + x + ")");
    }
    const std::int64_t offset = affine.offset;
    if (index.empty())
      index = std::to_string(offset);
    else if (offset != 0)
      index += (offset < 0 ? " - " : " + ") + std::to_string(std::abs(offset));
    indices.push_back(index);
  }
  return element_address(buffer, indices);
}

std::int64_t KernelEmitter::stride_of(const Operator& op, const Access& access, BufferId buffer,
                                      int local) const {
  if (local < 0) return 0;
  return loop_stride(access, op.loops[static_cast<std::size_t>(local)],
                     layouts_[buffer.index()].stride);
}

std::string KernelEmitter::size_of_loop(OpId op, int local, const SymRanges& ranges) const {
  if (local < 0) return "1";
  const SymRange& r = computed_range(ranges, op, local);
  return variables_.text(r.hi - r.lo);
}

/// How long the loop is where that is a number, else 0.
std::string KernelEmitter::known_size(OpId op, int local, const SymRanges& ranges) const {
  if (local < 0) return "1";
  const SymRange& r = computed_range(ranges, op, local);
  const Linear size = r.hi - r.lo;
  return size.is_constant() ? std::to_string(size.constant) : "0";
}

std::string KernelEmitter::scratch(std::int64_t bytes, std::int64_t& offset,
                                   const std::string& type) {
  const std::string text =
      "reinterpret_cast<" + type + "*>(memory + " + std::to_string(scratch_offset_ + offset) + ")";
  offset += ceil_div(bytes, 64) * 64;
  scratch_ = std::max(scratch_, offset);
  return text;
}

/// What takes the product's sums from their registers, if anything does; `argument`: the call's
/// last.
std::unique_ptr<KernelEmitter::Followers> KernelEmitter::followers_of_product(
    NodeId id, const Product& p, const SymRanges& ranges, const std::vector<std::string>& first,
    bool whole, std::string& argument) {
  const Operator& op = p_.workload().op(k_.node(id).op);
  std::vector<std::string> at = first;
  const auto named = [&](int local) {
    if (local < 0) return std::string();
    const auto l = static_cast<std::size_t>(local);
    return at[l] = names_.fresh(identifier("p_", p_.workload().loop(op.loops[l]).name));
  };
  const std::string row = named(p.rows), column = named(p.columns);
  auto followers = std::make_unique<Followers>(*this, id, p.columns, ranges, at);
  if (followers->empty()) return nullptr;
  const std::string first_row = p.rows < 0 ? "" : first[static_cast<std::size_t>(p.rows)];
  argument = lambda_of(*followers, row, column, first_row,
                       first[static_cast<std::size_t>(p.columns)], whole);
  return followers;
}

void KernelEmitter::outer_products(NodeId id, const Product& p, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = p_.workload().op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(p.left)];
  const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
  const Access& c = op.outputs[0].target;
  const BufferId in_a = buffer_of_input(n, p.left), in_b = buffer_of_input(n, p.right);
  const BufferId in_c = n.writes[0].buffer;
  const SymRange& columns = range(ranges, n.op, p.columns);
  const MicroKernel kernel =
      kernel_of(n.op, p.rows, columns.most, p.depth, ranges,
                [&](std::int64_t width) { return columns_filled(id, p, width, ranges); });
  record_panels(id, p, kernel, ranges);
  const std::int64_t lanes = std::max<std::int64_t>(1, kernel.vector_bytes / p_.element_bytes);
  const bool prepared = can_prepare_right(id, p, kernel.vectors * lanes, ranges);
  const int together = steps_at_once(n.op);
  if (p.packs && together == 1 && !prepared) look_for_hoist(id, p, ranges);
  if (op.outputs[0].rescale) rescale(id, ranges);

  const Surroundings s = surround(id, {p.rows, p.columns, p.depth}, ranges);
  std::string right = corner(op, b, in_b, s.at);
  std::string right_stride = std::to_string(stride_of(op, b, in_b, p.depth));
  std::int64_t of_panel = 0;  // columns of a panel that is packed
  if (prepared) {
    of_panel = columns_of_panel(id, p, kernel.vectors * lanes, lanes, ranges);
    right = prepared_right(id, p, kernel.vectors * lanes, of_panel, ranges, s.at, right_stride);
  } else if (const auto hoist = hoists_.find(id);
             hoist != hoists_.end() && !hoist->second.name.empty()) {
    const Hoist& h = hoist->second;
    const auto from = [&](int local, const std::string& low) {
      const std::string& at = s.at[static_cast<std::size_t>(local)];
      return at == low ? "0" : low == "0" ? "(" + at + ")" : "(" + at + " - (" + low + "))";
    };
    right = h.name + " + " + times(h.row, from(p.depth, h.low_depth)) + " + " +
            from(p.columns, h.low_columns);
    right_stride = std::to_string(h.row);
  } else if (p.packs && together == 1) {
    // Panels as they are read; without vectors, rows of all columns.
    const bool panels = p_.vector_bytes > 0 && kernel.vector_bytes > 0;
    const std::int64_t depth = range(ranges, n.op, p.depth).most;
    const std::int64_t panel =
        std::min(kernel.vectors * lanes, ceil_div(columns.most, lanes) * lanes);
    const std::int64_t row = panels ? panel : ceil_div(columns.most, 16) * 16;
    const auto bytes = checked_mul(ceil_div(columns.most, row) * row * p_.element_bytes, depth + 1);
    if (!bytes) throw Refused{"operator " + op.name + " packs more than 64 bits count"};
    const std::string name = names_.fresh("packed");
    std::int64_t offset = 0;
    out_.line("Real* const " + name + " = " + scratch(*bytes, offset, "Real") + ";");
    out_.line((panels ? "pack_panels<" + std::to_string(panel) + ">(" : "pack(") +
              size_of_loop(n.op, p.columns, ranges) + ", " + size_of_loop(n.op, p.depth, ranges) +
              ", " + right + ", " + right_stride + ", " +
              std::to_string(stride_of(op, b, in_b, p.columns)) + ", " + name + ", " +
              std::to_string(panels ? panel * depth : row) + ");");
    right = name;
    right_stride = std::to_string(row);
    if (panels) of_panel = panel, right_stride = std::to_string(panel * depth);
  }
  const bool keeps =
      !prepared && packed_[in_b.index()].empty() && keeps_panels(id, p, kernel, ranges);
  std::string kept;
  if (keeps) {
    kept = names_.fresh("kept");
    std::int64_t offset = 0;
    const std::int64_t bytes =
        range(ranges, n.op, p.depth).most * kernel.vectors * kernel.vector_bytes;
    out_.line("Real* const " + kept + " = " + scratch(bytes, offset, "Real") + ";");
  }
  // A number is the compiler's, too, where rows are of several sizes.
  const auto distance = [](const std::string& text) {
    return text.find_first_not_of("0123456789") == std::string::npos ? "Known<" + text + ">{}"
                                                                     : text;
  };
  const Linear width = columns.hi - columns.lo;
  const bool whole = width.is_constant() && width.constant % lanes == 0;
  Operands o{.left = corner(op, a, in_a, s.at),
             .left_row = std::to_string(stride_of(op, a, in_a, p.rows)),
             .left_depth = std::to_string(stride_of(op, a, in_a, p.depth)),
             .right = right,
             .right_depth = right_stride,
             .depth = size_of_loop(n.op, p.depth, ranges)};
  if (together > 1) take_together(id, p, ranges, prepared, o);
  std::string after;
  std::unique_ptr<Followers> followers;
  if (s.opened == 0) followers = followers_of_product(id, p, ranges, s.at, whole, after);
  if (together > 1) after = together_name(n.op) + "(" + (after.empty() ? "Keep{}" : after) + ")";
  if (keeps) after = (after.empty() ? "Keep{}" : after) + ", " + kept;
  if (!after.empty()) after = ", " + after;
  const auto most = [&](int local) { return local < 0 ? 1 : range(ranges, n.op, local).most; };
  const bool long_one = p_.vector_bytes > 0 && kernel.vector_bytes > 0 &&
                        static_cast<double>(most(p.rows)) * static_cast<double>(columns.most) *
                                static_cast<double>(most(p.depth)) >=
                            kLongProduct;
  out_.line(std::string(long_one ? "by_itself([&]() TILEWRIGHT_TARGET TILEWRIGHT_ALWAYS { " : "") +
            (of_panel > 0 ? "multiply_packed<" : "multiply<") + std::to_string(kernel.rows) + ", " +
            std::to_string(kernel.vectors) + ", " + known_size(n.op, p.rows, ranges) + ", " +
            known_size(n.op, p.columns, ranges) + (keeps ? ", true" : "") +
            (of_panel > 0 ? ", " + std::to_string(of_panel / lanes) : "") + ">(" +
            size_of_loop(n.op, p.rows, ranges) + ", " + size_of_loop(n.op, p.columns, ranges) +
            ", " + o.depth + ", " + o.left + ", " + distance(o.left_row) + ", " +
            distance(o.left_depth) + ",");
  out_.line("         " + o.right + ", " +
            (of_panel > 0 ? o.right_depth : distance(o.right_depth)) + ", " +
            corner(op, c, in_c, s.at) + ", " +
            distance(std::to_string(stride_of(op, c, in_c, p.rows))) + ", " + s.fresh + after +
            (long_one ? "); });" : ");"));
  if (followers) followers->end();
  for (int opened = s.opened; opened > 0; --opened) out_.close();
}

}  // namespace tilewright::cpu
