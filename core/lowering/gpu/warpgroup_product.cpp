#include "core/lowering/gpu/warpgroup_product.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/base/format.h"
#include "core/lowering/checks.h"
#include "core/lowering/gpu/warpgroup_finder.h"
#include "core/workload/expr.h"
#include "core/workload/text.h"

namespace tilewright::lowering {
namespace {

class Finder : WarpgroupFinder {
 public:
  Finder(const Schedule& s, int kernel, bool turned) : WarpgroupFinder(s, kernel) {
    p_.turned = turned;
  }

  /// Whether a refusal stands for the other way, too.
  bool refuses_both() const { return !turns_; }

  WarpgroupProduct find(int warps, int stages) {
    walk(true);
    name_loops();
    place_tensors();
    cut_tiles();
    const int rows = tile_of(rows_, part(rows_), 64, 256);
    cut_columns();
    Depth deep{.of_one = over_.valid() ? extent(depth_) : 1};
    for (NodeId n : serial_)
      if (k_.node(n).loop == depth_) deep.step = k_.node(n).step;
    arrange(rows, warps, stages, deep);
    make_maps();
    return p_;
  }

 private:
  static bool has(const Access& a, LoopId loop) { return has_whole_loop(a, loop); }
  bool sums(LoopId loop) const { return loop == depth_ || (over_.valid() && loop == over_); }

  /// Beside a sum over something, a sum over one element is none: the window of a 1 x 1
  /// convolution.
  bool is_none(const Operator& op, LoopId loop) const {
    const auto sums = [&](LoopId l) { return !has(op.outputs.front().target, l); };
    return extent(loop) == 1 && sums(loop) &&
           std::ranges::any_of(op.loops, [&](LoopId l) { return sums(l) && extent(l) > 1; });
  }
  /// Without terms of such loops.
  Access reduced(const Operator& op, Access a) const {
    for (Affine& i : a.index)
      std::erase_if(i.terms, [&](const Term& t) { return is_none(op, t.loop); });
    return a;
  }
  /// The loop of the last dimension that has one.
  static std::optional<LoopId> last_loop(const Access& a) {
    for (std::size_t d = a.index.size(); d-- > 0;)
      if (!a.index[d].terms.empty()) return a.index[d].plain_loop();
    return std::nullopt;
  }

  void name_loops() {
    const Operator& op = product();
    const Output& out = op.outputs.front();
    p_.product = k_.node(computes_.front()).op;
    for (std::size_t i = 0; i < 2; ++i) inputs_[i] = reduced(op, op.inputs[i]);
    for (const Access* a :
         std::initializer_list<const Access*>{&inputs_[0], &inputs_[1], &out.target}) {
      if (a->index.size() < 2) refuse("a tensor has fewer than two dimensions");
      a == &out.target ? check_loops_within(w_, *a) : check_loops(w_, *a, op.loops);
    }
    find_result();
    if (result_->index.size() < 2) refuse("a tensor has fewer than two dimensions");
    columns_ = *result_->index.back().plain_loop();
    const std::size_t right = has(inputs_[1], columns_) ? 1 : 0;
    left_ = &inputs_[1 - right];
    right_ = &inputs_[right];
    if (has(*left_, columns_)) refuse("both operands have loop " + loop_name(columns_));
    for (const Affine& i : result_->index) {
      const LoopId loop = *i.plain_loop();
      if (has(*left_, loop) && !has(*right_, loop)) rows_ = loop;  // the innermost of these
    }
    if (!rows_.valid()) refuse("its results have no rows");
    turns_ = true;
    if (p_.turned) std::swap(rows_, columns_), std::swap(left_, right_);
    for (const Affine& i : result_->index)
      if (const LoopId loop = *i.plain_loop(); loop != rows_ && loop != columns_)
        products_.push_back(loop);
    for (const LoopId loop : op.loops) {
      if (has(out.target, loop) || is_none(op, loop)) continue;
      if (over_.valid() || !has(*left_, loop) || !has(*right_, loop))
        refuse("its sum is over more than two loops, or of one operand");
      over_ = std::exchange(depth_, loop);
    }
    if (!depth_.valid()) refuse("it sums nothing");
    if (over_.valid()) order_depth();
    p_.loops = {rows_, columns_, products_};
    if (computes_.size() > 1) {
      if (shared_.valid()) refuse("a cluster shares its sum, and operators follow");
      find_twin(op);
      p_.epilogue = following(p_.loops);
    }
    if (are_joined()) join_lines();
    check_operand_loops();
  }

  /// Of the same left operand, in the same loops, with a right operand that lies as the first does.
  void find_twin(const Operator& first) {
    if (computes_.size() < 3 || w_.reduction_loops(k_.node(computes_[1]).op).empty()) return;
    const Operator& op = product(1);
    const Access& out = op.outputs.front().target;
    const std::size_t right = op.inputs[1].tensor == left_->tensor ? 0 : 1;
    const Access &of_left = op.inputs[1 - right], &of_right = op.inputs[right];
    const std::size_t of_first = first.inputs[1].tensor == left_->tensor ? 0 : 1;
    const Tensor &x = w_.tensor(of_right.tensor), &y = w_.tensor(right_->tensor);
    if (p_.turned || over_.valid()) refuse("two products side by side are turned, or fold the sum");
    if (of_left.tensor != left_->tensor || of_left.index != first.inputs[1 - of_first].index ||
        of_right.index != first.inputs[of_first].index || x.shape != y.shape ||
        x.dtype != y.dtype || out.index != first.outputs.front().target.index ||
        of_right.tensor == left_->tensor || of_right.tensor == right_->tensor)
      refuse("its second product is not side by side with the first");
    for (NodeId l : serial_)
      if (k_.node(l).max_trips > 1 && !around(l, computes_[1]))
        refuse("its second product is within other loops than the first");
    twin_ = &of_right;
    p_.twin = of_right.tensor, p_.twin_product = k_.node(computes_[1]).op;
  }

  /// Boxes end where a loop or its dimension does, whichever is first: padded rows may be longer
  /// than what is summed of them, and a padded sum longer than what there is.
  void check_operand_loops() const {
    const std::array<LoopId, 3> of_matrix{rows_, columns_, depth_};
    const bool matrix = !over_.valid() && !lines_.valid();
    for (const Access* a : {left_, right_})
      lines_.valid()
          ? check_loops_within(w_, *a)
          : check_loops(w_, *a,
                        matrix ? std::span<const LoopId>(of_matrix) : std::span<const LoopId>());
  }

  /// Elements from one to the next along a loop.
  std::int64_t stride(const Access& a, LoopId loop) const {
    const std::vector<std::int64_t> strides = strides_of(w_.tensor(a.tensor));
    for (std::size_t d = 0; d < strides.size(); ++d)
      if (a.index[d].plain_loop() == loop) return strides[d];
    return 0;
  }
  /// Of two loops of the sum, the one that is within the other in both operands.
  void order_depth() {
    if (stride(*left_, over_) < stride(*left_, depth_)) std::swap(over_, depth_);
    if (stride(*right_, over_) < stride(*right_, depth_))
      refuse("its operands have the two loops of its sum in different orders");
  }
  /// Of the depth, what lies in one matrix of an operand, the others of which follow at distances
  /// of their own; 0: all.
  std::int64_t fold_of(const Access& a) const {
    if (!over_.valid() || stride(a, over_) == extent(depth_) * stride(a, depth_)) return 0;
    if (extent(depth_) % 64 != 0)
      refuse(formatted("tensor {} has {} of loop {} of the sum together, and boxes take 64",
                       name(a.tensor), extent(depth_), loop_name(depth_)));
    return extent(depth_);
  }

  /// Whether the lines of results, and of the right operand, are one: where a block has several of
  /// them, or the TMA unit could not find where each begins.
  bool are_joined() const {
    if (p_.turned || products_.empty() || over_.valid() || twin_ != nullptr) return false;
    const LoopId y = products_.back();
    const std::int64_t wide = extent(columns_);
    if (extent(y) == 1 || part(columns_) < wide || has(*left_, y)) return false;
    if (part(y) == 1 && wide * size_of(w_.tensor(right_->tensor).dtype) % 16 == 0) return false;
    for (const Access* a : {right_, result_})
      if (last_loop(*a) != columns_ || stride(*a, columns_) != 1 || stride(*a, y) != wide)
        return false;
    // Operators after it find their elements by the joined column, and know no other.
    for (const EpilogueRead& r : p_.epilogue.reads)
      if (r.by_product.back() != r.by_column * wide) return false;
    for (const OpId op : p_.epilogue.operators)
      for (const Output& o : w_.op(op).outputs) {
        bool by_index = false;
        each_index(o.value, [&](LoopId l) { by_index |= l == y || l == columns_; });
        if (by_index) return false;
      }
    return true;
  }
  void join_lines() {
    lines_ = products_.back();
    products_.pop_back(), p_.loops.products.pop_back();
    for (EpilogueRead& r : p_.epilogue.reads) r.by_product.pop_back();
  }
  /// Columns of the product, and of a block's tile of it.
  std::int64_t all_columns() const {
    return extent(columns_) * (lines_.valid() ? extent(lines_) : 1);
  }

  /// `fold`: of the depth, in one matrix. The others follow as those of the next products do.
  MatrixAccess lies(const Access& a, LoopId inner, LoopId outer, std::int64_t fold = 0) const {
    std::vector<LoopId> loops = products_;
    if (fold > 0) loops.push_back(over_);
    const bool joined = over_.valid() && fold == 0 && has(a, over_);
    const MatrixAccess m = matrix_access(w_, a, inner, outer, loops, joined ? over_ : lines_);
    std::int64_t all = 1;
    for (const LoopId loop : loops) all *= extent(loop);
    if (m.modulo != (fold > 0 ? extent(over_) : 1) && m.modulo != all)
      refuse("tensor " + w_.tensor(a.tensor).name +
             " has some of the loops that tell products apart");
    return m;
  }

  void place_tensors() {
    p_.left = left_->tensor, p_.right = right_->tensor, p_.result = result_->tensor;
    p_.operand = w_.tensor(p_.left).dtype;
    check_operand_types(p_.left, p_.right);
    check_result_type(p_.result);
    p_.left_across = last_loop(*left_) == rows_;
    p_.right_across = last_loop(*right_) == columns_;
    const auto ends = [&](const Access& a, bool across) {
      if (!across && last_loop(a) != depth_)
        refuse("tensor " + w_.tensor(a.tensor).name + "'s rows are rows of no matrix");
    };
    ends(*left_, p_.left_across), ends(*right_, p_.right_across);
    p_.left_fold = fold_of(*left_), p_.right_fold = fold_of(*right_);
    of_left_ = p_.left_across ? lies(*left_, rows_, depth_, p_.left_fold)
                              : lies(*left_, depth_, rows_, p_.left_fold);
    of_right_ = p_.right_across ? lies(*right_, columns_, depth_, p_.right_fold)
                                : lies(*right_, depth_, columns_, p_.right_fold);
    of_result_ = p_.turned ? lies(*result_, rows_, columns_) : lies(*result_, columns_, rows_);
    const std::int64_t folds = over_.valid() ? extent(over_) : 1;
    p_.left_all = of_left_.modulo == (p_.left_fold > 0 ? folds : 1);
    p_.right_all = of_right_.modulo == (p_.right_fold > 0 ? folds : 1);
    p_.rows = extent(rows_), p_.columns = all_columns(), p_.depth = folds * extent(depth_);
    for (const LoopId loop : products_) p_.count *= extent(loop);
    if (p_.rows >= 1 << 30 || p_.columns >= 1 << 30 || p_.depth >= 1 << 30)
      refuse("a loop has 2^30 iterations or more");
    check_box_rows(w_, p_.left, of_left_), check_box_rows(w_, p_.right, of_right_);
  }

  void cut_tiles() {
    for (NodeId n : serial_)
      if (!sums(k_.node(n).loop) && k_.node(n).max_trips > 1)
        refuse("a block has several tiles of loop " + loop_name(k_.node(n).loop));
    for (NodeId n : grid_)
      if (sums(k_.node(n).loop) && k_.node(n).max_trips > 1)
        refuse("blocks share loop " + loop_name(k_.node(n).loop) + " of the sum");
    if (shared_.valid() && !sums(k_.node(shared_).loop))
      refuse("a cluster's blocks have tiles of their own");
    if (shared_.valid() && over_.valid() && k_.node(shared_).loop != over_)
      refuse(formatted("a cluster's blocks share loop {} of the sum, and loop {} is around it",
                       loop_name(depth_), loop_name(over_)));
    for (LoopId loop : products_)
      if (part(loop) != 1) refuse("a block has several products of loop " + loop_name(loop));
    check_moves(p_.epilogue);
  }

  /// Whole lines of points are a tile of at least as many columns, which writes those alone.
  void cut_columns() {
    if (!lines_.valid()) {
      // Of all columns a tile computes no more than their number to 16, whatever its boxes have;
      // but of two products those of the second follow whole boxes of the first.
      const bool boxes = p_.right_across && (part(columns_) < extent(columns_) || twin_ != nullptr);
      p_.tile_columns = tile_of(columns_, part(columns_), boxes ? 64 : 16, 256);
      p_.columns_apart = p_.tile_columns;
      return;
    }
    const std::int64_t points = part(lines_) * extent(columns_), computed = round_up(points, 64);
    if (computed > 256)
      refuse(formatted("its tile has {} lines of {} points, and a tile at most 256 columns",
                       part(lines_), extent(columns_)));
    if (points < p_.columns && points * size_of(p_.operand) % 16 != 0)
      refuse(formatted("its tile has {} points, and boxes begin at multiples of 16 bytes", points));
    p_.tile_columns = static_cast<int>(computed);
    p_.columns_apart = points < p_.columns ? points : computed;
  }

  void make_maps() {
    const auto map = [&](TensorId t, const MatrixAccess& m, std::int64_t inner, std::int64_t outer,
                         int tall) { p_.maps.push_back(box_map(w_, t, m, inner, outer, tall)); };
    const auto deep = [&](const Access& a, std::int64_t fold) {
      return fold > 0 ? fold : over_.valid() ? p_.depth : reached(w_, a, depth_);
    };
    const std::int64_t of_left = deep(*left_, p_.left_fold), rows = reached(w_, *left_, rows_),
                       of_right = deep(*right_, p_.right_fold),
                       columns = lines_.valid() ? p_.columns : reached(w_, *right_, columns_);
    p_.left_across ? map(p_.left, of_left_, rows, of_left, 64 / p_.across)
                   : map(p_.left, of_left_, of_left, rows, p_.tile_rows() / p_.across);
    p_.right_across ? map(p_.right, of_right_, columns, of_right, 64 / p_.down)
                    : map(p_.right, of_right_, of_right, columns, p_.tile_columns / p_.down);
    if (twin_ != nullptr) {
      p_.maps.push_back(p_.maps.back());
      p_.maps.back().tensor = p_.twin;
    }
    map_result();
  }

  bool turns_ = false;  ///< it has come to where `turned` makes a difference
  LoopId rows_, columns_, depth_;
  LoopId over_;                   ///< of a sum over two loops the outer one, around depth_
  LoopId lines_;                  ///< joined with the columns
  std::vector<LoopId> products_;  ///< outermost first
  std::array<Access, 2> inputs_;
};

}  // namespace

WarpgroupProduct::BoxPlace WarpgroupProduct::box_place(bool of_left, std::int64_t at,
                                                       std::int64_t product) const {
  const std::int64_t fold = of_left ? left_fold : right_fold;
  const std::int64_t matrix = (of_left ? left_all : right_all) ? 0 : product;
  return fold == 0 ? BoxPlace{at, matrix}
                   : BoxPlace{at % fold, matrix * (depth / fold) + at / fold};
}

std::int64_t ImagePoints::taps() const {
  std::int64_t all = 1;
  for (const Along& a : along) all *= a.taps;
  return all;
}

std::int64_t ImagePoints::points() const {
  std::int64_t all = 1;
  for (const Along& a : along) all *= a.tile;
  return all;
}

std::int64_t WarpgroupProduct::cluster_bytes() const {
  // Pieces of four of the results that lie side by side, tile by tile, in all of the others.
  const std::int64_t along = turned ? rows : columns,
                     of_tile = turned ? tile_rows() : columns_apart;
  const std::int64_t pieces = along / of_tile * ceil_div(of_tile, std::int64_t{4}) +
                              ceil_div(along % of_tile, std::int64_t{4});
  return 16 * (share - 1) * count * (turned ? columns : rows) * pieces;
}

Result<WarpgroupProduct> warpgroup_product(const Schedule& s, int kernel, int warps, int stages) {
  bool both = false;  // ways are refused
  const auto found = [&](bool turned) -> Result<WarpgroupProduct> {
    Finder finder(s, kernel, turned);
    try {
      return finder.find(warps, stages);
    } catch (const Refused& refused) {
      both = finder.refuses_both();
      return Reason{refused.text};
    }
  };
  // Straight where it is possible, computes no more than the other, and has no larger boxes if both
  // compute as much: a warpgroup's rows are 64, its columns any 16, of boxes of 64 at most.
  Result<WarpgroupProduct> straight = found(false);
  if (straight && straight->whole() && straight->held_columns() == straight->right_columns())
    return straight;
  Result<WarpgroupProduct> turned = both ? straight : found(true);
  if (!straight && !turned) {
    bool images = false;
    Result<WarpgroupProduct> points = warpgroup_points(s, kernel, warps, stages, images);
    return points || images ? points : straight;
  }
  const auto work = [](const WarpgroupProduct& p) {
    const std::int64_t rows = p.tiles * p.tile_rows();
    return std::pair(rows * p.tile_columns, rows * p.held_columns());
  };
  if (turned && (!straight || work(*turned) < work(*straight))) return turned;
  return straight;
}

std::string describe(const WarpgroupProduct& p, const Schedule& s, int kernel) {
  const Workload& w = *s.workload;
  const auto name = [&](TensorId t) { return w.tensor(t).name; };
  const auto box = [](const BoxMap& m) { return formatted("{} x {}", m.rows(), m.box[0]); };
  std::string text =
      formatted("{}: {} blocks of {} warps{} for {} tiles of {} x {}, {} bytes of shared memory\n",
                s.kernels[static_cast<std::size_t>(kernel)].name, p.grid, p.threads() / 32,
                p.cluster() > 1 ? formatted(", in clusters of {}", p.cluster()) : std::string(),
                p.tiles, p.tile_rows(), p.tile_columns, p.shared_bytes);
  text += formatted("tiles\n  {}, {}{}: ring of {} stages of {} of the depth, {} bytes each\n",
                    name(p.left), name(p.right), p.twin.valid() ? ", " + name(p.twin) : "",
                    p.stages, 64 * p.steps, p.stage_bytes());
  if (p.columns_apart < p.tile_columns && !p.images)
    text +=
        formatted("  of a tile's columns {} are its own, whole lines of points\n", p.columns_apart);
  const auto sums = [&](OpId op) { return name(w.op(op).outputs.front().target.tensor); };
  text += formatted("  {}{}: registers of {} warpgroups, {} rows each\n", sums(p.product),
                    p.twin.valid() ? ", " + sums(p.twin_product) : "", p.groups, 64 * p.blocks);
  text += formatted(
      "barriers: of each stage one full ({} bytes by the TMA unit), one free ({} warpgroups{})\n",
      p.stage_bytes(), p.groups,
      p.cluster() > p.share ? formatted(" of {} blocks", p.down + p.across - 1) : std::string());
  const std::string depth =
      p.share > 1 ? formatted("by {}, {} of {} a block", 64 * p.steps, p.part, p.depth)
                  : formatted("by {}", 64 * p.steps);
  text += formatted(
      "copy: 1 warpgroup, one thread of it\n  tiles in turn, {} down before the next across\n"
      "    depth {}\n      wait until the stage is free\n"
      "      boxes of {} ({}) and of {} ({}){} into it\n",
      p.order, depth, name(p.left), box(p.maps[0]), name(p.right), box(p.maps[1]),
      p.twin.valid() ? formatted(" and {} (as many)", name(p.twin)) : std::string());
  for (const auto& [tensor, fold] : {std::pair{p.left, p.left_fold}, {p.right, p.right_fold}})
    if (fold > 0 && !p.images)
      text += formatted("      {} of the depth in one matrix of {}, the next in the next\n", fold,
                        name(tensor));
  if (p.images)
    text += formatted("      {} of the depth for one tap of {} after the other, {} points of {}\n",
                      p.left_fold, p.images->taps(), p.images->points(), name(p.right));
  if (p.across > 1) text += formatted("      of {} a part, to {} blocks\n", name(p.left), p.across);
  if (p.down > 1) text += formatted("      of {} a part, to {} blocks\n", name(p.right), p.down);
  text += formatted(
      "compute: {} warpgroups\n  the same tiles\n    depth {}\n      wait until the stage is "
      "full\n"
      "      {} products of 64 x {} x 16 by wgmma, a warpgroup an instruction\n"
      "      give the stage before back\n",
      p.groups, depth, 4 * p.steps * p.blocks, p.right_columns());
  if (p.share > 1)
    return text + formatted(
                      "    sums into the ring, a barrier of the cluster\n    of {} rows the "
                      "sums of {} blocks, in order: {} elements a store\n"
                      "    a barrier of the cluster\n"
                      "between blocks of clusters: {} bytes\n",
                      ceil_div(p.turned ? p.tile_columns : p.tile_rows(), p.share), p.share,
                      p.vector, p.cluster_bytes());
  for (const OpId op : p.epilogue.operators)
    text += formatted("    C.{} on them, in registers\n", to_text(w, op));
  for (const EpilogueRead& r : p.epilogue.reads)
    text += formatted("      {} is read at home{}\n", name(r.tensor),
                      r.pairs ? ", two elements at a time" : "");
  text += "    results through shared memory, ";
  text += p.boxed ? formatted("boxes of {} by the TMA unit\n", box(p.maps.back()))
                  : formatted("{} elements a store\n", p.vector);
  return text;
}

}  // namespace tilewright::lowering
