#include "simulator/set_shares.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "core/base/error.h"

namespace tilewright {

namespace {

/// Why what one set does may depend on another one; empty: it does not.
std::string coupled(const Level& l) {
  if (l.behaviour.index != Index::modulo) return l.name + " chooses sets by a hash";
  if (!l.behaviour.prefetch.empty()) return l.name + " prefetches";
  if (l.behaviour.clean_victims < 1) return l.name + " draws which clean victims it takes";
  return "";
}

void add(Simulated& sum, const Simulated& more) {
  for (std::size_t c = 0; c < sum.caches.size(); ++c)
    for (std::size_t t = 0; t < sum.caches[c].second.size(); ++t)
      sum.caches[c].second[t] += more.caches[c].second[t];
  for (std::size_t c = 0; c < sum.contents.size(); ++c)
    for (std::size_t s = 0; s < sum.contents[c].size(); ++s)
      if (sum.contents[c][s].empty()) sum.contents[c][s] = more.contents[c][s];
  sum.dram.reads += more.dram.reads;
  sum.dram.writes += more.dram.writes;
  sum.finished = sum.finished && more.finished;
  if (more.skipped.computes < sum.skipped.computes) sum.skipped = more.skipped;
}

void add_traffic(Traffic& sum, const Traffic& more) {
  TW_CHECK(sum.entries.size() == more.entries.size(), "shares of different walks");
  for (std::size_t i = 0; i < sum.entries.size(); ++i) {
    TrafficEntry& to = sum.entries[i];
    const TrafficEntry& e = more.entries[i];
    to.read += e.read;
    to.written += e.written;
    to.hits += e.hits;
    to.misses += e.misses;
    to.resident_dirty += e.resident_dirty;
  }
}

}  // namespace

bool is_zero(const TrafficEntry& e) {
  return e.read + e.written + e.resident_dirty == Bytes(0) && e.hits + e.misses == 0;
}

std::int64_t independent_round(const Machine& m, const SimulateOptions& options, std::string& why) {
  if (options.cores != 1) why = "cores keep each other's lines coherent";
  if (m.level(m.home()).rows.row_bytes != 0) why = "DRAM keeps rows open for all sets";
  if (options.attribute) why = "misses are told apart by a fully associative cache";
  if (!options.distances.empty() || options.trace != nullptr || options.occupancy != nullptr)
    why = "every touch is told of in order";
  std::int64_t round = 0, longest = 1;
  for (const Level& l : m.levels) {
    if (l.kind == LevelKind::home || l.managed == Managed::software) continue;
    if (const std::string reason = coupled(l); !reason.empty()) why = reason;
    const std::int64_t sets = l.ways == 0 ? 1 : l.capacity.value / (l.line.value * l.ways);
    round = std::gcd(round, sets * l.line.value);
    longest = std::max(longest, l.line.value);
  }
  if (round == 0) why = "no hardware cache is touched";
  if (why.empty() && (round % longest != 0 || round == longest))
    why = "the levels' sets have no common division";
  return why.empty() ? round : 0;
}

Simulated simulate_by_sets(const Schedule& s, const SimulateOptions& options,
                           const std::function<Simulated(const SetShare&)>& share) {
  std::string why;
  const std::int64_t round = independent_round(*s.machine, options, why);
  if (round == 0) {
    Simulated alone = share({});
    alone.why_serial = why;
    return alone;
  }
  std::int64_t longest = 1;
  for (const Level& l : s.machine->levels)
    if (l.kind != LevelKind::home && l.managed == Managed::hardware)
      longest = std::max(longest, l.line.value);
  const std::int64_t pieces = round / longest;
  const int threads = static_cast<int>(std::min<std::int64_t>(options.threads, pieces));
  std::vector<Simulated> parts(static_cast<std::size_t>(threads));
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&](int i) {
    try {
      parts[static_cast<std::size_t>(i)] = share({.index = i,
                                                  .count = threads,
                                                  .round = round,
                                                  .low = pieces * i / threads * longest,
                                                  .high = pieces * (i + 1) / threads * longest});
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& t : others) t.join();
  if (failure) std::rethrow_exception(failure);
  Simulated sum = std::move(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    add(sum, parts[i]);
    add_traffic(sum.traffic, parts[i].traffic);
  }
  if (threads > 1) std::erase_if(sum.traffic.entries, is_zero);
  sum.threads = threads;
  if (threads < options.threads) why = "there are no more divisions of the sets";
  sum.why_serial = why;
  return sum;
}

}  // namespace tilewright
