// The vector unit: repeats of up to 256 bytes, in floats.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/format.h"
#include "simulator/npu/half.h"
#include "simulator/npu/units.h"

namespace tilewright::npu {
namespace {

constexpr std::size_t kMaxLanes = kVector / 2;
using Lanes = std::array<float, kMaxLanes>;

/// One operand, its strides in elements.
struct Operand {
  int object;
  DType type;
  std::int64_t offset, repeat_stride, block_stride, per_block;
};

struct Shape {
  Operand to;
  std::array<Operand, 3> from;
  int sources;
  std::int64_t repeat, mask, lanes;
};

Shape shape_of(const std::vector<Object>& objects, const Instruction& i) {
  const Template& t = *i.of;
  Shape s{};
  s.sources = sources_of(t.op);
  const auto operand = [&](std::size_t o, std::int64_t unit) {
    Operand p{.object = t.objects[o]};
    if (p.object < 0) return p;
    p.type = objects[static_cast<std::size_t>(p.object)].type;
    p.per_block = kBlock / size_of(p.type);
    const std::int64_t block = unit == 0 ? p.per_block : unit;
    p.offset = i.v[3 * o];
    p.repeat_stride = i.v[3 * o + 1] * block;
    p.block_stride = i.v[3 * o + 2] * block;
    return p;
  };
  const bool broadcast = t.op == VectorOp::brcb;
  s.to = operand(0, is_reduction(t.op) ? 1 : 0);
  s.from = {operand(1, broadcast ? 1 : 0), operand(2, 0), operand(3, 0)};
  s.lanes = lanes_of(t.op, s.to.type, s.sources > 0 ? s.from[0].type : s.to.type);
  s.repeat = i.v[12];
  s.mask = i.v[13];
  return s;
}

/// One run where the runs follow one another, or are the same.
Touch merged(Touch t) {
  if (t.stride == t.bytes) {
    t.bytes *= t.count;
    t.count = 1;
  } else if (t.stride == 0) {
    t.count = 1;
  }
  return t;
}

/// Runs of an operand that is walked by blocks: one touch for each block of a repeat, or one in all
/// where blocks follow one another.
void touch_blocks(const Operand& p, const Shape& s, bool write, std::vector<Touch>& touches) {
  const std::int64_t size = size_of(p.type);
  const auto add = [&](std::int64_t start, std::int64_t elements) {
    Touch t{.object = p.object,
            .start = (p.offset + start) * size,
            .bytes = elements * size,
            .count = s.repeat,
            .stride = p.repeat_stride * size,
            .write = write};
    touches.push_back(merged(t));
  };
  if (p.block_stride == p.per_block) return add(0, s.mask);
  for (std::int64_t b = 0; b * p.per_block < s.mask; ++b) {
    add(b * p.block_stride, std::min(p.per_block, s.mask - b * p.per_block));
    if (p.block_stride == 0) break;
  }
}

/// One element a repeat (a reduction's destination), or a few that follow one another (brcb's
/// source).
void touch_elements(const Operand& p, std::int64_t each, std::int64_t repeat, bool write,
                    std::vector<Touch>& touches) {
  const std::int64_t size = size_of(p.type);
  Touch t{.object = p.object,
          .start = p.offset * size,
          .bytes = each * size,
          .count = repeat,
          .stride = p.repeat_stride * size,
          .write = write};
  touches.push_back(merged(t));
}

/// Most blocks of one bank group among the distinct blocks that a repeat reads or writes.
class Banks {
 public:
  explicit Banks(std::int64_t groups) : groups_(groups) {}
  void clear() { count_ = 0; }
  void add(std::int64_t block) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (blocks_[i] == block) return;
    }
    blocks_[count_++] = block;
  }
  std::int64_t most() const {
    std::int64_t most = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      std::int64_t same = 0;
      for (std::size_t j = 0; j < count_; ++j) same += (blocks_[i] - blocks_[j]) % groups_ == 0;
      most = std::max(most, same);
    }
    return most;
  }

 private:
  std::int64_t groups_;
  std::array<std::int64_t, 4 * kVector / kBlock> blocks_ = {};
  std::size_t count_ = 0;
};

/// Cycles beyond the first that a repeat's accesses to bank groups take, over all repeats.
std::int64_t bank_cycles(const std::vector<Object>& objects, const Shape& s, std::int64_t groups,
                         VectorOp op) {
  Banks reads(groups), writes(groups);
  std::int64_t extra = 0;
  const auto walk = [&](const Operand& p, std::int64_t r, std::int64_t elements, Banks& banks) {
    const std::int64_t base = objects[static_cast<std::size_t>(p.object)].address / size_of(p.type);
    for (std::int64_t done = 0, b = 0; done < elements; done += p.per_block, ++b) {
      banks.add((base + p.offset + r * p.repeat_stride + b * p.block_stride) / p.per_block);
    }
  };
  for (std::int64_t r = 0; r < s.repeat; ++r) {
    reads.clear();
    writes.clear();
    for (int f = 0; f < s.sources; ++f) walk(s.from[static_cast<std::size_t>(f)], r, s.mask, reads);
    const std::int64_t written = is_reduction(op)       ? 1
                                 : op == VectorOp::brcb ? s.mask * s.to.per_block
                                                        : s.mask;
    walk(s.to, r, written, writes);
    extra += std::max<std::int64_t>(1, std::max(reads.most(), writes.most())) - 1;
  }
  return extra;
}

std::int64_t cycles_of_repeat(const NpuCore& core, VectorOp op) {
  switch (op) {
    case VectorOp::div:
    case VectorOp::exp:
    case VectorOp::log:
    case VectorOp::sqrt:
    case VectorOp::rsqrt:
    case VectorOp::recip:
      return core.slow_repeat;
    default:
      return is_reduction(op) ? core.reduction_repeat : 1;
  }
}

std::optional<Refusal> check_ranges(const Instruction& i, const Shape& s) {
  if (s.repeat < 0 || s.repeat > kMaxRepeat) return out_of_range("repeat", s.repeat, 0, kMaxRepeat);
  if (s.mask < 0 || s.mask > s.lanes) return out_of_range("mask", s.mask, 0, s.lanes);
  for (std::size_t o = 0; o <= static_cast<std::size_t>(s.sources); ++o) {
    for (const std::size_t stride : {3 * o + 1, 3 * o + 2}) {
      if (i.v[stride] < 0 || i.v[stride] > kMaxStride) {
        return out_of_range("a stride of", i.v[stride], 0, kMaxStride);
      }
    }
  }
  return std::nullopt;
}

// Values
// ---------------------------------------------------------------------------------------------

void load(const Operand& p, const std::byte* base, std::int64_t r, std::int64_t mask,
          Lanes& lanes) {
  const std::int64_t size = size_of(p.type);
  const std::byte* const start = base + (p.offset + r * p.repeat_stride) * size;
  if (p.block_stride == p.per_block) {
    return load_elements(start, p.type, lanes.data(), static_cast<std::size_t>(mask));
  }
  for (std::int64_t done = 0, b = 0; done < mask; done += p.per_block, ++b) {
    load_elements(start + b * p.block_stride * size, p.type, lanes.data() + done,
                  static_cast<std::size_t>(std::min(p.per_block, mask - done)));
  }
}

void store(const Operand& p, std::byte* base, std::int64_t r, std::int64_t mask,
           const Lanes& lanes) {
  const std::int64_t size = size_of(p.type);
  std::byte* const start = base + (p.offset + r * p.repeat_stride) * size;
  for (std::int64_t done = 0, b = 0; done < mask; done += p.per_block, ++b) {
    store_elements(lanes.data() + done, p.type, start + b * p.block_stride * size,
                   static_cast<std::size_t>(std::min(p.per_block, mask - done)));
  }
}

float greater(float a, float b) { return a != a ? a : (b != b ? b : (a > b ? a : b)); }
float lesser(float a, float b) { return a != a ? a : (b != b ? b : (a < b ? a : b)); }

/// x[i] = f(x[i], y[i])
template <class F>
void each(Lanes& x, const Lanes& y, std::int64_t n, F&& f) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) x[i] = f(x[i], y[i]);
}

/// In f64, where that saves an error: rounded to f32.
template <class F>
void each_wide(Lanes& x, std::int64_t n, F&& f) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    x[i] = static_cast<float>(f(static_cast<double>(x[i])));
  }
}

/// Upper half to lower half; lanes from `mask` on take no part.
template <class F>
float reduced(Lanes& x, std::int64_t lanes, std::int64_t mask, F&& f) {
  auto n = static_cast<std::size_t>(mask);
  for (auto h = static_cast<std::size_t>(lanes) / 2; h > 0; h /= 2) {
    for (std::size_t i = 0; i + h < n && i < h; ++i) x[i] = f(x[i], x[i + h]);
    n = std::min(n, h);
  }
  return x[0];
}

float identity_of(VectorOp op) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return op == VectorOp::rsum ? 0.0F : (op == VectorOp::rmax ? -kInfinity : kInfinity);
}

float reduce(VectorOp op, Lanes& x, std::int64_t lanes, std::int64_t mask) {
  if (mask == 0) return identity_of(op);
  if (op == VectorOp::rmax) return reduced(x, lanes, mask, greater);
  if (op == VectorOp::rmin) return reduced(x, lanes, mask, lesser);
  return reduced(x, lanes, mask, [](float a, float b) { return a + b; });
}

/// x = op(x, y) on n lanes; where op takes an immediate, y is that in every lane.
void compute(VectorOp op, Lanes& x, const Lanes& y, std::int64_t n) {
  switch (op) {
    case VectorOp::add:
    case VectorOp::adds:
      return each(x, y, n, [](float a, float b) { return a + b; });
    case VectorOp::sub:
    case VectorOp::subs:
      return each(x, y, n, [](float a, float b) { return a - b; });
    case VectorOp::mul:
    case VectorOp::muls:
      return each(x, y, n, [](float a, float b) { return a * b; });
    case VectorOp::div:
      return each(x, y, n, [](float a, float b) { return a / b; });
    case VectorOp::max:
    case VectorOp::maxs:
      return each(x, y, n, greater);
    case VectorOp::min:
    case VectorOp::mins:
      return each(x, y, n, lesser);
    case VectorOp::lt:
      return each(x, y, n, [](float a, float b) { return a < b ? 1.0F : 0.0F; });
    case VectorOp::floor:
      return each(x, y, n, [](float a, float) { return std::floor(a); });
    case VectorOp::round:
      return each(x, y, n, [](float a, float) { return std::nearbyint(a); });
    case VectorOp::exp:
      return each_wide(x, n, [](double a) { return std::exp(a); });
    case VectorOp::log:
      return each_wide(x, n, [](double a) { return std::log(a); });
    case VectorOp::rsqrt:
      return each_wide(x, n, [](double a) { return 1.0 / std::sqrt(a); });
    case VectorOp::sqrt:
      return each(x, y, n, [](float a, float) { return std::sqrt(a); });
    case VectorOp::recip:
      return each(x, y, n, [](float a, float) { return 1.0F / a; });
    case VectorOp::relu:
      return each(x, y, n, [](float a, float) { return greater(a, 0.0F); });
    case VectorOp::abs:
      return each(x, y, n, [](float a, float) { return std::fabs(a); });
    case VectorOp::dup:
      x = y;
      return;
    default:
      return;  // copy, cast: loading and storing is all; reductions, brcb, sel: do_vector
  }
}

float rounded(double immediate, DType type) {
  float r = static_cast<float>(immediate);
  if (type == DType::f16) {
    std::uint16_t half = 0;
    halves_of_floats(&r, &half, 1);
    floats_of_halves(&half, &r, 1);
  }
  return r;
}

void broadcast(const Shape& s, const std::byte* from, std::byte* to) {
  Lanes x, block;
  for (std::int64_t r = 0; r < s.repeat; ++r) {
    const std::int64_t size = size_of(s.from[0].type);
    load_elements(from + (s.from[0].offset + r * s.from[0].repeat_stride) * size, s.from[0].type,
                  x.data(), static_cast<std::size_t>(s.mask));
    for (std::int64_t b = 0; b < s.mask; ++b) {
      block.fill(x[static_cast<std::size_t>(b)]);
      const std::int64_t at = s.to.offset + r * s.to.repeat_stride + b * s.to.block_stride;
      store_elements(block.data(), s.to.type, to + at * size,
                     static_cast<std::size_t>(s.to.per_block));
    }
  }
}

}  // namespace

std::optional<Refusal> plan_vector(const NpuCore& core, const std::vector<Object>& objects,
                                   const Instruction& i, Work& work) {
  const VectorOp op = i.of->op;
  const Shape s = shape_of(objects, i);
  if (auto bad = check_ranges(i, s)) return bad;
  work.cycles = core.vector_startup;
  if (s.repeat == 0 || s.mask == 0) return std::nullopt;
  for (int f = 0; f < s.sources; ++f) {
    const Operand& p = s.from[static_cast<std::size_t>(f)];
    const std::int64_t align = op == VectorOp::brcb ? size_of(p.type) : kBlock;
    if (auto bad = check_offset(objects, p.object, p.offset, align)) return bad;
    if (op == VectorOp::brcb)
      touch_elements(p, s.mask, s.repeat, false, work.touches);
    else
      touch_blocks(p, s, false, work.touches);
  }
  const std::int64_t align = is_reduction(op) ? size_of(s.to.type) : kBlock;
  if (auto bad = check_offset(objects, s.to.object, s.to.offset, align)) return bad;
  if (is_reduction(op)) {
    touch_elements(s.to, 1, s.repeat, true, work.touches);
  } else {
    Shape written = s;
    if (op == VectorOp::brcb) written.mask = s.mask * s.to.per_block;
    touch_blocks(s.to, written, true, work.touches);
  }
  if (auto bad = check_bounds(objects, work)) return bad;
  work.bank = bank_cycles(objects, s, core.bank_groups, op);
  work.cycles += s.repeat * cycles_of_repeat(core, op) + work.bank;
  return std::nullopt;
}

void do_vector(const std::vector<Object>& objects, const Bases& bases, const Instruction& i) {
  const VectorOp op = i.of->op;
  const Shape s = shape_of(objects, i);
  const auto base = [&](const Operand& p) { return bases[static_cast<std::size_t>(p.object)]; };
  if (s.repeat == 0 || s.mask == 0) return;
  if (op == VectorOp::brcb) return broadcast(s, base(s.from[0]), base(s.to));
  Lanes x, y, z;
  if (has_immediate(op)) y.fill(rounded(i.of->immediate, s.to.type));
  for (std::int64_t r = 0; r < s.repeat; ++r) {
    if (s.sources > 0) load(s.from[0], base(s.from[0]), r, s.mask, x);
    if (s.sources > 1) load(s.from[1], base(s.from[1]), r, s.mask, y);
    if (s.sources > 2) load(s.from[2], base(s.from[2]), r, s.mask, z);
    if (op == VectorOp::sel)
      for (std::size_t l = 0; l < static_cast<std::size_t>(s.mask); ++l)
        x[l] = x[l] != 0 ? y[l] : z[l];
    if (is_reduction(op)) {
      const float result = reduce(op, x, s.lanes, s.mask);
      const std::int64_t at = s.to.offset + r * s.to.repeat_stride;
      store_elements(&result, s.to.type, base(s.to) + at * size_of(s.to.type), 1);
    } else {
      compute(op, x, y, s.mask);
      store(s.to, base(s.to), r, s.mask, x);
    }
  }
}

}  // namespace tilewright::npu
