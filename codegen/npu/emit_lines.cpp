// Elements that lie anywhere in tiles, brought to scratch or from there by the vector unit: a line
// of them at a time, or rows of them together.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "codegen/npu/emitter.h"
#include "codegen/npu/vector_unit.h"

namespace tilewright::npu {
namespace {

constexpr std::int64_t kChunk = 8;  // elements that brcb reads at once, a block each
constexpr std::int64_t kSlots =
    kChunk + 1;                        // blocks of a chunk: in other bank groups than the next
constexpr std::int64_t kMostStep = 4;  // elements from one to the next: brcb reads all
constexpr std::int64_t kMostSlots = 32 << 10;  // bytes of them: more makes no instruction longer

std::int64_t lanes_in_block(DType t) { return kBlock / size_of(t); }

/// Blocks from one block of the result's slots to the next: elements between those that are taken
/// have slots, too.
std::int64_t slots_of_block(DType t, std::int64_t step) {
  return lanes_in_block(t) * std::abs(step) / kChunk * kSlots;
}

}  // namespace

/// The access's elements over a slab, from its tile to `scratch` or from there to its tile: by the
/// vector unit, two instructions a line of them. Elements that lie anywhere are spread to a block
/// each, and the first ones of blocks are brought together (brcb reads, and a reduction of one
/// element writes, at any element).
void KernelEmitter::move_lines(VectorUnit& unit, const Walked& x, const SlabAt& slab,
                               const Value& scratch, bool inward, const SlabEmit& emit) {
  if (x.touches.empty()) return;
  const std::int64_t rows = scratch.spread != Spread::column ? slab.shape.rows : 1;
  const std::int64_t columns = scratch.spread != Spread::row ? slab.shape.columns : 1;
  const Form here{.base = scratch.offset(),
                  .row = scratch.spread == Spread::full ? scratch.pitch : 1,
                  .column = 1};
  // Lines are rows, or columns where these are longer and within what instructions step over.
  const auto steps = [](std::int64_t by) { return by >= 0 && by <= kMaxStride; };
  const bool across = rows > columns && steps(x.offset.row) && steps(here.row);
  const std::int64_t lines = across ? columns : rows, length = across ? rows : columns;
  const auto along = [&](const Form& f) { return across ? f.row : f.column; };
  const bool kept = emit.kept && kept_ == Kept::all;
  const std::int64_t used = unit.used();
  if (inward && collects(x, scratch, rows, columns, emit.kept)) {
    collect(unit, x, scratch, rows, columns, emit);
    unit.release_to(used);
    if (emit.kept) return;
  }
  // In scratch, where the value itself may be a tile.
  const std::int64_t most = std::min(length, kLineAtOnce);
  const Value between = scratch.type == DType::f16
                            ? unit.blocks(Spread::row, most, narrow_scratch())
                            : unit.blocks(Spread::row, most);
  looped(across ? column_counter_ : row_counter_, lines, kept, [&](std::int64_t line) {
    const std::int64_t r = across ? 0 : line, c = across ? line : 0;
    Interval there{0, length};
    for (const auto& [f, below] : x.inside)
      there = intersect(there, clipped(f.at(r, c), along(f), below, length));
    if (there.empty()) return;
    const auto at = [&](const std::string& object, const Form& f) {
      return ElementLine{.first = {object, f.at(r, c) + there.lo * along(f)}, .step = along(f)};
    };
    const ElementLine in_tile = at(x.object, x.offset), in_scratch = at(scratch.place.object, here);
    unit.bring(inward ? in_scratch : in_tile, inward ? in_tile : in_scratch, there.size(),
               inward ? std::vector<TraceTouch>{} : x.touches, inward ? x.touches : scratch.touches,
               between);
  });
  unit.release_to(used);
}

std::int64_t KernelEmitter::blocks_at_once(DType t, std::int64_t step, std::int64_t blocks) const {
  const std::int64_t bytes = std::min(kMostSlots, (scratch_bytes_ - kLaneBytes) / 2);
  return std::min(blocks, bytes / (slots_of_block(t, step) * kBlock) / kChunk * kChunk);
}

/// Whether rows are brought together: those whose neighbours lie near one another in the tile, or
/// backwards, where that is estimated to take less than line by line.
bool KernelEmitter::collects(const Walked& x, const Value& to, std::int64_t rows,
                             std::int64_t columns, bool kept) const {
  const std::int64_t step = x.offset.column, lanes = lanes_in_block(to.type);
  const std::int64_t blocks = rows * ceil_div(columns, lanes);
  if (step == 0 || step < -1 || step > kMostStep || columns < 2 ||
      blocks_at_once(to.type, step, kChunk) < kChunk)
    return false;
  if (to.spread == Spread::full && to.pitch != round_up(columns, lanes)) return false;
  if (to.spread != Spread::full && to.spread != Spread::column) return false;
  if (!kept) return true;  // room for it
  const auto startup = static_cast<double>(core().vector_startup);
  const auto count = [](std::int64_t n) { return static_cast<double>(n); };
  const double chunks = count(ceil_div(columns * std::abs(step), kChunk)), length = count(columns);
  const double spread = step > 0 ? startup + chunks : chunks * (startup + 1);
  const double by_lines = count(rows) * (startup * count(ceil_div(columns, kLineAtOnce)) +
                                         length * count(core().reduction_repeat) +
                                         (step == 1  ? startup + chunks
                                          : step > 0 ? startup + length
                                                     : length * (startup + 1)));
  const std::int64_t at_once = blocks_at_once(to.type, step, blocks);
  const bool in_repeats = kChunk * slots_of_block(to.type, step) <= kMaxStride;
  const double picks = in_repeats
                           ? count(ceil_div(blocks, at_once)) * startup + 2 * count(blocks) / kChunk
                           : count(ceil_div(blocks, kChunk)) * (startup + 2);
  const double together =
      count(rows) * (spread + (columns % kChunk == 0 ? 0 : startup + 1)) + count(lanes) * picks +
      count((x.inside.empty() ? at_once : blocks) * slots_of_block(to.type, step)) / kChunk;
  const bool made = lanes_made_[to.type == DType::f16 ? 1 : 0];
  const double lanes_take =
      made ? 0 : 4 * startup + count(lanes) * count(1 + core().reduction_repeat);
  return together + lanes_take < by_lines;
}

/// A block for each lane of one: 1 in that lane and 0 in the others.
Value KernelEmitter::lanes_of_blocks(VectorUnit& unit, DType t) {
  const std::int64_t lanes = lanes_in_block(t), size = size_of(t);
  Value blocks = t == DType::f16 ? narrow_scratch() : Value{.place = {scratch_name_, 0}};
  blocks.spread = Spread::column;
  blocks.place.offset =
      (scratch_bytes_ - kLaneBytes + (t == DType::f16 ? kLaneBytes / 2 : 0)) / size;
  bool& made = lanes_made_[t == DType::f16 ? 1 : 0];
  if (std::exchange(made, true)) return blocks;
  const std::int64_t used = unit.used();
  Value ones = t == DType::f16 ? unit.temporary(Spread::one, {}, narrow_scratch())
                               : unit.temporary(Spread::one, {});
  ones.spread = Spread::column;
  unit.apply(VectorOp::dup, ones, {}, {.columns = lanes}, 1);
  unit.apply(VectorOp::dup, blocks, {}, {.columns = lanes * lanes}, 0);
  unit.emit({.op = VectorOp::rsum,
             .to = {.place = blocks.place, .repeat_stride = lanes + 1},
             .from = {{.place = ones.place, .repeat_stride = 0}},
             .repeat = lanes,
             .mask = 1},
            {});
  unit.release_to(used);
  return blocks;
}

/// Rows of elements into `to`, zeros where there are none. Each element is spread to a block of its
/// own; then each lane of the result takes what is for it, in all blocks of the result at once.
void KernelEmitter::collect(VectorUnit& unit, const Walked& x, const Value& to, std::int64_t rows,
                            std::int64_t columns, const SlabEmit& emit) {
  const std::int64_t lanes = lanes_in_block(to.type), step = x.offset.column;
  const std::int64_t width = round_up(columns, lanes), all = rows * width / lanes;
  const std::int64_t at_once = blocks_at_once(to.type, step, all);
  const std::int64_t each = slots_of_block(to.type, step), every = std::abs(step);
  Value slots = to.type == DType::f16 ? unit.blocks(Spread::row, at_once * each, narrow_scratch())
                                      : unit.blocks(Spread::row, at_once * each);
  if (!emit.kept) return;
  const Value picked = lanes_of_blocks(unit, to.type);
  const auto slot = [&](std::int64_t n) {
    return Place{slots.place.object, slots.offset() + n * lanes};
  };
  const bool clipped_rows = !x.inside.empty();
  for (std::int64_t begin = 0; begin < all; begin += at_once) {
    const std::int64_t now = std::min(at_once, all - begin);
    if (begin == 0 || clipped_rows) unit.clear(slots, now * each);
    const std::int64_t first = begin * lanes, end = (begin + now) * lanes;
    for (std::int64_t r = first / width; r * width < end; ++r) {
      Interval there = intersect({0, columns}, {first - r * width, end - r * width});
      for (const auto& [f, below] : x.inside) {
        const Interval inside = clipped(f.at(r, 0), f.column, below, columns);
        there = intersect(there, inside);
      }
      if (there.empty()) continue;
      // Elements of memory from the row's first column on, those between columns included.
      const auto spread = [&](std::int64_t m, std::int64_t chunks, std::int64_t some) {
        const std::int64_t at = (r * width - first) * every + m;
        const std::int64_t within = step > 0 ? at % kChunk : kChunk - at % kChunk - some;
        Vector v{.op = VectorOp::brcb,
                 .to = {.place = slot(at / kChunk * kSlots + within)},
                 .repeat = chunks};
        const std::int64_t lowest = x.offset.at(r, 0) + (step > 0 ? m : -(m + some - 1));
        v.from.push_back({.place = {x.object, lowest}});
        if (some < kChunk) v.mask = some;
        if (chunks > 1) v.to.repeat_stride = kSlots;
        unit.emit(std::move(v), x.touches);
      };
      const std::int64_t last = (there.hi - 1) * every + 1;
      for (std::int64_t m = there.lo * every; m < last;) {
        const std::int64_t to_end = std::min(kChunk - m % kChunk, last - m);
        const std::int64_t chunks =
            to_end < kChunk || step < 0 ? 1 : std::min(kMaxRepeat, (last - m) / kChunk);
        spread(m, chunks, to_end);
        m += to_end < kChunk ? to_end : chunks * kChunk;
      }
    }
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const std::int64_t m = lane * every;
      const std::int64_t within = step > 0 ? m % kChunk : kChunk - 1 - m % kChunk;
      const std::int64_t from = m / kChunk * kSlots + within;
      const std::int64_t most = kChunk * each <= kMaxStride ? kMaxRepeat : 1;
      for (std::int64_t b = 0; b < now;) {
        const std::int64_t repeat = std::min(most, (now - b) / kChunk);
        const std::int64_t blocks = repeat > 0 ? repeat * kChunk : now - b;
        VectorPlace into{.place = {to.place.object, to.offset() + (begin + b) * lanes}};
        VectorPlace value{.place = slot(b * each + from), .block_stride = each};
        VectorPlace lane_only{.place = {picked.place.object, picked.offset() + lane * lanes},
                              .block_stride = 0};
        if (repeat > 1) value.repeat_stride = kChunk * each, lane_only.repeat_stride = 0;
        Vector v{.op = lane == 0 ? VectorOp::copy : VectorOp::sel,
                 .to = into,
                 .repeat = std::max<std::int64_t>(repeat, 1)};
        if (lane > 0) v.from.push_back(lane_only);
        v.from.push_back(value);
        if (lane > 0) v.from.push_back(into);
        if (repeat == 0) v.mask = blocks * lanes;
        unit.emit(std::move(v), {});
        b += blocks;
      }
    }
  }
}

}  // namespace tilewright::npu
