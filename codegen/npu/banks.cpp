// What conflicts of banks of the Unified Buffer add to a vector instruction (docs/npu.md, Time): in
// each repeat a bank group reads one block of 32 bytes a cycle and writes one, and the same block
// counts once.
#include <algorithm>
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
  std::vector<std::int64_t> taken, of_group;
  // Where all operands move by as many whole blocks, each repeat is as the first.
  const auto alike = [](const std::vector<Blocks>& all) {
    return std::ranges::all_of(all, [&](const Blocks& o) {
      return o.repeat_stride == all.front().repeat_stride && o.repeat_stride % kBlock == 0;
    });
  };
  const std::int64_t repeats = v.repeat.literal();
  const std::int64_t looked =
      alike(reads) && alike(writes) ? std::min<std::int64_t>(repeats, 1) : repeats;
  std::int64_t more = 0;
  for (std::int64_t r = 0; r < looked; ++r)
    more +=
        std::max({std::int64_t{1}, most_of_a_group(reads, r, core().bank_groups, taken, of_group),
                  most_of_a_group(writes, r, core().bank_groups, taken, of_group)}) -
        1;
  return looked < repeats ? more * repeats : more;
}

}  // namespace tilewright::npu
