#include "core/lowering/gpu/window_product.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/format.h"
#include "core/lowering/checks.h"
#include "core/lowering/gpu/matrix_access.h"
#include "core/lowering/gpu/product_chain.h"
#include "core/lowering/gpu/warpgroup_product.h"
#include "core/workload/access.h"
#include "core/workload/text.h"

namespace tilewright::lowering {
namespace {

constexpr std::int64_t kMostTile = 256, kMostPoints = 256, kMostSums = 112;  // sums of a thread
constexpr std::int64_t kMostOfCluster = 8, kReservedOfBlock = 1024;
constexpr double kUsualMma = 1270;  // multiply-adds a cycle of an H100's SM by mma.sync
constexpr double kFmaUnits = 128;   // and by its units for floats
constexpr double kUsualTf32 = 220;  // and of floats by three products of TF32
// Sums and parts of a thread that multiplies floats on tensor cores, beside which registers have
// room for the rest.
constexpr std::int64_t kMostParts = 128;
// Of the issue rate: see step_work. Other products by multiply-adds have another (block_time.cpp):
// ptxas places the sums of each kernel in registers in its own way, and by 0.85 the recordings of
// convolutions are 0.02 to 0.06 further from their prices in the root of the mean square.
constexpr double kFmaLasts = 0.7;
constexpr std::int64_t kTwoBlocks = 110 * 1024;  // of shared memory, so that an SM has two blocks

class WindowFinder : ProductChain {
 public:
  using ProductChain::ProductChain;

  WindowProduct find(int warps, int stages) {
    walk(false);
    const Operator& op = product();
    p_.product = k_.node(computes_.front()).op;
    find_result();
    name_loops(op);
    p_.epilogue = following(p_.loops);
    place_left();
    place_right();
    place_result();
    check_tiles();
    join_lines();
    choose_pieces();
    arrange(warps > 0 ? warps : k_.launch.warps.value_or(0),
            stages > 0 ? stages : k_.launch.stages.value_or(0));
    return p_;
  }

 private:
  void name_loops(const Operator& op) {
    x_ = *result_->index.back().plain_loop();
    std::size_t right = indexes(op.inputs[1], x_) ? 1 : 0;
    p_.turned = rows_are_last(w_, op, *result_);
    if (p_.turned) {
      right = 1 - right;
      for (const Affine& i : result_->index)
        if (const LoopId l = *i.plain_loop(); !indexes(op.inputs[1 - right], l)) x_ = l;
    }
    left_ = &op.inputs[1 - right];
    right_ = &op.inputs[right];
    if (indexes(*left_, x_) || !indexes(*right_, x_))
      refuse("neighbours among its results are no points of one operand");
    for (const LoopId l : op.loops) {
      const bool in_left = indexes(*left_, l), in_right = indexes(*right_, l),
                 in_out = indexes(*result_, l);
      if (!in_out) {
        if (extent(l) == 1) continue;
        if (!in_left || !in_right) refuse("it sums over one operand's loop alone");
        depth_.push_back(l);
        continue;
      }
      if (l == x_) continue;
      if (in_left && !in_right && extent(l) > 1 && (!rows_.valid() || part(l) > 1)) {
        if (rows_.valid() && part(rows_) > 1) refuse("its rows are several loops");
        rows_ = l;
      }
    }
    if (!rows_.valid()) refuse("its results have no rows");
    if (depth_.empty()) refuse("it sums nothing");
    p_.rows = extent(rows_), p_.tile = part(rows_);
    for (const Affine& i : result_->index)
      if (const LoopId l = *i.plain_loop(); l != rows_ && l != x_) others_.push_back(l);
    p_.loops = {rows_, x_, others_};
    p_.left = left_->tensor, p_.right = right_->tensor, p_.result = result_->tensor;
    p_.operand = w_.tensor(p_.left).dtype;
    if (p_.operand != DType::f32 || w_.tensor(p_.right).dtype != DType::f32)
      check_operand_types(p_.left, p_.right);
    check_result_type(p_.result);
  }

  /// Elements that an iteration of the loop moves a tensor's element by, where it stands alone.
  std::int64_t stride(const Access& a, LoopId loop) const {
    const std::vector<std::int64_t> strides = strides_of(w_.tensor(a.tensor));
    std::int64_t by = 0;
    for (std::size_t d = 0; d < strides.size(); ++d)
      for (const Term& t : a.index[d].terms)
        if (t.loop == loop) by += t.coefficient * strides[d];
    return by;
  }

  void place_left() {
    check_loops_within(w_, *left_);
    p_.left_row = stride(*left_, rows_);
    p_.beside = !indexes(right_->index.back(), x_);
    // The depth runs along a row, or channels alone do.
    std::ranges::sort(depth_, std::ranges::greater(), [&](LoopId l) { return stride(*left_, l); });
    std::int64_t along = 1;
    for (std::size_t i = depth_.size(); i-- > 0; along *= extent(depth_[i]))
      if (stride(*left_, depth_[i]) != along && (!p_.beside || along == 1))
        refuse("tensor " + name(p_.left) + "'s channels and window are no row of it");
    for (const LoopId l : others_) {
      Outer o{.loop = l, .extent = extent(l), .left = stride(*left_, l)};
      outer_.push_back(o);
    }
  }

  /// The image: its last dimension, one before it with a window or several lines, and channels.
  void place_right() {
    const Tensor& t = w_.tensor(p_.right);
    const std::vector<std::int64_t> strides = strides_of(t);
    std::vector<LoopId> window;
    const auto in = [](const std::vector<LoopId>& all, LoopId l) {
      return std::ranges::find(all, l) != all.end();
    };
    const auto dimension = [&](const Affine& i, LoopId& point, LoopId& tap, std::int64_t& by,
                               std::int64_t& dilate) {
      for (const Term& term : i.terms) {
        if (extent(term.loop) == 1) continue;
        const bool of_depth = in(depth_, term.loop);
        LoopId& slot = of_depth ? tap : point;
        if (slot.valid() || term.coefficient < 1)
          refuse("tensor " + t.name + " is indexed by more than a point and a window");
        slot = term.loop;
        (of_depth ? dilate : by) = term.coefficient;
      }
    };
    LoopId of_x, tap_x, tap_y;
    std::size_t last = right_->index.size() - 1;  // of the points
    while (p_.beside && last > 0 && !indexes(right_->index[last], x_)) --last;
    p_.in_column = strides[last];
    if (p_.beside &&
        (stride(*right_, depth_.back()) != 1 || !indexes(right_->index.back(), depth_.back())))
      refuse("tensor " + t.name + " has neither points nor channels side by side");
    dimension(right_->index[last], of_x, tap_x, p_.stride_x, p_.dilate_x);
    if (of_x.valid() && of_x != x_) refuse("tensor " + t.name + "'s rows are no points");
    if (!of_x.valid() && extent(x_) > 1) refuse("tensor " + t.name + "'s rows are no points");
    p_.pad_x = -right_->index[last].offset, p_.in_x = t.shape[last];
    for (std::size_t d = 0; d < right_->index.size(); ++d) {
      if (d == last) continue;
      const Affine& i = right_->index[d];
      if (p_.beside && d + 1 == right_->index.size()) {
        if (i.offset != 0) refuse("tensor " + t.name + " has channels from another one on");
        check_inside(i, t.shape[d], t.name);
        continue;
      }
      bool channel = true;  // terms are channels or iterations of blocks' loops
      int points = 0;
      for (const Term& term : i.terms) {
        if (extent(term.loop) == 1) continue;
        if (in(depth_, term.loop)) continue;
        ++points;
        if (part(term.loop) > 1) channel = false;
        if (!in(others_, term.loop)) refuse("tensor " + t.name + " has its rows in two dimensions");
      }
      const bool window_here = std::ranges::any_of(i.terms, [&](const Term& term) {
        return extent(term.loop) > 1 && in(depth_, term.loop) &&
               (points > 0 || extent(term.loop) < t.shape[d] || i.offset != 0);
      });
      // A group's channels: its loop is in both operands, and moves by all of its channels.
      const bool group =
          points > 0 && std::ranges::all_of(i.terms, [&](const Term& term) {
            return extent(term.loop) == 1 || in(depth_, term.loop) || indexes(*left_, term.loop);
          });
      if (channel && i.offset == 0 && (!window_here || group)) {
        check_inside(i, t.shape[d], t.name);
        continue;
      }
      if (y_dimension_ >= 0) refuse("its window or its points have three dimensions");
      y_dimension_ = static_cast<int>(d);
      dimension(i, y_, tap_y, p_.stride_y, p_.dilate_y);
      p_.pad_y = -i.offset, p_.in_y = t.shape[d], p_.in_row = strides[d];
    }
    for (const LoopId tap : {tap_y, tap_x})
      if (tap.valid()) window.push_back(tap);
    if (tap_y.valid()) p_.taps_y = extent(tap_y);
    if (tap_x.valid()) p_.taps_x = extent(tap_x);
    if (p_.beside) {
      if (depth_.size() != window.size() + 1)
        refuse("channels of " + t.name + " are several loops");
      if (tap_y.valid()) p_.left_tap_y = stride(*left_, tap_y);
      if (tap_x.valid()) p_.left_tap_x = stride(*left_, tap_x);
      std::ranges::rotate(depth_, depth_.end() - 1);
    }
    const std::size_t before = depth_.size() - window.size();
    for (std::size_t i = 0; i < window.size(); ++i)
      if (depth_[before + i] != window[i] && !p_.beside)
        refuse("tensor " + name(p_.left) + "'s windows are no rows within its channels");
    std::int64_t between = 0;
    for (std::size_t i = before; i-- > 0;) {
      const std::int64_t own = stride(*right_, depth_[i]);
      if (between > 0 && own != between)
        refuse("channels of " + t.name + " are at several distances");
      if (p_.in_channel == 0) p_.in_channel = own;
      p_.channels *= extent(depth_[i]), between = own * extent(depth_[i]);
      channel_ = depth_[i];
    }
    for (Outer& o : outer_)
      if (o.loop != y_) o.right = stride(*right_, o.loop);
    if (y_.valid()) p_.tile_y = part(y_), p_.out_y = extent(y_);
    if (y_.valid() && indexes(*left_, y_))
      refuse("a block has several iterations of loop " + w_.loop(y_).name);
    // Others are contractions, which have kernels of their own.
    if (p_.beside && !p_.turned && p_.taps() == 1 && p_.stride_x == 1 && p_.stride_y == 1)
      refuse("tensor " + t.name + " has no window and no points side by side");
    const bool points = std::ranges::any_of(others_, [&](LoopId l) {
      return extent(l) > 1 && indexes(*right_, l) && !indexes(*left_, l);
    });
    if (p_.taps() == 1 && !points && (p_.floats() || in_sixteens()))
      refuse("it is a product of matrices");
    p_.tile_x = part(x_), p_.out_x = p_.wide = extent(x_);
  }
  /// All rows of both operands begin at multiples of 16 bytes: other kernels of products copy those
  /// without a copy for every element.
  bool in_sixteens() const {
    return p_.left_row % 8 == 0 && p_.in_channel % 8 == 0 &&
           std::ranges::all_of(outer_,
                               [](const Outer& o) { return o.left % 8 == 0 && o.right % 8 == 0; });
  }
  void check_inside(const Affine& i, std::int64_t shape, const std::string& tensor) const {
    std::int64_t last = i.offset;
    for (const Term& t : i.terms) {
      if (t.coefficient < 0) refuse("tensor " + tensor + " is read backwards");
      last += t.coefficient * (extent(t.loop) - 1);
    }
    if (last >= shape) refuse("tensor " + tensor + " is read outside of its elements");
  }

  void place_result() {
    p_.out_row = stride(*result_, rows_), p_.out_column = stride(*result_, x_);
    if (p_.out_column != 1 && p_.out_row != 1)
      refuse("tensor " + name(p_.result) + " has neither rows nor points side by side");
    if (y_.valid()) p_.out_line = stride(*result_, y_);
    std::int64_t below = 1;
    for (std::size_t i = outer_.size(); i-- > 0;) {
      outer_[i].result = stride(*result_, outer_[i].loop), outer_[i].product = below;
      if (outer_[i].loop == y_) p_.of_line = below;
      below *= outer_[i].extent;
    }
    for (const Outer& o : outer_) {
      if (o.loop == y_ || o.extent == 1) continue;
      if (part(o.loop) != 1)
        refuse("a block has several iterations of loop " + w_.loop(o.loop).name);
      p_.outer.push_back(o);
    }
  }

  void check_tiles() {
    std::int64_t step = channel_.valid() ? extent(channel_) : 1;
    for (NodeId n : serial_) {
      if (k_.node(n).max_trips == 1) continue;
      if (k_.node(n).loop != channel_)
        refuse("a block has several tiles of loop " + w_.loop(k_.node(n).loop).name);
      step = std::min(step, k_.node(n).step);
    }
    p_.step = step * (channel_.valid() ? p_.channels / extent(channel_) : 1);
    for (NodeId n : grid_)
      if (k_.node(n).max_trips > 1 && std::ranges::find(depth_, k_.node(n).loop) != depth_.end())
        refuse("blocks share loop " + w_.loop(k_.node(n).loop).name + " of the sum");
    check_moves(p_.epilogue);
    for (std::size_t i = 1; i < k_.nodes.size(); ++i) {
      const ScheduleNode& n = k_.nodes[i];
      if (n.kind != NodeKind::load || (n.tensor != p_.left && n.tensor != p_.right)) continue;
      for (NodeId l : serial_)
        if (k_.node(l).max_trips > 1 && !around(l, NodeId(i)))
          refuse("tensor " + name(n.tensor) + " is loaded for all of the sum at once");
    }
    if (p_.tile < p_.rows && p_.tile % 16 != 0)
      refuse(formatted("its tile has {} rows, and takes multiples of 16", p_.tile));
    p_.tile = round_up(p_.tile, 16);
    if (p_.tile > kMostTile || p_.tile_y * p_.tile_x > kMostPoints)
      refuse(formatted("its tile has {} x {} rows and points, and {} of each at most", p_.tile,
                       p_.tile_y * p_.tile_x, kMostTile));
    for (const std::int64_t n :
         {p_.rows * p_.left_row, p_.out_y * p_.out_x, p_.in_y * p_.in_x, p_.channels * p_.taps()})
      if (n >= 1 << 30) refuse("a loop has 2^30 iterations or more");
    p_.share = k_.launch.cluster.value_or(1);
    if (p_.share > kMostOfCluster || p_.tile % (p_.turned ? 4 * p_.share : p_.share) != 0)
      refuse(formatted("{} rows of a tile are not shared by clusters of {}", p_.tile, p_.share));
    p_.part = p_.share == 1 ? p_.channels : round_up(ceil_div(p_.channels, p_.share), p_.step);
    if ((p_.share - 1) * p_.part >= p_.channels)
      refuse(formatted("its {} channels in steps of {} are too few for clusters of {}", p_.channels,
                       p_.step, p_.share));
  }

  /// Lines of points that follow one another, in the image and among the results, are one line.
  void join_lines() {
    if (p_.taps() != 1 || p_.stride_x != 1 || p_.stride_y != 1 || p_.pad_x != 0 || p_.pad_y != 0 ||
        p_.tile_x != p_.out_x || p_.in_x != p_.out_x || p_.in_y < p_.out_y ||
        p_.in_row != p_.in_x * p_.in_column || p_.out_line != p_.out_x * p_.out_column)
      return;
    p_.tile_x *= p_.tile_y, p_.out_x *= p_.out_y, p_.in_x = p_.out_x;
    p_.tile_y = p_.out_y = p_.in_y = 1, p_.in_row = p_.out_line = 0;
  }

  /// Rows of an odd number of elements of 16 bits would be copied one by one.
  bool copies_flat() const {
    const auto sixteens = [&](std::int64_t elements) { return elements * p_.element() % 16 == 0; };
    return !p_.beside && p_.alone(p_.right_piece) && p_.taps() == 1 && p_.stride_x == 1 &&
           p_.pad_x == 0 && p_.tile_y == 1 && p_.out_y == 1 && p_.tile_x == p_.out_x &&
           p_.in_x == p_.out_x && p_.in_channel == p_.in_x && sixteens(p_.step * p_.in_x) &&
           (p_.share == 1 || sixteens(p_.part * p_.in_x)) &&
           std::ranges::all_of(p_.outer, [&](const Outer& o) { return sixteens(o.right); });
  }

  void choose_pieces() {
    const bool several = p_.part > p_.step || p_.share > 1;
    std::vector<std::int64_t> pieces;  // of 16 bytes, 8 and 4
    for (std::int64_t bytes = 16; bytes >= 4; bytes /= 2) pieces.push_back(bytes / p_.element());
    const auto divides = [&](std::int64_t v, std::initializer_list<std::int64_t> all) {
      return std::ranges::all_of(all, [&](std::int64_t n) { return n % v == 0; });
    };
    const auto outer = [&](std::int64_t v, auto member) {
      return std::ranges::all_of(p_.outer, [&](const Outer& o) { return o.*member % v == 0; });
    };
    const std::int64_t apart = p_.beside ? 1 : p_.taps();
    for (const std::int64_t v : pieces)
      if (divides(v, {p_.left_row, p_.left_tap_y, p_.left_tap_x, several ? p_.step * apart : 0,
                      p_.share > 1 ? p_.part * apart : 0}) &&
          outer(v, &Outer::left)) {
        p_.left_piece = v;
        break;
      }
    const bool whole = p_.tile_x == p_.out_x;
    for (const std::int64_t v : pieces)
      if (p_.beside ? divides(v, {p_.in_column, p_.in_row, several ? p_.step : 0,
                                  p_.share > 1 ? p_.part : 0}) &&
                          outer(v, &Outer::right)
                    : divides(v, {p_.in_x, p_.in_row, p_.in_channel}) && outer(v, &Outer::right) &&
                          (whole || divides(v, {p_.pad_x, p_.tile_x * p_.stride_x}))) {
        p_.right_piece = v;
        break;
      }
    if (copies_flat()) {
      p_.flat = true, p_.right_piece = pieces.front();
    } else if (whole && p_.right_piece > 1 && !p_.beside)
      p_.lead = ((-p_.pad_x) % p_.right_piece + p_.right_piece) % p_.right_piece;
    // Points without a window are read eight at a time where they begin at multiples of eight.
    const bool eight = !p_.beside && p_.taps() == 1 && p_.stride_x == 1 && p_.lead == 0;
    p_.pitch = round_up(p_.lead + (p_.tile_x - 1) * p_.stride_x + (p_.taps_x - 1) * p_.dilate_x + 1,
                        p_.flat || p_.beside ? 1
                        : eight              ? 8
                                             : p_.right_piece);
    for (const std::int64_t v : {4, 2})
      if ((p_.turned ? divides(v, {p_.rows, p_.out_column, p_.out_line})
                     : divides(v, {p_.tile_x, p_.out_x, p_.out_row, p_.out_line})) &&
          outer(v, &Outer::result)) {
        p_.vector = v;
        break;
      }
  }

  void arrange(int warps, int stages) {
    const std::int64_t m = p_.tile / 16, n = ceil_div(p_.tile_y * p_.tile_x, std::int64_t{8});
    double least = std::numeric_limits<double>::infinity();
    WindowProduct best = p_;
    // Cycles of a stage's products, about, and what a warp alone waits for beside them.
    const auto stage_cycles = [](const WindowProduct& p) {
      const auto each = static_cast<double>(ceil_div(p.steps(), p.warps_k)),
                 of_block = static_cast<double>(p.threads() / 32),
                 blocks = static_cast<double>(p.blocks_m * p.blocks_n);
      const WindowProduct::Step step = p.step_work(p.fma()      ? kFmaUnits
                                                   : p.floats() ? kUsualTf32
                                                                : kUsualMma);
      return each * std::max({std::max(step.tensor, step.issue) * std::ceil(of_block / 4),
                              step.near * of_block,
                              p.floats() ? p.step_alone(step) : 90 + step.issue + blocks});
    };
    for (const std::int64_t all : {4, 8}) {
      if (warps > 0 && warps != all) continue;
      for (std::int64_t wm = 1; wm <= all; wm *= 2)
        for (std::int64_t wn = 1; wm * wn <= all; wn *= 2) {
          if (m % wm != 0) continue;
          WindowProduct p = p_;
          p.warps_m = wm, p.warps_n = wn, p.warps_k = all / wm / wn;
          p.blocks_m = m / wm, p.blocks_n = ceil_div(n, wn);
          if (4 * p.blocks_m * p.blocks_n > kMostSums || p.warps_k > p.steps() || p.warps_k > 4)
            continue;
          for (const bool tf32 : {false, true}) {
            p.tf32 = tf32;
            if (tf32 && (!matrices_of_floats() ||
                         4 * p.blocks_m * p.blocks_n + 16 * p.blocks_m > kMostParts))
              continue;
            // What warps add up of one another is read and written once more.
            const double cycles = static_cast<double>(p.turns()) * stage_cycles(p) +
                                  static_cast<double>(p.warps_k * p.tile * p.columns()) / 16;
            if (cycles < least * 0.98) least = cycles, best = p;
          }
        }
    }
    if (least == std::numeric_limits<double>::infinity())
      refuse(formatted("{} warps have no room for the sums of its tile of {} x {}",
                       warps > 0 ? warps : 8, p_.tile, p_.tile_y * p_.tile_x));
    p_ = best;
    const std::int64_t room = s_.machine->level(k_.level).capacity.value - kReservedOfBlock;
    const std::int64_t table = p_.table_bytes(), stage = p_.left_bytes() + p_.right_bytes();
    const std::int64_t sums = 4 * p_.warps_k * p_.sum_rows() * p_.sum_pitch();
    const auto bytes = [&](std::int64_t n_stages) {
      return table + std::max(n_stages * stage, sums);
    };
    p_.stages = std::min<std::int64_t>(p_.turns(), stages > 0 ? stages : 4);
    while (stages == 0 && p_.stages > 2 && bytes(p_.stages) > kTwoBlocks) --p_.stages;
    p_.shared_bytes = bytes(p_.stages);
    if (p_.shared_bytes > room)
      refuse(formatted("its tiles need {} bytes of shared memory, and a block has {}",
                       p_.shared_bytes, room));
    if (p_.stages < 2 && p_.turns() > 1) refuse("one stage is filled while it is read");
    p_.tiles = p_.down() * p_.lines() * p_.across();
    for (const Outer& o : p_.outer) p_.tiles *= o.extent;
    p_.grid = p_.tiles * p_.share;
    if (p_.grid >= 1 << 30) refuse("it has 2^30 tiles or more");
    p_.shared_bytes = shared_evenly(room);
    p_.ahead = std::max<std::int64_t>(1, p_.stages - 1);
    if (p_.stages >= p_.turns() && begins_at_once()) p_.ahead = p_.turns();
  }

  /// Tensor cores take floats as three products of TF32, on machines whose file has their rate.
  bool matrices_of_floats() const {
    return p_.floats() && s_.machine->units.front().peak.contains("tf32");
  }

  /// Shared memory of a block, so much that no SM has more blocks than it takes for all of them to
  /// be under way together: as shared_alone, for several blocks an SM.
  std::int64_t shared_evenly(std::int64_t room) const {
    constexpr std::int64_t kMostEven = 4;
    const std::int64_t sms = s_.machine->units.front().count;
    if (const std::int64_t alone = shared_alone(p_.shared_bytes, room, p_.grid, sms, p_.share);
        alone > p_.shared_bytes)
      return alone;
    for (std::int64_t n = 2; n <= kMostEven; ++n)
      if (p_.grid <= p_.share * clusters_at_once(sms, n, p_.share))
        return std::max(
            p_.shared_bytes,
            round_up((room + kReservedOfBlock) / (n + 1) - kReservedOfBlock + 1, std::int64_t{16}));
    return p_.shared_bytes;
  }

  /// Whether all stages of a ring that is never filled twice are copied from the beginning. Kernels
  /// with windows, or of which an SM has several blocks, took up to 1.12 times as long so
  /// (h200-windows-at-once.json).
  bool begins_at_once() const {
    return p_.taps() == 1 && !p_.floats() && p_.elements() == 0 &&
           p_.grid <= p_.share * clusters_at_once(s_.machine->units.front().count, 1, p_.share);
  }

  using Outer = WindowProduct::Outer;
  WindowProduct p_;
  LoopId rows_, x_, y_, channel_;
  std::vector<LoopId> depth_, others_;  ///< outermost first
  std::vector<Outer> outer_;
  int y_dimension_ = -1;
};

}  // namespace

std::int64_t WindowProduct::right_bytes() const {
  if (flat) return element() * step * pitch;
  if (beside) return element() * in_rows() * pitch * point();
  const std::int64_t eights = ceil_div(in_rows() * pitch, std::int64_t{8});
  return element() * step * 8 * (eights % 2 == 1 ? eights : eights + 1);
}

std::int64_t WindowProduct::cluster_bytes() const {
  return tiles * 4 * (share - 1) * tile * round_up(tile_y * tile_x, 4);
}

WindowProduct::Step WindowProduct::step_work(double rate) const {
  const auto m = static_cast<double>(blocks_m), n = static_cast<double>(blocks_n);
  const double tensor = m * n * 2048 * 4 / rate;
  // A thread reads 2 m rows, four of the depth at once, and 2 n points, of each of the depth, with
  // an addition each. Reads of 16 bytes keep shared memory twice as long. The part of the issue
  // rate that lasts is chosen with the numbers of step_alone.
  // Channels side by side are four of a point at once.
  if (fma() && beside)
    return {.tensor = tensor,
            .issue = (tensor + 8 * m + 16 * n + 16) / kFmaLasts,
            .near = 16 * m + 16 * n + (taps() == 1 ? 0 : 4)};
  if (fma())
    return {.tensor = tensor,
            .issue = (tensor + 8 * m + 64 * n + 16) / kFmaLasts,
            .near = 16 * m + 32 * n + (taps() == 1 ? 0 : 4)};
  // Every float is parted by three instructions; six products a block, and four additions.
  if (floats()) {
    const double reads = beside ? n : 8 * n;
    return {.tensor = tensor,
            .issue = 2 * m + reads + 3 * (8 * m + 4 * n) + 10 * m * n + 16,
            .near = 8 * m + 4 * n + 4};
  }
  // Two blocks of points are one read and an addition.
  if (aligned() || beside)
    return {.tensor = tensor,
            .issue = 2 * m + 4 + 2 * std::ceil(n / 2) + m * n,
            .near = 4 * std::ceil(n / 2) + 4 * m};
  // Four reads, four additions and two words for 8 points.
  return {.tensor = tensor, .issue = 2 * m + 10 + 10 * n + m * n, .near = 4 * n + 4 * m + 4};
}

double WindowProduct::step_alone(const Step& step) const {
  // Of 16 of the depth, cycles that a warp waits for what it reads, and cycles of an instruction of
  // a warp alone, whose next ones wait for it: chosen with the numbers of window_time.cpp. Those of
  // floats are chosen by h100-convolutions-f32.json, -second and -resnet50: the root of the mean
  // square of log(price / time) is 0.215 over 247 plans.
  constexpr double kStepWaits = 105, kStepCycles = 3.8, kFmaStepWaits = 160, kFmaStepCycles = 1;
  if (fma()) return kFmaStepWaits + kFmaStepCycles * step.issue;
  if (floats()) return kFmaStepWaits + step.issue + step.tensor;
  return kStepWaits + kStepCycles * (step.issue + static_cast<double>(blocks_m * blocks_n));
}

bool rows_are_last(const Workload& w, const Operator& op, const Access& result) {
  const auto last = result.index.back().plain_loop();
  if (!last || indexes(op.inputs[0], *last) == indexes(op.inputs[1], *last)) return false;
  const Access &rows = op.inputs[indexes(op.inputs[0], *last) ? 0 : 1],
               &points = op.inputs[indexes(op.inputs[0], *last) ? 1 : 0];
  const auto window = [&](const Access& a) {
    return std::ranges::any_of(a.index, [&](const Affine& i) {
      std::int64_t several = i.offset == 0 ? 0 : 2;
      for (const Term& t : i.terms)
        if (w.loop(t.loop).extent > 1 && !(indexes(rows, t.loop) && indexes(result, t.loop)))
          several += t.coefficient == 1 ? 1 : 2;
      return several > 1;
    });
  };
  std::int64_t lines = 0, groups = 0;
  for (const LoopId l : op.loops)
    if (w.loop(l).extent > 1 && indexes(result, l) && indexes(points, l))
      ++(indexes(rows, l) ? groups : lines);
  return lines > 0 && !window(rows) && (window(points) || (groups > 0 && lines > 1));
}

Result<WindowProduct> window_product(const Schedule& s, int kernel, int warps, int stages) {
  try {
    return WindowFinder(s, kernel).find(warps, stages);
  } catch (const Refused& refused) {
    return Reason{refused.text};
  }
}

std::string describe(const WindowProduct& p, const Schedule& s, int kernel) {
  const Workload& w = *s.workload;
  const auto name = [&](TensorId t) { return w.tensor(t).name; };
  std::string text = formatted(
      "{}: {} blocks of {} warps{} for {} tiles of {} rows x {} x {} points, {} bytes of shared "
      "memory\n",
      s.kernels[static_cast<std::size_t>(kernel)].name, p.grid, p.threads() / 32,
      p.share > 1 ? formatted(", in clusters of {}", p.share) : std::string(), p.tiles, p.tile,
      p.tile_y, p.tile_x, p.shared_bytes);
  text += formatted(
      "tiles\n  {}, {}: ring of {} stages of {} channels, {} bytes each\n  {}: registers, {} x {} "
      "blocks of 16 x 8 a warp\n",
      name(p.left), name(p.right), p.stages, p.step, p.left_bytes() + p.right_bytes(),
      name(w.op(p.product).outputs.front().target.tensor), p.blocks_m, p.blocks_n);
  text += formatted("all warps\n  channels by {}, {} of {} a block{}\n", p.step, p.part, p.channels,
                    p.beside ? ", side by side" : "");
  text += formatted("    {} by {} bytes a copy, {} by {}, zeros around\n", name(p.left),
                    p.element() * p.left_piece, name(p.right), p.element() * p.right_piece);
  text += formatted("    {} steps of 16 of channels and {} x {} window by {}, {} warps in turn\n",
                    p.steps(), p.taps_y, p.taps_x,
                    p.fma()      ? "fused multiply-adds"
                    : p.floats() ? "mma of TF32, three a product"
                                 : "mma",
                    p.warps_k);
  text += "  sums through shared memory";
  if (p.share > 1)
    text += formatted(", {} rows of {} blocks each; between blocks of clusters: {} bytes",
                      p.tile / p.share, p.share, p.cluster_bytes());
  text += "\n";
  for (const OpId op : p.epilogue.operators)
    text += formatted("    C.{} on them\n", to_text(w, op));
  for (const EpilogueRead& r : p.epilogue.reads)
    text += formatted("      {} is read at home\n", name(r.tensor));
  return text + formatted("    results, {} elements a store\n", p.vector);
}

}  // namespace tilewright::lowering
