// Matrix products: which loops of an operator make one, whether its tiles suit the micro-kernel, and
// the call.
#include <algorithm>

#include "codegen/cuda/emitter.h"

namespace tilewright::cuda {
namespace {

constexpr MicroKernel kMicroKernels[] = {
    {"mma", "tensor cores: mma.m16n8k16 on operands by ldmatrix, sums in registers", true, true},
    {"wmma2x2", "Chimera's: 2 x 2 WMMA fragments of 16 x 16, sums in shared memory between calls", true, false},
    {"simt", "fused multiply-adds, one row pair and column pair of sums a thread", false, true},
};

constexpr std::int64_t kSumsAtOnce = 64;  // floats a thread, of a product on sums in shared memory

bool has_loop(const Access& a, LoopId loop) {
  return std::ranges::any_of(a.index, [&](const Affine& i) {
    return std::ranges::any_of(i.terms, [&](const Term& t) { return t.loop == loop; });
  });
}

bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }

}  // namespace

std::span<const MicroKernel> micro_kernels() { return kMicroKernels; }

/// The loop that an index runs along, one step an iteration, other loops in it standing still: k in
/// 64 * p + k within one p.
std::optional<LoopId> KernelEmitter::runs_along(OpId id, const Affine& index,
                                                const SymRanges& ranges) const {
  if (const auto plain = index.plain_loop()) return plain;
  std::optional<LoopId> found;
  for (const Term& t : index.terms) {
    if (range(ranges, id, workload_.local_index(id, t.loop)).most == 1) continue;
    if (found || t.coefficient != 1) return std::nullopt;
    found = t.loop;
  }
  return found;
}

std::string KernelEmitter::micro_kernel() const {
  if (!p_.options.micro_kernel.empty()) return p_.options.micro_kernel;
  return is_half(workload_.dtype()) ? "mma" : "simt";
}

/// The operator as a matrix product, with the loops that are largest; nothing where it is none.
std::optional<Product> KernelEmitter::as_product(NodeId id, const SymRanges& ranges) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  if (op.outputs.size() != 1 || p_.f64) return std::nullopt;
  const Output& out = op.outputs[0];
  const Expr& e = out.value;
  if (out.combine != Combine::sum || e.kind != Expr::Kind::call || e.function != "mul" ||
      e.args[0].kind != Expr::Kind::input || e.args[1].kind != Expr::Kind::input ||
      e.args[0].input == e.args[1].input || out.target.index.empty())
    return std::nullopt;
  const auto most = [&](int l) { return range(ranges, n.op, l).most; };
  for (const int left : {e.args[0].input, e.args[1].input}) {
    Product p{.left = left, .right = left == e.args[0].input ? e.args[1].input : e.args[0].input};
    const Access& a = op.inputs[static_cast<std::size_t>(p.left)];
    const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
    if (can_leave(workload_, op, a) || can_leave(workload_, op, b)) continue;
    const auto pick = [&](int& slot, std::size_t l) {
      if (slot < 0 || most(static_cast<int>(l)) > most(slot)) slot = static_cast<int>(l);
    };
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
      const LoopId loop = op.loops[l];
      const bool in_a = has_loop(a, loop), in_b = has_loop(b, loop), in_out = has_loop(out.target, loop);
      if (in_out && in_a && !in_b) pick(p.rows, l);
      if (in_out && in_b && !in_a && out.target.index.back().plain_loop() == loop) pick(p.columns, l);
      if (!in_out && in_a && in_b) pick(p.depth, l);
    }
    if (p.rows < 0 || p.columns < 0 || p.depth < 0) continue;
    bool only_these = true;
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
      const int at = static_cast<int>(l);
      if (at != p.rows && at != p.columns && at != p.depth && most(at) > 1) only_these = false;
    }
    const auto plain = [&](const Access& x, int l) {
      return std::ranges::any_of(x.index, [&](const Affine& i) {
        return runs_along(n.op, i, ranges) == op.loops[static_cast<std::size_t>(l)];
      });
    };
    if (only_these && plain(a, p.rows) && plain(a, p.depth) && plain(b, p.columns) &&
        plain(b, p.depth) && plain(out.target, p.rows))
      return p;
  }
  return std::nullopt;
}

/// Whether the box that one operand or the result takes of a tile consists of whole blocks of 16, or is
/// all there is. Notes how large the tile must be for whole blocks.
bool KernelEmitter::operand_fits(NodeId id, int input, int outer, int depth, bool exact_depth,
                                 const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const Access& a = input < 0 ? op.outputs[0].target : op.inputs[static_cast<std::size_t>(input)];
  const BufferId b = input < 0 ? n.writes.front().buffer : buffer_of_input(n, input);
  TilePlace& p = places_[b.index()];
  if (p.form == Form::sums || p.form == Form::rows) return true;
  if (buffer(b).sliding) return false;  // what lies beyond it is an older tile's
  const SymBox& tile = *fixed_[b.index()];
  const SymBox box = access_box(n.op, a, ranges);
  const LoopId loops[] = {op.loops[static_cast<std::size_t>(outer)], op.loops[static_cast<std::size_t>(depth)]};
  std::int64_t need_rows = p.need_rows, need_columns = p.need_columns;
  int row_dims = 0;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const auto loop = runs_along(n.op, a.index[d], ranges);
    const bool mine = loop && (*loop == loops[0] || *loop == loops[1]);
    const bool last = d + 1 == a.index.size();
    if (!mine) {
      if (tile[d].most > 1) return false;
      continue;
    }
    if (!last && ++row_dims > 1) return false;
    const bool along_depth = *loop == loops[1] && input >= 0;
    const bool covers = box[d].lo == tile[d].lo && box[d].most == tile[d].most;
    if (!covers && (box[d].most % 16 != 0 || divisor(box[d].lo - tile[d].lo) % 16 != 0) &&
        !(along_depth && exact_depth))
      return false;
    const std::int64_t blocks = ceil_div(box[d].most, 16) * 16;
    const std::int64_t need = covers ? blocks : ceil_div(tile[d].most, box[d].most) * blocks;
    std::int64_t& target = last ? need_columns : need_rows;
    target = std::max(target, need);
  }
  if (!measuring_) return true;
  p.need_rows = need_rows;
  p.need_columns = need_columns;
  return true;
}

bool KernelEmitter::product_fits(NodeId id, const Product& p, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const DType type = workload_.tensor(op.inputs[static_cast<std::size_t>(p.left)].tensor).dtype;
  if (workload_.tensor(op.inputs[static_cast<std::size_t>(p.right)].tensor).dtype != type) return false;
  const std::string micro = micro_kernel();
  const bool exact_depth = micro == "simt";
  if (!exact_depth && !is_half(type)) return false;
  if (micro == "wmma2x2" &&
      (type != DType::f16 || places_[buffer_of_input(n, p.right).index()].form == Form::tile ||
       op.outputs[0].rescale))
    return false;
  return operand_fits(id, p.left, p.rows, p.depth, exact_depth, ranges) &&
         operand_fits(id, p.right, p.columns, p.depth, exact_depth, ranges) &&
         operand_fits(id, -1, p.rows, p.columns, false, ranges);
}

/// A box of a tile in shared memory as an operand. `outer`, `depth`: loops, by position; `tile`: the
/// text of another tile that holds the same, rounded.
std::string KernelEmitter::operand(NodeId id, int input, int outer, int depth,
                                   const SymRanges& ranges, const std::string& other) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(input)];
  const BufferId b = buffer_of_input(n, input);
  const SymBox& tile = *fixed_[b.index()];
  const LoopId depth_loop = op.loops[static_cast<std::size_t>(depth)];
  const LoopId outer_loop = op.loops[static_cast<std::size_t>(outer)];
  const bool along = runs_along(n.op, a.index.back(), ranges) == depth_loop;
  std::string row = "0", column = "0";
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const auto loop = runs_along(n.op, a.index[d], ranges);
    if (loop != depth_loop && loop != outer_loop) continue;
    Linear low = number(a.index[d].offset);
    for (const Term& t : a.index[d].terms)
      low = low + t.coefficient * range(ranges, n.op, workload_.local_index(n.op, t.loop)).lo;
    (d + 1 == a.index.size() ? column : row) = variables_.text(low - tile[d].lo);
  }
  std::string text = other;
  if (text.empty()) {
    text = tile_text(b);
  }
  const std::string type = other.empty() ? name(b) + "_layout" : "Half";
  return std::string(along ? "AlongDepth<" : "AcrossDepth<") + type + ">{" + text + ", " + row +
         ", " + column + "}";
}

/// The sums of a product stay in registers.
void KernelEmitter::multiply(NodeId id, const Product& p, const SymRanges& ranges,
                             const std::string& fresh) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const BufferId out = n.writes.front().buffer, left = buffer_of_input(n, p.left);
  const std::string sums = name(out);
  const std::string micro = micro_kernel();
  if (std::ranges::find(p_.used, micro) == p_.used.end()) p_.used.push_back(micro);
  if (fresh == "true") {
    out_.line("fill(" + sums + ", 0);");
  } else if (fresh != "false") {
    out_.line("if (" + fresh + ") fill(" + sums + ", 0);");
  }
  rescale(id, ranges, fresh);
  const TensorId left_tensor = op.inputs[static_cast<std::size_t>(p.left)].tensor;
  const std::string kernel = micro == "mma" ? "Mma<" + element_type(left_tensor) + ">" : "Simt";
  const std::string right = operand(id, p.right, p.columns, p.depth, ranges);
  if (places_[left.index()].form == Form::sums) {
    std::string from = name(left), first = "0";
    const TilePlace& l = places_[left.index()];
    if (l.split == Split::partial) {
      const std::int64_t own = sums_columns(left) / warp_columns_;
      from = names_.fresh(name(left) + "_total");
      first = "me.column * " + std::to_string(own);
      out_.line("Sums<" + std::to_string(sums_rows(left)) + ", " + std::to_string(own) + "> " + from + ";");
      out_.line("join<" + std::to_string(warp_columns_) + ", " + std::to_string(threads()) + ">(" + from +
                ", " + name(left) + ", me, scratch);");
      join_floats_ = std::max(join_floats_, sums_rows(left) * 128 * warp_columns_ * warp_columns_ * warp_rows_);
    } else if (l.split == Split::columns) {
      first = first_column(left);
    }
    out_.line(kernel + "::multiply_sums(" + sums + ", " + from + ", " + right + ", me, " +
              first_column(out) + ", " + first + ");");
    return;
  }
  const SymRange& depth = range(ranges, n.op, p.depth);
  const std::string call = operand(id, p.left, p.rows, p.depth, ranges) + ", " + right + ", me, " + first_column(out);
  if (micro == "mma")
    out_.line(kernel + "::template multiply<" + std::to_string(ceil_div(depth.most, 16) * 16) + ">(" + sums + ", " + call + ");");
  else
    out_.line(kernel + "::multiply(" + sums + ", " + call + ", " + size_text(depth) + ");");
}

std::int64_t KernelEmitter::blocks_of_rows(std::int64_t rows) const {
  return ceil_div(rows, 16) / warp_rows_;
}
std::int64_t KernelEmitter::blocks_of_columns(std::int64_t columns) const {
  return ceil_div(columns, 16) * 2 / warp_columns_;
}

/// Sums come from a tile in shared memory and go back there.
void KernelEmitter::multiply_tiles(NodeId id, const Product& p, const SymRanges& ranges,
                                   const std::string& fresh) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const BufferId out = n.writes.front().buffer;
  const Access& target = op.outputs[0].target;
  const SymBox& tile = *fixed_[out.index()];
  const std::string micro = micro_kernel(), t = std::to_string(threads());
  if (std::ranges::find(p_.used, micro) == p_.used.end()) p_.used.push_back(micro);
  std::string row = "0", column = "0";
  for (std::size_t d = 0; d < target.index.size(); ++d)
    for (const int l : {p.rows, p.columns})
      if (target.index[d].plain_loop() == op.loops[static_cast<std::size_t>(l)])
        (d + 1 == target.index.size() ? column : row) = variables_.text(range(ranges, n.op, l).lo - tile[d].lo);
  const SymRange& rows = range(ranges, n.op, p.rows);
  const SymRange& columns = range(ranges, n.op, p.columns);
  const SymRange& depth = range(ranges, n.op, p.depth);
  const std::string sum_tile = tile_text(out);
  const TensorId left_tensor = op.inputs[static_cast<std::size_t>(p.left)].tensor;
  const std::int64_t whole_depth = ceil_div(depth.most, 16) * 16;
  out_.line("barrier(1, " + t + ");");
  if (micro == "wmma2x2") {
    const std::int64_t whole_rows = ceil_div(rows.most, 16) * 16, whole_columns = ceil_div(columns.most, 16) * 16;
    const auto along = [&](int input) {
      return runs_along(n.op, op.inputs[static_cast<std::size_t>(input)].index.back(), ranges) ==
             op.loops[static_cast<std::size_t>(p.depth)];
    };
    std::string half;
    const BufferId left = buffer_of_input(n, p.left);
    if (places_[left.index()].form == Form::tile) {
      const TilePlace& l = places_[left.index()];
      const std::int64_t pitch = ceil_div(l.need_columns, 8) * 8 + 8;
      half_bytes_ = std::max(half_bytes_, l.need_rows * pitch * 2 + 128);
      out_.line("using Half = Tile<f16, " + std::to_string(l.need_rows) + ", " + std::to_string(l.need_columns) +
                ", " + std::to_string(pitch) + ", false>;");
      half = "Half{reinterpret_cast<f16*>(memory + " + std::to_string(shared_bytes_ - half_bytes_ + 127 - (shared_bytes_ - half_bytes_ + 127) % 128) + ")}";
      out_.line("round_tile(" + name(left) + "_layout{" + name(left) + "_data}, " + half + ", thread, " + t + ");");
    }
    if (fresh != "false") {
      if (fresh != "true") out_.open("if (" + fresh + ")");
      out_.line("for (int i = thread; i < " + std::to_string(whole_rows * whole_columns) + "; i += " + t + ")");
      out_.line("  *" + sum_tile + ".at(" + row + " + i / " + std::to_string(whole_columns) + ", " + column +
                " + i % " + std::to_string(whole_columns) + ") = 0;");
      if (fresh != "true") out_.close();
    }
    out_.line("barrier(1, " + t + ");");
    out_.line("Wmma2x2::template multiply<" + std::to_string(whole_rows) + ", " + std::to_string(whole_columns) + ", " +
              std::to_string(whole_depth) + ", " + (along(p.left) ? "false" : "true") + ", " +
              (along(p.right) ? "true" : "false") + ">(" + sum_tile + ", " + row + ", " + column + ", " +
              operand(id, p.left, p.rows, p.depth, ranges, half) + ", " +
              operand(id, p.right, p.columns, p.depth, ranges) + ", warp, " + std::to_string(threads() / 32) + ");");
  } else {
    // A part of a warp's columns at a time, so that the sums find room in registers.
    const std::int64_t m = blocks_of_rows(rows.most), all = blocks_of_columns(columns.most);
    std::int64_t part = 2;
    for (std::int64_t n = 2; n <= all; n += 2)
      if (all % n == 0 && m * n * 4 <= kSumsAtOnce) part = n;
    if (op.outputs[0].rescale && forms_chosen_)
      throw Refused{"operator " + op.name +
                    " is rescaled: its sums must stay in registers, which the plan does not allow"};
    out_.open("for (int part = 0; part < " + std::to_string(all / part) + "; ++part)");
    out_.line("const int first = me.column * " + std::to_string(all) + " + part * " + std::to_string(part) + ";");
    out_.line("Sums<" + std::to_string(m) + ", " + std::to_string(part) + "> sums;");
    if (fresh == "true") {
      out_.line("fill(sums, 0);");
    } else {
      if (fresh != "false") out_.line("if (" + fresh + ") fill(sums, 0); else");
      out_.line("sums_from_tile(sums, me, first, " + sum_tile + ", " + row + ", " + column + ");");
    }
    const std::string call = operand(id, p.left, p.rows, p.depth, ranges) + ", " +
                             operand(id, p.right, p.columns, p.depth, ranges) + ", me, first";
    if (micro == "mma")
      out_.line("Mma<" + element_type(left_tensor) + ">::template multiply<" + std::to_string(whole_depth) + ">(sums, " + call + ");");
    else
      out_.line("Simt::multiply(sums, " + call + ", " + size_text(depth) + ");");
    out_.line("sums_to_tile(sums, me, first, " + sum_tile + ", " + row + ", " + column + ");");
    out_.close();
  }
  out_.line("barrier(1, " + t + ");");
}

}  // namespace tilewright::cuda
