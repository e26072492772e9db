// Matrix products of a warpgroup: four warps that meet at each, operands in shared memory by
// descriptors, sums that are there only once they have been waited for.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/format.h"
#include "simulator/cuda_host/device/tilewright_half.h"
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {
namespace {

constexpr int kRows = 64, kDepth = 16;

/// The thread whose copies a warpgroup's reads count as: the last one, because the first is who
/// issues boxes, and waiting for one of the two is not waiting for the other.
int reader_of(int thread) { return thread / kWarpgroup * kWarpgroup + kWarpgroup - 1; }

/// PTX ISA, matrix descriptor format: address, bytes to the next 64 elements of rows that run
/// across the depth, bytes to the next eight rows, the swizzle.
struct Descriptor {
  explicit Descriptor(std::uint64_t bits)
      : start(static_cast<std::int64_t>(bits & 0x3fff) << 4),
        leading(static_cast<std::int64_t>(bits >> 16 & 0x3fff) << 4),
        stride(static_cast<std::int64_t>(bits >> 32 & 0x3fff) << 4),
        offset(static_cast<int>(bits >> 49 & 7)),
        layout(static_cast<int>(bits >> 62)) {}
  std::int64_t start, leading, stride;
  int offset, layout;
  /// The piece of 16 bytes that has element (outer, depth); swizzled by the address's own bits.
  std::int64_t piece(std::int64_t outer, std::int64_t depth, bool across) const {
    const std::int64_t at = across ? start + outer / 64 * leading + depth / 8 * stride +
                                         depth % 8 * 128 + outer % 64 / 8 * 16
                                   : start + outer / 8 * stride + outer % 8 * 128 + depth / 8 * 16;
    return at ^ (at >> 7 & 7) << 4;
  }
};

float value_of(std::uint16_t bits, bool bfloat) {
  return bfloat ? tw_half::float_of_bf16(bits) : tw_half::float_of_f16(bits);
}

/// 64 x 16 of a left operand in registers. PTX ISA, register fragments of wgmma: word i of a thread
/// has two elements of row i % 2 * 8 further down and of column i / 2 * 8 further to the right.
void read_fragments(const Warpgroup& g, bool bfloat, std::vector<float>& values) {
  values.resize(static_cast<std::size_t>(kRows) * kDepth);
  for (int t = 0; t < kWarpgroup; ++t)
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t word = g.fragments[static_cast<std::size_t>(t)][i / 2];
      const int row = t / kWarp * 16 + t % kWarp / 4 + i / 2 % 2 * 8,
                column = i / 4 * 8 + t % 4 * 2 + i % 2;
      values[static_cast<std::size_t>(row * kDepth + column)] =
          value_of(static_cast<std::uint16_t>(word >> i % 2 * 16), bfloat);
    }
}

Fragments fragments_now(const Warpgroup& g) {
  Fragments now{.of = g.fragments};
  for (std::size_t t = 0; t < kWarpgroup; ++t) std::copy_n(g.fragments[t], 4, now.words[t].begin());
  return now;
}

}  // namespace

Warpgroup& Engine::group_of(Fiber& f, std::uint32_t place) {
  Block& block = *f.owner;
  const auto g = static_cast<std::size_t>(f.index / kWarpgroup);
  if (static_cast<int>(g + 1) * kWarpgroup > block.threads) {
    report(f, Fault::divergent, place,
           "comes to an instruction of a warpgroup in a block that has no 128 threads there");
    stop(f);
  }
  return block.groups[g];
}

bool Engine::meet_group(Fiber& f, int what, std::uint64_t detail, void* out, std::uint32_t place) {
  watch(f, place);
  Warpgroup& g = group_of(f, place);
  if (g.arrived == 0) {
    g.what = what, g.detail = detail, g.place = place;
  } else if (g.what != what || g.detail != detail) {
    report(f, Fault::divergent, place,
           formatted("comes to another instruction, or one of other operands, than the others of "
                     "its warpgroup at line @{}@",
                     g.place));
    stop(f);
  }
  g.sums[static_cast<std::size_t>(f.index % kWarpgroup)] = static_cast<float*>(out);
  if (++g.arrived < kWarpgroup) {
    wait(f, Wait::warpgroup, place, 0);
    return false;
  }
  return true;
}

void Engine::release_group(Fiber& f) {
  Block& block = *f.owner;
  const int first = f.index / kWarpgroup * kWarpgroup;
  block.groups[static_cast<std::size_t>(f.index / kWarpgroup)].arrived = 0;
  for (int t = first; t < first + kWarpgroup; ++t)
    if (t != f.index) wake(block, t);
}

void Engine::wgmma_begin(Fiber& f, std::uint32_t place) {
  if (left_out("wgmma_begin", place)) return;
  f.registers_ready = true;
}

void Engine::read_operand(Fiber& f, std::uint64_t bits, int outer, bool across, bool bfloat,
                          std::vector<float>& values, std::uint32_t place, Clock clock) {
  const Descriptor d(bits);
  if (d.layout != 1 || d.offset != 0 || (d.start & 0x380) != 0) {
    report(f, Fault::bad_argument, place,
           "has a descriptor that is not of rows of 128 bytes, swizzled, from a multiple of 1024");
    stop(f);
  }
  Block& block = *f.owner;
  const int component = block.clocks.copier(reader_of(f.index));
  values.resize(static_cast<std::size_t>(outer) * kDepth);
  const int outer_step = across ? 8 : 1, depth_step = across ? 1 : 8;
  for (int o = 0; o < outer; o += outer_step)
    for (int k = 0; k < kDepth; k += depth_step) {
      const std::int64_t at = d.piece(o, k, across);
      if (at + 16 > shared_bytes_) {
        report(f, Fault::out_of_bounds, place,
               formatted("reads byte {} of shared memory by a descriptor, which has {}", at,
                         shared_bytes_));
        stop(f);
      }
      read_asynchronously(f, at, 16, place, component, clock);
      std::uint16_t element[8];
      std::memcpy(element, block.shared + at, 16);
      for (int i = 0; i < 8; ++i) {
        const int row = across ? o + i : o, column = across ? k : k + i;
        values[static_cast<std::size_t>(row * kDepth + column)] = value_of(element[i], bfloat);
      }
    }
}

void Engine::wgmma(Fiber& f, float* d, int columns, std::uint64_t a, const std::uint32_t* fragment,
                   std::uint64_t b, bool add, int flags, std::uint32_t place) {
  group_of(f, place).fragments[static_cast<std::size_t>(f.index % kWarpgroup)] = fragment;
  const std::uint64_t detail = a * 31 + b * 1009 +
                               static_cast<std::uint64_t>(columns * 16 + flags) +
                               (add ? std::uint64_t{1} << 60 : 0);
  if (!meet_group(f, fragment != nullptr ? 3 : 1, detail, d, place)) return;
  Block& block = *f.owner;
  Warpgroup& g = group_of(f, place);
  const int first = f.index / kWarpgroup * kWarpgroup;
  const Clock clock = block.clocks.issue_copy(reader_of(f.index));
  g.last = clock;
  std::vector<float>&left = g.left, &right = g.right;
  if (fragment != nullptr && !f.registers_ready)
    report(f, Fault::wgmma_misuse, place,
           "begins a product of an operand in registers without wgmma_begin");
  const bool bfloat = (flags & TW_BFLOAT) != 0;
  if (fragment != nullptr)
    read_fragments(g, bfloat, left);
  else
    read_operand(f, a, kRows, (flags & TW_A_ACROSS) != 0, bfloat, left, place, clock);
  read_operand(f, b, columns, (flags & TW_B_ACROSS) != 0, bfloat, right, place, clock);
  auto sums = std::ranges::find_if(g.under_way,
                                   [&](const SumsUnderWay& s) { return s.of == g.sums.front(); });
  if (sums == g.under_way.end()) {
    if (!f.registers_ready)
      report(f, Fault::wgmma_misuse, place,
             "begins a product of sums in registers without wgmma_begin");
    g.under_way.push_back({.of = g.sums.front(), .columns = columns, .registers = g.sums});
    sums = g.under_way.end() - 1;
    sums->values.resize(static_cast<std::size_t>(kRows) * static_cast<std::size_t>(columns));
    for (int t = 0; t < kWarpgroup; ++t)
      for (int i = 0; i < columns / 2; ++i) {
        float& mine = g.sums[static_cast<std::size_t>(t)][i];
        sums->at(t, i) = mine;
        mine = std::numeric_limits<float>::quiet_NaN();  // until it is waited for
      }
  } else if (!add || sums->columns != columns) {
    report(f, Fault::wgmma_misuse, place, "begins new sums where nobody has waited for the last");
    stop(f);
  }
  sums->group = block.fibers[static_cast<std::size_t>(first)].products;
  if (fragment != nullptr) sums->read.push_back(fragments_now(g));
  if (!add) std::ranges::fill(sums->values, 0.0F);
  for (int i = 0; i < kRows; ++i) {
    float* const row = sums->values.data() + static_cast<std::ptrdiff_t>(i) * columns;
    for (int j = 0; j < columns; ++j) {
      float sum = row[j];
      for (int k = 0; k < kDepth; ++k)
        sum += left[static_cast<std::size_t>(i * kDepth + k)] *
               right[static_cast<std::size_t>(j * kDepth + k)];
      row[j] = sum;
    }
  }
  ++counts_->wgmma;
  release_group(f);
}

void Engine::wgmma_commit(Fiber& f, std::uint32_t place) {
  if (meet_group(f, 2, 0, nullptr, place)) {
    Warpgroup& g = group_of(f, place);
    g.groups.push_back(g.last);
    release_group(f);
  }
  ++f.products;
}

void Engine::wgmma_wait(Fiber& f, int groups, std::uint32_t place) {
  if (left_out("wgmma_wait", place)) return;
  Block& block = *f.owner;
  Warpgroup& g = group_of(f, place);
  const std::int64_t upto = f.products - groups;
  if (upto <= 0) return;
  const int first = f.index / kWarpgroup * kWarpgroup;
  block.clocks.see_copies(f.index, reader_of(f.index),
                          g.groups[static_cast<std::size_t>(upto - 1)]);
  const int t = f.index - first;
  std::erase_if(g.under_way, [&](SumsUnderWay& s) {
    if (s.group >= upto || s.registers[static_cast<std::size_t>(t)] == nullptr) return false;
    float* const mine = std::exchange(s.registers[static_cast<std::size_t>(t)], nullptr);
    for (const Fragments& x : s.read)
      if (!std::equal(x.words[static_cast<std::size_t>(t)].begin(),
                      x.words[static_cast<std::size_t>(t)].end(),
                      x.of[static_cast<std::size_t>(t)]))
        report(f, Fault::wgmma_misuse, place,
               "changed an operand in registers while a product of it was under way");
    for (int i = 0; i < s.columns / 2; ++i) mine[i] = s.at(t, i);
    f.registers_ready = false;
    return ++s.landed == kWarpgroup;
  });
}

/// What a thread must not leave behind.
void Engine::check_all_waited(Fiber& f) {
  Block& block = *f.owner;
  const auto copier = static_cast<std::size_t>(block.clocks.copier(f.index));
  if (!f.stores.empty() && f.stores.back() > block.clocks.seen(f.index)[copier])
    report(f, Fault::race, f.wait_place,
           "ends while store_box may still read shared memory: no store_boxes_read");
  const auto g = static_cast<std::size_t>(f.index / kWarpgroup);
  if (g >= block.groups.size()) return;
  for (const SumsUnderWay& s : block.groups[g].under_way)
    if (s.registers[static_cast<std::size_t>(f.index % kWarpgroup)] != nullptr)
      report(f, Fault::wgmma_misuse, f.wait_place,
             "ends while a product is under way: no wgmma_wait");
}

}  // namespace tilewright::cuda_host
