// Clusters: blocks that run together, meet, and read one another's shared memory. What another
// block reads must have been written before they last met, and must stay until they meet again.
#include <cstring>

#include "core/base/format.h"
#include "simulator/cuda_host/engine.h"

namespace tilewright::cuda_host {

void Engine::cluster_sync(Fiber& f, std::uint32_t place) {
  if (left_out("cluster_sync", place)) return;
  if (cluster_ == 1) {
    report(f, Fault::bad_argument, place, "calls cluster_sync in a launch without clusters");
    stop(f);
  }
  ++f.owner->at_cluster;
  wait(f, Wait::cluster, place, 0);
}

/// True where every thread of the cluster that has not ended was waiting: they go on.
bool Engine::release_cluster() {
  if (cluster_ == 1) return false;
  bool any = false;
  const Fiber* first = nullptr;
  for (std::uint32_t b = 0; b < cluster_; ++b) {
    const Block& block = *blocks_[b];
    if (block.stopped || block.at_cluster + block.ended != block.threads) return false;
    any = any || block.at_cluster > 0;
    for (const Fiber& f : block.fibers)
      if (first == nullptr && f.wait == Wait::cluster) first = &f;
  }
  if (!any) return false;
  ++counts_->cluster_syncs;
  for (std::uint32_t b = 0; b < cluster_; ++b) {
    Block& block = *blocks_[b];
    block.at_cluster = 0;
    block.read_by_others = 0;
    block.clocks.meet(block.everyone_and_others);
    for (Fiber& f : block.fibers) {
      if (f.wait != Wait::cluster) continue;
      if (options_.list_barriers) barriers_.meet(first->wait_place, f.wait_place);
      wake(block, f.index);
    }
  }
  return true;
}

void Engine::load_of_block(Fiber& f, void* to, const void* shared, std::uint32_t rank,
                           std::uint32_t place) {
  watch(f, place);
  if (rank >= cluster_) {
    report(f, Fault::bad_argument, place,
           formatted("reads shared memory of block {} of a cluster of {}", rank, cluster_));
    stop(f);
  }
  const std::int64_t offset = shared_offset(f, shared, 16, 16, false, place, "load_of_block reads");
  if (offset < 0) stop(f);
  Block& other = *blocks_[rank];
  if (&other == f.owner) {
    read_shared(f, offset, 16, place);
  } else {
    counts_->cluster_read += 16;
    if (other.ended == other.threads)
      report(f, Fault::race, place, "reads shared memory of a block that may have ended");
    other.read_by_others = place;
    const int others = other.threads;  // the thread that stands for them
    if (options_.checks) {
      // Reported as of the block whose memory it is: `f` is no thread of it.
      Fiber& there = other.fibers.front();
      const Seen seen = other.clocks.seen(others);
      const auto outcome =
          other.shadow.read(offset, 16, others, other.clocks.now(others), seen, place);
      if (outcome.other)
        report_race(f, Fault::race, place, false, false, outcome.other.place, other.index,
                    outcome.other.component, outcome.other_wrote, -2, outcome.offset);
      if (outcome.uninitialised)
        report(there, Fault::uninitialised, place,
               formatted("has nothing written at byte {} of shared memory, where another block of "
                         "its cluster reads",
                         outcome.offset));
    }
  }
  std::memcpy(to, other.shared + offset, 16);
}

/// A thread ends: its block's shared memory may end with it.
void Engine::check_read_by_others(Fiber& f) {
  if (f.owner->read_by_others == 0) return;
  report(f, Fault::race, f.owner->read_by_others,
         "has its shared memory read by another block of its cluster and ends before they meet");
}

}  // namespace tilewright::cuda_host
