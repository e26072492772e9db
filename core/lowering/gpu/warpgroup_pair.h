// Kernels that are two matrix products of which the first one's results, changed by operators
// between them, are the second one's left operand: attention, a chain of products. By Hopper's
// warpgroups: one thread copies boxes of the three operands ahead by the TMA unit; each of the
// other warpgroups has 64 rows, whose values stay in its registers from the first product to the
// last operator. Operators between may be of elements, or reduce a row of the first product's
// results, also running ones that rescale what there is so far. What they are, the plan says.
// The products overlap: the second one of a turn is under way while the operators of the next run
// (Shah et al., FlashAttention-3, arXiv:2407.08608, section 3.2). Turns that a mask empties are not
// taken, and the mask is not evaluated where it leaves all. Of products in chunks (the rewrite
// split-running) the middle is a part of the operands' rows, and maxima and sums of rows leave,
// too. What operators between the products add to elements, or multiply rows by, they may read at
// home: a bias, a mask, a slope. So may operators after the second one: a residual, a scale.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/lowering/gpu/matrix_access.h"
#include "core/lowering/gpu/product_epilogue.h"
#include "core/lowering/mask.h"
#include "core/plan/schedule.h"

namespace tilewright::lowering {

/// A maximum of max(x, c), or minimum of min(x, c): x, and c, which it has once a row. Else the
/// value as it is.
struct PairBound {
  const Expr* of;
  std::optional<double> bound;
};
PairBound bound_of(const Output& o);

/// What the threads of a warpgroup have of a tensor that operators of the kernel make.
struct PairValue {
  enum class Place : std::uint8_t {
    row,      ///< two numbers, one for each of a thread's two rows
    middle,   ///< a thread's part of the first product's results
    columns,  ///< of the second one's
  };
  TensorId tensor;
  Place place = Place::row;
  int slot = 0;        ///< middle, columns: in which of the arrays; 0: the sums of the product
  bool parts = false;  ///< row: until the last turn the four threads of a row have parts of it
  Combine combine = Combine::assign;  ///< row: what it starts from
  /// middle: the elements are this positive number times what lies in the array. Who reads them
  /// multiplies once a row, or with what an exponential multiplies by anyway.
  double factor = 1;
};

struct PairOperator {
  OpId op;
  PairValue::Place domain = PairValue::Place::row;  ///< whose points it goes through
  bool scales = false;  ///< it multiplies by a number alone, which is in its result's `factor`
};

/// A condition's value where an element is not beyond an edge.
struct PairGuard {
  MaskEdge edge;
  bool value = false;
};

struct WarpgroupPair {
  // Operands of the first product, the right one of the second, results.
  TensorId left, right, second, result;
  OpId first_op, second_op;
  DType operand = DType::f16;
  // Extents: rows, the first one's columns (the second one's sum), columns, the first one's sum.
  std::int64_t rows = 1, middle = 1, columns = 1, depth = 1, count = 1;
  LoopId rows_loop, middle_loop, columns_loop;
  LoopId joined;                ///< with it rows are (joined, rows_loop): queries that share keys
  std::int64_t inner_rows = 1;  ///< of rows_loop
  /// The loop of the chunks of the right and second operands' middle, one of `products`; none where
  /// these are whole.
  LoopId chunk;
  std::vector<LoopId> products;  ///< outermost first
  bool left_across = false, right_across = false, second_across = false;
  MatrixAccess of_left, of_right, of_second, of_result;
  std::int64_t chunk_divide = 1, chunk_modulo = 1, chunk_step = 0;
  /// Of rows and the operands' rows in place of columns: edges beyond which conditions change that
  /// are not evaluated where a tile has nothing beyond one (the end of the last chunk, a mask); and
  /// these conditions.
  std::vector<MaskEdge> guards;
  std::vector<Expr> guarded;
  // A block: warpgroups that compute, 64 rows each.
  int groups = 1, tile_middle = 64, tile_columns = 64;
  int stages = 2;
  int resident = 1;   ///< blocks that an SM has at the same time
  int registers = 0;  ///< a computing thread's, as planned
  int spare = 0;      ///< that it has beside them
  bool boxed = true;  ///< results leave in boxes, else in pieces of `vector` elements
  int vector = 8;
  std::int64_t tiles = 1, grid = 1, shared_bytes = 0;
  std::vector<BoxMap> maps;  ///< left, right, second and, where boxed, result
  std::vector<PairOperator> between, after;
  /// What operators between the products read at home, of rows_loop, middle_loop and `products`,
  /// and last of `joined` where there is one. One number a row where no column tells them apart.
  std::vector<EpilogueRead> reads;
  /// The same of operators after them, of columns_loop in place of middle_loop: a residual, a
  /// scale.
  std::vector<EpilogueRead> after_reads;
  std::vector<TensorId> row_results;  ///< beside `result`: one number a row, by product and row
  std::vector<PairValue> values;
  /// Of rows and the first product's columns, what a mask leaves out. With any, tiles of more turns
  /// come first, of so many products together.
  std::vector<MaskEdge> edges;
  std::int64_t section = 1;
  int middle_arrays = 1, column_arrays = 1;

  const PairValue* find(TensorId t) const;
  const EpilogueRead* read(TensorId t) const;  ///< of `reads` or of `after_reads`
  bool by_row(const EpilogueRead& r) const;  ///< whether rows of a product read different elements
  /// Whether a thread's second row, eight below the first, reads what the first reads eight columns
  /// before.
  bool rows_share(const EpilogueRead& r) const;
  bool read_ends() const;  ///< whether some of `reads` end within the last chunk
  /// That hold what a turn reads at home, or what operators after the products do.
  std::int64_t read_registers(const Workload& w, bool after = false) const;
  /// Of a condition on the rows of one product and places in the operands. None of others, or where
  /// `edges` are of all conditions.
  std::optional<PairGuard> guard(const Expr& condition) const;
  /// `guards` and `guarded`, of the operators between the products.
  void find_guards(const Workload& w, std::span<const OpId> ops);
  /// `factor` of values between the products, where all who read them can do with it.
  void find_factors(const Workload& w);
  /// `section`, where the right and second operands have so many bytes and a cache keeps `kept` of
  /// them; zero: none does.
  void choose_section(std::int64_t bytes, std::int64_t kept);
  /// `registers` and `spare` of its tile, and a reason if ptxas has not so many.
  std::optional<std::string> too_many_registers(const Workload& w);
  int tile_rows() const { return groups * 64; }
  /// In the operands: where the middle of a product begins.
  std::int64_t middle_begin(std::int64_t product) const {
    return product / chunk_divide % chunk_modulo * chunk_step;
  }
  int threads() const { return 128 * (groups + 1); }
  std::int64_t left_bytes() const;
  std::int64_t right_bytes() const;   ///< of a stage
  std::int64_t second_bytes() const;  ///< of a stage
  bool ragged() const { return middle % tile_middle != 0; }
  std::int64_t tiles_down() const { return ceil_div(rows, std::int64_t{tile_rows()}); }
  std::int64_t tiles_across() const { return ceil_div(columns, std::int64_t{tile_columns}); }
  /// Turns that the tile of rows `down` takes: from the first on, before the second.
  std::pair<std::int64_t, std::int64_t> turns(std::int64_t down) const;
  /// Whether the last tiles of rows have more turns than the first: they come first then.
  bool last_first() const;
  /// What is not loaded, though the plan says so: bytes of the right and of the second operand in
  /// turns that no tile takes.
  std::pair<std::int64_t, std::int64_t> left_out() const;
  /// Elements of each of `reads` and `after_reads` that are read: of every tile's turns that are
  /// taken, in rows that there are. `after`: it is one of `after_reads`.
  std::int64_t elements_read(const EpilogueRead& r, bool after = false) const;
  /// Of the turns that are taken, the part in which a tile has elements that the mask leaves out.
  double part_masked() const;
  /// Turns of the block that has most, of the blocks' tiles in their order. Cost: tiles.
  std::int64_t most_turns() const;
};

/// A Reason: what of the kernel is no such pair, or which tile none is made of. `warps`: that
/// compute, `stages`: of the rings; 0: as the kernel's launch says, else as suits. Cost: a walk
/// over the kernel's nodes.
Result<WarpgroupPair> warpgroup_pair(const Schedule& s, int kernel, int warps = 0, int stages = 0);

/// Roles, rings, barriers, registers and operators for people, a line each.
std::string describe(const WarpgroupPair& p, const Schedule& s, int kernel);

}  // namespace tilewright::lowering
