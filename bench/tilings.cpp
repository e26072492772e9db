// Section: the model's tiling among tilings drawn at random. Each is emitted, built and verified
// like the model's; a short heat finds the fastest of them, which then take turns with the model's.
#include <algorithm>
#include <random>

#include "bench/samples.h"
#include "bench/sections.h"
#include "core/ir/format.h"
#include "harness/chimera_request.h"
#include "harness/cpu_kernel.h"
#include "harness/sampler.h"
#include "harness/schedules.h"
#include "harness/verified_kernel.h"

namespace tilewright::bench {
namespace {

constexpr double kWithin = 1.05;       // of the fastest drawn one's median
constexpr std::size_t kFinalists = 6;  // of the heat, by their fastest runs
constexpr int kHeatRuns = 4;

struct Tried {
  std::string order, tiles;  ///< empty: the model's own
  std::string tree;
  std::unique_ptr<harness::VerifiedKernel> kernel;
  double heat_seconds = 0;
};

/// A Reason where there is no kernel of it.
Result<Tried> tried(const harness::Request& request, const Settings& settings, int threads,
                    const harness::Reference& reference) {
  const harness::Scheduled on = harness::schedule_of(request);
  if (!on.schedule) return Reason{on.refusal.json.value("reason", std::string("no schedule"))};
  const auto source = cpu::emit(*on.schedule, {.isa = settings.isa, .threads = threads});
  if (!source) return Reason{source.reason()};
  Result<cpu::Kernel> built = cpu::build(*source);
  if (!built) return Reason{built.reason()};
  const Workload& w = *on.setting.workload;
  harness::VerifyResult checked = harness::verify(
      std::make_unique<harness::CpuKernel>(std::move(built).value(), w), w, reference);
  if (!checked.kernel) return Reason{"verification failed"};
  Tried t{.order = request.order.value_or(""),
          .tiles = request.tiles.value_or(""),
          .tree = to_text(on.plan.kernels.front().tree),
          .kernel = std::move(checked.kernel)};
  t.heat_seconds = INFINITY;
  for (int i = 0; i < kHeatRuns; ++i) t.heat_seconds = std::min(t.heat_seconds, t.kernel->run());
  return t;
}

/// Tilings of legal orders, each of an order drawn from all; within the capacity that the model
/// plans for, no smaller than its own least tiles and of the same multiples, so that what differs
/// is the choice and not the micro-kernel.
std::vector<harness::Request> drawn(const harness::Request& model, const harness::Setting& setting,
                                    int count, std::uint64_t seed) {
  const Workload& w = *setting.workload;
  chimera::Options options = harness::chimera_options(model, w);
  options.memory = chimera::Memory::held;
  const Elements most =
      harness::capacity_elements(model, setting, harness::level_of(model, *setting.machine));
  std::vector<chimera::Order> orders;
  for (const chimera::Order& o : chimera::all_orders(w))
    if (chimera::legality(w, o, {}).legal) orders.push_back(o);
  std::mt19937_64 random(seed);
  std::vector<harness::Request> requests;
  for (int tries = 0; static_cast<int>(requests.size()) < count && tries < 50 * count; ++tries) {
    const chimera::Order& order = orders[random() % orders.size()];
    const auto tilings = harness::draw_tilings(w, order, options, {.most = most}, 1, random());
    if (tilings.empty()) continue;
    chimera::Tiles tiles = tilings.front();
    std::string text;
    for (LoopId l : order) {
      std::int64_t& tile = tiles[l.index()];
      const std::int64_t extent = w.loop(l).extent;
      if (const auto m = options.multiples.find(l); m != options.multiples.end() && tile < extent)
        tile -= tile % m->second;
      if (const auto m = options.min_tiles.find(l); m != options.min_tiles.end())
        tile = std::max(tile, m->second);
      text += (text.empty() ? "" : ",") + w.loop(l).name + "=" + std::to_string(tile);
    }
    if (chimera::price(w, order, tiles, options).memory > most) continue;
    harness::Request r = model;
    r.model.reset();
    r.order = chimera::to_text(w, order);
    r.tiles = text;
    requests.push_back(std::move(r));
  }
  return requests;
}

Json tried_json(const Tried& t, const Samples& s) {
  Json json = {{"tree", t.tree}, {"order", t.order}, {"tiles", t.tiles}};
  json.update(seconds_json(s));
  return json;
}

Json one_row(const std::string& row, int threads, const Settings& settings) {
  harness::Request model{.subject = row, .machine = "host"};
  model.model = "chimera";
  model.target = "cpu";
  model.threads = threads;
  const harness::Setting setting = harness::setting_of(model);
  const harness::Reference reference = harness::reference_of(*setting.workload, settings.seed);
  Result<Tried> best_of_model = tried(model, settings, threads, reference);
  Json json = {{"row", row}, {"threads", threads}};
  if (!best_of_model) {
    json["reason"] = best_of_model.reason();
    return json;
  }
  const Tried ours = std::move(best_of_model).value();
  std::vector<Tried> others;
  int failed = 0;
  for (const harness::Request& r : drawn(model, setting, settings.tilings, settings.seed)) {
    progress(formatted("tilings: {}, {} of {}", row, others.size() + 1, settings.tilings));
    Result<Tried> t = tried(r, settings, threads, reference);
    if (!t) {
      ++failed;
      continue;
    }
    others.push_back(std::move(t).value());
    // Only the fastest stay loaded.
    std::ranges::sort(others, {}, &Tried::heat_seconds);
    for (std::size_t i = kFinalists; i < others.size(); ++i) others[i].kernel.reset();
  }
  json["drawn"] = others.size();
  json["failed"] = failed;
  if (others.empty()) {
    json["reason"] = "no tiling could be drawn";
    return json;
  }
  std::vector<Contestant> contestants;
  const auto enter = [&](const Tried& t, const std::string& name) {
    harness::VerifiedKernel* const kernel = t.kernel.get();
    contestants.push_back({.name = name, .sample = [kernel] { return kernel->run(); }});
  };
  enter(ours, "model");
  for (std::size_t i = 0; i < std::min(kFinalists, others.size()); ++i)
    enter(others[i], "drawn " + std::to_string(i + 1));
  const auto samples = interleave(contestants, {.rounds = settings.rounds,
                                                .turn_seconds = settings.turn_seconds,
                                                .settle = wait_until_quiet});
  std::size_t best = 1;
  for (std::size_t i = 2; i < samples.size(); ++i)
    if (samples[i].median() < samples[best].median()) best = i;
  const double ratio = samples[0].median() / samples[best].median();
  json["model"] = tried_json(ours, samples[0]);
  json["fastest_drawn"] = tried_json(others[best - 1], samples[best]);
  json["ratio"] = ratio;
  json["ratio_of_fastest_runs"] = samples[0].least() / samples[best].least();
  json["within"] = ratio <= kWithin;
  return json;
}

}  // namespace

Json tilings(const Settings& settings) {
  std::vector<std::string> rows = settings.rows;
  if (rows.empty())
    for (int i = 1; i <= 12; ++i) rows.push_back(formatted("chimera/G{}", i));
  Json json;
  json["tilings"] = Json::array();
  for (int threads : settings.threads) {
    print(
        formatted("\nThe model's tiling and the fastest of {} drawn ones, {}, {} thread{}, medians "
                  "of {} interleaved turns\n",
                  settings.tilings, cpu::name_of(settings.isa), threads, threads == 1 ? "" : "s",
                  settings.rounds));
    Table table(
        {"row", "model ms", "fastest drawn ms", "ratio", "of the fastest runs", "the drawn one"});
    int within = 0;
    for (const std::string& row : rows) {
      Json one = one_row(row, threads, settings);
      if (one.contains("ratio")) {
        within += one["within"].get<bool>() ? 1 : 0;
        const auto ms = [&](const char* which) {
          return formatted("{:.3f}", 1e3 * one[which]["seconds_median"].get<double>());
        };
        table.add({row, ms("model"), ms("fastest_drawn"),
                   formatted("{:.3f}", one["ratio"].get<double>()),
                   formatted("{:.3f}", one["ratio_of_fastest_runs"].get<double>()),
                   one["fastest_drawn"]["order"].get<std::string>() + " " +
                       one["fastest_drawn"]["tiles"].get<std::string>()});
      } else {
        table.add({row, "-", "-", "-", "-", one["reason"].get<std::string>()});
      }
      json["tilings"].push_back(std::move(one));
    }
    progress("");
    print(table.text());
    print(formatted("the model's within 5 % of the fastest drawn one, or faster: {} of {}\n",
                    within, rows.size()));
  }
  return json;
}

}  // namespace tilewright::bench
