// Machines made from a word on the command line: "scratchpad:4096B", "cache:48K/12,1M/16".
#include <charconv>

#include "core/base/error.h"
#include "core/machine/machine.h"

namespace tilewright {
namespace {

constexpr std::string_view kAccepted =
    "scratchpad:SIZE[,SIZE...] or cache:SIZE/WAYS[,SIZE/WAYS...], L1 first, sizes as 4096B, 48K, "
    "1M "
    "(scratchpads: also 1024e, elements of 4 bytes)";
constexpr std::size_t kMaxSpec = 1024;
constexpr const char* kSource = "given in the machine's name";

[[noreturn]] void fail(std::string_view spec, std::string field, std::string_view value,
                       std::string problem) {
  throw InputError({.where = "machine " + std::string(spec.substr(0, 64)),
                    .field = std::move(field),
                    .value = value.empty() ? "an empty text" : std::string(value),
                    .problem = std::move(problem),
                    .accepted = std::string(kAccepted)});
}

Bytes parse_size(std::string_view spec, std::string field, std::string_view text,
                 bool elements_allowed) {
  std::optional<Bytes> size;
  if (elements_allowed && text.ends_with('e')) {
    if (const auto elements = parse_bytes(text.substr(0, text.size() - 1))) {
      if (const auto bytes = checked_mul(elements->value, 4)) size = Bytes(*bytes);
    }
  } else {
    size = parse_bytes(text);
  }
  if (!size || size->value <= 0) fail(spec, std::move(field), text, "is not a size");
  return *size;
}

Level make_level(std::string_view spec, std::string_view text, std::size_t number, bool cache) {
  Level level;
  level.name = "L" + std::to_string(number);
  level.kind = cache ? LevelKind::cache : LevelKind::scratchpad;
  level.managed = cache ? Managed::hardware : Managed::software;
  level.private_to = Unit::grid;
  std::string_view size = text;
  if (const std::size_t slash = text.find('/'); cache && slash != std::string_view::npos) {
    size = text.substr(0, slash);
    const std::string_view ways = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(ways.data(), ways.data() + ways.size(), level.ways);
    if (error != std::errc() || end != ways.data() + ways.size() || level.ways <= 0) {
      fail(spec, level.name + ": ways", ways, "is not a number of ways");
    }
    level.sources["ways"] = kSource;
  }
  level.capacity = parse_size(spec, level.name + ": size", size, !cache);
  level.sources["capacity"] = kSource;
  if (cache) level.sources["line"] = "by definition: caches of this form have 64-byte lines";
  return level;
}

}  // namespace

Machine parse_synthetic_machine(std::string_view spec) {
  const std::size_t colon = spec.find(':');
  const std::string_view kind = spec.substr(0, colon);
  const bool cache = kind == "cache";
  if (spec.size() > kMaxSpec || colon == std::string_view::npos ||
      (!cache && kind != "scratchpad")) {
    fail(spec, "", spec.size() > kMaxSpec ? spec.substr(0, 64) : spec,
         "is not a machine of this form");
  }
  const std::string_view sizes = spec.substr(colon + 1);
  std::vector<Level> inner_first;
  for (std::size_t begin = 0; begin <= sizes.size();) {
    const std::size_t end = std::min(sizes.find(',', begin), sizes.size());
    inner_first.push_back(
        make_level(spec, sizes.substr(begin, end - begin), inner_first.size() + 1, cache));
    begin = end + 1;
    const std::size_t n = inner_first.size();
    if (n > 1 && inner_first[n - 1].capacity < inner_first[n - 2].capacity) {
      fail(spec, inner_first.back().name + ": size", to_text(inner_first.back().capacity),
           "is smaller than " + inner_first[n - 2].name +
               " inside it; list L1, the innermost, first");
    }
  }
  if (cache && inner_first.size() >= 3) inner_first.back().private_to = Unit::machine;

  Machine m;
  m.name = std::string(spec);
  m.kind = std::string(kind);
  m.summary = cache ? "LRU write-back caches with 64-byte lines" : "software-managed levels";
  m.levels.push_back({.name = "DRAM",
                      .kind = LevelKind::home,
                      .managed = Managed::software,
                      .private_to = Unit::machine});
  m.levels.insert(m.levels.end(), inner_first.rbegin(), inner_first.rend());
  for (std::size_t i = 1; i < m.levels.size(); ++i) {
    m.levels[i].filled_by = {m.levels[i - 1].name};
  }
  ComputeUnit core;
  core.name = "core";
  core.sources["count"] = "by definition: one";
  m.units.push_back(std::move(core));
  check(m, "machine " + m.name);
  return m;
}

}  // namespace tilewright
