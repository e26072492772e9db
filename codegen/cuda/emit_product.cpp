// Matrix products: which loops of an operator make one, whether its tiles suit the micro-kernel,
// and the call.
#include <algorithm>

#include "codegen/cuda/emitter.h"

namespace tilewright::cuda {
namespace {

constexpr MicroKernel kMicroKernels[] = {
    {.name = "mma",
     .summary = "tensor cores: mma.m16n8k16 on operands by ldmatrix, sums in registers",
     .text = "Mma<@>",
     .f16 = true,
     .bf16 = true,
     .fragments = true,
     .blocks = true,
     .elements = true},
    {.name = "wmma2x2",
     .summary = "Chimera's: 2 x 2 WMMA fragments of 16 x 16, sums in shared memory between calls",
     .text = "Wmma2x2",
     .f16 = true,
     .blocks = true,
     .plain_rows = true},
    {.name = "simt",
     .summary = "fused multiply-adds on the same sums, four of the depth at a time",
     .text = "Simt",
     .f16 = true,
     .bf16 = true,
     .f32 = true,
     .fragments = true,
     .elements = true,
     .fours = true},
};

bool has_loop(const Access& a, LoopId loop) {
  return std::ranges::any_of(a.index, [&](const Affine& i) {
    return std::ranges::any_of(i.terms, [&](const Term& t) { return t.loop == loop; });
  });
}

}  // namespace

std::span<const MicroKernel> micro_kernels() { return kMicroKernels; }

const MicroKernel* find_micro_kernel(std::string_view name, DType type) {
  for (const MicroKernel& m : kMicroKernels)
    if (name.empty() ? m.takes(type) : m.name == name) return &m;
  return nullptr;
}

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

const MicroKernel& KernelEmitter::micro_kernel() const {
  // emit() has refused names that it does not know; f64, which none takes, has no products.
  const MicroKernel* const m = find_micro_kernel(p_.options.micro_kernel, workload_.dtype());
  return m != nullptr ? *m : kMicroKernels[0];
}

/// The micro-kernel's struct for operands of that type; it is noted as used.
std::string KernelEmitter::kernel_text(DType type) {
  const MicroKernel& m = micro_kernel();
  const std::string name(m.name);
  if (std::ranges::find(p_.used, name) == p_.used.end()) p_.used.push_back(name);
  std::string text(m.text);
  if (const std::size_t at = text.find('@'); at != std::string::npos)
    text.replace(at, 1, cuda::element_type(type));
  return text;
}

/// One output as a matrix product, with the loops that are largest; nothing where it is none.
std::optional<Product> KernelEmitter::as_product(NodeId id, int write,
                                                 const SymRanges& ranges) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  if (p_.f64 || workload_.gathers(n.op)) return std::nullopt;
  const Output& out = output_of(id, write);
  if (out.rescale && n.writes.size() > 1) return std::nullopt;
  const Expr& e = out.value;
  if (out.combine != Combine::sum || e.kind != Expr::Kind::call || e.function != "mul" ||
      e.args[0].kind != Expr::Kind::input || e.args[1].kind != Expr::Kind::input ||
      e.args[0].input == e.args[1].input || out.target.index.empty())
    return std::nullopt;
  const auto most = [&](int l) { return range(ranges, n.op, l).most; };
  for (const int left : {e.args[0].input, e.args[1].input}) {
    Product p{.write = write,
              .left = left,
              .right = left == e.args[0].input ? e.args[1].input : e.args[0].input};
    const Access& a = op.inputs[static_cast<std::size_t>(p.left)];
    const Access& b = op.inputs[static_cast<std::size_t>(p.right)];
    if (can_leave(workload_, op, a) || can_leave(workload_, op, b)) continue;
    if (is_integer(workload_.tensor(a.tensor).dtype) ||
        is_integer(workload_.tensor(b.tensor).dtype))
      return std::nullopt;
    const auto pick = [&](int& slot, std::size_t l) {
      if (slot < 0 || most(static_cast<int>(l)) > most(slot)) slot = static_cast<int>(l);
    };
    for (std::size_t l = 0; l < op.loops.size(); ++l) {
      const LoopId loop = op.loops[l];
      const bool in_a = has_loop(a, loop), in_b = has_loop(b, loop),
                 in_out = has_loop(out.target, loop);
      if (in_out && in_a && !in_b) pick(p.rows, l);
      if (in_out && in_b && !in_a && out.target.index.back().plain_loop() == loop)
        pick(p.columns, l);
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

/// Every output as a product of the same rows, columns and depth; nothing where one is none.
std::vector<Product> KernelEmitter::as_products(NodeId id, const SymRanges& ranges) const {
  std::vector<Product> all;
  for (std::size_t w = 0; w < k_.node(id).writes.size(); ++w) {
    const auto p = as_product(id, static_cast<int>(w), ranges);
    if (!p || (!all.empty() && (p->rows != all.front().rows || p->columns != all.front().columns ||
                                p->depth != all.front().depth)))
      return {};
    all.push_back(*p);
  }
  return all;
}

/// Whether the box that one operand or the result takes of a tile consists of whole blocks of 16,
/// or is all there is. Notes how large the tile must be for whole blocks.
bool KernelEmitter::operand_fits(NodeId id, const Product& product, std::optional<int> input,
                                 bool exact_depth, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const Access& a =
      input ? op.inputs[static_cast<std::size_t>(*input)] : output_of(id, product.write).target;
  const BufferId b = input ? buffer_of_input(n, *input) : written_by(id, product.write);
  const int outer = input && *input == product.right ? product.columns : product.rows,
            depth = input ? product.depth : product.columns;
  TilePlace& p = places_[b.index()];
  if (p.form == Form::sums || p.form == Form::rows) return true;
  if (buffer(b).sliding) return false;  // what lies beyond it is an older tile's
  if (input && runs_along(n.op, a.index.back(), ranges) == op.loops[static_cast<std::size_t>(depth)])
    (*input == product.left ? p.left_along : p.right_along) = true;
  const SymBox& tile = *fixed_[b.index()];
  const SymBox box = access_box(n.op, a, ranges);
  const LoopId loops[] = {op.loops[static_cast<std::size_t>(outer)],
                          op.loops[static_cast<std::size_t>(depth)]};
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
    const bool along_depth = *loop == loops[1] && input;
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
  if (workload_.tensor(op.inputs[static_cast<std::size_t>(p.right)].tensor).dtype != type)
    return false;
  const MicroKernel& micro = micro_kernel();
  const bool exact_depth = !micro.blocks;
  if (!micro.takes(type)) return false;
  // Without fragments, operands are elements in shared memory, and sums are not rescaled in
  // between.
  if (!micro.fragments && (places_[buffer_of_input(n, p.right).index()].form == Form::tile ||
                           output_of(id, p.write).rescale))
    return false;
  return operand_fits(id, p, p.left, exact_depth, ranges) &&
         operand_fits(id, p, p.right, exact_depth, ranges) &&
         operand_fits(id, p, std::nullopt, false, ranges);
}

/// A box of a tile in shared memory as an operand. `outer`, `depth`: loops, by position; `tile`:
/// the text of another tile that holds the same, rounded.
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

/// Sums that every warp has a part of become the totals of its own columns; others stay as they
/// are.
KernelEmitter::Joined KernelEmitter::joined(BufferId b) {
  const TilePlace& p = places_[b.index()];
  if (p.split != Split::partial) return {name(b), first_column(b), sums_columns(b)};
  const std::int64_t own = sums_columns(b) / warp_columns_;
  const std::string total = names_.fresh(name(b) + "_total");
  out_.line("Sums<" + std::to_string(sums_rows(b)) + ", " + std::to_string(own) + "> " + total +
            ";");
  out_.line("join<" + std::to_string(warp_columns_) + ", " + std::to_string(threads()) + ">(" +
            total + ", " + name(b) + ", me, scratch);");
  join_floats_ =
      std::max(join_floats_, sums_rows(b) * 128 * warp_columns_ * warp_columns_ * warp_rows_);
  return {total, "me.column * " + std::to_string(own), own};
}

/// Both operands in shared memory, the sums by name.
void KernelEmitter::call_product(NodeId id, const Product& p, const SymRanges& ranges,
                                 const std::string& sums, const std::string& first) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const SymRange& depth = range(ranges, n.op, p.depth);
  const DType type = workload_.tensor(op.inputs[static_cast<std::size_t>(p.left)].tensor).dtype;
  const bool blocks = micro_kernel().blocks;
  out_.line(kernel_text(type) + "::" +
            (blocks ? "template multiply<" + std::to_string(ceil_div(depth.most, 16) * 16) + ">("
                    : "multiply(") +
            sums + ", " + operand(id, p.left, p.rows, p.depth, ranges) + ", " +
            operand(id, p.right, p.columns, p.depth, ranges) + ", me, " + first +
            (blocks ? "" : ", " + size_text(depth)) + ");");
}

/// The sums of a product stay in registers.
void KernelEmitter::multiply(NodeId id, const Product& p, const SymRanges& ranges,
                             const std::string& fresh) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const BufferId out = written_by(id, p.write), left = buffer_of_input(n, p.left);
  const std::string sums = name(out);
  if (fresh == "true") {
    out_.line("fill(" + sums + ", 0);");
  } else if (fresh != "false") {
    out_.line("if (" + fresh + ") fill(" + sums + ", 0);");
  }
  rescale(id, p, ranges, fresh, sums, sums_rows(out), sums_columns(out));
  if (places_[left.index()].form != Form::sums)
    return call_product(id, p, ranges, sums, first_column(out));
  const Joined from = joined(left);
  const DType type = workload_.tensor(op.inputs[static_cast<std::size_t>(p.left)].tensor).dtype;
  out_.line(kernel_text(type) + "::multiply_sums(" + sums + ", " + from.name + ", " +
            operand(id, p.right, p.columns, p.depth, ranges) + ", me, " + first_column(out) + ", " +
            from.first + ");");
}

}  // namespace tilewright::cuda
