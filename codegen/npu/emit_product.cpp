// Products on the cube.
#include <algorithm>

#include "codegen/npu/emitter.h"
#include "core/workload/matrix_product.h"

namespace tilewright::npu {
namespace {

constexpr MicroKernel kMicroKernels[] = {
    {.name = "mad",
     .summary = "C[m1,n1,m2,n2] += A[m1,k1,m2,k2] B[k1,n1,n2,k2] with M2 = N2 = 16 lanes; M1, N1 "
                "and K1 as the plan's tiles at L0 say (Chimera, section V-B)"},
};

}  // namespace

std::span<const MicroKernel> micro_kernels() { return kMicroKernels; }

const MicroKernel* find_micro_kernel(std::string_view name) {
  for (const MicroKernel& m : kMicroKernels)
    if (name.empty() || m.name == name) return &m;
  return nullptr;
}

std::int64_t KernelEmitter::tile_size(OpId op, LoopId l) const {
  std::int64_t least = w_.loop(l).extent;
  const OpLoop own{op, w_.local_index(op, l)};
  for (const ScheduleNode& n : k_.nodes)
    if (n.kind == NodeKind::loop && std::ranges::find(n.cuts, own) != n.cuts.end())
      least = std::min(least, n.step);
  return least;
}

/// Which matrices of its tensors a product multiplies: of loops that may be rows, columns or depth
/// those of which a compute has most.
KernelEmitter::Product KernelEmitter::product_of(const ScheduleNode& n) const {
  const Operator& op = w_.op(n.op);
  const auto refuse = [&](const std::string& why) -> Product {
    throw Refused{op.name + " is not a product for the cube: " + why};
  };
  const auto size = [&](LoopId l) { return tile_size(n.op, l); };
  const Result<MatrixProduct> found = matrix_product(w_, n.op, size);
  if (!found) return refuse("it " + found.reason().substr(op.name.size() + 1));
  if (!found->in_rows)
    return refuse("the last dimension of each tensor is not one of a matrix that it multiplies");
  Product p{.left = found->left,
            .right = found->right,
            .rows = found->rows,
            .columns = found->columns,
            .depth = found->depth};
  const auto last = [&](int input) {
    return op.inputs[static_cast<std::size_t>(input)].index.back().plain_loop();
  };
  p.left_transposed = last(p.left) == p.rows;
  p.right_transposed = last(p.right) == p.depth;
  return p;
}

/// The block of sums that is exactly `box`; a new one where `initialises`.
const SumBlock& KernelEmitter::sum_block(BufferId b, const Box& box, bool initialises) {
  Tile& t = tiles_[b.index()];
  TilePlace& p = places_[b.index()];
  std::int64_t end = 0;
  for (const SumBlock& s : t.blocks) {
    if (s.box == box) return s;
    if (!intersect(s.box, box).empty())
      throw Refused{tensor_name(buffer(b).tensor) +
                    " is added up in blocks that are cut in one way here and in another there"};
    const Matrices m = matrices_of(s.box, rows_of(buffer(b).tensor));
    end = s.offset + round_up(m.rows, kFractal) * round_up(m.columns, kFractal);
  }
  TW_CHECK(initialises, "a sum goes on that never began");
  t.blocks.push_back({.box = box, .offset = end});
  const Matrices m = matrices_of(box, rows_of(buffer(b).tensor));
  end += round_up(m.rows, kFractal) * round_up(m.columns, kFractal);
  if (measuring_) p.elements = std::max(p.elements, end);
  return t.blocks.back();
}

/// Where the cube reads an operand: the whole tile, or whole rows (left: of A; right: of B's
/// depth).
Piece KernelEmitter::operand(BufferId b, const Box& read) const {
  const TilePlace& p = places_[b.index()];
  const Box& tile_box = tiles_[b.index()].box;
  const int rank = read.rank();
  const int minor = p.transposed ? rows_of(buffer(b).tensor) : rank - 1;
  if (read[minor] != tile_box[minor])
    throw Refused{tensor_name(buffer(b).tensor) + " is used at " + std::string(name_of(p.memory)) +
                  " in part of its columns: the cube reads packed matrices"};
  return tile(b, read);
}

void KernelEmitter::multiply(NodeId node, const Ranges& ranges, const SumStep& step) {
  const ScheduleNode& n = k_.node(node);
  const Operator& op = w_.op(n.op);
  const Product& p = products_.at(n.op.value);
  const auto around = ranges_of(s_, k_, ranges, n.op);
  std::vector<Interval> at(around.begin(), around.end());
  const auto local = [&](LoopId l) { return static_cast<std::size_t>(w_.local_index(n.op, l)); };
  std::vector<std::size_t> batch;  // one of them at a time
  for (LoopId l : op.loops)
    if (l != p.rows && l != p.columns && l != p.depth) batch.push_back(local(l));
  for (std::size_t l : batch) at[l].hi = at[l].lo + 1;
  const BufferId left = codegen::buffer_of_input(n, p.left);
  const BufferId right = codegen::buffer_of_input(n, p.right);
  const BufferId sum = n.writes.front().buffer;
  for (bool more = true; more;) {
    bool begins = step.initialises;  // the first of the sums
    for (std::size_t l : batch)
      begins = begins && (!w_.is_reduction(n.op, op.loops[l]) || at[l].lo == around[l].lo);
    const SumBlock block = sum_block(sum, footprint(w_, op, op.outputs.front().target, at), begins);
    const Piece a = operand(left, footprint(w_, op, op.inputs[std::size_t(p.left)], at));
    const Piece b = operand(right, footprint(w_, op, op.inputs[std::size_t(p.right)], at));
    Piece c = sums(sum, block, 0);
    std::vector<TraceTouch> touches = a.touches;
    touches.insert(touches.end(), b.touches.begin(), b.touches.end());
    c.touches.front().write = true;
    touches.push_back(c.touches.front());
    const std::int64_t m = at[local(p.rows)].size(), k = at[local(p.depth)].size(),
                       columns = at[local(p.columns)].size();
    emit_step({.instruction = Mad{.c = c.at.place,
                                  .a = a.at.place,
                                  .b = b.at.place,
                                  .m = m,
                                  .k = k,
                                  .n = columns,
                                  .accumulate = begins ? 0 : 1},
               .pipe = Pipe::cube,
               .touches = std::move(touches),
               .comment = op.name,
               .cycles = core().cube_startup + ceil_div(m, kFractal) * ceil_div(k, kFractal) *
                                                   ceil_div(columns, kFractal)});
    more = false;
    for (std::size_t i = batch.size(); i-- > 0 && !more;) {  // the next of the batch
      Interval& now = at[batch[i]];
      more = now.hi < around[batch[i]].hi;
      now = more ? Interval{now.lo + 1, now.hi + 1}
                 : Interval{around[batch[i]].lo, around[batch[i]].lo + 1};
    }
  }
}

void KernelEmitter::compute(NodeId node, const Ranges& ranges, const std::vector<SumStep>& steps) {
  if (on_cube(k_.node(node))) return multiply(node, ranges, steps.front());
  vector_compute(node, ranges, steps);
}

}  // namespace tilewright::npu
