// The vector unit's instructions over slabs of rows and columns: values are computed in f32 in
// scratch, whatever type tiles have, and rounded once.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/npu/emitter.h"

namespace tilewright::npu {

constexpr std::int64_t kLanes = kVector / 4;  // f32 elements of a repeat
constexpr std::int64_t kEstimatedColumns = 512;
constexpr double kEstimatedElements = 4096;   // of a slab, where its size is not known yet
constexpr std::int64_t kLineAtOnce = 128;     // elements that are brought by two instructions
constexpr std::int64_t kLaneBytes = 1 << 10;  // at the end of scratch: blocks with one lane each
constexpr std::int64_t kTurn = 2 * kVector;   // bytes: sixteen bank groups of a block each

/// How a value lies over a slab.
enum class Spread : std::uint8_t {
  constant,
  full,    ///< an element for each row and column
  row,     ///< one for each row
  column,  ///< one for each column
  one,     ///< one for all, which fills a block
};

/// Elements of a buffer, `step` apart.
struct ElementLine {
  Place first;
  std::int64_t step = 1;
};

struct Value {
  Spread spread = Spread::constant;
  double constant = 0;
  DType type = DType::f32;
  Place place = {};                      ///< literal offset
  std::int64_t pitch = 0;                ///< full: elements from row to row
  bool blocks = false;                   ///< row, one: each element fills a block (vbrcb)
  std::vector<TraceTouch> touches = {};  ///< tiles; scratch is the vector unit's own
  std::int64_t offset() const { return place.offset.literal(); }
};

struct Shape {
  std::int64_t rows = 1, columns = 1;
};

/// Emits vector instructions; temporaries are a stack in scratch.
class VectorUnit {
 public:
  using Emit = std::function<void(Vector, std::vector<TraceTouch>)>;
  VectorUnit(std::string scratch, Emit emit)
      : scratch_(std::move(scratch)), emit_(std::move(emit)) {}

  std::int64_t most() const { return most_; }  ///< elements that temporaries took

  Value temporary(Spread spread, Shape s) {
    return temporary(spread, s, {.type = DType::f32, .place = {scratch_, 0}});
  }
  /// Of a type, in the buffer that has scratch in that type, as `as` has them.
  Value temporary(Spread spread, Shape s, const Value& as) {
    const std::int64_t size = size_of(as.type), block = kBlock / size;
    Value v{.spread = spread, .type = as.type, .place = {as.place.object, used_ * 4 / size}};
    v.pitch = round_up(s.columns, block);
    const std::int64_t elements = spread == Spread::full  ? s.rows * v.pitch
                                  : spread == Spread::row ? round_up(s.rows, block)
                                  : spread == Spread::one ? block
                                                          : v.pitch;
    used_ += elements * size / 4;
    // Two that begin in one bank group are read in turn: whole ones lie half a turn of the groups
    // apart.
    if (spread == Spread::full && elements * size % kTurn == 0) used_ += kTurn / 2 / 4;
    most_ = std::max(most_, used_);
    return v;
  }

  /// Nobody needs what temporaries hold any more, but for those that there were at keep().
  void release() { used_ = kept_; }
  void keep() { kept_ = used_; }
  /// Those of now, and nobody needs later ones any more.
  std::int64_t used() const { return used_; }
  void release_to(std::int64_t used) { used_ = used; }
  bool is_kept(const Value& v) const { return v.offset() < kept_; }

  /// to = op(from...) over the slab; operands of one type but in a cast.
  void apply(VectorOp op, const Value& to, std::vector<Value> from, Shape s, double immediate = 0) {
    for (Value& v : from) {
      if (v.spread == Spread::row && to.spread == Spread::full) v = in_blocks(v, s);
      if (v.spread == Spread::row && to.spread == Spread::row) v = dense(v, s);
    }
    if (to.spread == Spread::one) {
      s = {.rows = 1, .columns = kBlock / 4};
    } else if (to.spread == Spread::row) {  // a vector of rows is one row of columns
      s = {.rows = 1, .columns = s.rows};
    } else if (to.spread == Spread::column) {
      s.rows = 1;
    }
    const auto too_far = [&](const Value& v) { return stride(v, to) > kMaxStride; };
    if (s.rows > 1 && (too_far(to) || std::ranges::any_of(from, too_far))) {
      for (std::int64_t r = 0; r < s.rows; ++r) {
        std::vector<Value> of_row;
        for (const Value& v : from) of_row.push_back(row_of(v, r));
        apply_rows(op, row_of(to, r), of_row, {1, s.columns}, immediate);
      }
      return;
    }
    apply_rows(op, to, from, s, immediate);
  }

  /// Each row of `from` (f32, full) becomes one element of `to` (row); its columns are overwritten.
  void reduce(VectorOp fold, VectorOp across, const Value& to, const Value& from, Shape s) {
    for (std::int64_t c = kLanes; c < s.columns; c += kLanes) {
      Value part = from;
      part.place.offset = from.offset() + c;
      apply(fold, from, {from, part}, {s.rows, std::min(kLanes, s.columns - c)});
    }
    const std::int64_t lanes = std::min(kLanes, s.columns);
    for (std::int64_t r = 0; r < s.rows;) {
      const std::int64_t stride = from.pitch * 4 / kBlock;
      const std::int64_t n = stride > kMaxStride ? 1 : std::min(kMaxRepeat, s.rows - r);
      Vector v{.op = across, .to = {.place = moved(to.place, r)}, .repeat = n};
      v.from.push_back({.place = moved(from.place, r * from.pitch)});
      if (n > 1) v.from.back().repeat_stride = stride;
      if (lanes < kLanes) v.mask = lanes;
      emit_all(std::move(v), to, {from});
      r += n;
    }
  }

  /// All rows of `from` (full) in its first one, in their order: a destination that does not
  /// advance accumulates. Where there are fewer rows than repeats of a row, row by row.
  Value fold_rows(VectorOp fold, const Value& from, Shape s) {
    Value total = from;
    total.spread = Spread::column;
    if (s.rows - 1 > ceil_div(s.columns, kLanes)) {
      Value all = from, rest = from;
      all.pitch = 0;
      rest.place = moved(from.place, from.pitch);
      apply(fold, all, {all, rest}, {s.rows - 1, s.columns});
      return total;
    }
    for (std::int64_t r = 1; r < s.rows; ++r) {
      Value row = total;
      row.place = moved(from.place, r * from.pitch);
      apply(fold, total, {total, row}, s);
    }
    return total;
  }

  /// A row's element in a block, as an operand over full slabs.
  Value in_blocks(const Value& v, Shape s) {
    if (v.blocks) return v;
    const Value to = blocks(Spread::row, s.rows);
    fill_blocks(to, {.first = v.place}, s.rows, v.touches);
    return to;
  }

  /// A row's elements side by side, as an operand over rows.
  Value dense(const Value& v, Shape s) {
    if (!v.blocks) return v;
    const Value to = temporary(Spread::row, s);
    first_of_blocks({.first = to.place}, v, s.rows, {});
    return to;
  }

  /// Room for `n` elements of a block each.
  Value blocks(Spread spread, std::int64_t n) {
    return blocks(spread, n, {.type = DType::f32, .place = {scratch_, 0}});
  }
  Value blocks(Spread spread, std::int64_t n, const Value& as) {
    const Value to{.spread = spread,
                   .type = as.type,
                   .place = {as.place.object, used_ * 4 / size_of(as.type)},
                   .blocks = true};
    used_ += round_up(n, 8) * 8;
    most_ = std::max(most_, used_);
    return to;
  }

  /// Zeros in `n` blocks.
  void clear(const Value& v, std::int64_t n) {
    Value flat = v;
    flat.spread = Spread::column;
    flat.blocks = false;
    apply(VectorOp::dup, flat, {}, {.columns = n * kBlock / size_of(v.type)}, 0);
  }

  /// Each of `n` elements fills a block, one block after another from the beginning of `to`.
  void fill_blocks(const Value& to, const ElementLine& from, std::int64_t n,
                   const std::vector<TraceTouch>& read) {
    const bool strides = from.step >= 0 && from.step <= kMaxStride;
    for (std::int64_t done = 0, now = 0; done < n; done += now) {
      Vector v{.op = VectorOp::brcb, .to = {.place = block_of(to, done)}};
      v.from.push_back({.place = moved(from.first, done * from.step)});
      now = n - done;
      if (from.step == 1 && now >= 8) {  // eight a repeat
        v.repeat = std::min(kMaxRepeat, now / 8);
        now = 8 * v.repeat.literal();
      } else if (from.step == 1) {
        v.mask = now;
      } else {
        now = strides ? std::min(kMaxRepeat, now) : 1;
        v.repeat = now, v.mask = 1;
        v.to.repeat_stride = 1;
        if (now > 1) v.from.back().repeat_stride = from.step;
      }
      emit_(std::move(v), read);
    }
  }

  /// The first elements of `n` blocks, one after another, become those of a line.
  void first_of_blocks(const ElementLine& to, const Value& from, std::int64_t n,
                       std::vector<TraceTouch> written) {
    for (TraceTouch& t : written) t.write = true;
    const bool strides = to.step >= 0 && to.step <= kMaxStride;
    for (std::int64_t done = 0, now = 0; done < n; done += now) {
      now = strides ? std::min(kMaxRepeat, n - done) : 1;
      Vector v{.op = VectorOp::rsum,
               .to = {.place = moved(to.first, done * to.step)},
               .repeat = now,
               .mask = 1};
      if (to.step != 1 && now > 1) v.to.repeat_stride = to.step;
      v.from.push_back({.place = block_of(from, done), .repeat_stride = 1});
      emit_(std::move(v), written);
    }
  }

  /// Elements from one line to another of their type by kLineAtOnce blocks, `between`.
  void bring(const ElementLine& to, const ElementLine& from, std::int64_t n,
             const std::vector<TraceTouch>& written, const std::vector<TraceTouch>& read,
             const Value& between) {
    for (std::int64_t done = 0; done < n; done += kLineAtOnce) {
      const std::int64_t now = std::min(kLineAtOnce, n - done);
      fill_blocks(between, {moved(from.first, done * from.step), from.step}, now, read);
      first_of_blocks({moved(to.first, done * to.step), to.step}, between, now, written);
    }
  }

  /// An instruction as it is.
  void emit(Vector v, std::vector<TraceTouch> touches) { emit_(std::move(v), std::move(touches)); }

 private:
  static Place block_of(const Value& v, std::int64_t n) {
    return moved(v.place, n * kBlock / size_of(v.type));
  }

  static Place moved(const Place& p, std::int64_t by) {
    return {p.object, p.offset.literal() + by};
  }

  static Value row_of(Value v, std::int64_t r) {
    if (v.spread == Spread::full) v.place = moved(v.place, r * v.pitch);
    if (v.spread == Spread::row && v.blocks) v.place = moved(v.place, r * 8);
    return v;
  }

  /// Blocks from one row of an operand to the next.
  static std::int64_t stride(const Value& v, const Value& to) {
    if (v.spread == Spread::full) return v.pitch * size_of(v.type) / kBlock;
    return v.spread == Spread::row && to.spread == Spread::full ? 1 : 0;
  }

  void apply_rows(VectorOp op, const Value& to, const std::vector<Value>& from, Shape s,
                  double immediate) {
    const bool narrow = to.type == DType::f16 && std::ranges::all_of(from, [](const Value& v) {
                          return v.type == DType::f16;
                        });
    const std::int64_t lanes = narrow ? 2 * kLanes : kLanes;
    const auto instruction = [&](std::int64_t row, std::int64_t column, std::int64_t repeat,
                                 std::int64_t mask, bool along) {
      const auto operand = [&](const Value& v) {
        const bool one = v.spread == Spread::one && to.spread != Spread::one;
        const bool block = one || (v.spread == Spread::row && v.blocks);
        VectorPlace p{.place = moved(v.place, (v.spread == Spread::full ? row * v.pitch : 0) +
                                                  (one     ? 0
                                                   : block ? row * 8
                                                           : column))};
        if (block) p.block_stride = 0;
        if (along && block) p.repeat_stride = 0;
        if (!along && repeat > 1) p.repeat_stride = stride(v, to);
        return p;
      };
      Vector v{.op = op, .to = operand(to), .immediate = immediate, .repeat = repeat};
      for (const Value& f : from) v.from.push_back(operand(f));
      if (mask < lanes) v.mask = mask;
      emit_all(std::move(v), to, from);
    };
    if (s.rows == 1) {
      std::int64_t c = 0;
      for (std::int64_t n; (n = std::min(kMaxRepeat, (s.columns - c) / lanes)) > 0; c += n * lanes)
        instruction(0, c, n, lanes, true);
      if (c < s.columns) instruction(0, c, 1, s.columns - c, true);
      return;
    }
    for (std::int64_t c = 0; c < s.columns; c += lanes)
      for (std::int64_t r = 0; r < s.rows; r += kMaxRepeat)
        instruction(r, c, std::min(kMaxRepeat, s.rows - r), std::min(lanes, s.columns - c), false);
  }

  void emit_all(Vector v, const Value& to, const std::vector<Value>& from) {
    std::vector<TraceTouch> touches;
    for (const Value& f : from) touches.insert(touches.end(), f.touches.begin(), f.touches.end());
    for (TraceTouch t : to.touches) {
      t.write = true;
      touches.push_back(std::move(t));
    }
    emit_(std::move(v), std::move(touches));
  }

  std::string scratch_;
  std::int64_t used_ = 0, most_ = 0, kept_ = 0;
  Emit emit_;
};

}  // namespace tilewright::npu
