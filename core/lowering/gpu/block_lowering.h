// What a kernel's blocks do where all warps of a block share the work of a tile, decided before any
// text is printed: which buffers are copied by a role of their own and how far ahead, which
// computes are matrix products, which results stay in registers, how warps share them, where tiles
// lie in shared memory and what of it they share. Whoever prints the kernel notes what it finds of
// each node's ranges (note_...), asks for the decisions (choose_forms, lay_out), and prints what
// `program` has. Which sums stay in registers: block_sums.cpp; units and levels: block_units.cpp;
// shared memory: block_layout.cpp; what is a product: block_products.cpp; how
// threads share points: block_points.cpp.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/lowering/gpu/block_program.h"
#include "core/lowering/gpu/block_rules.h"
#include "core/lowering/gpu/micro_kernel.h"
#include "core/plan/schedule.h"

namespace tilewright::lowering {

/// What the caller asks for; 0: the kernel's launch says, else what suits the tiles.
struct BlockChoices {
  std::string micro_kernel = {};  ///< empty: the first that takes the workload's type
  int warps = 0;                  ///< that compute
  int copy_warps = 4;             ///< that copy tiles ahead, where any are copied
  int stages = 0;                 ///< of loaded tiles
  bool registers = true;          ///< keep sums in registers where a plan allows it
  std::int64_t shared_room = 0;   ///< bytes of shared memory a block may have
  /// The text is for sm_90a, where a warpgroup may give registers to others.
  bool gives_registers = false;
  /// Tiles as small as the plan has them: rows without padding, loaded by the warps that compute,
  /// every operator point by point. Slow.
  bool tight = false;
};

/// How a compute's box of a buffer lies in the buffer's tile, along one dimension; sizes are the
/// largest ones.
struct BoxInTile {
  std::int64_t tile = 1, box = 1;
  bool covers = true;      ///< the box is all of the tile
  std::int64_t apart = 1;  ///< divides the distance of their beginnings
};
/// By dimension, of a compute's input or, with none, of what it writes: as whoever walks the tree
/// finds it. Asked only where something depends on it.
using BoxesInTiles = std::function<std::vector<BoxInTile>(std::optional<int> input)>;

/// Of a compute's loops, by position: the largest ranges, what divides the size of each range, and
/// what divides the place in a tile where an access's row begins.
struct PointRanges {
  std::span<const std::int64_t> most;
  std::function<std::int64_t(int loop)> divides;
  std::function<std::int64_t(const Access& a, BufferId b, int loop)> begins;
};

/// A box of a tensor at home: what divides the place in a row where it begins, and its sizes; 0:
/// they vary.
struct BoxAtHome {
  std::int64_t begins = 1;
  std::vector<std::int64_t> sizes = {};
};

/// Whether an index lies outside its dimension for some points.
bool leaves(const Workload& w, const Access& a, std::size_t d);
/// By node, the last of the nodes below it.
std::vector<NodeId> last_nodes_below(const ScheduledKernel& k);
/// By node, and of the kernel's end: barriers of all blocks before it that stand in no loop.
std::vector<int> phases_of(const ScheduledKernel& k);
/// Dimensions whose index, where it may leave the tensor, the depth has a part in: whether an
/// element is there is known for a row or column and a point of the depth together.
std::vector<std::size_t> checked_together(const Workload& w, const Operator& op, const Access& a,
                                          const std::vector<int>& depth);

class BlockLowering {
 public:
  BlockLowering(const Schedule& schedule, int kernel, const BlockChoices& choices);

  // What is found of the tree, node by node.
  void note_tile(BufferId b, std::span<const std::int64_t> most);
  /// A compute uses a part of the tile only.
  void note_part(BufferId b) { at(b).covered = false; }
  /// A compute adds to what is there.
  void note_added(BufferId b) { at(b).at_once = false; }
  /// When the buffer's tile starts afresh where it is fixed: "true", "false" or a condition.
  void note_fresh(BufferId b, std::string when) { fresh_at_fix_[b.index()] = std::move(when); }
  /// A compute's loops, by position: their largest ranges. `fits`: its products' boxes suit the
  /// micro-kernel.
  void note_compute(NodeId compute, std::span<const std::int64_t> most, bool fits);
  /// Room that threads need to exchange parts of a point's sum, in floats; for a rounded left
  /// operand, in bytes.
  void note_parts(std::int64_t floats) { part_room_ = std::max(part_room_, floats); }
  void note_half(std::int64_t bytes) { half_bytes_ = std::max(half_bytes_, bytes); }
  void forget_room() { half_bytes_ = part_room_ = 0; }

  // Decisions. Throw Refused.
  void choose_forms();  ///< once every node has been noted
  void lay_out();       ///< once what products need of whole blocks has been noted
  void keep_ahead() { measuring_ = false; }  ///< what is loaded ahead is no longer chosen

  // What has been decided.
  const BlockProgram& program() const { return program_; }
  BlockProgram described(std::vector<BlockRole> roles) const;
  BlockProgram take() && { return std::move(program_); }
  std::int64_t sums_alive() const { return sums_alive_; }
  const BlockTile& tile(BufferId b) const { return program_.tiles[b.index()]; }
  const MicroKernel& micro_kernel() const { return *micro_kernel_; }
  DType element(BufferId b) const;  ///< of its tile
  std::int64_t half_bytes() const { return half_bytes_; }
  /// Its products; null: it is none.
  const std::vector<BlockProduct>* products(NodeId compute) const;
  std::int64_t sums_rows(BufferId b) const;     ///< of a warp, in blocks of 16
  std::int64_t sums_columns(BufferId b) const;  ///< of a warp, in blocks of eight
  /// Whether a compute works on values in registers.
  bool fragment_op(NodeId compute) const;
  bool is_operand(BufferId b) const;        ///< of a product
  bool read_by_elements(BufferId b) const;  ///< by contractions, and by no product
  std::string reason(BufferId b) const;     ///< why its tile lies there

  // block_products.cpp. `most`: as of note_compute.
  std::optional<BlockProduct> as_product(NodeId compute, int write,
                                         std::span<const std::int64_t> most) const;
  /// Every output as a product of the same rows, columns and depth; empty where one is none.
  std::vector<BlockProduct> as_products(NodeId compute, std::span<const std::int64_t> most) const;
  std::optional<BlockContraction> as_contraction(NodeId compute, int write,
                                                 std::span<const std::int64_t> most) const;
  std::vector<BlockContraction> contractions(NodeId compute,
                                             std::span<const std::int64_t> most) const;
  /// How a compute is carried out, and the largest product that it is.
  BlockStep way_of(NodeId compute, std::span<const std::int64_t> most) const;
  /// A warp's part of a product whose sums lie in a tile: rows in blocks of 16, columns in blocks
  /// of eight, and how many of these it takes at once, so that they find room in registers.
  struct Parts {
    std::int64_t rows = 1, columns = 2, at_once = 2;
  };
  Parts parts_of(const BlockProduct& p, std::span<const std::int64_t> most) const;
  /// Blocks of 16 rows and of 8 columns that a warp makes at once.
  std::pair<std::int64_t, std::int64_t> contraction_blocks(
      const BlockContraction& c, std::span<const std::int64_t> most) const;
  /// The loop that an index runs along, one step an iteration, others in it standing still.
  std::optional<LoopId> runs_along(OpId op, const Affine& index,
                                   std::span<const std::int64_t> most) const;
  /// Whether operands' types, where they are, and their boxes suit the micro-kernel. Notes how
  /// large tiles must be for whole blocks.
  bool product_fits(NodeId compute, const BlockProduct& p, std::span<const std::int64_t> most,
                    const BoxesInTiles& boxes);

  // block_points.cpp
  /// How threads go through a compute point by point. Notes what room they need.
  BlockPoints points_of(NodeId compute, const PointRanges& of);

  // block_units.cpp
  bool is_written(BufferId b) const;
  bool keeps(BufferId b) const;
  bool slides(BufferId b) const;
  /// Whether lanes that read at the same time lie along that dimension of its tile.
  bool lanes_along(BufferId b, std::size_t dimension) const;
  void spread_lanes(BufferId b);
  bool chained(BufferId b) const;
  bool views_outer(BufferId b) const { return tile(b).view.valid(); }
  int levels_outside(BufferId b) const;
  std::vector<BufferId> innermost_first() const;
  BufferId buffer_of_input(const ScheduleNode& compute, int input) const;
  std::vector<NodeId> units_around(BufferId b, NodeId place) const;
  /// The first of a buffer's places for units with so many loops around; 0: it has one place.
  std::int64_t first_unit(BufferId b, std::size_t loops) const;
  std::int64_t finished_boxes(BufferId b) const;
  /// Whether every row of the box begins at a multiple of so many elements.
  bool rows_begin_at(TensorId tensor, const BoxAtHome& box, std::int64_t elements) const;
  /// Whether an operator of this kernel makes it.
  bool makes(TensorId tensor) const;
  /// A load's way: from home the widest that the box's rows there allow.
  BlockStep::Way way_of_load(NodeId load, const BoxAtHome& box) const;
  std::int64_t piece_from_home(NodeId load, const BoxAtHome& box) const;
  BlockStep movement(NodeId load, bool copying, const BoxAtHome& box) const;

  // block_layout.cpp
  int phase_of(NodeId node) const;
  bool zero_filled(BufferId b) const;
  /// Whether the copying role meets a node; `ahead`: on its way to what it loads before a barrier.
  bool copies(NodeId node, bool ahead) const;

 private:
  BlockTile& at(BufferId b) { return program_.tiles[b.index()]; }
  const Buffer& buffer(BufferId b) const { return k_.buffer(b); }
  const std::string& tensor_name(BufferId b) const {
    return workload_.tensor(buffer(b).tensor).name;
  }
  bool widened(BufferId b) const { return workload_.tensor(buffer(b).tensor).dtype == DType::i8; }
  const Output& output_of(NodeId compute, int write) const;

  // block_products.cpp
  bool operands_suit(NodeId compute, const BlockProduct& p) const;
  bool operand_fits(NodeId compute, const BlockProduct& p, std::optional<int> input,
                    bool exact_depth, std::span<const std::int64_t> most,
                    const BoxesInTiles& boxes);

  bool cut_below_tile(NodeId compute, BufferId b, LoopId loop) const;

  // block_points.cpp
  bool runs_along_rows(OpId op, const Access& a, BufferId b, int loop, const PointRanges& of) const;
  void choose_strip(NodeId compute, const PointRanges& of, BlockPoints& p) const;

  // block_sums.cpp
  bool rows_are_neighbours(NodeId product) const;
  bool made_before_all_wait(BufferId b) const;
  void assign_forms(const std::set<BufferId>& banned);
  std::optional<BufferId> misused() const;
  void choose_warps();
  std::vector<BufferId> most_sums_alive() const;
  bool gives_registers() const;
  std::int64_t copying_registers() const;
  void share_registers();
  std::int64_t rows_exchanged(NodeId compute) const;
  std::int64_t exchanged() const;

  // block_units.cpp
  void choose_roles();
  void place_units();
  void check_records() const;
  bool fills(const BlockTile& t, const BoxAtHome& box) const;
  void choose_views();

  // block_layout.cpp
  std::pair<int, int> alive(BufferId b) const;
  bool lives_by_use(BufferId b) const;
  bool whole_range(NodeId loop, OpId op) const;
  NodeId loads_anew(BufferId b) const;
  BlockTile* largest_that_can_wait();
  std::pair<NodeId, NodeId> used_between(BufferId b) const;
  void choose_ahead();
  bool can_be_narrow(BufferId b) const;
  void shape();
  bool loaded_again(BufferId b) const;
  std::int64_t total();
  std::int64_t room() const;
  int asked_stages() const;

  const Schedule& schedule_;
  const Machine& machine_;
  const Workload& workload_;
  const ScheduledKernel& k_;
  const std::vector<NodeId> last_below_ = last_nodes_below(k_);
  const std::vector<int> phases_ = phases_of(k_);
  const BlockChoices choices_;
  const MicroKernel* micro_kernel_;
  bool f64_ = false;
  BlockProgram program_;
  std::map<BufferId, std::map<std::size_t, std::int64_t>>
      first_unit_;  ///< by loops of units around
  std::map<NodeId, std::vector<std::int64_t>> mosts_;
  std::map<NodeId, std::int64_t>
      contracted_;  ///< by compute: blocks of 16 x 16 of its contractions
  std::vector<std::string> fresh_at_fix_;
  std::int64_t part_room_ = 0, half_bytes_ = 0;
  std::int64_t sums_alive_ = 0;   ///< floats of a thread's sums that stay, at the same time
  std::int64_t part_floats_ = 0;  ///< sums a thread can have beside those that stay
  std::set<BufferId> waits_;      ///< loaded by the warps that compute, for want of room
  bool take_turns_ = false;       ///< tiles share places between their uses, for want of room
  bool measuring_ = true;         ///< what copies ahead is still to be chosen
};

}  // namespace tilewright::lowering
