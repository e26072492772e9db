#include "profilers/cachegrind.h"

#include <bit>
#include <charconv>

#include "core/base/format.h"
#include "core/base/toolchain.h"
#include "profilers/meter.h"
#include "profilers/valgrind.h"

namespace tilewright::profilers {

namespace {

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

bool power_of_two(std::int64_t n) {
  return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n));
}

std::int64_t ways_of(const Level& l) {
  return l.ways > 0 ? l.ways : l.capacity.value / l.line.value;
}

/// Why cachegrind cannot be asked for a cache; none: it can.
std::optional<Reason> refused(const Level& l) {
  const std::int64_t sets = l.capacity.value / (l.line.value * ways_of(l));
  if (!power_of_two(sets))
    return Reason{formatted("cachegrind's sets are a power of two, and {} has {}", l.name, sets)};
  if (!power_of_two(l.line.value) || l.line.value < 16)
    return Reason{
        formatted("cachegrind's lines are a power of two from 16 bytes on, and those of "
                  "{} have {}",
                  l.name, l.line.value)};
  return std::nullopt;
}

std::string option_of(const Level& l) {
  return formatted("{},{},{}", l.capacity.value, ways_of(l), l.line.value);
}

void note_behaviour(const Level& l, std::vector<std::string>& notes) {
  if (l.policy != "lru") notes.push_back(l.name + " is " + l.policy + ": cachegrind's is lru");
  if (l.behaviour.index != Index::modulo)
    notes.push_back(l.name +
                    " is indexed by a hash: cachegrind's by the line number modulo the sets");
  if (l.behaviour.inclusion != Inclusion::non_inclusive)
    notes.push_back(l.name + " is " + std::string(name_of(l.behaviour.inclusion)) +
                    ": cachegrind's is filled on the way in and evicts from nobody else");
  if (!l.behaviour.prefetch.empty()) notes.push_back(l.name + " prefetches: cachegrind does not");
}

class Cachegrind : public Meter {
 public:
  Result<Measurement> measure(const BuiltKernel& kernel, const Machine& machine) override {
    const auto caches = cachegrind_caches(machine);
    if (!caches) return Reason{caches.reason()};
    if (auto why = valgrind_refuses(kernel)) return *why;
    auto runs = KernelDriver::prepare(kernel);
    if (!runs) return Reason{runs.reason()};
    // What is not the kernel is counted by a run without it, and taken away.
    const auto without = totals(**runs, *caches, false);
    if (!without) return Reason{without.reason()};
    const auto with = totals(**runs, *caches, true);
    if (!with) return Reason{with.reason()};
    std::map<std::string, std::int64_t> own = *with;
    for (auto& [event, count] : own) {
      const auto at = without->find(event);
      if (at != without->end()) count -= at->second;
    }
    for (const char* event : {"Dr", "Dw", "D1mr", "D1mw", "DLmr", "DLmw"})
      if (!own.contains(event)) return Reason{std::string("cachegrind's file has no ") + event};
    Measurement m = measured(own, *caches, machine);
    m.command = (*runs)->command();
    return m;
  }

 private:
  static Result<std::map<std::string, std::int64_t>> totals(KernelDriver& runs,
                                                            const CachegrindCaches& caches,
                                                            bool kernel) {
    const std::filesystem::path file = runs.directory() / "counts";
    // What I1 misses passes through LL beside the data; as large as D1, so that it can be followed.
    if (auto why = runs.run({"valgrind", "--tool=cachegrind", "--cache-sim=yes", "--branch-sim=no",
                             "--I1=" + caches.d1, "--D1=" + caches.d1, "--LL=" + caches.ll,
                             "--cachegrind-out-file=" + file.string()},
                            kernel ? 1 : 0))
      return *why;
    return cachegrind_totals(text_of(file));
  }

  static Measurement measured(std::map<std::string, std::int64_t>& own,
                              const CachegrindCaches& caches, const Machine& machine) {
    Measurement m;
    Traffic& t = m.traffic;
    t = {.source = Source::simulated,
         .by = "cachegrind",
         .machine = machine.name,
         .counts = {.write_allocate = true, .write_back = false},
         .unavailable = caches.unavailable};
    const std::int64_t touches = own["Dr"] + own["Dw"], first = own["D1mr"] + own["D1mw"],
                       last = own["DLmr"] + own["DLmw"];
    const auto entry = [&](const std::string& boundary, LevelId level, std::int64_t asked,
                           std::int64_t missed) {
      t.entries.push_back({.tensor = "total",
                           .boundary = boundary,
                           .read = missed * machine.level(level).line,
                           .hits = asked - missed,
                           .misses = missed});
    };
    if (!caches.last_boundary.empty()) entry(caches.last_boundary, caches.last, first, last);
    entry(caches.first_boundary, caches.first, touches, first);
    for (const auto& [event, count] : own)
      if (!caches.last_boundary.empty() ||
          !event.starts_with("DL"))  // else no cache of the machine's
        m.counters.emplace_back(event, static_cast<double>(count));
    m.notes = caches.notes;
    m.notes.push_back(
        "an access across two lines that both miss counts once, and nothing is written "
        "back: cachegrind's lines are never dirty");
    return m;
  }
};

}  // namespace

Result<std::map<std::string, std::int64_t>> cachegrind_totals(std::string_view text) {
  std::vector<std::string_view> events, numbers;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    for (const auto& [key, words] :
         {std::pair<std::string_view, std::vector<std::string_view>*>("events:", &events),
          {"summary:", &numbers}}) {
      if (!line.starts_with(key)) continue;
      if (!words->empty()) return Reason{"cachegrind's file has two lines " + std::string(key)};
      *words = words_of(line.substr(key.size()));
    }
    at = end + 1;
  }
  if (events.empty() || events.size() != numbers.size())
    return Reason{
        "cachegrind's file lacks its lines events: and summary:, or they differ in length"};
  std::map<std::string, std::int64_t> totals;
  for (std::size_t i = 0; i < events.size(); ++i) {
    std::int64_t n = 0;
    const auto [stop, error] = std::from_chars(numbers[i].begin(), numbers[i].end(), n);
    if (error != std::errc() || stop != numbers[i].end() || n < 0)
      return Reason{"cachegrind's file has no number for " + std::string(events[i])};
    if (!totals.emplace(events[i], n).second)
      return Reason{"cachegrind's file has " + std::string(events[i]) + " twice"};
  }
  return totals;
}

Result<CachegrindCaches> cachegrind_caches(const Machine& m) {
  CachegrindCaches c{
      .ll = "33554432,16,64"};  // cachegrind has one always: untold where there is none
  std::vector<LevelId> caches;  // outermost first
  for (std::size_t l = 1; l < m.levels.size(); ++l)
    if (m.levels[l].kind == LevelKind::cache && m.levels[l].managed == Managed::hardware)
      caches.push_back(LevelId(l));
  if (caches.empty()) return Reason{"machine " + m.name + " has no cache that hardware manages"};
  const auto boundary = [&](LevelId l) {
    const auto [outer, inner] = m.path(m.home(), l).back();
    return m.boundary(outer, inner);
  };
  c.first = caches.back(), c.last = caches.front();
  c.first_boundary = boundary(c.first);
  if (auto why = refused(m.level(c.first))) return *why;
  c.d1 = option_of(m.level(c.first));
  note_behaviour(m.level(c.first), c.notes);
  for (std::size_t l = 1; l + 1 < caches.size(); ++l)
    c.unavailable[boundary(caches[l])] = "cachegrind models the first and the last cache only";
  if (c.first == c.last) return c;
  if (auto why = refused(m.level(c.last))) {
    c.unavailable[boundary(c.last)] = why->text;
    return c;
  }
  c.last_boundary = boundary(c.last);
  c.ll = option_of(m.level(c.last));
  note_behaviour(m.level(c.last), c.notes);
  return c;
}

Availability cachegrind_here() { return valgrind_here(); }
std::unique_ptr<Meter> make_cachegrind() { return std::make_unique<Cachegrind>(); }

}  // namespace tilewright::profilers
