// Machines: names, the paths that data takes, and what makes a machine valid.
#include "core/machine/machine.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <tuple>

#include "core/base/error.h"

namespace tilewright {
namespace {

/// Most bytes of one hardware cache: a simulator keeps state for each of its lines.
constexpr std::int64_t kMaxCache = std::int64_t{4} << 30;
constexpr std::size_t kMaxLevels = 32;
constexpr std::int64_t kMaxPlruWays = 64;
constexpr std::int64_t kMaxDegree = 64;  // lines of a 4 KiB page
constexpr std::int64_t kMaxBanks = 65536;
constexpr std::int64_t kMaxInstances = std::int64_t{1} << 40;

bool same_but_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string lower(std::string_view text) {
  std::string r(text);
  for (char& c : r) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return r;
}

/// What fills level `i`, as positions.
std::vector<std::size_t> fillers(const Machine& m, std::size_t i) {
  std::vector<std::size_t> r;
  if (i == 0) return r;
  if (m.levels[i].filled_by.empty()) return {i - 1};
  for (const std::string& name : m.levels[i].filled_by) {
    if (const auto id = m.find(name)) r.push_back(id->index());
  }
  return r;
}

/// The same of one of them, without a list.
bool fills(const Machine& m, LevelId filler, LevelId level) {
  if (level.index() == 0) return false;
  const std::vector<std::string>& named = m.level(level).filled_by;
  if (named.empty()) return filler.index() + 1 == level.index();
  return std::ranges::find(named, m.level(filler).name) != named.end();
}

/// True where the name ends in x and digits: L.A@L1x2 could not name it.
bool ends_like_copies(std::string_view name) {
  std::size_t end = name.size();
  while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9') --end;
  return end < name.size() && end > 0 && name[end - 1] == 'x';
}

class Checker {
 public:
  Checker(const Machine& m, std::string_view where) : m_(m), where_(where) {}

  void run() const {
    if (m_.name.empty()) fail("name", "", "a machine needs a name", "");
    if (m_.levels.empty()) {
      fail("levels", "", "a machine needs memory levels", "home first, then at least one on chip");
    }
    if (m_.levels.size() > kMaxLevels) {
      fail("levels", std::to_string(m_.levels.size()), "levels are too many",
           "at most " + std::to_string(kMaxLevels));
    }
    check_home();
    check_names();
    bool on_chip = false;
    for (std::size_t i = 0; i < m_.levels.size(); ++i) {
      check_level(m_.levels[i], i);
      on_chip |= i > 0 && m_.levels[i].kind != LevelKind::registers;
    }
    if (!on_chip) {
      fail("levels", "", "no level on chip", "at least one cache or scratchpad under home");
    }
    check_paths();
    check_plan_level();
    check_units();
    if (m_.npu_core) check_npu_core(*m_.npu_core);
  }

 private:
  [[noreturn]] void fail(std::string field, std::string value, std::string problem,
                         std::string accepted) const {
    throw InputError({.where = std::string(where_),
                      .field = std::move(field),
                      .value = std::move(value),
                      .problem = std::move(problem),
                      .accepted = std::move(accepted)});
  }
  [[noreturn]] void fail(const Level& level, const char* field, std::string value,
                         std::string problem, std::string accepted) const {
    fail("level " + level.name + ": " + field, std::move(value), std::move(problem),
         std::move(accepted));
  }

  void check_home() const {
    const Level& home = m_.levels.front();
    if (home.kind != LevelKind::home) {
      fail("level " + home.name + ": kind", std::string(name_of(home.kind)),
           "is listed first, but the outermost level must be home", "kind home first");
    }
    for (const Level& level : std::span(m_.levels).subspan(1)) {
      if (level.kind == LevelKind::home) {
        fail(level, "kind", "home", "is a second home", "one home, listed first");
      }
    }
    if (home.capacity.value < 0) {
      fail(home, "capacity", std::to_string(home.capacity.value), "is negative",
           "bytes, or 0 for no bound");
    }
    if (home.bandwidth.value != 0) {
      fail(home, "bandwidth", "", "is the rate from the next outer level, and home has none",
           "the bandwidth of home at the level next inside it");
    }
    if (!home.filled_by.empty()) {
      fail(home, "filled_by", join(home.filled_by), "fills home, and no level lies outside home",
           "no filled_by at home");
    }
  }

  void check_names() const {
    std::set<std::string> seen;
    for (std::size_t i = 0; i < m_.levels.size(); ++i) {
      const std::string& name = m_.levels[i].name;
      if (!is_identifier(name) || ends_like_copies(name)) {
        fail("level " + std::to_string(i) + ": name", name, "is not a level's name",
             "an identifier that does not end in x and digits");
      }
      const std::string key = lower(name);
      if (i > 0 && (key == "dram" || key == "home")) {
        fail("level " + std::to_string(i) + ": name", name, "names home", "another name");
      }
      if (!seen.insert(key).second) {
        fail("levels", name, "names two levels", "unique names, ignoring case");
      }
    }
  }

  void check_level(const Level& level, std::size_t i) const {
    const std::string positive = "a positive number of bytes";
    if (i > 0 && level.capacity.value <= 0) {
      fail(level, "capacity", std::to_string(level.capacity.value), "is not a capacity", positive);
    }
    if (!std::isfinite(level.bandwidth.value) || level.bandwidth.value < 0) {
      fail(level, "bandwidth", std::to_string(level.bandwidth.value), "is not a bandwidth",
           "a positive number of bytes a second, or 0 where it is unknown");
    }
    if (level.line.value <= 0) {
      fail(level, "line", std::to_string(level.line.value), "is not a line size", positive);
    }
    if (level.sector.value <= 0 || level.line.value % level.sector.value != 0) {
      fail(level, "sector", std::to_string(level.sector.value), "does not divide the line",
           "a divisor of " + std::to_string(level.line.value));
    }
    if (level.instances < 1 || level.instances > kMaxInstances) {
      fail(level, "instances", std::to_string(level.instances), "is not a number of instances",
           "1 to " + std::to_string(kMaxInstances));
    }
    if (!replacement_from_name(level.policy)) {
      fail(level, "policy", level.policy, "is not a replacement policy",
           std::string(replacement_names()));
    }
    const Managed managed = level.kind == LevelKind::cache ? Managed::hardware : Managed::software;
    if (i > 0 && level.managed != managed) {
      fail(level, "managed", std::string(name_of(level.managed)),
           "does not go with kind " + std::string(name_of(level.kind)),
           std::string(name_of(managed)));
    }
    if (level.kind == LevelKind::cache) {
      check_cache(level);
      check_behaviour(level);
    } else if (!level.behaviour.plain() || level.policy != "lru") {
      fail(level, "kind", std::string(name_of(level.kind)), "has the behaviour of a cache",
           "policy, inclusion, write, index and prefetch at levels of kind cache only");
    }
    if (level.rows != DramRows{} && i > 0) {
      fail(level, "row_buffer", to_text(Bytes(level.rows.row_bytes)), "belongs to home only",
           "no row_buffer here");
    }
    if (level.rows.row_bytes < 0 || level.rows.banks < 1 || level.rows.banks > kMaxBanks) {
      fail(level, "banks", std::to_string(level.rows.banks), "is not a number of banks",
           "1 to " + std::to_string(kMaxBanks));
    }
  }

  void check_cache(const Level& level) const {
    if (level.capacity.value > kMaxCache) {
      fail(level, "capacity", std::to_string(level.capacity.value), "is larger than any cache",
           "at most " + to_text(Bytes(kMaxCache)));
    }
    if (level.ways < 0) {
      fail(level, "ways", std::to_string(level.ways), "is not a number of ways",
           "a positive number, or 0: fully associative");
    }
    const auto set = checked_mul(level.line.value, std::max<std::int64_t>(level.ways, 1));
    if (!set || level.capacity.value % *set != 0) {
      fail(level, "ways", std::to_string(level.ways),
           "do not divide the capacity " + std::to_string(level.capacity.value) +
               " into whole sets of lines of " + std::to_string(level.line.value),
           "line * ways must divide the capacity");
    }
  }

  void check_behaviour(const Level& level) const {
    const CacheBehaviour& b = level.behaviour;
    const std::int64_t ways =
        level.ways == 0 ? level.capacity.value / level.line.value : level.ways;
    const Replacement::Kind kind = replacement_from_name(level.policy)->kind;
    if (kind != Replacement::Kind::lru && kind != Replacement::Kind::fifo && ways > kMaxPlruWays) {
      fail(level, "policy", level.policy, "does not take " + std::to_string(ways) + " ways",
           "at most " + std::to_string(kMaxPlruWays) + " ways, or lru or fifo");
    }
    if (!(b.clean_victims >= 0 && b.clean_victims <= 1)) {
      fail(level, "clean_victims", std::to_string(b.clean_victims), "is not a share", "0 to 1");
    }
    const std::int64_t sets = level.sets();
    if (b.index == Index::folded && (sets & (sets - 1)) != 0) {
      fail(level, "index", "folded",
           "needs a power of two of sets, and there are " + std::to_string(sets),
           "modulo or slices");
    }
    if (b.slices != 1 && b.index != Index::slices) {
      fail(level, "slices", std::to_string(b.slices), "are of index slices only", "index: slices");
    }
    if (b.slices < 1 || sets % b.slices != 0) {
      fail(level, "slices", std::to_string(b.slices),
           "do not divide the " + std::to_string(sets) + " sets", "a divisor");
    }
    for (const Prefetch& p : b.prefetch) {
      if (p.degree < 1 || p.degree > kMaxDegree) {
        fail(level, "prefetch", std::to_string(p.degree), "is not a degree of a prefetcher",
             "1 to " + std::to_string(kMaxDegree));
      }
    }
  }

  void check_paths() const {
    std::vector<std::string> names;
    for (const Level& level : m_.levels) names.push_back(level.name);
    for (const Level& level : m_.levels) {
      std::set<std::string> seen;
      for (const std::string& from : level.filled_by) {
        const auto id = m_.find(from);
        if (!id || m_.level(*id).name == level.name) {
          fail(level, "filled_by", from,
               id ? "is the level itself" : "is not a level of this machine", join(names));
        }
        if (!seen.insert(m_.level(*id).name).second) {
          fail(level, "filled_by", from, "is listed twice", "each level once");
        }
      }
    }
    for (std::size_t i = 1; i < m_.levels.size(); ++i) {
      if (m_.path(m_.home(), LevelId(i)).empty()) {
        fail(m_.levels[i], "filled_by", join(m_.levels[i].filled_by),
             "leaves no path from " + m_.levels.front().name, "levels that home reaches");
      }
    }
  }

  void check_plan_level() const {
    if (m_.plan_level.empty()) return;
    const auto id = m_.find(m_.plan_level);
    if (!id || *id == m_.home()) {
      std::vector<std::string> names;
      for (const Level& level : std::span(m_.levels).subspan(1)) names.push_back(level.name);
      fail("default_level", m_.plan_level, "is not a level on chip", join(names));
    }
  }

  void check_npu_core(const NpuCore& core) const {
    static const std::vector<std::string> kPipes = {"V", "MTE1", "MTE2", "MTE3", "FIX"};
    if (m_.kind != "npu") fail("npu_core", m_.kind, "belongs to another kind of machine", "npu");
    if (!(core.shared_bandwidth.value > 0)) {
      fail("npu_core: shared_bandwidth", "", "is not positive", "a positive number of bytes");
    }
    std::set<std::pair<std::string, std::string>> ways;
    for (std::size_t i = 0; i < core.paths.size(); ++i) {
      const DataPath& path = core.paths[i];
      const std::string prefix = "npu_core: path " + std::to_string(i) + ": ";
      for (const std::string& end : {path.from, path.to}) {
        const auto level = m_.find(end);
        if (!level || m_.level(*level).name != end || *level == m_.home()) {
          fail(prefix + "from, to", end, "names no level on chip", "levels of this machine");
        }
      }
      if (path.from == path.to || !ways.emplace(path.from, path.to).second) {
        fail(prefix + "from, to", path.from + " to " + path.to,
             "leads from a level to itself, or is given twice", "two levels, and each pair once");
      }
      if (std::find(kPipes.begin(), kPipes.end(), path.pipe) == kPipes.end()) {
        fail(prefix + "pipe", path.pipe, "moves no data", join(kPipes));
      }
      if (path.width.value <= 0) {
        fail(prefix + "width", to_text(path.width), "is not positive", "bytes a clock");
      }
    }
  }

  void check_units() const {
    std::set<std::string> seen;
    for (const ComputeUnit& unit : m_.units) {
      const std::string field = "unit " + unit.name;
      if (unit.name.empty() || !seen.insert(lower(unit.name)).second) {
        fail("units", unit.name, "is empty, or names two units", "unique names");
      }
      const auto bad = [](double v) { return !std::isfinite(v) || v < 0; };
      if (unit.count < 1 || unit.count > kMaxInstances) {
        fail(field + ": count", std::to_string(unit.count), "is not a count", "a positive number");
      }
      if (bad(unit.clock_hz)) {
        fail(field + ": clock", std::to_string(unit.clock_hz), "is not a clock",
             "hertz, 0: unknown");
      }
      if (unit.vector_width.value < 0 || unit.registers < 0) {
        fail(field, "", "has a negative vector_width or registers", "positive numbers");
      }
      if (bad(unit.capability)) {
        fail(field + ": capability", std::to_string(unit.capability), "is not a compute capability",
             "a number as 9.0, 0: unknown");
      }
      for (const auto& [type, rate] : unit.peak) {
        if (!dtype_from_name(type) && type != "tf32") {
          fail(field + ": peak", type, "is not an element type",
               "f16, bf16, f32, tf32, f64, i8, i32");
        }
        if (bad(rate.value) || rate.value < 1) {
          fail(field + ": peak " + type, std::to_string(rate.value), "is not a rate",
               "operations a second, from 1 on; no entry where it is unknown");
        }
      }
    }
  }

  const Machine& m_;
  std::string_view where_;
};

}  // namespace

std::string_view name_of(Unit u) {
  switch (u) {
    case Unit::machine:
      return "machine";
    case Unit::grid:
      return "grid";
    case Unit::cluster:
      return "cluster";
    case Unit::warp:
      return "warp";
    case Unit::lane:
      return "lane";
    case Unit::thread:
      return "thread";
  }
  return "machine";
}

std::string_view name_of(Managed m) { return m == Managed::hardware ? "hardware" : "software"; }

std::string_view name_of(LevelKind k) {
  switch (k) {
    case LevelKind::home:
      return "home";
    case LevelKind::cache:
      return "cache";
    case LevelKind::scratchpad:
      return "scratchpad";
    case LevelKind::registers:
      return "registers";
  }
  return "home";
}

std::int64_t Level::sets() const { return ways > 0 ? capacity.value / (line.value * ways) : 1; }

std::optional<LevelId> Machine::find(std::string_view name) const {
  const auto is = [&](std::string_view other) { return same_but_case(name, other); };
  if (!levels.empty() && (is("dram") || is("home"))) return home();
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (is(levels[i].name)) return LevelId(i);
  }
  return std::nullopt;
}

LevelId Machine::default_level() const {
  if (!plan_level.empty()) {
    if (const auto id = find(plan_level)) return *id;
  }
  for (std::size_t i = levels.size(); i-- > 1;) {
    if (levels[i].kind != LevelKind::registers) return LevelId(i);
  }
  return LevelId(levels.empty() ? std::size_t{0} : levels.size() - 1);
}

std::vector<std::pair<LevelId, LevelId>> Machine::path(LevelId from, LevelId to) const {
  if (from == to) return {};
  if (fills(*this, from, to) || fills(*this, to, from)) return {{from, to}};
  // Fewest steps, then fewest write-back steps: relaxed once a level, which is enough because no
  // path is longer than that.
  const std::size_t n = levels.size();
  using Cost = std::pair<std::size_t, std::size_t>;
  const Cost unreached{n + 1, 0};
  std::vector<Cost> cost(n, unreached);
  std::vector<std::size_t> previous(n, n);
  cost[from.index()] = {0, 0};
  const auto relax = [&](std::size_t a, std::size_t b, std::size_t write_back) {
    if (cost[a] == unreached) return false;
    const Cost next{cost[a].first + 1, cost[a].second + write_back};
    if (next >= cost[b]) return false;
    cost[b] = next;
    previous[b] = a;
    return true;
  };
  std::vector<std::pair<std::size_t, std::size_t>> fills;  // a level by another
  for (std::size_t i = 1; i < n; ++i)
    for (const std::size_t filler : fillers(*this, i)) fills.emplace_back(i, filler);
  bool changed = true;
  for (std::size_t round = 0; changed && round < n; ++round) {
    changed = false;
    for (const auto& [i, filler] : fills) {
      changed |= relax(filler, i, 0);
      changed |= relax(i, filler, 1);
    }
  }
  std::vector<std::pair<LevelId, LevelId>> steps;
  for (std::size_t i = to.index(); i != from.index(); i = previous[i]) {
    if (previous[i] == n) return {};
    steps.emplace_back(LevelId(previous[i]), LevelId(i));
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

std::string Machine::boundary(LevelId a, LevelId b) const {
  const auto [outer, inner] = std::minmax(a, b);
  return level(outer).name + "/" + level(inner).name;
}

void check(const Machine& m, std::string_view where) { Checker(m, where).run(); }

Machine as_scratchpad(const Machine& m, LevelId id) {
  const Level& original = m.level(id);
  if (id == m.home()) {
    throw InputError({.where = m.name,
                      .field = "level",
                      .value = original.name,
                      .problem = "is home, not a level on chip",
                      .accepted = "a cache, a scratchpad or registers"});
  }
  Machine r = m;
  r.levels = {m.level(m.home()), original};
  r.plan_level.clear();
  r.npu_core.reset();  // speaks of levels that are not here
  Level& level = r.levels[1];
  level.kind = LevelKind::scratchpad;
  level.managed = Managed::software;
  level.ways = 0;
  level.policy = "lru";
  level.behaviour = {};
  level.filled_by = {m.level(m.home()).name};
  double least = 0;
  for (const auto& [outer, inner] : m.path(m.home(), id)) {
    const double known = m.level(inner).bandwidth.value;
    if (known > 0 && (least == 0 || known < least)) least = known;
  }
  level.bandwidth = BytesPerSecond(least);
  return r;
}

}  // namespace tilewright
