// What conflicts of banks of the Unified Buffer add to a vector instruction (docs/npu.md, Time): in
// each repeat a bank group reads one block of 32 bytes a cycle and writes one, and the same block
// counts once.
#include <algorithm>
#include <numeric>
#include <vector>

#include "codegen/npu/emitter.h"
#include "core/base/error.h"

namespace tilewright::npu {
namespace {

/// The blocks of an operand, by bytes: a repeat may begin within one.
struct Blocks {
  std::int64_t begin = 0;          ///< bytes
  std::int64_t repeat_stride = 0;  ///< bytes
  std::int64_t block_stride = 0;   ///< bytes
  std::int64_t count = 0;          ///< blocks a repeat
  friend bool operator==(const Blocks&, const Blocks&) = default;
};

/// Most blocks of one group among the different ones of a repeat.
std::int64_t most_of_a_group(const std::vector<Blocks>& operands, std::int64_t repeat,
                             std::int64_t groups, std::vector<std::int64_t>& blocks,
                             std::vector<std::int64_t>& of_group) {
  // One run of blocks that follow one another, as most are: each is in a group of its own.
  const Blocks& run = operands.front();
  if (std::ranges::all_of(operands,
                          [&](const Blocks& o) {
                            return o.count == run.count && o.block_stride == kBlock &&
                                   o.begin / kBlock == run.begin / kBlock &&
                                   o.repeat_stride == run.repeat_stride;
                          }) &&
      run.count <= groups && run.repeat_stride % kBlock == 0)
    return run.count > 0 ? 1 : 0;
  blocks.clear();
  for (const Blocks& o : operands)
    for (std::int64_t b = 0; b < o.count; ++b)
      blocks.push_back((o.begin + repeat * o.repeat_stride + b * o.block_stride) / kBlock);
  std::ranges::sort(blocks);
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  of_group.assign(static_cast<std::size_t>(groups), 0);
  std::int64_t most = 0;
  for (const std::int64_t b : blocks)
    most = std::max(most, ++of_group[static_cast<std::size_t>(b % groups)]);
  return most;
}

/// After how many repeats each group has again as many blocks of each operand; `repeats` where it
/// is not known to.
std::int64_t period_of(const std::vector<Blocks>& operands, std::int64_t repeats,
                       std::int64_t groups) {
  // Where all move by as many whole blocks, each repeat is as the first, and blocks that follow one
  // another are in groups of their own.
  const Blocks& first = operands.front();
  if (operands.size() == 1 && first.block_stride == kBlock && first.count <= groups) return 1;
  const auto in_blocks = [](const Blocks& o) { return o.repeat_stride % kBlock == 0; };
  if (!std::ranges::all_of(operands, in_blocks)) return repeats;
  if (std::ranges::all_of(operands,
                          [&](const Blocks& o) { return o.repeat_stride == first.repeat_stride; }))
    return 1;
  // Elsewhere those of two operands may be the same block in one repeat and not in another, but for
  // operands that are the same or lie apart.
  const auto end = [&](const Blocks& o) {
    return o.begin + (repeats - 1) * o.repeat_stride + (o.count - 1) * o.block_stride + kBlock;
  };
  std::int64_t period = 1;
  for (const Blocks& a : operands) {
    for (const Blocks& b : operands)
      if (a != b && a.begin / kBlock * kBlock < end(b) && b.begin / kBlock * kBlock < end(a))
        return repeats;
    const std::int64_t step = a.repeat_stride / kBlock % groups;
    period = std::lcm(period, groups / std::gcd(step, groups));
  }
  return std::min(period, repeats);
}

/// Cycles that the accesses of so many repeats wait for one another.
std::int64_t cycles_more(const std::vector<Blocks>& reads, const std::vector<Blocks>& writes,
                         std::int64_t repeats, std::int64_t groups) {
  std::vector<std::int64_t> taken, of_group;
  const std::int64_t period =
      std::lcm(period_of(reads, repeats, groups), period_of(writes, repeats, groups));
  std::int64_t more = 0;
  for (std::int64_t r = 0; r < std::min(period, repeats); ++r) {
    const std::int64_t times = (repeats - r + period - 1) / period;  // repeats like this one
    more += times * (std::max({std::int64_t{1}, most_of_a_group(reads, r, groups, taken, of_group),
                               most_of_a_group(writes, r, groups, taken, of_group)}) -
                     1);
  }
  return more;
}

/// Adds what tells the blocks from others: all of them further on by a block of each group wait as
/// long.
void add_to_key(const std::vector<Blocks>& all, std::int64_t groups,
                std::vector<std::int64_t>& key) {
  std::int64_t least = all.front().begin;
  for (const Blocks& b : all) least = std::min(least, b.begin);
  least -= least % (groups * kBlock);
  for (const Blocks& b : all)
    key.insert(key.end(), {b.begin - least, b.repeat_stride, b.block_stride, b.count});
}

}  // namespace

std::int64_t KernelEmitter::bank_cycles(const Vector& v) const {
  struct Object {
    std::int64_t address = 0;
    DType type = DType::f32;
  };
  const auto object = [&](const VectorPlace& p) -> Object {
    if (p.place.object == scratch_name_) return {.address = scratch_touch().low};
    const auto at = std::ranges::find(places_, p.place.object, &TilePlace::name);
    if (at != places_.end()) return {.address = at->address, .type = at->type};
    const auto through = std::ranges::find(extra_, p.place.object, &Buffer::name);
    TW_CHECK(through != extra_.end(), p.place.object);
    return {.address = through->address, .type = through->type};
  };
  const Object to = object(v.to), from = v.from.empty() ? to : object(v.from.front());
  const std::int64_t lanes = lanes_of(v.op, to.type, from.type);
  const std::int64_t mask = v.mask ? v.mask->literal() : lanes;
  const bool broadcast = v.op == VectorOp::brcb;
  // `elements` of a repeat; strides of repeats are in units of `unit` bytes, `all` of them by
  // default.
  const auto blocks = [&](const VectorPlace& p, const Object& o, std::int64_t elements,
                          std::int64_t unit, std::int64_t all) -> Blocks {
    const std::int64_t size = size_of(o.type), each = kBlock / size;
    return {.begin = o.address + p.place.offset.literal() * size,
            .repeat_stride = (p.repeat_stride ? p.repeat_stride->literal() : all) * unit,
            .block_stride = (p.block_stride ? p.block_stride->literal() : 1) * kBlock,
            .count = ceil_div(elements, each)};
  };
  const std::int64_t to_size = size_of(to.type);
  std::vector<Blocks> reads;
  for (const VectorPlace& f : v.from) {
    const Object o = object(f);
    const std::int64_t size = size_of(o.type);
    reads.push_back(broadcast ? blocks(f, o, mask, size, lanes)
                              : blocks(f, o, mask, kBlock, ceil_div(lanes * size, kBlock)));
  }
  const std::vector<Blocks> writes = {
      is_reduction(v.op) ? blocks(v.to, to, 1, to_size, 1)
      : broadcast        ? blocks(v.to, to, mask * kBlock / to_size, kBlock, lanes)
                         : blocks(v.to, to, mask, kBlock, ceil_div(lanes * to_size, kBlock))};
  if (reads.empty()) reads = writes;  // nothing is read
  const std::int64_t groups = core().bank_groups;
  std::vector<std::int64_t> key{v.repeat.literal()};
  add_to_key(reads, groups, key);
  add_to_key(writes, groups, key);
  const auto [known, is_new] = bank_cycles_.try_emplace(std::move(key), 0);
  if (is_new) known->second = cycles_more(reads, writes, v.repeat.literal(), groups);
  return known->second;
}

}  // namespace tilewright::npu
