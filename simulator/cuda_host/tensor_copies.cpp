// Copies of boxes by the TMA unit, and the fence between ordinary stores and what reads shared
// memory asynchronously. A copy is done as it is issued, but known only to those who waited for it:
// whoever did not races with it.
#include <algorithm>
#include <cstring>

#include "core/base/format.h"
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {
namespace {

constexpr std::int64_t kRow = 128;  // bytes of a box's row

/// Where a piece of 16 bytes of a row lies, from the box's beginning.
std::int64_t swizzled(std::int64_t row, std::int64_t piece) {
  return row * kRow + ((piece ^ (row & 7)) << 4);
}

std::int64_t rows_of(const tw_box_map& map) {
  return std::int64_t{map.box[1]} * map.box[2] * map.box[3] * map.box[4];
}

}  // namespace

void Engine::mbarriers_made(Fiber& f, std::uint32_t place) {
  if (left_out("mbarriers_made", place)) return;
  for (MBarrier& b : f.owner->mbarriers)
    if (b.maker == f.index) b.known = true;
}

void Engine::mbarrier_arrive_expecting(Fiber& f, void* p, std::uint32_t bytes,
                                       std::uint32_t place) {
  if (left_out("mbarrier_arrive_expecting", place)) return;
  watch(f, place);
  Block& block = *f.owner;
  MBarrier& b = *find_mbarrier(f, p, place, "arrives at");
  if (bytes >= 1u << 20) {
    report(f, Fault::mbarrier_misuse, place,
           formatted("expects {} bytes at an mbarrier: it counts to 1048575", bytes));
    stop(f);
  }
  b.bytes += bytes;
  block.clocks.publish(f.index, b.arriving);
  block.clocks.tick(f.index);
  --b.pending;
  end_if_complete(block, b);
}

void Engine::end_if_complete(Block& block, MBarrier& b) {
  if (b.pending == 0 && b.bytes == 0) end_phase(block, b);
}

/// The rows of a box that are in the tensor: F(row, first byte in the row, bytes, address).
template <class F>
void Engine::each_row(const tw_box_map& map, const BoxPlace& at, const F& f) {
  const std::int64_t first = std::max<std::int64_t>(at[0], 0);
  const std::int64_t end = std::min<std::int64_t>(std::int64_t{at[0]} + map.box[0], map.extent[0]);
  if (first >= end) return;
  for (std::int64_t r = 0, all = rows_of(map); r < all; ++r) {
    unsigned char* from = map.base + first * map.stride[0];
    std::int64_t rest = r;
    bool inside = true;
    for (std::size_t d = 1; d < at.size(); ++d) {
      const std::int64_t i = at[d] + rest % map.box[d] * map.steps[d];
      inside = inside && i >= 0 && i < map.extent[d];
      from += i * map.stride[d];
      rest /= map.box[d];
    }
    if (inside) f(r, (first - at[0]) * map.element_bytes, (end - first) * map.element_bytes, from);
  }
}

/// The unit takes no box that begins within 16 bytes of a row, nor a map of another rank than the
/// instruction's: an illegal instruction on a device.
void Engine::check_beginning(Fiber& f, const tw_box_map& map, const BoxPlace& at, int rank,
                             std::uint32_t place) {
  if (map.rank != rank) {
    report(f, Fault::bad_argument, place,
           formatted("copies a box of {} dimensions by a map of {}", rank, map.rank));
    stop(f);
  }
  if (std::int64_t{at[0]} * map.element_bytes % 16 == 0) return;
  report(f, Fault::misaligned, place,
         formatted("a box begins at column {}, whose byte is no multiple of 16", at[0]));
  stop(f);
}

/// `mask`: the cluster's blocks that it goes to, by rank; 0: to this one.
void Engine::load_box(Fiber& f, void* shared, const tw_box_map& map, void* mbarrier,
                      const BoxPlace& at, std::uint32_t mask, int rank, std::uint32_t place) {
  watch(f, place);
  const std::int64_t bytes = kRow * rows_of(map);
  check_beginning(f, map, at, rank, place);
  const std::int64_t to = shared_offset(f, shared, bytes, 1024, true, place, "load_box writes");
  const MBarrier& own = *find_mbarrier(f, mbarrier, place, "load_box arrives at");
  if (to < 0) stop(f);
  if (mask == 0) return load_box_into(f, *f.owner, to, own.offset, map, at, place);
  if (cluster_ == 1 || mask >> cluster_ != 0) {
    report(f, Fault::bad_argument, place,
           formatted("copies to blocks {:#x} of a cluster of {}", mask, cluster_));
    stop(f);
  }
  const std::int64_t arrives = own.offset;
  for (std::uint32_t rank = 0; rank < cluster_; ++rank)
    if ((mask >> rank & 1) != 0) load_box_into(f, *blocks_[rank], to, arrives, map, at, place);
}

/// In another block the thread that stands for others writes.
void Engine::load_box_into(Fiber& f, Block& block, std::int64_t to, std::int64_t arrives,
                           const tw_box_map& map, const BoxPlace& at, std::uint32_t place) {
  const bool mine = &block == f.owner;
  const std::int64_t bytes = kRow * rows_of(map);
  const int thread = mine ? f.index : block.threads;
  MBarrier& b = mine ? *std::ranges::find(block.mbarriers, arrives, &MBarrier::offset)
                     : *find_mbarrier_of(f, block, arrives, place, "copies to");
  if (!b.known)
    report(f, Fault::mbarrier_misuse, place,
           "copies to an mbarrier that its maker has not made known by mbarriers_made");
  const Clock clock = block.clocks.issue_copy(thread);
  const int component = block.clocks.copier(thread);
  if (options_.checks && mine) {
    check_fenced(f, to, bytes, place, "writes");
    check_shared(f, to, bytes, true, place, component, clock);
  } else if (options_.checks) {
    const auto outcome =
        block.shadow.write(to, bytes, component, clock, block.clocks.seen(thread), place);
    if (outcome.other)
      report_race(f, Fault::race, place, true, true, outcome.other.place, block.index,
                  outcome.other.component, outcome.other_wrote, -2, outcome.offset);
  }
  unsigned char* const box = block.shared + to;
  std::memset(box, 0, static_cast<std::size_t>(bytes));
  each_row(map, at, [&](std::int64_t row, std::int64_t first, std::int64_t n, unsigned char* from) {
    const int region = global_region(f, from, n, map.element_bytes, false, place, "load_box reads");
    if (region < 0) return;
    counts_->tensors[static_cast<std::size_t>(region)].read += n;
    const Clocks& clocks = f.owner->clocks;
    check_global(f, region, from, n, GlobalMemory::Kind::read, place, clocks.copier(f.index),
                 clocks.copies(f.index));
    for (std::int64_t i = 0; i < n;) {
      const std::int64_t in = (first + i) % 16, take = std::min(n - i, 16 - in);
      std::memcpy(box + swizzled(row, (first + i) / 16) + in, from + i,
                  static_cast<std::size_t>(take));
      i += take;
    }
  });
  counts_->shared_written += bytes;
  ++counts_->boxes;
  Clock& landed = b.arriving.at[static_cast<std::size_t>(component)];
  landed = std::max(landed, clock);
  b.bytes -= bytes;
  end_if_complete(block, b);
}

void Engine::store_box(Fiber& f, const tw_box_map& map, const void* shared, const BoxPlace& at,
                       std::uint32_t place) {
  watch(f, place);
  Block& block = *f.owner;
  const std::int64_t bytes = kRow * rows_of(map);
  check_beginning(f, map, at, 3, place);
  const std::int64_t from = shared_offset(f, shared, bytes, 1024, false, place, "store_box reads");
  if (from < 0) stop(f);
  const Clock clock = block.clocks.issue_copy(f.index);
  const int component = block.clocks.copier(f.index);
  const unsigned char* const box = block.shared + from;
  each_row(map, at, [&](std::int64_t row, std::int64_t first, std::int64_t n, unsigned char* to) {
    const int region = global_region(f, to, n, map.element_bytes, true, place, "store_box writes");
    if (region < 0) return;
    counts_->tensors[static_cast<std::size_t>(region)].written += n;
    check_global(f, region, to, n, GlobalMemory::Kind::write, place, component, clock);
    for (std::int64_t i = 0; i < n;) {
      const std::int64_t in = (first + i) % 16, take = std::min(n - i, 16 - in);
      const std::int64_t offset = swizzled(row, (first + i) / 16) + in;
      read_asynchronously(f, from + offset, take, place, component, clock);
      std::memcpy(to + i, box + offset, static_cast<std::size_t>(take));
      i += take;
    }
  });
  ++counts_->boxes;
}

void Engine::store_boxes_commit(Fiber& f) { f.stores.push_back(f.owner->clocks.copies(f.index)); }

void Engine::store_boxes_read(Fiber& f, int groups, std::uint32_t place) {
  if (left_out("store_boxes_read", place)) return;
  const auto keep = static_cast<std::size_t>(groups);
  if (f.stores.size() <= keep) return;
  const std::size_t done = f.stores.size() - keep;
  f.owner->clocks.see_copies(f.index, f.index, f.stores[done - 1]);
  f.stores.erase(f.stores.begin(), f.stores.begin() + static_cast<std::ptrdiff_t>(done));
}

void Engine::shared_for_async(Fiber& f, std::uint32_t place) {
  if (left_out("shared_for_async", place)) return;
  Block& block = *f.owner;
  block.fenced[static_cast<std::size_t>(f.index)] = block.clocks.now(f.index);
  block.clocks.tick(f.index);  // what it writes from here on is not
}

void Engine::read_asynchronously(Fiber& f, std::int64_t offset, std::int64_t bytes,
                                 std::uint32_t place, int component, Clock clock) {
  counts_->shared_read += bytes;
  if (!options_.checks) return;
  check_fenced(f, offset, bytes, place, "reads");
  check_shared(f, offset, bytes, false, place, component, clock);
}

void Engine::check_fenced(Fiber& f, std::int64_t offset, std::int64_t bytes, std::uint32_t place,
                          const char* does) {
  const Accessor writer = f.owner->shadow.unfenced(offset, bytes, f.owner->fenced);
  if (!writer || findings_.seen_before(Fault::not_fenced, place, writer.place, -2)) return;
  findings_.add({.fault = Fault::not_fenced,
                 .kernel = kernel_,
                 .block = f.owner->index,
                 .thread = f.index,
                 .place = place,
                 .other_place = writer.place,
                 .other_block = f.owner->index,
                 .other_thread = writer.component,
                 .other_what = "wrote",
                 .object = object_name(-2),
                 .offset = offset,
                 .what = formatted("{} byte {} of shared memory asynchronously, which a thread "
                                   "wrote that has not called shared_for_async since",
                                   does, offset)},
                -2);
}

}  // namespace tilewright::cuda_host
