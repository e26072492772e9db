// A resolved plan: names bound to ids, defaults made nodes, buffers placed, legality decided. What a
// plan means is decided here and nowhere else (design/plan.md; rule numbers below are its).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/machine/machine.h"
#include "core/plan/plan.h"
#include "core/workload/workload.h"

namespace tilewright {

using NodeId = Id<struct NodeTag>;
using BufferId = Id<struct BufferTag>;

/// The parallel unit that a binding names; none for seq, vector and unroll.
std::optional<Unit> unit_of(Binding binding);

/// The notation's word for a barrier's scope, the unit whose members wait for one another: grid
/// (all blocks) for the machine, block for a block's threads, warp for a warp's lanes.
std::string_view barrier_name(Unit scope);

/// One read of a tensor by an operator: op.inputs[input].
struct ReadRef {
  OpId op;
  int input = 0;
  friend bool operator==(const ReadRef&, const ReadRef&) = default;
};

/// On entering a body, consumers first: the producer's output dimensions become the smallest box
/// that all consumers need (rule 2). The box is the hull of `reads`' footprints, clipped; each
/// dimension of it then becomes the range of the producer's loop that indexes that dimension.
struct Inference {
  TensorId tensor;
  OpId producer;
  int output = 0;                  ///< position in op.outputs
  std::vector<ReadRef> reads;      ///< every consumer's access, all inside this body
  bool merge = false;              ///< a further output of the same producer: hull with the last
  bool sliding = false;            ///< compute only what the buffer does not hold (rule 13)
  BufferId buffer;                 ///< where it is held
  std::vector<Inference> lookahead;  ///< readers' ranges still to be inferred further in
  friend bool operator==(const Inference&, const Inference&) = default;
};

/// A loop of an operator: position in op.loops.
struct OpLoop {
  OpId op;
  int local = 0;
  friend bool operator==(const OpLoop&, const OpLoop&) = default;
};

enum class NodeKind : std::uint8_t { loop, sequence, load, compute, store, sync, pack, drop };

/// How one compute uses one tensor. Operand reads cross no boundary and move nothing: what moves is
/// the filling of `buffer`, which load nodes do. (Rule 9's loads are nodes by now: `resolve` puts
/// `( L.A@level L.B@level C.gemm1 )` for a compute whose inputs have no load node.)
///
/// What is indexed by another input's value (a gather) is in no buffer: which box it would be is
/// known only at run time. It is read at home, element by element, and every boundary on the way to
/// the kernel's level is crossed by as many elements as gathered_elements says, each time that the
/// compute runs: one a point, whatever was read before. Its indices are an input like any other.
struct InputUse {
  TensorId tensor;
  std::vector<int> inputs;    ///< positions in op.inputs that read it; of a gather, one
  BufferId buffer;            ///< the innermost one that holds it here; none: a gather
  friend bool operator==(const InputUse&, const InputUse&) = default;
};
struct OutputUse {
  TensorId tensor;
  int output = 0;             ///< position in op.outputs
  BufferId buffer;            ///< the innermost one
  bool atomic = false;        ///< initialised in every block (rule 12)
  friend bool operator==(const OutputUse&, const OutputUse&) = default;
};

struct ScheduleNode {
  NodeKind kind = NodeKind::sequence;
  NodeId parent;                    ///< none: the kernel's root, a sequence
  std::vector<NodeId> children;     ///< loop: its body's nodes in order (one sequence node or less)

  // Bodies (loops and the root): what happens on entering, in this order.
  std::vector<Inference> infer;     ///< rule 2
  std::vector<BufferId> fixes;      ///< buffers whose tile is fixed here for all below: see tile_of

  // loop
  LoopId loop;
  std::int64_t step = 0;
  std::int64_t max_trips = 0;       ///< ceil(extent / step): bounds every entry's trips
  Binding binding = Binding::seq;
  std::vector<OpLoop> cuts;         ///< operators below that have the loop; all have equal ranges

  // load, store, drop
  TensorId tensor;
  BufferId buffer;                  ///< load: filled; store: written from; drop: emptied
  std::vector<ReadRef> reads_below; ///< load: the reads whose hull is its tile (see load_box)
  std::vector<Inference> lookahead; ///< load: ranges still to be inferred below (see load_box)
  BufferId flush;                   ///< load of a spilled tensor: the producer's buffer, stored to
                                    ///< home (and so its outer buffers) first, where changed
  LevelId level;                    ///< load, drop: of buffer; store: target
  bool atomic = false;

  NodeId only_for;                  ///< load put by rule 9 for a !once compute: runs where that runs
  // A load whose tile is empty, and a compute whose ranges are empty, do nothing at all.

  // compute
  OpId op;
  bool once = false;                ///< skipped where its (innermost) output buffer holds this very
                                    ///< box complete (all reduction ranges have reached their high
                                    ///< end on it) and has not been emptied or replaced since
  std::vector<InputUse> reads;
  std::vector<OutputUse> writes;

  Unit scope = Unit::machine;       ///< sync: the unit whose members wait for one another
  bool all_units = false;           ///< drop: it stands outside the loops that tell the buffer's
                                    ///< instances apart, and empties all of them
  std::int64_t first_block = 0;     ///< of a pack's part: where its blocks begin among the pack's
};

enum class BufferRole : std::uint8_t {
  input,         ///< filled from outer by loads; may be evicted silently
  output,        ///< written to outer when changed and replaced, stored or at the kernel's end
  intermediate,  ///< on-chip: region at its home point; never moves unless also an output
};

/// What one block has of a tile that is kept from one nest of blocks to a later one (rule 5): the
/// same part in each nest.
struct BlockPart {
  NodeId body;             ///< of the nest's innermost grid loop: from there on, the part is known
  OpId op;                 ///< computed there
  std::vector<int> loops;  ///< by dimension: position in op.loops whose range is the block's part;
                           ///< -1: all of the dimension
  std::vector<std::int64_t> most;  ///< by dimension: elements, at most
};

/// One tensor's tile at one level in one kernel (rule 4). Instances: see unit_loops.
struct Buffer {
  TensorId tensor;
  LevelId level;
  BufferRole role = BufferRole::input;
  BufferId outer;         ///< source and sink; none: home
  LevelId outer_level;    ///< level of `outer`, else the machine's home
  NodeId fixed_at;        ///< body of the home point (intermediate) or of the store node (output);
                          ///< none: inputs (every load node says its own tile: load_box), and
                          ///< outputs without a store node (the tile is what each compute writes)
  NodeId store;           ///< explicit store node that empties it, if any
  std::vector<ReadRef> reads;   ///< intermediate, its producer's only output: those that are the tile
  std::vector<std::pair<OpId, int>> writes;  ///< without reads: (op, output) whose hull is the tile
  std::vector<Inference> lookahead;  ///< ranges still to be inferred below fixed_at (tile_of)
  int copies = 1;
  bool sliding = false;
  bool leaves = false;    ///< intermediate that is also an output: written when replaced (rule 10)
  bool atomic = false;    ///< output stored with !atomic
  std::vector<BlockPart> parts;  ///< intermediate: a body in each nest of blocks that touches it
};

struct ScheduledKernel {
  std::string name;
  LevelId level;
  Launch launch;                        ///< as the plan says
  std::vector<ScheduleNode> nodes;      ///< nodes[0] is the root; parents before children
  std::vector<Buffer> buffers;
  std::vector<OpId> ops;                ///< those computed here, in topological order
  std::vector<TensorId> zeroed;         ///< written once whole before the blocks start (atomic)
  std::vector<std::size_t> range_base;  ///< by OpId: first slot in a Ranges; npos if not here
  std::size_t range_count = 0;
  std::int64_t blocks = 1;              ///< linear blocks over the grid loops, at most
  bool co_resident = false;             ///< has Y.grid: all blocks run at the same time

  const ScheduleNode& node(NodeId id) const { return nodes[id.index()]; }
  const Buffer& buffer(BufferId id) const { return buffers[id.index()]; }
};

struct Schedule {
  std::shared_ptr<const Workload> workload;
  std::shared_ptr<const Machine> machine;
  std::vector<ScheduledKernel> kernels;
  /// The plan with every default made a node and every name canonical; resolving it changes nothing.
  Plan resolved;
};

/// Binds, infers and checks. Throws InputError for what cannot be read as a plan of this workload on
/// this machine (unknown names, missing steps, tiles too large); returns a Reason for a plan that is
/// illegal (rule 3). Cost: about quadratic in the number of nodes.
Result<Schedule> resolve(const Plan& plan, std::shared_ptr<const Workload> workload,
                         std::shared_ptr<const Machine> machine);

// ---- Ranges: what every operator's loops run over at a point of the walk -----------------------

/// The current range of every loop of every operator of a kernel, by range_base[op] + local.
using Ranges = std::vector<Interval>;

/// Every loop whole.
Ranges whole_ranges(const Schedule& s, const ScheduledKernel& k);
inline std::span<const Interval> ranges_of(const Schedule& s, const ScheduledKernel& k,
                                           const Ranges& r, OpId op) {
  return {r.data() + k.range_base[op.index()], s.workload->op(op).loops.size()};
}
/// Iterations of a loop node, given the ranges around it.
std::int64_t trips(const ScheduledKernel& k, NodeId loop, const Ranges& around);
/// Cuts iteration `i` of the loop node out of the ranges around it (no inference).
void cut(const ScheduledKernel& k, NodeId loop, std::int64_t i, const Ranges& around, Ranges& r);
/// Applies one inference. `held` is what the sliding buffer holds, or null. Returns the whole box
/// that the consumers need (the buffer's region when this is the home point).
Box infer(const Schedule& s, const ScheduledKernel& k, const Inference& inference, Ranges& r,
          const Box* held = nullptr);
/// The tile that a load node brings, with the ranges at that node.
Box load_box(const Schedule& s, const ScheduledKernel& k, NodeId load, const Ranges& r);
/// The tile of a buffer with fixed_at, with the ranges inside that body after its inferences.
Box tile_of(const Schedule& s, const ScheduledKernel& k, const Buffer& b, const Ranges& r);
/// The smallest box that one compute node's reads of a tensor touch.
Box read_box(const Schedule& s, const ScheduledKernel& k, OpId op, const InputUse& use,
             const Ranges& r);
/// The box that one output of a compute writes.
Box write_box(const Schedule& s, const ScheduledKernel& k, OpId op, int output, const Ranges& r);
/// The unit-bound loops around `place` (a load node, or a body itself included) whose iterations
/// have buffers of their own at `level` (rule 7), outermost first. A buffer's instance is told by the
/// linear index over those bound to grid (the block, counted with max_trips) and over the others,
/// at the place that fixes its tile; what is not fixed is fixed at its compute.
std::vector<NodeId> unit_loops(const Schedule& s, const ScheduledKernel& k, NodeId place,
                               LevelId level);
/// Linear blocks within one iteration of a node: the product of max_trips of the grid loops nested
/// below it, the largest over parts in sequence, of a pack up to the end of its last part.
std::int64_t blocks_below(const ScheduledKernel& k, NodeId node);
/// The same of a node with what it is bound to itself.
std::int64_t blocks_of(const ScheduledKernel& k, NodeId node);
/// How many elements one compute reads of a gathered op.inputs[input]: one a point of gather_loops.
std::int64_t gathered_elements(const Schedule& s, const ScheduledKernel& k, OpId op, int input,
                               const Ranges& r);
/// Product of the operator's ranges.
Operations operations(const Schedule& s, const ScheduledKernel& k, OpId op, const Ranges& r);

// ---- Liveness -----------------------------------------------------------------------------------

/// Most bytes alive at each software level's instance (plan.md, "Memory use"), by level name. A
/// level that is a hardware cache is reported the same way: what the plan would need there.
/// Cost: each loop is walked over four iterations, with padding a few more (walk_representatives).
std::map<std::string, Bytes> memory_use(const Schedule& s);
/// The first software-managed level whose capacity memory_use exceeds, as a reason; none if it fits.
std::optional<Reason> misfit(const Schedule& s);

}  // namespace tilewright
