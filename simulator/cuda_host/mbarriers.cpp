// Barriers in shared memory that count arrivals. Their state is kept here, not in the eight bytes.
#include <algorithm>

#include "core/base/format.h"
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {

namespace {

constexpr std::int64_t kNone = -2;

}  // namespace

void Engine::mbarrier_init(Fiber& f, void* p, std::uint32_t arrivals, std::uint32_t place) {
  Block& block = *f.owner;
  const std::int64_t offset = shared_offset(f, p, 8, 8, true, place, "mbarrier_init writes");
  if (offset < 0) stop(f);
  if (arrivals == 0 || arrivals >= 1u << 20) {
    report(f, Fault::mbarrier_misuse, place,
           formatted("makes an mbarrier of {} arrivals: 1 to 1048575 are possible", arrivals));
    stop(f);
  }
  const auto at = std::ranges::find(block.mbarriers, offset, &MBarrier::offset);
  if (at != block.mbarriers.end() && !at->waiting.empty()) {
    report(f, Fault::mbarrier_misuse, place, "makes an mbarrier anew where threads wait for it");
    stop(f);
  }
  block.shadow.mark_barrier(offset, false);  // this write is the barrier's own
  if (options_.checks) check_shared(f, offset, 8, true, place, f.index, block.clocks.now(f.index));
  block.shadow.mark_barrier(offset, true);
  MBarrier& b = at != block.mbarriers.end() ? *at : block.mbarriers.emplace_back();
  b.offset = offset;
  b.arrivals = b.pending = arrivals;
  b.phase = 0;
  b.bytes = 0;
  b.maker = f.index;
  b.known = false;
  const auto components = static_cast<std::size_t>(block.clocks.components());
  b.arriving = b.complete = {.at = ClockVector(components, 0)};
  b.arriving_there.clear(), b.complete_there.clear();
  b.waited_for.assign(static_cast<std::size_t>(block.threads), kNone);
}

MBarrier* Engine::find_mbarrier(Fiber& f, void* p, std::uint32_t place, const char* what) {
  Block& block = *f.owner;
  const std::int64_t offset = shared_offset(f, p, 8, 8, false, place, what);
  if (offset < 0) stop(f);
  const auto at = std::ranges::find(block.mbarriers, offset, &MBarrier::offset);
  if (at == block.mbarriers.end()) {
    report(f, Fault::mbarrier_misuse, place,
           formatted("{} byte {} of shared memory, where no mbarrier was made", what, offset));
    stop(f);
  }
  if (options_.checks) {
    const auto outcome = block.shadow.barrier_use(offset, block.clocks.seen(f.index));
    if (outcome.other)
      report_race(f, Fault::race, place, false, false, outcome.other.place, block.index,
                  outcome.other.component, true, -2, offset);
  }
  return &*at;
}

void Engine::mbarrier_arrive(Fiber& f, void* p, bool after_copies, std::uint32_t place) {
  if (left_out(after_copies ? "mbarrier_arrive_after_copies" : "mbarrier_arrive", place)) return;
  Block& block = *f.owner;
  MBarrier& b = *find_mbarrier(f, p, place, "arrives at");
  if (after_copies) {
    // They land now: the arrival waits for them, and nothing but it tells anyone that they have.
    land_copies(f, ~Clock{0});
    Clock& landed = b.arriving.at[static_cast<std::size_t>(block.clocks.copier(f.index))];
    landed = std::max(landed, block.clocks.copies(f.index));
  }
  // Also after copies, what the thread itself did before counts as published.
  block.clocks.publish(f.index, b.arriving);
  block.clocks.tick(f.index);
  --b.pending;
  end_if_complete(block, b);
}

void Engine::end_phase(Block& block, MBarrier& b) {
  const auto ended = static_cast<std::uint32_t>(b.phase & 1u);
  ++b.phase;
  b.pending = b.arrivals;
  b.complete.at = b.arriving.at;
  block.clocks.seal(b.complete);
  b.complete_there = b.arriving_there;
  const bool waited = !b.waiting.empty();
  ++counts_->mbarrier_phases;
  std::erase_if(b.waiting, [&](const auto& waiting) {
    if (waiting.second != ended) return false;
    block.clocks.join(waiting.first, b.complete);
    wake(block, waiting.first);
    return true;
  });
  if (waited) learn_of_others(b);
}

/// Somebody has waited for the barrier: what arrivals of other blocks had seen of their own memory
/// is known to whoever reaches it from here. Of the cluster's blocks any, since one thread stands
/// there for all of them.
void Engine::learn_of_others(const MBarrier& b) {
  for (const auto& [rank, seen] : b.complete_there)
    blocks_[rank]->clocks.join(blocks_[rank]->threads, seen);
}

MBarrier* Engine::find_mbarrier_of(Fiber& f, Block& there, std::int64_t offset, std::uint32_t place,
                                   const char* what) {
  const auto at = std::ranges::find(there.mbarriers, offset, &MBarrier::offset);
  if (at == there.mbarriers.end()) {
    report(f, Fault::mbarrier_misuse, place,
           formatted("{} byte {} of another block's shared memory, where no mbarrier was made yet",
                     what, offset));
    stop(f);
  }
  if (there.ended == there.threads)
    report(f, Fault::race, place, formatted("{} memory of a block that may have ended", what));
  const Seen seen = there.clocks.seen(there.threads);
  if (options_.checks && at->maker >= 0 && seen[static_cast<std::size_t>(at->maker)] == 0)
    report(
        f, Fault::race, place,
        formatted("{} an mbarrier of another block before they have met since it was made", what));
  went_to_others_ = true;
  return &*at;
}

void Engine::mbarrier_arrive_of_block(Fiber& f, void* p, std::uint32_t rank, std::uint32_t place) {
  if (left_out("mbarrier_arrive_of_block", place)) return;
  watch(f, place);
  const std::int64_t offset = shared_offset(f, p, 8, 8, false, place, "arrives at");
  if (offset < 0) stop(f);
  if (rank >= cluster_) {
    report(f, Fault::bad_argument, place,
           formatted("arrives at block {} of a cluster of {}", rank, cluster_));
    stop(f);
  }
  Block& there = cluster_ == 1 ? *f.owner : *blocks_[rank];
  Block& here = *f.owner;
  MBarrier& b = &there == &here ? *find_mbarrier(f, p, place, "arrives at")
                                : *find_mbarrier_of(f, there, offset, place, "arrives at");
  if (&there == &here) {
    here.clocks.publish(f.index, b.arriving);
  } else {
    const std::uint32_t mine = here.index % cluster_;
    auto at =
        std::ranges::find(b.arriving_there, mine, &std::pair<std::uint32_t, Published>::first);
    if (at == b.arriving_there.end()) {
      const auto components = static_cast<std::size_t>(here.clocks.components());
      at = b.arriving_there.insert(at, {mine, {.at = ClockVector(components, 0)}});
    }
    here.clocks.publish(f.index, at->second);
  }
  here.clocks.tick(f.index);
  --b.pending;
  end_if_complete(there, b);
}

void Engine::mbarrier_wait(Fiber& f, void* p, std::uint32_t parity, std::uint32_t place) {
  if (left_out("mbarrier_wait", place)) return;
  Block& block = *f.owner;
  MBarrier& b = *find_mbarrier(f, p, place, "waits at");
  if (parity > 1) {
    report(f, Fault::mbarrier_misuse, place, formatted("waits for parity {}: 0 or 1", parity));
    stop(f);
  }
  // A parity tells the current phase from the preceding one (PTX, mbarrier.test_wait), and no more.
  std::int64_t& last = b.waited_for[static_cast<std::size_t>(f.index)];
  const auto ended = static_cast<std::int64_t>(b.phase), wanted = static_cast<std::int64_t>(parity);
  if (last == kNone && parity == 0)
    last = 0;
  else if (last != kNone && (last & 1) != wanted)
    ++last;
  else  // again, or for the first time what a fresh barrier has behind it: the latest that there is
    last = std::max(last, (ended & 1) == wanted ? ended : ended - 1);
  const std::int64_t meant = last;
  check_phase(f, b, meant, place);
  if ((b.phase & 1u) != parity) {
    block.clocks.join(f.index, b.complete);
    learn_of_others(b);
    return;
  }
  b.waiting.emplace_back(f.index, parity);
  wait(f, Wait::mbarrier, place, b.offset);
  check_phase(f, *find_mbarrier(f, p, place, "waits at"), meant, place);
}

/// A thread waits for the end of a phase, or goes on after it: the next one cannot have ended yet.
void Engine::check_phase(Fiber& f, const MBarrier& b, std::int64_t meant, std::uint32_t place) {
  if (meant + 1 < static_cast<std::int64_t>(b.phase))
    report(f, Fault::mbarrier_misuse, place,
           formatted("waits for the end of phase {} of an mbarrier by its parity, but phase {} has "
                     "ended, too: those who ended it have not waited for this thread",
                     meant, meant + 1));
}

}  // namespace tilewright::cuda_host
