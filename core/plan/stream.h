// The access stream: a lazy walk over a schedule that says, in execution order, which tile of which
// tensor each node touches. It keeps no buffer contents: whether a touch moves anything is for the
// reader to find out. (Two exceptions are part of what a plan computes, not of what it costs: the
// new part of a sliding intermediate, and the skipping of a !once compute.)
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/plan/schedule.h"

namespace tilewright {

enum class AccessKind : std::uint8_t {
  kernel_begin,  ///< kernel
  zero,          ///< tensor written whole at home before the blocks start (atomic), box = whole
  load,        ///< bring `box` (the tile) to `buffer`; explicit or by a compute without a load node
  flush,       ///< a spilled tensor is about to be read: store `buffer` if changed
  compute,     ///< op runs once over `operations`; its reads and updates follow
  read,        ///< compute reads `box` of tensor from `buffer` (or home)
  gather,      ///< compute reads `elements` elements of tensor at home, within `box`, one a point
               ///< of gather_loops, for `level`: by other inputs' values, in no buffer
  update,      ///< compute writes `box` within `buffer`'s tile `tile`; `initialises` says whether
               ///< every reduction range is at its low end
  store,       ///< explicit store of `buffer`'s tile to `level`; `box` is the tile,
               ///< `initialises` as for update, at the store's own ranges
  sync,        ///< barrier at `scope`
  drop,        ///< `buffer` is emptied: of `instance`, or of all (kEveryInstance)
  kernel_end,  ///< buffers still changed are written
};

struct AccessEvent {
  AccessKind kind;
  int kernel = 0;
  NodeId node;
  BufferId buffer;
  TensorId tensor;
  LevelId level;  ///< store: target; gather: the kernel's
  OpId op;
  std::int64_t block = 0;     ///< linear block
  std::int64_t instance = 0;  ///< which instance of `buffer`: equal keys share contents
  Box box;
  Box tile;  ///< update: the buffer's current tile; else equals box
  bool initialises = false;
  bool atomic = false;
  int input = -1;               ///< read, gather: position in op.inputs
  int output = -1;              ///< update: position in op.outputs
  std::int64_t operations = 0;  ///< compute
  std::int64_t elements = 0;    ///< gather
  /// The instance key of a chain of outer buffers is asked for by this: same key rule, other
  /// buffer.
  const std::int64_t* instances = nullptr;  ///< by BufferId: current instance of every buffer
  const Box* tiles = nullptr;               ///< by BufferId: current tile of every fixed buffer
  const Ranges* ranges = nullptr;           ///< compute, gather: the operator ranges
};

/// An instance's key is its block, how many unit-bound loops tell it apart within that, and its
/// linear number in those: a unit is not the first of the units within it (rule 7).
inline constexpr std::int64_t kUnitsOfBlock = std::int64_t{1} << 28, kUnitDepths = 8;
inline constexpr std::int64_t kEveryInstance = -1;
inline std::int64_t unit_number(std::int64_t instance) { return instance % kUnitsOfBlock; }

using AccessSink = std::function<void(const AccessEvent&)>;

/// Walks every kernel in order, blocks in linear order, unit iterations in order. Cost: one call
/// for each node visited.
void walk(const Schedule& s, const AccessSink& sink);

/// A walk before iteration `next` of the `count` of a loop.
struct LoopPoint {
  int kernel = 0;
  NodeId loop;
  std::int64_t next = 0;
  std::int64_t count = 0;
  const Ranges* around = nullptr;  ///< those of the loop's own surroundings
  const Box* tiles = nullptr;      ///< by BufferId: current tile of every fixed buffer
};
/// Says with which iteration a loop goes on, `point.next` or a later one; called before each.
/// What the iterations between would have told the sink is then for its owner to make up for.
using LoopSteer = std::function<std::int64_t(const LoopPoint& point)>;
/// walk(), past the iterations that `steer` passes over. The last iteration of a loop must not be
/// passed over, so that what the walk itself keeps is left as by the whole loop.
void walk(const Schedule& s, const AccessSink& sink, const LoopSteer& steer);

/// The same for one kernel, of every loop only the first two iterations, the third and the last; of
/// one bound to units not the second, as units keep nothing of one another. Where padding clips
/// what a loop moves, in place of the third a middle one and the next, the one that it clips least,
/// and those beside that. Meets the tile sizes,
/// and the ways in which contents are kept or replaced, but for a few where tiles slide. Liveness
/// reads it; counts of traffic would be wrong.
void walk_representatives(const Schedule& s, int kernel, const AccessSink& sink);

/// What one compute of the operator touches, with a range for each of its loops: of each tensor the
/// largest tile of one access, gathers left out. No memory_use of a plan that computes so much at
/// once is less.
Bytes touched_bytes(const Workload& w, OpId op, std::span<const Interval> ranges);

/// Where tensors lie in the address space: one arena, tensors that are ever at home in workload
/// order, each from a multiple of `alignment`; on-chip intermediates are packed arrays after them.
enum class Layout : std::uint8_t {
  row_major,  ///< as declared, last dimension contiguous
  tiled,      ///< by tile: each compute's tile contiguous, rows along the last dimension within it;
              ///< tensors whose tiles overlap (halos) or differ between operators stay row-major
};

class AddressMap {
 public:
  static constexpr std::int64_t kArena = 0x10000000;
  /// Tiled: a tensor is cut by a regular grid of blocks, a block being what the innermost loops
  /// around its computes cut, edge blocks clipped. Blocks lie one after the other in row-major
  /// order without gaps (neighbours may share a cache line), so the tensor takes no more room than
  /// as declared. Throws InputError where the arena would not fit in 2^52 bytes. Cost: each
  /// compute's loops once.
  AddressMap(const Schedule& s, Layout layout, std::int64_t alignment = 4096);

  /// Calls f(address, bytes) for each contiguous run of `box` of a tensor at home: block by block,
  /// in row order within each. Rows that lie end to end are one run.
  template <class F>
  void runs(TensorId t, const Box& box, F&& f) const;
  /// The same for a buffer that holds `tile` as a packed array (on-chip intermediates). All
  /// instances of a buffer are at one place.
  template <class F>
  void packed_runs(int kernel, BufferId b, const Box& tile, const Box& box, F&& f) const;
  /// The on-chip intermediate whose packed array holds what a buffer holds, itself or the outermost
  /// one behind it; none: the data are at home (what leaves the kernel is, too).
  BufferId array_of(int kernel, BufferId b) const;
  /// Where laying it out by tile differs from how it was declared.
  bool tiled(TensorId t) const { return block_[t.index()].rank() != 0; }
  /// The first block of a tensor that is; of another, a box of rank 0.
  const Box& block(TensorId t) const { return block_[t.index()]; }
  /// What laying tensors out by tile and back costs once: each tiled tensor read and written.
  Bytes packing_bytes() const;
  /// By how many bytes every run of a box moves when the box moves by `by`, of boxes that stay
  /// inside `within` before and after; none where not all move alike, which edge blocks of a tiled
  /// tensor may cause.
  std::optional<std::int64_t> translation(TensorId t, std::span<const std::int64_t> by,
                                          const Box& within) const;
  /// The same of a packed array's runs, while the tile that it holds stays.
  std::int64_t packed_translation(int kernel, BufferId b, const Box& tile,
                                  std::span<const std::int64_t> by) const;
  /// What lies where: bytes [base, end) of a tensor at home or of a packed array.
  struct Region {
    std::int64_t base = 0, end = 0;
    TensorId tensor;
    int kernel = -1;  ///< of a packed array, with its buffer
    BufferId buffer = {};
  };
  /// Ascending, not overlapping, each from a multiple of the alignment.
  std::vector<Region> regions() const;
  std::int64_t alignment() const { return alignment_; }
  /// First byte; 0 for a tensor that is never at home.
  std::int64_t base(TensorId t) const { return base_[t.index()]; }
  std::int64_t end() const { return end_; }

 private:
  struct Array {
    BufferId buffer;  // see array_of
    TensorId tensor;
    std::int64_t base = 0;     // where buffer is itself
    std::int64_t element = 0;  // bytes
  };
  std::shared_ptr<const Workload> workload_;
  std::vector<std::int64_t> base_;          // by tensor
  std::vector<Box> whole_;                  // by tensor
  std::vector<Box> block_;                  // by tensor: the first one; rank 0: row-major
  std::vector<std::vector<Array>> arrays_;  // by kernel, buffer
  std::int64_t end_ = 0;
  std::int64_t alignment_ = 0;

  std::int64_t take(Bytes bytes, std::int64_t alignment);
  std::int64_t element(TensorId t) const { return size_of(workload_->tensor(t).dtype); }
  // Runs of `box` in an array that holds `outer`, last dimension contiguous.
  template <class F>
  static void rows(std::int64_t base, std::int64_t element, const Box& outer, const Box& box,
                   F&& f);
};

}  // namespace tilewright

#include "core/plan/stream_inl.h"
