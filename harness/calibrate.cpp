// calibrate: what this machine's caches, memory and kernels take, turn by turn, into a machine
// file.
#include "harness/calibrate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/format.h"
#include "core/machine/host_facts.h"
#include "core/machine/written.h"
#include "harness/circumstances.h"
#include "harness/files.h"
#include "harness/gauge_samples.h"
#include "harness/gauges.h"
#include "harness/pipeline.h"
#include "harness/turns.h"
#include "harness/verbs.h"

namespace tilewright::harness {

using nlohmann::ordered_json;

namespace {

constexpr std::size_t kFewest = 5;      // rounds that must agree
constexpr std::size_t kRounds = 40;     // of a group, before its numbers are looked at
constexpr int kTurns = 3;               // how often a group that scatters is tried again
constexpr int kPasses = 4;              // over all numbers, at most
constexpr double kSlower = 1.15;        // of the least pace: a core that others use, too
constexpr double kPaceSeconds = 1;      // in which the core's own pace is looked for first
constexpr double kMostWaiting = 0.5;    // seconds for rounds at the core's own pace
constexpr double kLongToPrepare = 0.5;  // seconds, from which it is not done again

std::string part_of(const std::string& out) { return out + ".part"; }

void write_part(const std::string& path, const std::map<std::string, Gauged>& known) {
  std::string text;
  for (const auto& [name, g] : known)
    text += ordered_json({{"name", name},
                          {"seconds", g.seconds},
                          {"spread", g.spread},
                          {"samples", g.samples},
                          {"date", g.date},
                          {"met", g.met}})
                .dump() +
            "\n";
  write_file(path, text, "-o");
}

/// The group's numbers, of rounds at the core's own pace where enough of them are met. `least`: of
/// all paces so far.
Result<std::vector<Gauged>> measured(const std::string& name, const std::vector<Sample>& samples,
                                     double& least, const std::string& date) {
  Result<std::vector<Gauged>> last = Reason{name + ": not measured"};
  std::vector<Round> fast, all;
  const auto round = [&] {
    const double before = pace();
    Round one;
    for (const Sample& sample : samples) one.push_back(sample());
    const double slower = std::max(before, pace());
    least = std::min(least, std::min(before, slower));
    all.push_back(one);
    if (slower <= kSlower * least) fast.push_back(std::move(one));
  };
  double waited = 0;
  for (int turn = 0; turn < kTurns && !last; ++turn) {
    for (const Sample& sample : samples) sample();
    const std::size_t wanted = fast.size() + kRounds, any = all.size() + kRounds;
    while (fast.size() < wanted && (all.size() < any || waited < kMostWaiting))
      waited += seconds_of(round);
    last = gauged(name, fast.size() < kFewest ? all : fast);
  }
  if (last)
    for (Gauged& g : last.value()) g.date = date;
  return last;
}

/// The first of each group that follow one another in the list, and its end.
std::vector<std::pair<std::size_t, std::size_t>> groups_of(const std::vector<Gauge>& all) {
  std::vector<std::pair<std::size_t, std::size_t>> groups;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!groups.empty() && !all[i].group.empty() && all[i].group == all[i - 1].group)
      groups.back().second = i + 1;
    else
      groups.emplace_back(i, i + 1);
  return groups;
}

}  // namespace

std::map<std::string, Gauged> read_part(const std::string& path) {
  std::map<std::string, Gauged> known;
  if (!std::filesystem::exists(path)) return known;
  const std::string text = read_file(path, "-o");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const auto line = ordered_json::parse(text.substr(begin, end - begin), nullptr, false);
    begin = end + 1;
    // What a line that was cut off or changed would have said is measured again.
    const auto has = [&](const char* key, bool (ordered_json::*is)() const) {
      return line.contains(key) && (line[key].*is)();
    };
    if (!line.is_object() || !has("name", &ordered_json::is_string) ||
        !has("seconds", &ordered_json::is_number) || !has("spread", &ordered_json::is_number) ||
        !has("samples", &ordered_json::is_number_integer) ||
        !has("date", &ordered_json::is_string) || !(line["seconds"].get<double>() > 0))
      continue;
    known[line["name"].get<std::string>()] = {.seconds = line["seconds"].get<double>(),
                                              .spread = line["spread"].get<double>(),
                                              .samples = line["samples"].get<int>(),
                                              .date = line["date"].get<std::string>()};
    if (has("met", &ordered_json::is_number_integer) && line["met"].get<int>() > 1)
      known[line["name"].get<std::string>()].met = line["met"].get<int>();
  }
  return known;
}

Result<std::vector<Gauged>> gauged(const std::string& name, const std::vector<Round>& rounds) {
  if (rounds.size() < kFewest)
    return Reason{formatted("{}: {} samples are too few", name, rounds.size())};
  Round least = rounds.front();
  for (const Round& round : rounds)
    for (std::size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], round[i]);
  // Of each round, how long it took in proportion to the least samples.
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t r = 0; r < rounds.size(); ++r) {
    double took = 0;
    for (std::size_t i = 0; i < least.size(); ++i) took += rounds[r][i] / least[i];
    order.emplace_back(took / static_cast<double>(least.size()), r);
  }
  std::ranges::sort(order);
  const double first = order.front().first, fifth = order[kFewest - 1].first;
  if (std::ranges::any_of(least, [](double x) { return !(x > 0); }) || !std::isfinite(fifth))
    return Reason{name + ": a sample is not a time"};
  const double spread = fifth / first - 1;
  const Round& best = rounds[order.front().second];
  if (spread > kMostSpread)
    return Reason{formatted(
        "{}: the best five of {} samples scatter by {:.0f} % ({:.3g} to {:.3g} s): others use the "
        "machine",
        name, rounds.size(), 100 * spread, best.front(), best.front() * fifth / first)};
  std::vector<Gauged> numbers;
  for (const double seconds : best)
    numbers.push_back(
        {.seconds = seconds, .spread = spread, .samples = static_cast<int>(rounds.size())});
  return numbers;
}

std::vector<Gauged> met_again(const std::vector<Gauged>& known, const std::vector<Gauged>& now) {
  double ratio = 0;
  for (std::size_t i = 0; i < known.size(); ++i) ratio += now[i].seconds / known[i].seconds;
  ratio /= static_cast<double>(known.size());
  if ((1 + kMostSpread) * ratio < 1) return now;
  std::vector<Gauged> least = ratio >= 1 ? known : now;
  for (std::size_t i = 0; i < known.size(); ++i)
    least[i].met = known[i].met + (ratio <= 1 + kMostSpread ? 1 : 0);
  return least;
}

/// The last cache's capacity where a core finds less of it: the bytes of which, read over and over,
/// half come from home by the time that they take.
void find_kept(Machine& m, const std::map<std::string, Gauged>& measured) {
  constexpr double kFarther =
      1.3;                        // of the time of a byte from the cache: that home is told from it
  constexpr double kHalf = 0.95;  // of the capacity, of which half is found again (in_runs)
  if (m.levels.size() < 2 || m.levels[1].kind != LevelKind::cache) return;
  Level& last = m.levels[1];
  const auto cache = measured.find("bandwidth " + last.name),
             home = measured.find("bandwidth home, one core");
  if (cache == measured.end() || home == measured.end() || last.line.value <= 0 || last.ways <= 0)
    return;
  const double near = cache->second.seconds, far = home->second.seconds, half = (near + far) / 2;
  if (far < kFarther * near) return;
  std::map<double, const Gauged*> by_size;
  for (const auto& [name, g] : measured)
    if (name.ends_with(kReadAgain)) by_size[std::stod(name)] = &g;
  double before = 0, time_before = near;
  for (const auto& [bytes, g] : by_size) {
    if (g->seconds >= half) {
      if (before == 0) return;  // the smallest is not found again: how much is, is not known
      const double share = std::clamp((half - time_before) / (g->seconds - time_before), 0.0, 1.0);
      const auto unit = last.line.value * last.ways;
      const auto kept =
          static_cast<std::int64_t>((before + share * (bytes - before)) / kHalf) / unit * unit;
      if (kept >= last.capacity.value) return;
      last.capacity = Bytes(kept);
      last.sources["capacity"] =
          formatted("measured {}: what one thread finds there again", g->date);
      return;
    }
    before = bytes, time_before = g->seconds;
  }
}

Machine with_measured(Machine m, const std::map<std::string, Gauged>& measured) {
  const auto find = [&](const std::string& name) -> const Gauged* {
    const auto at = measured.find(name);
    return at == measured.end() ? nullptr : &at->second;
  };
  const auto source = [](const Gauged& g, const std::string& what) {
    return formatted("measured {}: {}, {} samples, best five within {:.1f} %", g.date, what,
                     g.samples, 100 * g.spread);
  };
  if (m.units.empty()) m.units.push_back({.name = "core"});
  ComputeUnit& u = m.units.front();
  const Gauged* const cycle = find("cycle");
  const double clock = cycle ? 1 / cycle->seconds : u.clock_hz;
  if (cycle)
    u.clock_hz = clock, u.sources["clock"] = source(*cycle, "additions that wait for one another");
  const auto cycles = [&](const std::string& key, double seconds, const std::string& from) {
    if (clock <= 0 || !(seconds > 0)) return;
    u.cycles[key] = std::round(seconds * clock * 1000) / 1000;
    u.sources["cycles." + key] = from;
  };
  for (std::size_t i = m.levels.size(); i-- > 1;) {
    Level& l = m.levels[i];
    // From the next level further out into this one.
    const Gauged* const in =
        find("bandwidth " + (i == 1 ? std::string("home") : m.levels[i - 1].name));
    if (in != nullptr && l.kind == LevelKind::cache) {
      l.bandwidth = BytesPerSecond(1 / in->seconds);
      l.sources["bandwidth"] = source(*in, i == 1 ? "reading, all threads" : "reading, one thread");
    }
  }
  find_kept(m, measured);
  if (const Gauged* const one = find("bandwidth home, one core"))
    cycles("stream", one->seconds * 64, source(*one, "reading, one thread, a line of 64 bytes"));
  if (const Gauged* const g = find("what another core has written"))
    cycles(kTakingOver, g->seconds * 64,
           source(*g, "a line of 64 bytes that another core has written"));
  for (const auto& [name, key] : {std::pair{"L2", "l2"}, {"L3", "l3"}, {"home", "dram"}})
    if (const Gauged* const g = find(std::string("latency ") + name))
      cycles(key, g->seconds, source(*g, "lines in a random order"));
  for (const auto& [name, key] : {std::pair{"L2", "write_l2"},
                                  {"L3", "write_l3"},
                                  {"home", "write_dram"},
                                  {"past caches", kWritingPastCaches}})
    if (const Gauged* const g = find(std::string("writing ") + name))
      cycles(key, g->seconds * 64, source(*g, "writing, one thread, a line of 64 bytes"));
  if (const Gauged* const g = find("copy")) {
    cycles("copy", g->seconds, source(*g, "rows of 1 KiB"));
    if (const Gauged* const one = find("copy, short rows"))
      cycles("copy_row", std::max(1e-3 / clock, one->seconds - g->seconds),
             source(*one, "rows of a line, beside the line"));
  }
  if (const Gauged* const turned = find("product, turned"), * const lies =
                                                                find("product, as it lies");
      turned && lies) {
    constexpr double kLines = static_cast<double>(kTurnedSide) * kTurnedSide / 16;
    if (const double turn = (turned->seconds - lies->seconds) / kLines; turn > 0)
      cycles("turn", turn, source(*turned, "a line of a right operand, turned"));
  }
  const double lanes = static_cast<double>(u.vector_width.value) / 4;
  const Gauged *const deep = find(kDeepProduct), *const shallow = find("product short");
  if (deep && shallow && lanes > 0) {
    // Two products of so many steps and blocks: two equations. Beside them is a load and a store of
    // every vector, which the time model counts apart (kTouched).
    constexpr double kPoints = static_cast<double>(kProductRows) * kProductColumns;
    const double touched = clock > 0 ? 0.5 * kPoints / lanes / clock : 0;
    const double many = deep_product(m), few = kShortProduct;
    const double of_deep = blocks_of_product(u, deep_product(m)).second,
                 of_short = blocks_of_product(u, kShortProduct).second;
    const double a = deep->seconds - touched, b = shallow->seconds - touched;
    double step = (a * of_short - b * of_deep) / (many * of_short - few * of_deep);
    // No faster than the processor's family begins multiply-adds.
    if (const auto fma = u.cycles.find("fma"); fma != u.cycles.end() && clock > 0)
      step = std::max(step, kPoints / lanes * fma->second / clock);
    const std::string type = "f32";
    u.peak[type] = FlopsPerSecond(2 * kPoints / step * static_cast<double>(u.count));
    u.sources["peak." + type] = source(
        *deep, formatted("{} steps of a product, one thread, times the cores", deep_product(m)));
    const double call = (b - few * step) / of_short;
    cycles("call", std::max(call, 1 / clock),
           source(*shallow, formatted("blocks of {} steps", kShortProduct)));
  }
  const Gauged *const rows = find("points light"), *const row = find("points light, one row");
  const Gauged* const more = find(kMoreOperations);
  if (rows && row && more && lanes > 0 && clock > 0) {
    // Two operations, a store and half a load, and six operations more (the time model's count).
    const double of_row = kPointsOfRow / lanes;
    const double light = (more->seconds - rows->seconds) / (kNearRows * of_row) / kOperationsMore;
    const double all = (rows->seconds - row->seconds) / ((kNearRows - 1) * of_row);
    // Where more operations took no longer, both are unknown, and so is what stands beside them.
    if (light > 0) {
      cycles("light", light, source(*more, "relu(x + 1), and six operations more"));
      cycles("store", std::max(1e-3 / clock, all - 2.5 * light), source(*rows, "relu(x + 1)"));
    }
  }
  for (const std::string type : {"f16", "bf16"}) {
    const auto more = [&](const char* how) -> std::optional<std::pair<double, const Gauged*>> {
      const Gauged* const two = find(formatted("{}, {}, {}", how, type, kConvertedRows));
      const Gauged* const one = find(formatted("{}, {}, 1", how, type));
      if (!two || !one || lanes <= 0 || !u.cycles.contains("store")) return std::nullopt;
      // Beside a row's operation, store and half a load (the time model's count).
      const double row = two->seconds - one->seconds;
      const double vectors = (kConvertedRows - 1) * kPointsOfRow / lanes;
      const double beside = 1.5 * u.cycles.at("light") + u.cycles.at("store");
      return std::pair{row / vectors - beside / clock, two};
    };
    // What is read where it lies is not copied. A conversion may take no longer than what goes on
    // beside it.
    const auto converted = [&](const std::string& name, const char* how, const char* what) {
      const auto found = more(how);
      if (!found) return;
      const double least = 1e-3 / clock;
      cycles(
          name + "_" + type, std::max(least, found->first),
          source(*found->second,
                 std::string(what) + (found->first > least ? "" : ", no longer than without it")));
    };
    converted("widen", "widened", "rows read");
    converted("narrow", "narrowed", "rows written");
  }
  // Operands that several steps of the depth are taken of at once.
  constexpr double kFasterTogether = 1.3;  // than f32: instructions for it are twice as fast
  for (const auto& together : {std::pair("pairs", "bf16"), std::pair("quads", "i8")}) {
    const char *const how = together.first, *const type = together.second;
    const bool quads = std::string_view(how) == "quads";
    const int tallest = quads ? kTallQuads : kTallPairs, few = quads ? kFlatQuads : kFlatPairs;
    const int deepest = quads ? kDeepQuads : kDeepPairs, short_ = quads ? kShortQuads : kShortPairs;
    const auto step_of = [&](int m) {
      const Gauged* const many = find(formatted("{}, {} rows, {} steps", how, m, deepest));
      const Gauged* const less = find(formatted("{}, {} rows, {} steps", how, m, short_));
      return many && less ? (many->seconds - less->seconds) / (deepest - short_) : 0.0;
    };
    const double tall = step_of(tallest), flat = step_of(few);
    if (tall <= 0 || flat <= 0 || lanes <= 0) continue;
    const Gauged& from = *find(formatted("{}, {} rows, {} steps", how, tallest, deepest));
    // Without instructions for them such products are computed in f32, at its rate. The file then
    // has no rate of them, which the time model takes as proof of the instructions.
    const auto told_apart = [&](double add) {
      const auto plain = u.peak.find("f32");
      return add > 0 && (plain == u.peak.end() || 2 * lanes / add * static_cast<double>(u.count) >
                                                      kFasterTogether * plain->second.value);
    };
    // A step has multiply-adds of m x 128, and operands of m + 128 that are widened and put
    // together: two equations.
    if (quads) {
      // Rows of the left operand are copied beside, what is left of no rows is the right operand.
      constexpr double kCopied = 0.4;  // cycles, as the price has it
      const double row = (tall - flat) / (tallest - few);
      const double add = (row - kCopied / clock / lanes) / (128 / lanes);
      if (!told_apart(add)) continue;
      u.peak[type] = FlopsPerSecond(2 * lanes / add * static_cast<double>(u.count)),
      u.sources[formatted("peak.{}", type)] =
          source(from, "steps in quads, one thread, times the cores");
      const double operand = (flat - few * row) / (128 / lanes);
      if (operand > 0) cycles("quad", operand, source(from, "right operands of such steps"));
      continue;
    }
    const double ratio = static_cast<double>(kTallPairs) / few;
    const double operands = ((few + 128) - (kTallPairs + 128) / ratio) / lanes;
    const double operand = std::max(0.0, (flat - tall / ratio) / operands);
    const double add = (tall - operand * (kTallPairs + 128) / lanes) / (kTallPairs * 128 / lanes);
    if (!told_apart(add)) continue;
    u.peak[type] = FlopsPerSecond(2 * lanes / add * static_cast<double>(u.count)),
    u.sources[formatted("peak.{}", type)] =
        source(from, formatted("steps in {}, one thread, times the cores", how));
    if (const auto widen = u.cycles.find("widen_bf16"); widen != u.cycles.end())
      cycles("pair", std::max(1e-3 / clock, operand - widen->second / clock),
             source(from, "operands of such steps"));
  }
  if (const Gauged* const g = find("points expensive"))
    cycles("expensive", g->seconds, source(*g, "exp(x)"));
  // The others beside what the time model counts as light of these operators.
  const auto beside = [&](const std::string& name, const std::string& key, double operations,
                          const std::string& of, bool stored, const std::string& from) {
    const Gauged* const g = find(name);
    if (g == nullptr || clock <= 0 || !u.cycles.contains(of)) return;
    const double known = operations * u.cycles.at(of) + (stored ? u.cycles.at("store") : 0);
    cycles(key, std::max(1e-3, g->seconds * clock - known) / clock, source(*g, from));
  };
  if (const Gauged* const g = find("points alone, light"))
    cycles("light_one", g->seconds / 3.5, source(*g, "relu(x + 1), points one by one"));
  beside("points divide", "divide", 1.5, "light", true, "x / (x + 4)");
  beside("points alone, expensive", "expensive_one", 1.5, "light_one", false,
         "exp(x), points one by one");
  beside("points alone, library", "library_one", 1.5, "light_one", false,
         "tanh(x), points one by one");
  beside("parts", "part", 2.5, "light", true, "relu(x + 1), tiles of four columns");
  beside("joins", "join", 1.5, "light", false, "sums of rows of one vector");
  const Gauged *const few = find("sums read, few rows"), *const many = find("sums read, many rows");
  if (few && many) {
    // The same rows in tiles of two heights: the difference is of tiles.
    const double tiles = kSumRows / kFewRows - kSumRows / kManyRows;
    cycles("reread", std::max(1e-3 / clock, (few->seconds - many->seconds) / tiles),
           source(*few, "sums of two rows, read together"));
  }
  // The second operator takes the first one's values from registers: one visit, four operations and
  // a store (the time model's count). Where these alone take longer, compilers have joined tiles,
  // and nothing is known of a visit: the time model's standard stays.
  if (const Gauged* const g = find("visits of vectors");
      g != nullptr && u.cycles.contains("store") &&
      g->seconds * clock > 4 * u.cycles.at("light") + u.cycles.at("store"))
    beside("visits of vectors", "visit", 4, "light", true, "tiles of one vector");
  if (const Gauged* const g = find("taps"))
    cycles("tap", g->seconds, source(*g, "a depthwise convolution, a vector and tap"));
  if (const Gauged* const g = find("taps, apart"))
    cycles("tap_apart", g->seconds, source(*g, "the same, every other point"));
  if (const Gauged* const g = find("launch"))
    cycles(kLaunch, g->seconds, source(*g, "16 additions, over and over"));
  const Gauged *const turn = find("launch, in turn"), *const after =
                                                          find("launch, after other code");
  if (turn && after)
    cycles(kLaunchCode, after->seconds - turn->seconds,
           source(*after, "small products of a program after other code, more than in turn"));
  if (const Gauged* const two = find("region")) {
    cycles("region", two->seconds, source(*two, "a kernel of 8192 elements on two threads"));
    if (const Gauged* const g = find("region, all threads"); g != nullptr && u.count > 2)
      cycles("region_thread",
             std::max(0.0, g->seconds - two->seconds) / static_cast<double>(u.count - 2),
             source(*g, "the same on all threads, each beyond two"));
  }
  return m;
}

Answer calibrate(const Request& request, const std::string& out) {
  const auto machine = machine_of(request);
  auto json = document();
  json["machine"] = machine->name;
  const bool processor = machine->kind == "cpu";
  if (!processor || machine->name != "host")
    return refuse(std::move(json),
                  processor
                      ? "only this machine can be measured here: -m host"
                      : formatted("{} is measured on a machine that has one, and none is here",
                                  machine->name));
  if (out.empty())
    throw InputError(
        {.where = "-o", .problem = "no machine file is given", .accepted = "the file to write"});
  const int threads = static_cast<int>(std::max<std::int64_t>(1, machine->units.front().count));
  const double lanes =
      std::max(1.0, static_cast<double>(machine->units.front().vector_width.value) / 4);
  std::map<std::string, Gauged> known = read_part(part_of(out));
  const auto begun = circumstances("calibrate");
  const std::string date = begun["date"].get<std::string>();
  ordered_json scattered = ordered_json::array();
  const std::vector<Gauge> all = gauges_of(*machine, threads, lanes);
  std::map<std::string, Prepared> kept;  // compiled kernels
  std::map<std::string, std::string> why;
  const auto open = [&](const Gauge& g) {
    const auto at = known.find(g.name);
    return at == known.end() || at->second.met < kMet;
  };
  const auto prepared = [&](const Gauge& g) -> Prepared {
    if (const auto at = kept.find(g.name); at != kept.end()) return at->second;
    std::optional<Prepared> own;
    const double took = seconds_of([&] { own = g.prepare(); });
    if (took >= kLongToPrepare || !*own) kept.emplace(g.name, *own);
    return *own;
  };
  double least_pace = pace();
  for (double tried = 0; tried < kPaceSeconds; tried += least_pace)
    least_pace = std::min(least_pace, pace());
  for (int pass = 0; pass < kPasses && std::ranges::any_of(all, open); ++pass)
    for (const auto& [begin, end] : groups_of(all)) {
      if (request.progress)
        request.progress(all[begin].name,
                         (std::min(pass, kMet - 1) +
                          static_cast<double>(begin) / static_cast<double>(all.size())) /
                             kMet);
      std::vector<const Gauge*> group;  // those that can be measured here
      std::vector<Sample> samples;
      bool some_open = false;
      for (std::size_t i = begin; i < end; ++i) some_open = some_open || open(all[i]);
      for (std::size_t i = begin; some_open && i < end; ++i) {
        Prepared sample = prepared(all[i]);
        if (sample)
          group.push_back(&all[i]), samples.push_back(std::move(sample).value());
        else
          why[all[i].name] = all[i].name + ": " + sample.reason();
      }
      if (group.empty()) continue;
      const Result<std::vector<Gauged>> found =
          measured(group.front()->name, samples, least_pace, date);
      std::vector<Gauged> before;
      for (const Gauge* g : group) {
        if (!found) why[g->name] = found.reason();
        if (const auto at = known.find(g->name); at != known.end()) before.push_back(at->second);
      }
      if (!found) continue;
      // What an interrupted run kept of a group is part of it: all of it is measured again.
      const std::vector<Gauged> now =
          before.size() < group.size() ? *found : met_again(before, *found);
      for (std::size_t i = 0; i < group.size(); ++i) known[group[i]->name] = now[i];
      write_part(part_of(out), known);
    }
  for (const Gauge& g : all) {
    if (!open(g)) continue;
    const auto at = known.find(g.name);
    scattered.push_back(
        at == known.end()
            ? why[g.name]
            : formatted("{}: no other pass came within {:.0f} % of its least time, {:.3g} s: "
                        "others use the machine",
                        g.name, 100 * kMostSpread, at->second.seconds));
    known.erase(g.name);
  }
  json["threads"] = threads;
  json["load_average"] = begun["load_average"];
  json["numbers"] = ordered_json::array();
  for (const auto& [name, g] : known)
    json["numbers"].push_back({{"name", name},
                               {"seconds", g.seconds},
                               {"spread", g.spread},
                               {"samples", g.samples},
                               {"date", g.date},
                               {"met", g.met}});
  if (!scattered.empty()) json["scattered"] = scattered;
  // Without these a file would say less than the machine's own description.
  for (const char* needed : {"cycle", kDeepProduct, "product short"})
    if (!known.contains(needed))
      return refuse(
          std::move(json),
          formatted("{} of {} numbers scatter, \"{}\" among them, and no file is written; run it "
                    "again and it goes on with these: {}",
                    scattered.size(), all.size(), needed, scattered.front().get<std::string>()));
  Machine measured_machine = with_measured(*machine, known);
  measured_machine.name = "host";
  write_file(out, to_yaml(measured_machine), "-o");
  if (scattered.empty()) std::filesystem::remove(part_of(out));
  json["written"] = out;
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
