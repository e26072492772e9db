// Section 2: bytes a second in each level of this machine's memory.

#include <algorithm>

#include "bench/peer.h"
#include "bench/sections.h"
#include "core/base/format.h"
#include "core/machine/host_facts.h"
#include "harness/memory_passes.h"

namespace tilewright::bench {
namespace {

using Line = harness::MemoryLine;
using harness::copy_pass;
using harness::read_pass;
using harness::write_pass;
constexpr std::size_t kBlock = harness::kPassLines * sizeof(Line);

/// Stops the compiler from merging passes over the same memory.
inline void keep() { asm volatile("" ::: "memory"); }

enum class Kind { read, write, copy };
constexpr Kind kKinds[] = {Kind::read, Kind::write, Kind::copy};
const char* name_of(Kind k) {
  return k == Kind::read ? "read" : k == Kind::write ? "write" : "copy";
}

/// What is walked over at one level, by each thread.
struct Place {
  std::string level;
  std::size_t bytes_a_thread = 0;
};

/// Half of each cache (of its share, where threads share it), and four times all caches for DRAM.
std::vector<Place> places(const Machine& machine, int threads) {
  std::vector<Place> out;
  std::size_t largest = std::size_t{16} << 20;
  const auto whole = [](std::size_t bytes) {
    return std::max(kBlock * 2, bytes / (kBlock * 2) * (kBlock * 2));
  };
  for (const Level& level : machine.levels) {
    if (level.managed != Managed::hardware || level.capacity.value <= 0 || level.ways == 0)
      continue;
    const auto capacity = static_cast<std::size_t>(level.capacity.value);
    largest = std::max(largest, capacity);
    const std::size_t sharers = level.instances >= threads ? 1 : static_cast<std::size_t>(threads);
    out.insert(out.begin(), {level.name, whole(capacity / 2 / sharers)});
  }
  out.push_back({"DRAM", whole(4 * largest / static_cast<std::size_t>(threads))});
  return out;
}

/// Bytes a second: what each thread's loads and stores name. What a store fetches before it writes
/// (write-allocate) is in no figure.
Contestant contestant(const Place& place, Kind kind, int threads) {
  constexpr std::size_t kLeastBytes = std::size_t{4}
                                      << 20;  // so that a sample is long to the clock
  std::vector<harness::LineMemory> memories;
  for (int t = 0; t < threads; ++t)
    memories.push_back(harness::lines_of_memory(place.bytes_a_thread));
  const std::size_t lines = place.bytes_a_thread / sizeof(Line);
  const std::size_t passes = (kLeastBytes + place.bytes_a_thread - 1) / place.bytes_a_thread;
  // Each thread's pages are first touched by itself.
  split(threads, threads, [&](std::int64_t, std::int64_t, int t) {
    write_pass(memories[static_cast<std::size_t>(t)].get(), lines);
  });
  const double bytes =
      static_cast<double>(place.bytes_a_thread) * static_cast<double>(passes) * threads;
  return {.name = place.level + " " + name_of(kind), .sample = [=] {
            const double seconds = seconds_of([&] {
              split(threads, threads, [&](std::int64_t, std::int64_t, int t) {
                Line* const all = memories[static_cast<std::size_t>(t)].get();
                for (std::size_t p = 0; p < passes; ++p) {
                  if (kind == Kind::read) read_pass(all, lines);
                  if (kind == Kind::write) write_pass(all, lines);
                  // Half of it onto the other half: as many bytes read as written.
                  if (kind == Kind::copy) copy_pass(all, all + lines / 2, lines / 2);
                  keep();
                }
              });
            });
            return bytes / seconds;
          }};
}

void measure(int threads, const Settings& settings, const Machine& machine, Json& list) {
  const std::vector<Place> all = places(machine, threads);
  std::vector<Contestant> contestants;
  for (const Place& place : all)
    for (Kind kind : kKinds) contestants.push_back(contestant(place, kind, threads));
  const std::vector<Samples> samples =
      interleave(contestants, {.rounds = settings.rounds,
                               .turn_seconds = settings.turn_seconds,
                               .settle = wait_until_quiet});
  print(formatted("\nMemory, {} thread{}, GB/s (1e9), medians (best) of {} interleaved turns\n",
                  threads, threads == 1 ? "" : "s", settings.rounds));
  Table table({"level", "KiB a thread", "read", "write", "copy (read + written)"});
  for (std::size_t p = 0; p < all.size(); ++p) {
    std::vector<std::string> row{all[p].level, std::to_string(all[p].bytes_a_thread >> 10)};
    for (std::size_t k = 0; k < std::size(kKinds); ++k) {
      const Samples& s = samples[p * std::size(kKinds) + k];
      row.push_back(formatted("{:.1f} ({:.1f})", s.median() * 1e-9, s.most() * 1e-9));
      list.push_back({{"level", all[p].level},
                      {"kind", name_of(kKinds[k])},
                      {"threads", threads},
                      {"footprint_bytes_a_thread", all[p].bytes_a_thread},
                      {"bytes_per_second_median", s.median()},
                      {"bytes_per_second_most", s.most()},
                      {"samples", s.count()}});
    }
    table.add(std::move(row));
  }
  print(table.text());
}

}  // namespace

Json bandwidth(const Settings& settings) {
  const Machine machine = detect_host();
  Json json;
  json["bandwidth"] = Json::array();
  for (int threads : settings.threads) {
    progress(formatted("bandwidth on {} thread(s)", threads));
    measure(threads, settings, machine, json["bandwidth"]);
  }
  progress("");
  return json;
}

}  // namespace tilewright::bench
