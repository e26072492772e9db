// Matrix products: whether their tiles suit the micro-kernel, and the call.
#include <algorithm>

#include "codegen/cuda/emitter.h"

namespace tilewright::cuda {
std::vector<std::int64_t> KernelEmitter::mosts(OpId op, const SymRanges& ranges) const {
  std::vector<std::int64_t> most(workload_.op(op).loops.size());
  for (std::size_t l = 0; l < most.size(); ++l)
    most[l] = range(ranges, op, static_cast<int>(l)).most;
  return most;
}

/// The micro-kernel's struct for operands of that type; it is noted as used.
std::string KernelEmitter::kernel_text(DType type) {
  const MicroKernel& m = block_.micro_kernel();
  const std::string name(m.name);
  if (std::ranges::find(p_.used, name) == p_.used.end()) p_.used.push_back(name);
  std::string text(m.text);
  if (const std::size_t at = text.find('@'); at != std::string::npos)
    text.replace(at, 1, cuda::element_type(type));
  return text;
}

bool KernelEmitter::product_fits(NodeId id, const BlockProduct& p, const SymRanges& ranges) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const auto boxes = [&](std::optional<int> input) {
    const BufferId b = input ? block_.buffer_of_input(n, *input) : written_by(id, p.write);
    const SymBox& tile = *fixed_[b.index()];
    const SymBox box = access_box(
        n.op, input ? op.inputs[static_cast<std::size_t>(*input)] : output_of(id, p.write).target,
        ranges);
    std::vector<lowering::BoxInTile> found;
    for (std::size_t d = 0; d < box.size(); ++d) {
      const Linear apart = box[d].lo - tile[d].lo;
      // A loop of a single turn is always where it begins.
      const bool begins = variables_.lower(apart) == 0 && variables_.upper(apart) == 0;
      found.push_back({.tile = tile[d].most,
                       .box = box[d].most,
                       .covers = begins && box[d].most == tile[d].most,
                       .apart = divisor(apart)});
    }
    return found;
  };
  return block_.product_fits(id, p, mosts(n.op, ranges), boxes);
}

/// A box of a tile in shared memory as an operand. `outer`, `depth`: loops, by position; `tile`:
/// the text of another tile that holds the same, rounded.
std::string KernelEmitter::operand(NodeId id, int input, int outer, int depth,
                                   const SymRanges& ranges, const std::string& other) const {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const Access& a = op.inputs[static_cast<std::size_t>(input)];
  const BufferId b = block_.buffer_of_input(n, input);
  const SymBox& tile = *fixed_[b.index()];
  const std::vector<std::int64_t> most = mosts(n.op, ranges);
  const LoopId depth_loop = op.loops[static_cast<std::size_t>(depth)];
  const LoopId outer_loop = op.loops[static_cast<std::size_t>(outer)];
  const bool along = block_.runs_along(n.op, a.index.back(), most) == depth_loop;
  std::string row = "0", column = "0";
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    const auto loop = block_.runs_along(n.op, a.index[d], most);
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
  const BlockTile& p = block_.tile(b);
  if (p.split != Split::partial) return {name(b), first_column(b), block_.sums_columns(b)};
  const std::int64_t own = block_.sums_columns(b) / block_.program().warp_columns;
  const std::string total = names_.fresh(name(b) + "_total");
  out_.line("Sums<" + std::to_string(block_.sums_rows(b)) + ", " + std::to_string(own) + "> " +
            total + ";");
  out_.line("join<" + std::to_string(block_.program().warp_columns) + ", " +
            std::to_string(threads()) + ">(" + total + ", " + name(b) + ", me, scratch);");
  return {total, "me.column * " + std::to_string(own), own};
}

/// Both operands in shared memory, the sums by name.
void KernelEmitter::call_product(NodeId id, const BlockProduct& p, const SymRanges& ranges,
                                 const std::string& sums, const std::string& first) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const SymRange& depth = range(ranges, n.op, p.depth);
  const DType type = workload_.tensor(op.inputs[static_cast<std::size_t>(p.left)].tensor).dtype;
  const bool blocks = block_.micro_kernel().blocks;
  // Tiles that come from home are zero behind their ends, so that four of the depth may go past.
  const auto ends_in_zeros = [&](int input) {
    const BufferId b = block_.buffer_of_input(n, input);
    const BlockTile& t = block_.tile(b);
    const Access& a = op.inputs[static_cast<std::size_t>(input)];
    const LoopId loop = op.loops[static_cast<std::size_t>(p.depth)];
    for (std::size_t d = 0; d < a.index.size(); ++d)
      if (block_.runs_along(n.op, a.index[d], mosts(n.op, ranges)) == loop)
        return t.form == Form::ring && t.most[d] == depth.most &&
               (d + 1 == a.index.size() ? t.need_columns : t.need_rows) % 4 == 0;
    return false;
  };
  std::string deep = size_text(depth);
  if (block_.micro_kernel().fours && deep != std::to_string(depth.most) && depth.most % 4 == 0 &&
      ends_in_zeros(p.left) && ends_in_zeros(p.right))
    deep = "(" + deep + " + 3) / 4 * 4";
  out_.line(kernel_text(type) + "::" +
            (blocks ? "template multiply<" + std::to_string(ceil_div(depth.most, 16) * 16) + ">("
                    : "multiply(") +
            sums + ", " + operand(id, p.left, p.rows, p.depth, ranges) + ", " +
            operand(id, p.right, p.columns, p.depth, ranges) + ", me, " + first +
            (blocks ? "" : ", " + deep) + ");");
}

/// The sums of a product stay in registers.
void KernelEmitter::multiply(NodeId id, const BlockProduct& p, const SymRanges& ranges,
                             const std::string& fresh) {
  const ScheduleNode& n = k_.node(id);
  const Operator& op = workload_.op(n.op);
  const BufferId out = written_by(id, p.write), left = block_.buffer_of_input(n, p.left);
  const std::string sums = name(out);
  if (fresh == "true") {
    out_.line("fill(" + sums + ", 0);");
  } else if (fresh != "false") {
    out_.line("if (" + fresh + ") fill(" + sums + ", 0);");
  }
  rescale(id, p, ranges, fresh, sums, block_.sums_rows(out), block_.sums_columns(out),
          first_column(out));
  if (block_.tile(left).form != Form::sums)
    return call_product(id, p, ranges, sums, first_column(out));
  const Joined from = joined(left);
  const DType type = workload_.tensor(op.inputs[static_cast<std::size_t>(p.left)].tensor).dtype;
  out_.line(kernel_text(type) + "::multiply_sums(" + sums + ", " + from.name + ", " +
            operand(id, p.right, p.columns, p.depth, ranges) + ", me, " + first_column(out) + ", " +
            from.first + ");");
}

}  // namespace tilewright::cuda
