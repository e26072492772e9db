// What a compute of a kernel for processors takes where its operands are at hand, by the forms that
// the CPU target emits. Internal header of the folder.
#pragma once

#include <optional>

#include "models/quickest/followers.h"
#include "models/quickest/places.h"

namespace tilewright::quickest {

/// A product's box as micro-kernels see it.
struct ProductBox {
  double rows = 1, columns = 1, depth = 1;
  double times = 1;   ///< such products, of loops that are left over
  double outer = 1;   ///< of the columns, rows of points that follow one another
  double blocks = 1;  ///< that the depth is walked in
};

struct ProductSeconds {
  double seconds = 0;
  /// Of a window: blocks of points that each meet all rows, where points are broadcast to vectors
  /// of rows or taps are transformed; 0: panels of points meet groups of rows.
  double passes = 0;
  double larger = 1;  ///< rows as they are read, over what they are at home
  double begun = 0;   ///< what memory takes to begin panels, beside their bytes
};

/// Cycles: a step of a window's depth listed, three stores and where they are.
inline constexpr double kList = 2.5;
/// Cycles until a part of a vector that was stored can be loaded with what lies beside it: in
/// AVX-512 such stores are not handed on (a product in tiles of one to eight columns on a Zen 5).
inline constexpr double kPartStored = 17;
/// Steps of sums under way at once: 256 instructions, a load and a multiply-add each.
inline constexpr double kStepsAhead = 110;

/// One compute with loops of so many iterations. Cost of each question: a look at the operator.
class Compute {
 public:
  Compute(const Schedule& s, const ScheduledKernel& k, const Rates& r, const Places& places,
          const ScheduleNode& n, const std::vector<std::int64_t>& extents)
      : s_(s), k_(k), w_(*s.workload), r_(r), places_(places), n_(n), extents_(extents) {}

  ProductBox box_of(const Product& x) const;
  /// Seconds of a product, beside what comes from caches. `stored`: cycles in which the first group
  /// of rows stores a vector of a panel for the others.
  ProductSeconds product(const Product& x, const ProductBox& box, double stored) const;
  /// Seconds of a convolution of few channels a group, as a depthwise one: vectors of points, tap
  /// by tap. None where there are more: it is a product.
  std::optional<double> taps(const Product& x) const;
  /// Seconds of a window that slides over one image at a time, as a depthwise convolution or a
  /// pooling; none: it is no such.
  std::optional<double> plane() const;
  /// Seconds of any other operator.
  double points(const InRegisters& registers) const;
  /// Of what its points read in place: how many lines and pages they come to between two elements
  /// of one line, and how many elements a line has for them; one line where they are neighbours.
  struct Apart {
    double lines = 1, pages = 1, elements = 1;
    std::int64_t step = 0;  ///< in lines, from one line to the next; 0: no whole number
  };
  Apart between_neighbours(int input) const;

  BufferId buffer_read(int input) const;
  /// Whether all tiles have one size, which compilers know.
  bool has_one_size() const;
  /// Whether the tile is a convolution of whole numbers of 8 bits with all of its depth.
  bool takes_bytes(const Product& x) const;
  /// Whether the product is one of tiles of 8-bit numbers.
  bool by_tiles(const Product& x) const;

 private:
  double most(int l) const {
    return l < 0 ? 1.0 : static_cast<double>(extents_[static_cast<std::size_t>(l)]);
  }
  double all_points() const;
  int rows_of_points(const Product& x) const;
  int rows_of_window(const Product& x) const;
  double blocks_of_depth(const ProductBox& box, bool window) const;
  double rows_begun(const Product& x, const ProductBox& box) const;
  double panels_begun(const Product& x, const ProductBox& box) const;
  double elements_apart(const Product& x, const ProductBox& box) const;
  double copies(const Product& x, const ProductBox& box) const;
  bool sums_return() const;
  double lines_of_vector(const Product& x) const;
  double waits_for_parts(const Product& x, const ProductBox& box) const;
  double taps_of_window(const Product& x) const;
  double begins_window(const Product& x) const;
  double rows_listed(const Product& x, const ProductBox& box) const;
  double rows_apart(const Product& x, const ProductBox& box, double together) const;
  double by_points(const Product& x, const ProductBox& box) const;
  std::optional<ProductSeconds> by_transform(const Product& x, const ProductBox& box) const;
  int steps_at_once(const Product& x) const;
  bool sums_whole(const Product& x) const;
  double put_together(const Product& x, const ProductBox& box) const;
  int vector_loop() const;
  bool reads_sums_together(int along) const;
  double visits_since(OpId by) const;
  double waits_for_parts(const InRegisters& registers, int along, double takes) const;
  double waits_for_rows(int along) const;
  bool uniform(const Expr& e, LoopId along) const;
  double seconds_of(const Operator& op, const Expr& e, LoopId along,
                    std::vector<const Expr*>& known) const;
  double row_seconds(const Operator& op, const Expr& e, LoopId along) const;
  double call(const Expr& e, bool alone) const;
  double value_seconds(const Operator& op, LoopId along) const;
  double in_step(const InRegisters& registers, const Operator& op, LoopId along) const;
  double joined(const InRegisters& registers, bool follows, int along) const;
  double waits_of_chain(double steps) const;
  double passing_chains(double steps) const;
  double steps_around() const;

  const Schedule& s_;
  const ScheduledKernel& k_;
  const Workload& w_;
  const Rates& r_;
  const Places& places_;
  const ScheduleNode& n_;
  const std::vector<std::int64_t>& extents_;
};

/// How much of what is needed again stays in a cache, where so many bytes are touched between: all
/// below the capacity, nothing well above it. Real caches have no edge either: sets fill unevenly.
double kept(double needed, double capacity);

}  // namespace tilewright::quickest
