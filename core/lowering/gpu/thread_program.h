// What the threads of one GPU kernel do: values with their layouts (registers, shared memory,
// home), and the steps that move and compute them, in order, loops and barriers included. A
// schedule is lowered to it once (lowering.h); the CUDA text is printed from it, `emit --explain`
// shows it, and time models price it.
//
// Every index, address and condition is a Linear over indices: which block, which warp or lane,
// which turn of a loop, which element. Control flow is the same for all threads of a block: what
// lies outside its range is computed for nothing, and neither loaded, stored nor added.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/lowering/gpu/block_rules.h"
#include "core/lowering/symbolic.h"
#include "core/plan/schedule.h"

namespace tilewright::lowering {

inline constexpr std::int64_t kVectorBytes = 16;  ///< the widest access of a thread
inline constexpr std::int64_t kLanes = 32;        ///< of a warp
inline constexpr std::int64_t kBlockWarps = 32;   ///< of a block, at most
inline constexpr std::int64_t kTripWarps = 8;     ///< that a loop's trips over threads ask for
inline constexpr std::int64_t kArrayValues = 64;  ///< of one array in a thread's registers, at most
inline constexpr std::int64_t kSectorThreads = 8;  ///< that move a sector of 32 bytes, 4 each
/// Values that all threads have alike, in registers of each, at most.
inline constexpr std::int64_t kAlikeValues = 16;

/// What an index is made of. `count` values from 0 on.
struct ProgramIndex {
  enum class Kind : std::uint8_t { block, unit, loop, element };
  Kind kind = Kind::loop;
  std::string text;
  std::int64_t count = 1;
  NodeId node;  ///< loop: whose turns it counts; element: the compute whose point it is
  Binding unit = Binding::seq;  ///< unit: warp, lane or thread; (unit / stride) % size
  std::int64_t stride = 1, size = 1;
  bool unrolled = false;  ///< loop, element: known to the compiler in every turn
};

/// A range [lo, lo + most), and less where it is past one of `ends` or, `from_zero`, below zero.
struct Span {
  Linear lo;
  std::int64_t most = 1;
  std::vector<Linear> ends;
  bool from_zero = false;
};

using Key = std::vector<Linear>;  ///< an index for each dimension of a tensor

/// Threads that have the same key: by which parts of their number they differ.
struct Copies {
  std::optional<Linear> lane;  ///< the lane that is the first of its copies; none: it has none
  std::optional<Linear> warp;
  bool of_warp() const { return lane && *lane == number(0); }   ///< all lanes have the same
  bool of_block() const { return warp && *warp == number(0); }  ///< all warps have the same
};

enum class Storage : std::uint8_t {
  registers,
  shared,
  direct,  ///< loaded where it is used, or stored where it is computed, element by element
};

/// One read of a value: op.inputs[input] of a compute node.
struct Use {
  NodeId node;
  int input = 0;
};

/// What one load brings, or one compute makes.
struct Value {
  TensorId tensor;
  BufferId buffer;
  NodeId producer;   ///< the load or the compute
  int output = -1;   ///< position in the compute's writes; -1: loaded
  bool sum = false;  ///< of an operator that adds up
  NodeId anchor;     ///< stands before this node; of a sum: around all of its loops
  Key key;
  std::vector<Linear> inside;  ///< where it is defined, each positive
  std::vector<Span> tile;      ///< loads; shared memory: what one instance holds
  std::vector<NodeId> around;  ///< loops whose units load it, or have it in shared memory, each
  std::vector<Use> uses;
  NodeId scope;           ///< the innermost node around its maker and all uses
  std::vector<int> dims;  ///< the indices of its array in registers; of sums in shared memory, too
  Storage storage = Storage::registers;
  std::string name, reason;
  std::vector<std::int64_t> pitch;  ///< shared memory: elements between neighbours, by dimension
  std::int64_t elements = 0, offset = 0;  ///< shared memory: of an instance; bytes
  /// Shared memory: a window with zeros where it is outside of its tensor, so that it is read
  /// without conditions; neighbours that a thread brings there at once (0: none of this).
  std::int64_t padded = 0;
  /// Of such a window, where its rows are the same for all blocks: what of a row is read and
  /// exists, and where in the tile that begins. What lies beside it is zero. 0: rows are told by
  /// conditions.
  std::int64_t whole = 0, whole_from = 0;
  /// Of such a window, where its rows begin one element before what is read, so that neighbours lie
  /// at even places: that element is not loaded.
  bool begins_early = false;
  bool alike = false;  ///< loaded: few values, the same for all threads of a block, each of which
                       ///< loads them
  bool loaded() const { return output < 0; }
};

/// Neighbours at home that a thread moves at once, along an element index (-1: one by one), which
/// may be all of that index.
struct Strip {
  int element = -1;
  std::int64_t width = 1;
  bool whole = false;
};

/// An element of a tensor that is named by other inputs' values.
struct Gather {
  TensorId tensor;
  struct Dimension {
    std::int64_t stride = 1, extent = 1;
    int by = -1;  ///< the input whose value is the index; -1: `index`
    Linear index;
  };
  std::vector<Dimension> dimensions;
  std::vector<Linear> inside;
  Copies copies;
  bool alike = false;  ///< for all threads, of which one is counted
};

/// How a compute gets one input at its point.
struct Read {
  enum class From : std::uint8_t {
    registers,  ///< values[value], `names` for the maker's indices
    held,       ///< shared memory that a loop's turns read again: registers since before the loop
    shared,     ///< values[value] at element `at`
    home,       ///< at element `at`, loaded here
    gather,     ///< loaded here, by other inputs' values
    run,        ///< the same, of which several were loaded as one
  };
  From from = From::registers;
  int input = 0;
  TensorId tensor;
  int value = -1;
  std::map<int, int> names;
  Linear at;
  std::vector<Linear> inside;  ///< shared, home: zero elsewhere
  Copies copies;               ///< home
  std::string name;            ///< held: the array
  std::vector<int> dims;       ///< held: its indices; home, gather, run: elements that say where
  std::vector<Linear> place;   ///< held of a window: where in the array, in place of `dims`
  /// shared: added to `at` by units that have something to do, by others not: all of `busy` is
  /// positive
  Linear own;
  std::vector<Linear> busy;
  Gather gather;
  bool at_home() const { return from == From::home || from == From::gather || from == From::run; }
};

/// Elements of a gather that lie side by side, and are loaded as one.
struct Run {
  int input = 0, element = -1;
  std::int64_t width = 1;
  std::string name;
  Gather gather;
  std::vector<int> named_by;  ///< inputs whose values say where they are
};

/// Where a compute's result goes.
struct Write {
  int value = -1;
  bool sum = false;            ///< added to registers
  std::vector<Linear> inside;  ///< sum: where there is something to add; else where it is kept
  Copies copies;               ///< shared, direct: the first of them writes
  Linear shared_at, home_at;   ///< elements
  bool leaves = false;         ///< shared: stored home, too
};

struct Step {
  enum class Kind : std::uint8_t {
    loop,     ///< `body`, for each value of `index`
    blocks,   ///< `body`, in those blocks of the ones here that have an iteration of the grid loop
    parts,    ///< each of `body` (kind part) in its own blocks
    part,     ///< `body`, in `count` blocks from `first` on
    declare,  ///< registers for a value
    hold,     ///< what a loop's turns would read of shared memory again and again: into registers
    load,     ///< home to registers
    spread,   ///< from the lane that loaded it to its copies
    stage,    ///< home to shared memory, the threads that share an instance together
    put,      ///< what stages have fetched into registers, to shared memory
    start,    ///< a sum, from its identity on
    compute,
    lanes,     ///< joins the parts of a sum that lanes have, by shuffles
    exchange,  ///< joins the parts of sums that warps have, through shared memory; one barrier
    keep,      ///< a sum that is complete, to shared memory
    store,     ///< registers to home
    barrier,
  };
  Kind kind = Kind::loop;
  NodeId node;  ///< of the schedule
  int index = -1;
  std::vector<Step> body;
  double warps = 0;  ///< of a block that have something to do here; 0: all
  double full =
      1;  ///< of the iterations that blocks, warps and lanes go through, those that there are

  // loop
  bool few = false;  ///< so little happens in a turn that several had better be unrolled
  // blocks, part
  std::int64_t first = 0, count = 0, below = 1;  ///< `below`: blocks of one iteration
  bool idle = false;                             ///< some of the blocks here have no iteration
  // barrier
  bool warp = false;        ///< of a warp; else of the block
  bool all_blocks = false;  ///< of the whole launch
  bool launches = false;    ///< with the end of the launch before: lowering/gpu/early.h
  bool next = false;        ///< the same: the next launch may begin from here on
  bool reused = false;      ///< because what the last turn left in shared memory is written again

  // of one value, or several
  std::vector<int> values;
  std::vector<int> dims;  ///< element and turn indices that are gone through
  Strip strip;
  Linear at;                   ///< load, store: element at home; keep, stage: of shared memory
  std::vector<Linear> inside;  ///< where it is done
  Copies copies;               ///< the first of them acts for all
  bool together = false;       ///< load: all threads of a block do it, or none does
  bool at_once = false;        ///< load: all of it is under way before any of it is used
  bool atomic = false;         ///< store: added
  bool shared_out = false;     ///< store, exchange: each warp has some of the values
  std::vector<int> units;      ///< lanes, exchange: indices whose units have a part each
  // hold
  Read read;
  // stage
  Linear from;                              ///< element at home
  std::vector<int> elements;                ///< by dimension: the tile's index
  std::vector<std::vector<Linear>> guards;  ///< by dimension
  std::int64_t threads = kLanes;            ///< that do it together
  std::string fetched;  ///< registers that it goes through, written to shared memory by a `put`
  // exchange: by value
  struct Joined {
    int value = -1;
    std::vector<int> dims, units;
    Strip strip;
    std::int64_t scratch = 0, elements = 0,
                 lanes = 1;  ///< scratch: bytes; lanes with sums of their own
    bool shared_out = false;
  };
  std::vector<Joined> joined;
  std::string flip;  ///< exchange in a loop: which of two places is next
  // compute: in `dims` those come first that say what is read from home
  std::vector<Linear> point;  ///< every loop of the operator, as a value
  std::optional<Run> run;
  std::vector<Read> reads;
  std::vector<Write> writes;
  bool ahead = false;  ///< load, run of a compute: under way before threads meet behind it
};

/// Turns of a stage whose loads are under way together.
inline constexpr std::int64_t kTurnsTogether = 8;
/// The same of turns that bring four neighbours.
inline constexpr std::int64_t kTurnsOfFour = 12;

/// The schedule's workload and kernel must outlive it.
struct ThreadProgram {
  const Workload* workload = nullptr;
  const ScheduledKernel* kernel = nullptr;
  bool f64 = false;
  std::int64_t warps = 1;             ///< of a block
  std::int64_t shared_bytes = 0;      ///< of a block
  std::vector<ProgramIndex> indices;  ///< by the ids that Linears have
  Variables variables;                ///< the same, with the bounds that are known
  Names names;                        ///< those that are taken
  std::vector<Value> values;
  std::vector<std::string> flips;
  std::vector<Step> steps;

  const ProgramIndex& index(int id) const { return indices[static_cast<std::size_t>(id)]; }
  const Value& value(int i) const { return values[static_cast<std::size_t>(i)]; }
  const Output& output_of(const Value& v) const {
    const ScheduleNode& n = kernel->node(v.producer);
    return workload->op(n.op)
        .outputs[static_cast<std::size_t>(n.writes[static_cast<std::size_t>(v.output)].output)];
  }
  /// Whether threads bring several rows of a tile at a time: of padded ones, and of rows that leave
  /// half of the threads without an element.
  bool brings_rows(const Step& stage) const {
    return value(stage.values.front()).padded > 0 ||
           (stage.elements.size() > 1 && 2 * index(stage.elements.back()).count <= stage.threads);
  }
  /// How threads share the rows of such a tile: so many a row, `along` turns for it, and as many
  /// rows at a time as there are threads, in `down` turns.
  struct Rows {
    std::int64_t threads = 1, along = 1, down = 1;
    std::int64_t turns() const { return along * down; }
  };
  Rows rows_of(const Step& stage) const {
    const std::int64_t row = index(stage.elements.back()).count;
    const std::int64_t rows = size_of_dims(stage.elements) / row;
    Rows best;
    for (std::int64_t n = 1; n < 2 * row && stage.threads % n == 0; n *= 2) {
      const Rows tried{n, ceil_div(row, n), ceil_div(rows, stage.threads / n)};
      // Neighbouring threads bring neighbours, in sectors, unless many have none.
      if (n <= kSectorThreads || 4 * tried.turns() <= 5 * best.turns()) best = tried;
    }
    return best;
  }
  /// Of a stage: elements that a thread brings one after the other, at most.
  std::int64_t turns_of(const Step& stage) const {
    std::int64_t turns = 1;
    if (brings_rows(stage)) return rows_of(stage).turns();
    for (std::size_t d = 0; d < stage.elements.size(); ++d) {
      const std::int64_t count = index(stage.elements[d]).count;
      turns *= d + 1 < stage.elements.size() ? count : ceil_div(count, stage.threads);
    }
    return turns;
  }
  /// Those of them whose loads are under way together.
  std::int64_t together_of(const Step& stage) const {
    const std::int64_t most =
        value(stage.values.front()).padded > 2 ? kTurnsOfFour : kTurnsTogether;
    return std::min(turns_of(stage), most);
  }
  /// Lanes, or warps of the block, that such a unit index tells apart.
  std::int64_t lanes_of(int unit) const {
    return index(unit).unit == Binding::thread ? kLanes : index(unit).count;
  }
  std::int64_t warps_of(int unit) const {
    return index(unit).unit == Binding::thread ? warps : index(unit).count;
  }
  std::int64_t size_of_dims(const std::vector<int>& dims) const {
    std::int64_t n = 1;
    for (int id : dims) n *= index(id).count;
    return n;
  }
  /// Of these elements, those that a thread moves at once: so many times.
  std::int64_t strips_of(const std::vector<int>& dims, const Strip& strip) const {
    std::int64_t n = 1;
    for (int id : dims)
      n *= id == strip.element ? ceil_div(index(id).count, strip.width) : index(id).count;
    return n;
  }
  /// Warps that have a part each of a sum.
  std::int64_t group_of(const Step::Joined& j) const {
    std::int64_t n = 1;
    for (int id : j.units) n *= warps_of(id);
    return n;
  }
  /// Values of a sum that a warp joins, at most: all, or its share of strips.
  std::int64_t joined_by_warp(const Step::Joined& j) const {
    return j.shared_out ? ceil_div(strips_of(j.dims, j.strip), warps) * j.strip.width
                        : size_of_dims(j.dims);
  }
  /// Of a compute: the loops over elements that it opens, outermost first.
  static std::vector<int> loops_of(const Step& compute);
  /// How many of them a read stands in: what comes from home is read outside of those that it is
  /// the same in, a run before the loop over its elements.
  static std::size_t depth_of(const Step& compute, const Read& r);
  /// Loads of a thread for a read from home.
  std::int64_t loads_of(const Step& compute, const Read& r) const;
  std::int64_t element_bytes() const { return f64 ? 8 : 4; }  ///< in registers and shared memory
  static constexpr std::int64_t kBeside = 32;  ///< registers of a thread beside its values
  /// Registers of a value that is kept there.
  std::int64_t words_of(const Value& v) const { return size_of_dims(v.dims) * (f64 ? 2 : 1); }
  /// Blocks of a multiprocessor for which the launch asks registers (block_rules.h): fewer where
  /// what a thread keeps there might have no room then, but one: not asked, ptxas gives a thread of
  /// 1,024 no more than 32.
  std::int64_t asked(std::int64_t sms, std::int64_t of_sm) const {
    std::int64_t blocks =
        blocks_asked(kernel->blocks, kLanes * warps, sms, of_sm, kLeastOfStitched);
    std::int64_t words = kBeside;
    for (const Value& v : values)
      if (v.storage == Storage::registers) words += words_of(v);
    while (blocks > 1 && words > most_registers(kLanes * warps * blocks, of_sm)) --blocks;
    return blocks;
  }
};

struct LowerOptions {
  int warps = 0;  ///< of a block whose loops are bound to threads; 0: the launch's, or 8
  std::int64_t shared_room = 0;  ///< bytes of shared memory a block may have; 0: as the machine has
  std::string target = "gpu";    ///< whose name reasons have
};

/// Whether some loop of the kernel is bound to warps, lanes or threads.
bool binds_units(const ScheduledKernel& k);

/// A kernel whose tree binds loops to warps, lanes or threads. A Reason: what no threads can do as
/// the plan says. Cost: nodes times loops around them, squared in loads of one buffer.
Result<ThreadProgram> lower(const Schedule& schedule, int kernel, const LowerOptions& options = {});

/// The program for people: a line a step, indented as they nest.
std::string describe(const ThreadProgram& p);

}  // namespace tilewright::lowering
