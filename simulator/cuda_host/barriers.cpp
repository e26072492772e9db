// Barriers of a block and of the grid.
#include <algorithm>

#include "core/base/format.h"
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {

bool Engine::left_out(const char* kind, std::uint32_t place) {
  if (options_.list_barriers) barriers_.come(kind, place);
  return !options_.without.empty() &&
         std::ranges::find(options_.without, place) != options_.without.end();
}

void Engine::launches_ended(Fiber& f, std::uint32_t place) {
  if (!left_out("launches_ended", place)) f.launches_ended = true;
}

void Engine::block_sync(Fiber& f, std::uint32_t place) {
  if (!left_out("block_sync", place)) arrive(f, 0, f.owner->threads, place);
}

void Engine::barrier(Fiber& f, int id, int threads, std::uint32_t place) {
  if (left_out("barrier", place)) return;
  const int most = static_cast<int>(f.owner->warps.size()) * kWarp;
  if (id < 1 || id > 15 || threads <= 0 || threads % kWarp != 0 || threads > most) {
    report(f, Fault::bad_argument, place,
           formatted("calls barrier({}, {}): ids are 1 to 15, counts multiples of 32 up to the "
                     "block's {}",
                     id, threads, most));
    stop(f);
  }
  arrive(f, id, threads, place);
}

void Engine::arrive(Fiber& f, int id, int threads, std::uint32_t place) {
  Block& block = *f.owner;
  NamedBarrier& b = block.barriers[static_cast<std::size_t>(id)];
  if (b.threads.empty()) {
    b.expected = threads;
  } else if (b.expected != threads) {
    report(f, Fault::barrier_mismatch, place,
           formatted(
               "comes to barrier {} for {} threads, but {} threads wait there for {} (line @{}@)",
               id, threads, b.threads.size(), b.expected, b.places.front()));
    stop(f);
  }
  b.threads.push_back(f.index);
  b.places.push_back(place);
  if (static_cast<int>(b.threads.size()) == b.expected) {
    complete(block, id);
    return;
  }
  if (id == 0) complete_without_ended(block);
  if (!b.threads.empty()) wait(f, id == 0 ? Wait::block : Wait::barrier, place, id);
}

/// block_sync where some have ended: the hardware may go on without them; the kernel is wrong.
void Engine::complete_without_ended(Block& block) {
  NamedBarrier& b = block.barriers[0];
  const int here = static_cast<int>(b.threads.size());
  if (here == 0 || block.ended == 0 || here + block.ended != block.threads) return;
  const Fiber& first = block.fibers[static_cast<std::size_t>(b.threads.front())];
  report(
      first, Fault::barrier_mismatch, b.places.front(),
      formatted("waits in block_sync with {} others, but {} of the block's {} threads have ended",
                here - 1, block.ended, block.threads));
  complete(block, 0);
}

void Engine::complete(Block& block, int id) {
  NamedBarrier& b = block.barriers[static_cast<std::size_t>(id)];
  std::array<std::uint32_t, kWarp> here{};  // lanes by warp
  std::array<std::uint32_t, kWarp> place{};
  for (std::size_t i = 0; i < b.threads.size(); ++i) {
    const Fiber& f = block.fibers[static_cast<std::size_t>(b.threads[i])];
    const auto w = static_cast<std::size_t>(f.warp());
    if (here[w] == 0) place[w] = b.places[i];
    here[w] |= 1u << f.lane();
    if (place[w] == b.places[i] ||
        findings_.seen_before(Fault::divergent, b.places[i], place[w], -1))
      continue;
    findings_.add({.fault = Fault::divergent,
                   .kernel = kernel_,
                   .block = block.index,
                   .thread = f.index,
                   .place = b.places[i],
                   .other_place = place[w],
                   .other_block = block.index,
                   .other_thread = f.warp() * kWarp,
                   .other_what = "waits",
                   .what = "comes to a barrier that others of its warp come to elsewhere",
                   .if_lines_differ = true},
                  -1);
  }
  for (std::size_t w = 0; w < block.warps.size(); ++w) {
    const std::uint32_t missing = block.warps[w].members & ~block.warps[w].ended & ~here[w];
    if (here[w] == 0 || missing == 0) continue;
    const Fiber& f = block.fibers[w * kWarp + static_cast<std::size_t>(std::countr_zero(here[w]))];
    report(f, Fault::barrier_mismatch, place[w],
           formatted("goes through barrier {} without thread {} of its warp", id,
                     w * kWarp + static_cast<std::size_t>(std::countr_zero(missing))));
  }
  if (options_.list_barriers)
    for (const std::uint32_t p : b.places) barriers_.meet(b.places.front(), p);
  block.clocks.meet(b.threads);
  for (const int t : b.threads) wake(block, t);
  ++counts_->block_barriers;
  b.threads.clear();
  b.places.clear();
}

void Engine::grid_sync(Fiber& f, void* counter, std::uint32_t place) {
  if (left_out("grid_sync", place)) return;
  Block& block = *f.owner;
  if (!cooperative_) {
    report(f, Fault::bad_argument, place, "calls grid_sync in a launch that is not cooperative");
    stop(f);
  }
  // The counter's own traffic is no tensor's: checked, but not counted.
  const int region = global_region(f, counter, 4, 4, true, place, "counts in");
  if (region < 0) stop(f);
  check_global(f, region, counter, 4, GlobalMemory::Kind::atomic, place, f.index,
               block.clocks.now(f.index));
  memory_.mark_written(region);
  if (f.index == 0) ++*static_cast<std::uint32_t*>(counter);
  ++block.at_grid;
  wait(f, Wait::grid, place, 0);
}

/// True where every thread of every block was waiting for it: they go on, in a new phase.
bool Engine::release_grid() {
  if (!cooperative_) return false;
  for (std::uint32_t b = 0; b < grid_; ++b)
    if (blocks_[b]->stopped || blocks_[b]->at_grid != blocks_[b]->threads) return false;
  ++phase_;
  ++counts_->grid_syncs;
  for (std::uint32_t b = 0; b < grid_; ++b) {
    Block& block = *blocks_[b];
    if (options_.list_barriers)
      for (const Fiber& f : block.fibers)
        barriers_.meet(blocks_[0]->fibers[0].wait_place, f.wait_place);
    block.at_grid = 0;
    block.clocks.meet(block.everyone);
    for (const int t : block.everyone) wake(block, t);
  }
  return true;
}

}  // namespace tilewright::cuda_host
