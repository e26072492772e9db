// Products by warpgroups whose right operand is images, channels innermost: convolutions of any
// stride, dilation and padding in up to three directions, and products whose columns are several
// loops. Groups of channels are products of their own: the outermost of the points.
#include <algorithm>
#include <array>
#include <vector>

#include "core/base/format.h"
#include "core/lowering/checks.h"
#include "core/lowering/gpu/warpgroup_finder.h"
#include "core/workload/access.h"
#include "core/workload/expr.h"

namespace tilewright::lowering {
namespace {

// Of a CUtensorMap: steps along a dimension, and elements from a box's first to its last (CUDA
// Driver API, cuTensorMapEncodeTiled).
constexpr std::int64_t kMostSteps = 8, kMostOfBox = 256;
constexpr std::int64_t kRow = 128, kRowsAt = 16;  // bytes of a box's row, and where rows begin

class PointsFinder : WarpgroupFinder {
 public:
  using WarpgroupFinder::WarpgroupFinder;

  /// Whether it has found images with a window, or with steps.
  bool has_window() const {
    return std::ranges::any_of(directions_, [](const Direction& d) {
      return d.tap.valid() || d.along.stride > 1 || d.along.pad != 0;
    });
  }

  WarpgroupProduct find(int warps, int stages) {
    walk(true);
    const Operator& op = product();
    p_.product = k_.node(computes_.front()).op;
    find_result();
    find_operands(op);
    follow_points();
    place(op);
    cut_tile();
    if (computes_.size() > 1) {
      if (shared_.valid()) refuse("a cluster shares its sum, and operators follow");
      add_operators();
    }
    check_tree();
    const int rows = tile_of(rows_, part(rows_), 64, 256);
    arrange(rows, warps, stages, depth_of_tree());
    make_maps();
    return p_;
  }

 private:
  /// A direction of the images: a loop of their points, and perhaps one of the window's taps.
  struct Direction {
    LoopId point, tap;
    std::size_t dimension = 0;
    std::int64_t apart = 0;  ///< elements between neighbours; 0: as the dimension has them
    ImagePoints::Along along;
  };

  const Tensor& tensor(const Access& a) const { return w_.tensor(a.tensor); }
  std::int64_t stride(const Access& a, LoopId loop) const {
    const std::vector<std::int64_t> strides = strides_of(tensor(a));
    for (std::size_t d = 0; d < strides.size(); ++d)
      if (a.index[d].plain_loop() == loop) return strides[d];
    return 0;
  }

  /// The right operand has the loops of several dimensions of the results, all but one.
  void find_operands(const Operator& op) {
    if (!std::ranges::all_of(result_->index,
                             [](const Affine& i) { return i.plain_loop().has_value(); }))
      refuse("its results have a dimension without a loop");
    const auto shared = [&](const Access& a) {
      return std::ranges::count_if(result_->index, [&](const Affine& i) {
        return extent(*i.plain_loop()) > 1 && indexes(a, *i.plain_loop());
      });
    };
    const std::size_t right = shared(op.inputs[0]) > shared(op.inputs[1]) ? 0 : 1;
    left_ = &op.inputs[1 - right], right_ = &op.inputs[right];
    if (left_->index.empty() || right_->index.size() < 2)
      refuse("a tensor has fewer than two dimensions");
    for (const Affine& i : result_->index) {
      const LoopId loop = *i.plain_loop();
      if (extent(loop) == 1) ones_.push_back(loop);
      if (extent(loop) == 1 || !indexes(*left_, loop)) continue;
      LoopId& of_left = indexes(*right_, loop) ? group_ : rows_;
      if (of_left.valid()) refuse("its results have several loops of the left operand");
      of_left = loop;
    }
    if (!rows_.valid()) refuse("its results have no rows");
    const auto channel = channel_of(right_->index.back());
    if (!channel || has_whole_loop(*result_, *channel) || !has_whole_loop(*left_, *channel))
      refuse("tensor " + name(right_->tensor) + " has no channels side by side");
    channel_ = *channel;
    if (group_.valid() && !has_whole_loop(*left_, group_))
      refuse("tensor " + name(left_->tensor) + " has its groups with other loops");
    const LoopId last = *result_->index.back().plain_loop();
    p_.turned = last == rows_;
  }

  /// The loop of the channels: of one group's, where groups follow one another in a dimension.
  std::optional<LoopId> channel_of(const Affine& i) const {
    if (!group_.valid() || i.terms.size() != 2 || i.offset != 0) return i.plain_loop();
    const bool first = i.terms[0].loop == group_;
    const Term &group = i.terms[first ? 0 : 1], &channel = i.terms[first ? 1 : 0];
    const bool all = group.loop == group_ && channel.coefficient == 1 &&
                     group.coefficient == extent(channel.loop);
    return all ? std::optional(channel.loop) : std::nullopt;
  }
  /// Of groups: elements of the image from one to the next.
  std::int64_t groups_apart() const {
    return right_->index.back().plain_loop() ? stride(*right_, group_) : extent(channel_);
  }

  /// Whether a row of the window is one piece of a row of the image, pixel by pixel, none of it
  /// outside, and no longer than a row of a box; and the tree has all of it at once.
  bool goes_along_channels(const Direction& d) const {
    const std::int64_t pixel = tensor(*right_).shape.back(),
                       size = size_of(w_.tensor(right_->tensor).dtype);
    const auto by_parts = [&](NodeId n) {
      return k_.node(n).loop == d.tap && k_.node(n).max_trips > 1;
    };
    return !group_.valid() && d.point.valid() && d.tap.valid() && d.along.taps > 1 &&
           d.along.dilate == 1 && d.along.pad == 0 && pixel == extent(channel_) &&
           d.along.taps * pixel * size <= kRow && d.along.stride * pixel * size % kRowsAt == 0 &&
           (d.along.extent - 1) * d.along.stride + d.along.taps <=
               tensor(*right_).shape[d.dimension] &&
           stride(*left_, d.tap) == pixel && std::ranges::none_of(serial_, by_parts) &&
           !(shared_.valid() && by_parts(shared_));
  }

  /// Of each dimension of the images but the channels, innermost first.
  void follow_points() {
    side_by_side_ = extent(channel_);
    for (std::size_t d = right_->index.size() - 1; d-- > 0;) {
      const Affine& i = right_->index[d];
      const auto is_one = [&](const Term& t) { return extent(t.loop) == 1; };
      if (tensor(*right_).shape[d] == 1 && i.offset == 0 && std::ranges::all_of(i.terms, is_one))
        continue;
      if (group_.valid() && i.plain_loop() == group_) continue;
      Direction to{.dimension = d};
      to.along.pad = -i.offset;
      for (const Term& t : i.terms) {
        if (is_one(t)) continue;
        const bool point = has_whole_loop(*result_, t.loop);
        LoopId& loop = point ? to.point : to.tap;
        if (loop.valid() || t.coefficient < 1 || t.loop == channel_ || t.loop == rows_ ||
            t.loop == group_)
          refuse("tensor " + name(right_->tensor) + " is indexed by more than points and taps");
        loop = t.loop;
        (point ? to.along.stride : to.along.dilate) = t.coefficient;
        (point ? to.along.extent : to.along.taps) = extent(t.loop);
      }
      if (directions_.empty() && goes_along_channels(to)) {
        // Where a point's pixels begin is a step of the tensor map, whatever follows them.
        merged_ = to.tap, pixels_ = to.along.stride, side_by_side_ *= to.along.taps;
        to.along = {.extent = to.along.extent};
      }
      if (to.along.stride > kMostSteps)
        refuse(formatted("tensor {} is read in steps of {}, and boxes take every {}th at most",
                         name(right_->tensor), to.along.stride, kMostSteps));
      directions_.push_back(to);
    }
    if (group_.valid())
      directions_.push_back(
          {.point = group_, .apart = groups_apart(), .along = {.extent = extent(group_)}});
    if (directions_.size() > 4)
      refuse("tensor " + name(right_->tensor) + " has more than four dimensions of points");
    // Points follow one another in the results in the same order.
    std::vector<LoopId> points, of_images;
    for (const Affine& i : result_->index)
      if (*i.plain_loop() != rows_ && *i.plain_loop() != group_ && extent(*i.plain_loop()) > 1)
        points.push_back(*i.plain_loop());
    std::ranges::reverse(points);
    of_group_ = points.size();
    if (group_.valid()) points.push_back(group_);
    for (const Direction& d : directions_)
      if (d.point.valid()) of_images.push_back(d.point);
    points_ = points;
    if (of_group_ == 0 || points != of_images)
      refuse("its results have their points in another order than tensor " + name(right_->tensor));
  }

  /// The left operand has its channels side by side, too, for one tap after the other.
  void place(const Operator& op) {
    p_.left = left_->tensor, p_.right = right_->tensor, p_.result = result_->tensor;
    p_.operand = w_.tensor(p_.left).dtype;
    check_operand_types(p_.left, p_.right);
    check_result_type(p_.result);
    check_loops(w_, *left_, std::array{channel_, merged_});
    const auto last = left_->index.back().plain_loop();
    if (last != channel_) refuse("tensor " + name(p_.left) + " has no channels side by side");
    std::int64_t taps = 1, apart = 0;
    for (const Direction& d : directions_) {
      if (!d.tap.valid() || d.tap == merged_) continue;
      if (!has_whole_loop(*left_, d.tap))
        refuse("tensor " + name(p_.left) + " is the same for all of loop " + loop_name(d.tap));
      const std::int64_t by = stride(*left_, d.tap);
      if (d.along.taps == 1) continue;
      if (apart == 0)
        apart = by;
      else if (by != apart * taps)
        refuse("tensor " + name(p_.left) + "'s taps do not lie at equal distances");
      taps *= d.along.taps;
    }
    for (const LoopId loop : op.loops)
      if (extent(loop) > 1 && loop != rows_ && loop != channel_ &&
          std::ranges::none_of(
              directions_, [&](const Direction& d) { return d.point == loop || d.tap == loop; }))
        refuse("loop " + loop_name(loop) + " is none of its points, taps or channels");
    for (const Affine& i : left_->index)
      if (const auto loop = i.plain_loop();
          loop && extent(*loop) > 1 && loop != rows_ && loop != channel_ && loop != group_ &&
          std::ranges::none_of(directions_, [&](const Direction& d) { return d.tap == loop; }))
        refuse("tensor " + name(p_.left) + " has points");
    p_.rows = extent(rows_);
    p_.left_fold = round_up(side_by_side_, 64);
    p_.depth = taps * p_.left_fold;
    p_.left_all = true;
    of_left_ = {.inner = 1, .outer = stride(*left_, rows_), .apart = apart, .modulo = taps};
    check_box_rows(w_, p_.left, of_left_);
    of_right_ = {.inner = 1, .outer = pixels_ * tensor(*right_).shape.back()};
    if (group_.valid()) {
      of_right_ = {.inner = 1, .outer = stride_of_points(), .apart = groups_apart()};
      check_box_rows(w_, p_.left, {.outer = of_left_.outer, .apart = stride(*left_, group_)});
    }
    check_box_rows(w_, p_.right, of_right_);
  }

  /// From one point of the image to the next.
  std::int64_t stride_of_points() const {
    return strides_of(tensor(*right_))[directions_.front().dimension];
  }

  /// Points of a tile follow one another: all of the inner loops, a part of the next one. Up to
  /// that one points are the product's columns, the loops around it tell products apart.
  void cut_tile() {
    std::size_t whole = 0;
    while (whole < of_group_ && part(points_[whole]) >= extent(points_[whole])) ++whole;
    for (std::size_t i = whole + 1; i < points_.size(); ++i)
      if (part(points_[i]) > 1)
        refuse(formatted("its tile has a part of loop {} and several of loop {}",
                         loop_name(points_[whole]), loop_name(points_[i])));
    // Whole inner loops alone where results have the next one's points elsewhere.
    std::size_t joined = std::min(whole + 1, of_group_);
    if (whole > 0 && whole < of_group_ && part(points_[whole]) == 1 && !evenly(joined))
      joined = whole;
    p_.images.emplace();
    p_.images->channels = side_by_side_;
    for (std::size_t i = 0; i < directions_.size(); ++i) {
      Direction& d = directions_[i];
      if (d.point.valid()) d.along.tile = std::min(part(d.point), d.along.extent);
      if ((d.along.tile - 1) * d.along.stride + 1 > kMostOfBox)
        refuse(formatted("its tile has {} of loop {}, and boxes at most {} in a row", d.along.tile,
                         loop_name(d.point), kMostOfBox));
      p_.images->along[i] = d.along;
    }
    for (std::size_t i = 0; i < points_.size(); ++i) {
      (i < joined ? p_.columns : p_.count) *= extent(points_[i]);
      if (p_.columns >= 1 << 30 || p_.count >= 1 << 30)
        refuse("a loop has 2^30 iterations or more");
    }
    if (group_.valid()) p_.images->of_group = p_.count / extent(group_);
    const std::int64_t points = p_.images->points();
    if (points > kMostOfBox)
      refuse(formatted("its tile has {} points, and takes {} at most", points, kMostOfBox));
    if (p_.rows >= 1 << 30 || p_.depth >= 1 << 30 || p_.columns * p_.count >= 1 << 30)
      refuse("a loop has 2^30 iterations or more");
    p_.tile_columns = static_cast<int>(round_up(points, 16));
    p_.columns_apart = points < p_.columns ? points : p_.tile_columns;
    p_.loops = {rows_, points_.front(), ones_};
    p_.loops.products.insert(p_.loops.products.end(), points_.rbegin(),
                             points_.rend() - static_cast<std::ptrdiff_t>(joined));
    place_result(joined);
  }

  /// Whether results have the points of these loops at equal distances.
  bool evenly(std::size_t first, std::size_t end) const {
    for (std::size_t i = first + 1; i < end; ++i)
      if (stride(*result_, points_[i]) != stride(*result_, points_[i - 1]) * extent(points_[i - 1]))
        return false;
    return true;
  }
  /// Columns follow one another at equal distances at home, and so do products.
  bool evenly(std::size_t joined) const { return evenly(0, joined) && evenly(joined, of_group_); }

  void place_result(std::size_t joined) {
    if (!evenly(joined))
      refuse("tensor " + name(p_.result) + " has its points at no equal distances");
    const std::int64_t column = stride(*result_, points_.front()), row = stride(*result_, rows_);
    if ((p_.turned ? row : column) != 1)
      refuse("tensor " + name(p_.result) + " has neither rows nor points side by side");
    if (group_.valid() && stride(*result_, group_) != row * p_.rows)
      refuse("tensor " + name(p_.result) + " has its groups not one after the other");
    of_result_ = {
        .inner = 1, .outer = p_.turned ? column : row, .modulo = p_.count / p_.groups_of_rows()};
    if (joined < of_group_) of_result_.apart = stride(*result_, points_[joined]);
  }

  /// Operators find their elements by the joined column, and know no loop of it.
  void add_operators() {
    ProductLoops all{p_.loops.rows, p_.loops.columns, ones_};
    all.products.insert(all.products.end(), points_.rbegin(), points_.rend() - 1);
    p_.epilogue = following(all);
    const std::size_t others = p_.loops.products.size();
    for (EpilogueRead& r : p_.epilogue.reads) {
      std::int64_t by = r.by_column;
      for (std::size_t i = all.products.size(); i-- > others;) {
        by *= extent(points_[all.products.size() - 1 - i]);
        if (r.by_product[i] != by)
          refuse("tensor " + name(r.tensor) + " has its points at no equal distances");
      }
      r.by_product.resize(others);
      r.pairs = r.pairs && p_.columns_apart % 2 == 0 && p_.columns % 2 == 0;
    }
    for (const OpId op : p_.epilogue.operators)
      for (const Output& o : w_.op(op).outputs)
        each_index(o.value, [&](LoopId l) {
          if (l != rows_ && std::ranges::find(p_.loops.products, l) == p_.loops.products.end())
            refuse("an operator after it asks for the number of a point");
        });
  }

  bool is_tap(LoopId loop) const {
    return std::ranges::any_of(directions_, [&](const Direction& d) { return d.tap == loop; });
  }
  /// Blocks have whole sums or, in a cluster, some taps of one; taps go one by one around channels.
  void check_tree() {
    for (NodeId n : grid_)
      if ((is_tap(k_.node(n).loop) || k_.node(n).loop == channel_) && k_.node(n).max_trips > 1)
        refuse("blocks share loop " + loop_name(k_.node(n).loop) + " of the sum");
    std::vector<LoopId> one_by_one;
    bool channels = false;
    for (NodeId n : serial_) {
      const ScheduleNode& node = k_.node(n);
      if (node.max_trips == 1) continue;
      if (node.loop == channel_)
        channels = true;
      else if (!is_tap(node.loop))
        refuse("a block has several tiles of loop " + loop_name(node.loop));
      else if (channels)
        refuse("loop " + loop_name(node.loop) + " of its window is within that of the channels");
      else if (node.step == 1)
        one_by_one.push_back(node.loop);
    }
    if (shared_.valid() && k_.node(shared_).step == 1) one_by_one.push_back(k_.node(shared_).loop);
    LoopId first;  // the outermost in the window
    for (const Direction& d : directions_) {
      if (d.along.taps == 1) continue;
      first = d.tap;
      if (std::ranges::find(one_by_one, d.tap) == one_by_one.end())
        refuse("loop " + loop_name(d.tap) + " of its window is not gone through one by one");
    }
    if (shared_.valid() && k_.node(shared_).loop != first)
      refuse("a cluster's blocks share another loop than the outermost of the window");
    check_moves(p_.epilogue);
  }
  Depth depth_of_tree() const {
    Depth depth{.step = p_.left_fold};
    if (shared_.valid()) depth.of_one = p_.depth / extent(k_.node(shared_).loop);
    for (NodeId n : serial_)
      if (k_.node(n).loop == channel_) depth.step = k_.node(n).step;
    return depth;
  }

  void make_maps() {
    const std::int64_t size = size_of(p_.operand);
    p_.maps.push_back(
        box_map(w_, p_.left, of_left_, side_by_side_, p_.rows, p_.tile_rows() / p_.across));
    if (group_.valid()) {
      BoxMap& left = p_.maps.back();
      left.rank = BoxMap::kMost;
      left.extent[3] = extent(group_), left.stride[3] = stride(*left_, group_) * size;
    }
    const std::vector<std::int64_t> strides = strides_of(tensor(*right_));
    BoxMap map{.tensor = p_.right, .type = p_.operand, .rank = BoxMap::kMost};
    map.extent[0] = side_by_side_, map.stride[0] = size, map.box[0] = kRow / size;
    std::int64_t beyond = size * strides.front() * tensor(*right_).shape.front();
    for (std::size_t i = 0; i < 4; ++i) {
      map.stride[i + 1] = beyond;
      if (i >= directions_.size()) continue;
      const Direction& d = directions_[i];
      const bool of_groups = d.apart > 0;
      map.extent[i + 1] = of_groups ? d.along.extent : tensor(*right_).shape[d.dimension];
      map.stride[i + 1] = (of_groups ? d.apart : strides[d.dimension]) * size;
      map.steps[i + 1] = d.along.stride;
      map.box[i + 1] = (d.along.tile - 1) * d.along.stride + 1;
      if (d.tap != merged_ || !merged_.valid()) continue;
      map.extent[i + 1] = d.along.extent;
      map.stride[i + 1] *= pixels_;
    }
    p_.maps.push_back(map);
    map_result();
  }

  std::vector<Direction> directions_;  ///< of the images' points, innermost first
  std::vector<LoopId> points_;  ///< loops of more than one iteration, innermost first; groups last
  std::size_t of_group_ = 0;    ///< of these loops, those of one group
  std::vector<LoopId> ones_;    ///< of results, of one iteration
  LoopId rows_, channel_, group_;
  /// Few channels: the taps of the innermost direction lie side by side with them.
  LoopId merged_;
  std::int64_t side_by_side_ = 1;  ///< elements of a row: channels, of all merged taps
  std::int64_t pixels_ = 1;        ///< from one point's row to the next
};

}  // namespace

Result<WarpgroupProduct> warpgroup_points(const Schedule& s, int kernel, int warps, int stages,
                                          bool& images) {
  PointsFinder finder(s, kernel);
  try {
    return finder.find(warps, stages);
  } catch (const Refused& refused) {
    images = finder.has_window();
    return Reason{refused.text};
  }
}

}  // namespace tilewright::lowering
