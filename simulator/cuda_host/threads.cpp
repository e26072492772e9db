// Threads: their start, their end, and what runs when one has to wait.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <numeric>

#include "core/base/format.h"
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {

namespace {

constexpr std::int64_t kSharedRedZone = 1 << 20;
/// Shared memory starts at an odd multiple of what it is promised to be aligned to.
constexpr std::int64_t kSharedAlignment = 1024;

std::string described(const Fiber& f) {
  const std::string at = formatted(" at line @{}@", f.wait_place);
  switch (f.wait) {
    case Wait::block:
      return "in block_sync" + at;
    case Wait::barrier: {
      const NamedBarrier& b = f.owner->barriers[static_cast<std::size_t>(f.wait_detail)];
      return formatted("in barrier({}, {}), to which {} have come,{}", f.wait_detail, b.expected,
                       b.threads.size(), at);
    }
    case Wait::warp:
      return formatted("in {}{}", name_of(static_cast<Collective>(f.wait_detail)), at);
    case Wait::mbarrier:
      for (const MBarrier& b : f.owner->mbarriers)
        if (b.offset == f.wait_detail)
          return formatted("in mbarrier_wait{} (phase {}, {} of {} arrivals missing{})", at,
                           b.phase, b.pending, b.arrivals,
                           b.bytes == 0 ? std::string() : formatted(", {} bytes", b.bytes));
      return "in mbarrier_wait" + at;
    case Wait::grid:
      return "in grid_sync" + at;
    case Wait::cluster:
      return "in cluster_sync" + at;
    case Wait::warpgroup:
      return "in an instruction of a warpgroup" + at;
    case Wait::none:
    case Wait::ended:
      break;
  }
  return "nowhere";
}

/// "thread 3" or "threads 0-31, 64".
std::string described(const std::vector<int>& threads) {
  std::string text = threads.size() == 1 ? "thread " : "threads ";
  for (std::size_t i = 0; i < threads.size();) {
    std::size_t j = i;
    while (j + 1 < threads.size() && threads[j + 1] == threads[j] + 1) ++j;
    if (i != 0) text += ", ";
    text += i == j ? std::to_string(threads[i]) : formatted("{}-{}", threads[i], threads[j]);
    i = j + 1;
  }
  return text;
}

/// As a kernel sees it, with the address of its tensor.
tw_box_map map_of(const lowering::BoxMap& m, const GlobalMemory& memory) {
  const auto base = memory.regions()[m.tensor.index()].base;
  tw_box_map map{.base = reinterpret_cast<unsigned char*>(base),
                 .rank = m.rank,
                 .element_bytes = static_cast<std::int32_t>(size_of(m.type))};
  for (std::size_t d = 0; d < lowering::BoxMap::kMost; ++d) {
    map.extent[d] = m.extent[d], map.stride[d] = m.stride[d];
    map.box[d] = static_cast<std::int32_t>(m.taken(d));
    map.steps[d] = static_cast<std::int32_t>(m.steps[d]);
  }
  return map;
}

}  // namespace

bool Engine::make_blocks(std::size_t count) {
  while (blocks_.size() < count) blocks_.push_back(std::make_unique<Block>());
  for (std::size_t i = 0; i < count; ++i) {
    Block& b = *blocks_[i];
    const std::int64_t bytes = shared_bytes_ + 2 * kSharedRedZone + 2 * kSharedAlignment;
    if (b.arena_bytes != bytes) {
      b.arena = LazyMemory(bytes);
      b.arena_bytes = bytes;
    }
    if (!b.arena.ok()) return false;
    b.shared = b.arena.data() + kSharedRedZone + kSharedAlignment;
  }
  return true;
}

std::optional<Reason> Engine::launch(const Launch& launch, std::span<const Tensor> tensors,
                                     LaunchCounts& counts) {
  kernel_ = launch.kernel;
  entry_ = image_.entry(launch.kernel);
  shared_bytes_ = launch.shared_bytes;
  cooperative_ = launch.cooperative;
  early_ = launch.early;
  cluster_ = static_cast<std::uint32_t>(launch.cluster);
  grid_ = static_cast<std::uint32_t>(launch.blocks);
  counts_ = &counts;
  counts.tensors.resize(tensors.size() + 1);
  ++phase_;
  memory_.launch_begins();
  started_ = std::chrono::steady_clock::now();
  late_ = false;
  arguments_.clear();
  for (const int t : launch.tensors)
    arguments_.push_back(
        reinterpret_cast<void*>(memory_.regions()[static_cast<std::size_t>(t)].base));
  if (launch.workspace)
    arguments_.push_back(
        reinterpret_cast<void*>(memory_.regions().back().base + launch.workspace_offset));
  maps_.clear();
  for (const lowering::BoxMap& m : launch.maps) maps_.push_back(map_of(m, memory_));
  for (const tw_box_map& m : maps_) arguments_.push_back(const_cast<tw_box_map*>(&m));
  const std::size_t together = cooperative_ ? grid_ : cluster_;
  const std::size_t stacks = together * static_cast<std::size_t>(launch.threads);
  if (stacks > stacks_count_) {
    stacks_ = std::make_unique<StackSlab>(stacks);
    stacks_count_ = stacks;
  }
  if (!stacks_->ok() || !make_blocks(together))
    return Reason{formatted("no room for {} threads and their shared memory at once", stacks)};
  if (cooperative_) {
    for (std::uint32_t b = 0; b < grid_; ++b) start(*blocks_[b], b, launch);
    run_together(grid_);
  } else {
    for (std::uint32_t b = 0; b < grid_ && !late_; b += cluster_) {
      for (std::uint32_t i = 0; i < cluster_; ++i) start(*blocks_[i], b + i, launch);
      run_together(cluster_);
    }
  }
  return std::nullopt;
}

void Engine::start(Block& block, std::uint32_t index, const Launch& launch) {
  block.engine = this;
  block.index = index;
  block.threads = launch.threads;
  block.ended = block.at_grid = block.at_cluster = 0;
  block.read_by_others = 0;
  block.stopped = block.paused = false;
  block.mbarriers.clear();
  for (NamedBarrier& b : block.barriers) b = {};
  block.clocks.reset(launch.threads + (cluster_ > 1 ? 1 : 0));
  block.groups.assign(static_cast<std::size_t>(launch.threads / kWarpgroup), Warpgroup{});
  block.fenced.assign(static_cast<std::size_t>(launch.threads), 0);
  block.shadow.reset(shared_bytes_, block.clocks.components());
  // Not a number in every element type, so that what was never written shows in results.
  std::memset(block.shared, 0xff, static_cast<std::size_t>(shared_bytes_));
  block.warps.assign(static_cast<std::size_t>((launch.threads + kWarp - 1) / kWarp), Warp{});
  block.fibers.resize(static_cast<std::size_t>(launch.threads));
  block.everyone.resize(static_cast<std::size_t>(launch.threads));
  block.everyone_and_others.resize(static_cast<std::size_t>(launch.threads) + 1);
  std::iota(block.everyone_and_others.begin(), block.everyone_and_others.end(), 0);
  const std::size_t here = cooperative_ ? index : index % cluster_;
  const std::size_t first = here * block.fibers.size();
  for (int t = 0; t < launch.threads; ++t) {
    Fiber& f = block.fibers[static_cast<std::size_t>(t)];
    block.everyone[static_cast<std::size_t>(t)] = t;
    f.owner = &block;
    f.index = t;
    f.wait = Wait::none;
    f.copies.clear();
    f.groups.clear();
    f.stores.clear();
    f.products = 0;
    f.registers_ready = f.launches_ended = false;
    Warp& w = block.warps[static_cast<std::size_t>(f.warp())];
    w.members |= 1u << f.lane();
    start(block, f, stacks_->stack(first + static_cast<std::size_t>(t)), launch);
  }
  for (Warp& w : block.warps) w.runnable = w.members;
}

void Engine::start(Block& block, Fiber& f, unsigned char* stack, const Launch& launch) {
  prepare_context(f.context, stack, stack + StackSlab::kBytes, fiber_main, &f);
  // What compiled code sees of the thread, where it looks for it.
  *reinterpret_cast<tw_thread*>(stack) = {.api = *api(),
                                          .shared = block.shared,
                                          .thread = static_cast<std::uint32_t>(f.index),
                                          .block = block.index,
                                          .threads = static_cast<std::uint32_t>(launch.threads),
                                          .blocks = grid_,
                                          .fiber = &f};
}

void Engine::fiber_main(void* fiber) {
  auto& f = *static_cast<Fiber*>(fiber);
  Engine& engine = *f.owner->engine;
  engine.entry_->call(engine.arguments_.data());
  engine.finish(f);
}

void Engine::finish(Fiber& f) {
  Block& block = *f.owner;
  land_copies(f, ~Clock{0});
  check_all_waited(f);
  check_read_by_others(f);
  f.wait = Wait::ended;
  ++block.ended;
  Warp& w = block.warps[static_cast<std::size_t>(f.warp())];
  const std::uint32_t bit = 1u << f.lane();
  w.ended |= bit;
  w.runnable &= ~bit;
  if (w.arrived != 0 && (w.arrived | w.ended) == w.members) {
    report(
        f, Fault::divergent, w.place,
        formatted("ends while its warp waits for it in {} at line @{}@", name_of(w.kind), w.place));
    stop(f);
  }
  complete_without_ended(block);
  resume_next(f);
}

/// The next lane of the same warp, else of the next warp that has one; else whoever runs the block.
void Engine::resume_next(Fiber& f) {
  Block& block = *f.owner;
  if (options_.turns != 0) {
    Fiber* const next = next_of(block);
    if (next != &f) switch_context(f.context, next != nullptr ? next->context : block.home);
    return;
  }
  const std::size_t here = static_cast<std::size_t>(f.warp()), n = block.warps.size();
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t w = here + i < n ? here + i : here + i - n;
    const std::uint32_t mask = block.warps[w].runnable;
    if (mask == 0) continue;
    const std::uint32_t later = i == 0 ? mask & ~((2u << f.lane()) - 1u) : mask;
    const int lane = std::countr_zero(later != 0 ? later : mask);
    Fiber& next = block.fibers[w * kWarp + static_cast<std::size_t>(lane)];
    if (&next == &f) return;
    switch_context(f.context, next.context);
    return;
  }
  switch_context(f.context, block.home);
}

void Engine::wait(Fiber& f, Wait kind, std::uint32_t place, std::int64_t detail) {
  f.wait = kind;
  f.wait_place = place;
  f.wait_detail = detail;
  f.owner->warps[static_cast<std::size_t>(f.warp())].runnable &= ~(1u << f.lane());
  resume_next(f);
}

void Engine::wake(Block& block, int thread) {
  Fiber& f = block.fibers[static_cast<std::size_t>(thread)];
  f.wait = Wait::none;
  block.warps[static_cast<std::size_t>(f.warp())].runnable |= 1u << f.lane();
}

void Engine::stop(Fiber& f) {
  f.owner->stopped = true;
  for (;;) switch_context(f.context, f.owner->home);  // for good: home starts nothing of it again
}

void Engine::look_at_clock(Fiber& f, std::uint32_t place) {
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - started_;
  if (spent.count() < options_.max_seconds) return;
  late_ = true;
  report(
      f, Fault::deadlock, place,
      formatted("still runs after {} seconds: the launch is stopped here", options_.max_seconds));
  stop(f);
}

/// A thread that can go on, the first or a drawn one; null: none can.
Fiber* Engine::next_of(Block& block) {
  const std::size_t n = block.warps.size(), first = options_.turns != 0 ? random_() % n : 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t w = (first + i) % n;
    const std::uint32_t mask = block.warps[w].runnable;
    if (mask == 0) continue;
    const int turn = options_.turns != 0 ? static_cast<int>(random_() % kWarp) : 0;
    const int lane = (std::countr_zero(std::rotr(mask, turn)) + turn) % kWarp;
    return &block.fibers[w * kWarp + static_cast<std::size_t>(lane)];
  }
  return nullptr;
}

void Engine::give_way(Fiber& f) {
  Block& block = *f.owner;
  if ((cooperative_ || cluster_ > 1) && random_() % 8 == 0) {
    block.paused = true;
    switch_context(f.context, block.home);
  } else {
    resume_next(f);
  }
}

bool Engine::run_until_stuck(Block& block) {
  while (!block.stopped && !late_) {
    Fiber* const next = next_of(block);
    if (next == nullptr) return false;
    switch_context(block.home, next->context);
    if (std::exchange(block.paused, false)) return true;
  }
  return false;
}

void Engine::run_together(std::uint32_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  do {
    for (bool more = true; more;) {
      more = false;
      if (options_.turns != 0) std::ranges::shuffle(order, random_);
      for (const std::uint32_t b : order) {
        more = run_until_stuck(*blocks_[b]) || more;
        more = std::exchange(went_to_others_, false) || more;
      }
    }
  } while (release_grid() || release_cluster());
  for (std::uint32_t b = 0; b < count; ++b) leave(*blocks_[b]);
}

/// A block that does not go on: is it done, or stuck?
void Engine::leave(Block& block) {
  if (!finished(block)) {
    if (!late_) report_deadlock(block);
    block.stopped = true;
  }
  if (block.stopped) ++blocks_stopped_;
}

void Engine::report_deadlock(Block& block) {
  std::map<std::string, std::vector<int>> groups;
  std::vector<std::string> order;
  const Fiber* first = nullptr;
  std::vector<int> ended;
  for (const Fiber& f : block.fibers) {
    if (f.wait == Wait::ended) {
      ended.push_back(f.index);
      continue;
    }
    if (first == nullptr) first = &f;
    std::vector<int>& group = groups[described(f)];
    if (group.empty()) order.push_back(described(f));
    group.push_back(f.index);
  }
  std::string text = "nobody can go on: ";
  for (const std::string& where : order)
    text += (where == order.front() ? "" : "; ") + described(groups[where]) + " " + where;
  if (!ended.empty())
    text += "; " + described(ended) + (ended.size() == 1 ? " has" : " have") + " ended";
  report(*first, Fault::deadlock, first->wait_place, text);
}

}  // namespace tilewright::cuda_host
