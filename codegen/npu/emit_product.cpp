// Products on the cube.
#include <algorithm>

#include "codegen/npu/emitter.h"

namespace tilewright::npu {
namespace {

constexpr MicroKernel kMicroKernels[] = {
    {.name = "mad",
     .summary = "C[m1,n1,m2,n2] += A[m1,k1,m2,k2] B[k1,n1,n2,k2] with M2 = N2 = 16 lanes; M1, N1 "
                "and K1 as the plan's tiles at L0 say (Chimera, section V-B)"},
};

/// The loop that a dimension is, where it is no more than a loop.
LoopId plain(const Workload& w, const Operator& op, const Access& a, std::size_t d) {
  const auto loop = a.index[d].plain_loop();
  if (!loop)
    throw Refused{op.name + " reads " + w.tensor(a.tensor).name +
                  " through more than a loop: the cube's operands are plain matrices"};
  return *loop;
}

}  // namespace

std::span<const MicroKernel> micro_kernels() { return kMicroKernels; }

const MicroKernel* find_micro_kernel(std::string_view name) {
  for (const MicroKernel& m : kMicroKernels)
    if (name.empty() || m.name == name) return &m;
  return nullptr;
}

/// How an operator is Z[..., r, c] += X[r, d] * Y[d, c]: the last two dimensions of every tensor
/// are these, X's and Y's either way round; the others are batches.
KernelEmitter::Product KernelEmitter::product_of(OpId id) const {
  const Operator& op = w_.op(id);
  const auto refuse = [&](const std::string& why) -> Product {
    throw Refused{op.name + " is not a product for the cube: " + why};
  };
  if (op.inputs.size() != 2 || op.outputs.size() != 1) return refuse("it needs two inputs");
  if (w_.reduction_loops(id).size() != 1) return refuse("it sums over more or less than one loop");
  Product p;
  p.depth = w_.reduction_loops(id).front();
  const Access& out = op.outputs.front().target;
  for (const Access* a : {&out, static_cast<const Access*>(&op.inputs[0]), &op.inputs[1]})
    if (a->index.size() < 2)
      return refuse(w_.tensor(a->tensor).name + " has less than two dimensions");
  p.rows = plain(w_, op, out, out.index.size() - 2);
  p.columns = plain(w_, op, out, out.index.size() - 1);
  for (int i = 0; i < 2; ++i) {
    const Access& a = op.inputs[static_cast<std::size_t>(i)];
    const std::size_t rank = a.index.size();
    const LoopId first = plain(w_, op, a, rank - 2), last = plain(w_, op, a, rank - 1);
    if ((first == p.rows && last == p.depth) || (first == p.depth && last == p.rows)) {
      p.left = i;
      p.left_transposed = first == p.depth;
    } else if ((first == p.depth && last == p.columns) || (first == p.columns && last == p.depth)) {
      p.right = i;
      p.right_transposed = first == p.columns;
    } else {
      return refuse("the last two dimensions of " + w_.tensor(a.tensor).name +
                    " are not its rows or columns and the loop that it sums over");
    }
  }
  if (p.left == p.right) return refuse("both inputs have the same loops");
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
    const Matrices m = matrices_of(s.box);
    end = s.offset + round_up(m.rows, kFractal) * round_up(m.columns, kFractal);
  }
  TW_CHECK(initialises, "a sum goes on that never began");
  t.blocks.push_back({.box = box, .offset = end});
  const Matrices m = matrices_of(box);
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
  const int minor = p.transposed ? rank - 2 : rank - 1;
  if (read[minor] != tile_box[minor])
    throw Refused{tensor_name(buffer(b).tensor) + " is used at " + std::string(name_of(p.memory)) +
                  " in part of its columns: the cube reads packed matrices"};
  return tile(b, read);
}

void KernelEmitter::multiply(NodeId node, const Ranges& ranges, const SumStep& step) {
  const ScheduleNode& n = k_.node(node);
  const Operator& op = w_.op(n.op);
  const Product p = product_of(n.op);
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
    const SumBlock block =
        sum_block(sum, footprint(w_, op, op.outputs.front().target, at), step.initialises);
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
                                  .accumulate = step.initialises ? 0 : 1},
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
