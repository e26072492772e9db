// How bound_tree() writes a part's tree: units around a row, passes over it (bound_tree.cpp), and
// where values are between them (bound_values.cpp).
#pragma once

#include <algorithm>

#include "models/stitching/column_roots.h"
#include "models/stitching/part.h"
#include "models/stitching/passes.h"

namespace tilewright::stitching {

class BoundTreeWriter {
 public:
  BoundTreeWriter(const Graph& g, const Device& d, const Stitched& s, std::int64_t threads)
      : g_(g), w_(g.workload()), d_(d), s_(s), c_(s.component), threads_(threads) {}

  Result<BoundTree> write();

 private:
  std::int64_t extent(int l) const { return g_.extent(l); }
  const std::string& name(int l) const { return w_.loops()[static_cast<std::size_t>(l)].name; }
  const Operator& op(int v) const { return w_.op(g_.vertex(v).op); }

  /// Loops of the mask in the order in which the part's last operator (or any) has them.
  std::vector<int> ordered(LoopSet loops) const;

  Node nest(std::span<const Cut> cuts, Node body) const;

  // ---- Units ------------------------------------------------------------------------------------

  /// Cuts around a row's passes, and the loops within it.
  void units(Scheme scheme);

  /// Rows go over a block's threads, said as warps where they are longer.
  void bind_to_threads();

  /// Runs of rows: a block's, in warp scheme each of its warps'.
  void units_of_runs(Scheme scheme, std::vector<int> rows);

  /// Whether a row is one point.
  bool has_points() const;

  /// The row loop that neighbouring threads should differ in.
  int last_of(const std::vector<int>& rows) const;

  /// Element-wise: threads go along the contiguous loop; where that is short, a warp does.
  void units_of_points(std::vector<int> rows);

  /// The same for rows over which a warp's lanes go in a few rounds: warps take several of the last
  /// loop besides, `in_turn` one after the other, said within `within`.
  void units_of_short_rows(const std::vector<int>& rows, int along, std::int64_t step,
                           std::int64_t in_turn, std::vector<Cut>& within);

  /// Whether an index has a loop of rows beside one within a row; whether an input is read so.
  bool is_window(const Access& a) const;
  bool reads_windows() const;

  /// Points that some tensors have neighbours of along `along` and others along `other`: a warp has
  /// a tile of both loops, so that whole sectors come and go, and a block's warps lie so that its
  /// tile is about as long either way.
  void units_of_tiles(const std::vector<int>& rows, int along, const Crossing& crossing);

  /// Elements a step along a loop: as many of `vector` (or of `most`) as divide it.
  std::int64_t step_along(int l) const { return step_along(l, s_.vector); }
  std::int64_t step_along(int l, std::int64_t most) const;

  // ---- Passes -----------------------------------------------------------------------------------

  /// Vertices by the first group that computes them: topological, as groups are.
  std::vector<int> order() const;

  /// Whether its readers, all of them here, need less of it than all (slices): its loops then run
  /// over other ranges than those of operators that are computed whole.
  bool needs_less(int v);
  bool all_read(int v, TensorId t, std::size_t dim);

  /// Each operator joins the first pass over its loops that is late enough for all that it reads.
  void make_passes(LoopSet inner);

  // ---- Several loops within a row ---------------------------------------------------------------

  bool spread() const { return s_.spread != Spread::turns; }
  bool in_block() const { return bound_ == Binding::thread; }

  /// How a pass of this operator would go over its loops: along what it reads or writes at home
  /// element by element, else as the last pass over these loops did. False where any other
  /// contiguous loop would do as well.
  bool share_loops(Pass& p, int v);

  /// Whether units have of two passes' values the same.
  static bool same_units(const Pass& p, const Access& a, const Pass& q, const Access& b);

  /// A thread's sums must fit its registers; what warps have of them needs shared memory.
  void make_room_for_sums(const Pass& p, int v, const Access& made);

  // ---- Where values are -------------------------------------------------------------------------

  /// The tensor dimension that a pass's bound loop walks; -1: none, -2: not plainly.
  int dimension(const Pass& p, const Access& a) const;

  /// Values of a tensor that a thread has of one row, spread as the pass goes over it.
  std::int64_t share_of(const Pass& p, const Access& a) const;
  std::int64_t row_bytes(const Access& a) const;

  /// A value of a row kept between passes: in registers if each thread keeps what it reads itself
  /// and has room, else in shared memory if that has; else nowhere.
  enum class Where : std::uint8_t { registers, shared, nowhere };
  Where keep(std::int64_t share, std::int64_t bytes, bool aligned);

  void place_values(Scheme scheme);

  struct Use {
    std::size_t pass;
    const Access* access;
  };
  std::map<TensorId, std::vector<Use>> home_reads() const;
  /// Whether some operator of the part reads another tensor by the values of this one.
  bool says_where(TensorId t) const;
  bool made_here(TensorId t) const;

  /// An input that several passes read, or that all lanes read alike (one value, or what a gather
  /// is indexed by), is loaded before them.
  void place_inputs(Scheme scheme);
  /// Whether one operator reads it in several places: at X[i] and X[i+64], say.
  bool shifted(TensorId t) const;
  /// Whether these two read elements apart from each other, wherever the loops stand.
  bool apart_in_row(const Access& a, const Access& b) const;
  /// Whether these read parts of a row apart from each other, each thread its elements of all of
  /// them; how many parts (0: not so).
  std::int64_t slices(const std::vector<Use>& uses) const;
  /// Whether an input is read in such parts, by one operator.
  bool reads_slices() const;
  /// Of the smallest box that a row's reads of it touch.
  std::int64_t hull_bytes(TensorId t, const std::vector<Use>& uses) const;

  /// Pins what a pass hands on to later ones; says where threads wait for each other, and what is
  /// stored once the units' sums are joined.
  void place_output(Scheme scheme, std::size_t at, int v, const Access& made);

  // ---- Runs of rows: parts with partial sums ----------------------------------------------------

  /// What all rows of a run read alike stays in registers; a row's own values, which all threads of
  /// a block need, come to shared memory for the whole run, so that no row waits for them. Where
  /// rows are long each waits for its elements anyway, and these come with them.
  bool two_rows_fit() const;
  bool place_for_run(TensorId t, const std::vector<Use>& uses);

  /// A sum over the run's rows stays in registers to its end.
  void place_partial(const Pass& p, const Access& made);

  Node runs();

  // ---- The tree ---------------------------------------------------------------------------------

  std::vector<Node> body();

  /// A pass's bound loop, over lanes or threads. A tree says how many threads a block has by the
  /// trips of its loops: where there are more trips than these, warps take runs of elements in
  /// turn.
  void bind(const Pass& p, std::vector<Cut>& cuts) const;
  /// Elements of a row that a warp of the block takes: whole rounds of its lanes.
  std::int64_t run_of(const Pass& p) const;

  // ---- Columns ----------------------------------------------------------------------------------

  Result<BoundTree> columns();

  const Graph& g_;
  const Workload& w_;
  const Device& d_;
  const Stitched& s_;
  const Component& c_;
  std::int64_t threads_;

  std::vector<Cut> cuts_, warp_cuts_;
  LoopSet inner_;
  Binding bound_ = Binding::seq;
  bool in_warps_ = false;  ///< threads are said as warps and their lanes
  bool in_grid_ = false;   ///< the loop over threads is cut for blocks, too
  std::vector<Pass> passes_;
  std::map<int, std::size_t> pass_of_;
  std::map<int, bool> needs_less_;
  BoundTree out_;
  std::vector<Node> loads_, run_loads_;
  std::map<std::size_t, std::string> syncs_;
  std::map<std::size_t, std::vector<Node>> after_;
  std::int64_t kept_ = 0, shared_ = 0;
  std::string refused_;
};

}  // namespace tilewright::stitching
