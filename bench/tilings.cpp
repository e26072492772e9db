// Section: the model's tiling among tilings drawn at random. Each is emitted, built and verified
// with the model's; heats of interleaved turns leave the fastest of them, which then take turns
// with the model's.
#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "bench/samples.h"
#include "bench/sections.h"
#include "core/base/format.h"
#include "harness/ask.h"
#include "models/chimera/model.h"
#include "harness/circumstances.h"
#include "harness/kernel_batch.h"
#include "harness/points.h"
#include "models/chimera/sampler.h"
#include "harness/schedules.h"

namespace tilewright::bench {
namespace {

constexpr double kWithin = 1.05;  // of the fastest drawn one's median

/// A tiling that is timed: the model's own, or a drawn one.
struct Tried {
  std::string order, tiles;  ///< empty: the model's own
  std::string tree;
  std::unique_ptr<harness::VerifiedKernel> kernel;
};

/// Tilings of legal orders, each of an order drawn from all; within the capacity that the model
/// plans for, no smaller than its own least tiles and of the same multiples, so that what differs
/// is the choice and not the micro-kernel.
std::vector<harness::Request> drawn(const harness::Request& model, const harness::Setting& setting,
                                    int count, std::uint64_t seed) {
  const Workload& w = *setting.workload;
  const Model& record = harness::find_model("chimera");
  const Question question = harness::question_of(model, setting, record);
  const tilewright::Settings settings = harness::settings_of(model, record);
  chimera::Options options = chimera::options_for(question, settings);
  options.memory = chimera::Memory::held;
  const Elements most =
      chimera::room_of(question, question.planned_level());
  std::vector<chimera::Order> orders;
  for (const chimera::Order& o : chimera::all_orders(w))
    if (chimera::legality(w, o, {}).legal) orders.push_back(o);
  std::mt19937_64 random(seed);
  std::vector<harness::Request> requests;
  for (int tries = 0; static_cast<int>(requests.size()) < count && tries < 50 * count; ++tries) {
    const chimera::Order& order = orders[random() % orders.size()];
    const auto tilings = chimera::draw_tilings(w, order, options, {.most = most}, 1, random());
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

harness::BatchItem item_of(harness::Scheduled& on) {
  if (!on.schedule) return {Reason{on.refusal.json.value("reason", std::string("no schedule"))}};
  return {std::move(*on.schedule)};
}

/// The model's kernel, if there is one, and then those of the requests that have one.
struct Field {
  std::optional<Tried> ours;
  std::string why;  ///< why there is none of the model
  std::vector<Tried> others;
  int failed = 0;
};

Field built(const harness::Request& model, const std::vector<harness::Request>& others,
            const harness::Setting& setting, int threads, const Settings& settings) {
  std::vector<Tried> tried;
  std::vector<harness::BatchItem> items;
  const auto add = [&](const harness::Request& r) {
    harness::Scheduled on = harness::schedule_for_threads(r);
    tried.push_back({.order = r.order.value_or(""),
                     .tiles = r.tiles.value_or(""),
                     .tree = on.schedule ? to_text(on.plan.kernels.front().tree) : ""});
    items.push_back(item_of(on));
  };
  add(model);
  for (const harness::Request& r : others) add(r);
  auto kernels = harness::verified_kernels(
      *setting.workload, items, harness::reference_of(*setting.workload, settings.seed),
      {.isa = settings.isa,
       .threads = threads,
       .jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))});
  Field field;
  for (std::size_t i = 0; i < tried.size(); ++i) {
    if (!kernels[i]) {
      if (i == 0)
        field.why = kernels[i].reason();
      else
        ++field.failed;
      continue;
    }
    tried[i].kernel = std::move(kernels[i]).value();
    if (i == 0)
      field.ours = std::move(tried[i]);
    else
      field.others.push_back(std::move(tried[i]));
  }
  return field;
}

Contestant contestant(const Tried& t) {
  harness::VerifiedKernel* const kernel = t.kernel.get();
  return {.name = t.tree, .sample = [kernel] { return kernel->run(); }};
}

Json one_row(const std::string& row, int threads, const Settings& settings) {
  progress(formatted("tilings: {}, building", row));
  harness::Request model{.subject = row, .machine = "host"};
  model.model = "chimera";
  model.target = "cpu";
  model.threads = threads;
  const harness::Setting setting = harness::setting_of(model);
  const Field field = built(model, drawn(model, setting, settings.tilings, settings.seed), setting,
                            threads, settings);
  Json json = {{"row", row}, {"threads", threads}};
  if (!field.ours || field.others.empty()) {
    json["reason"] = !field.ours ? field.why : "no tiling could be drawn";
    return json;
  }
  json["drawn"] = field.others.size();
  json["failed"] = field.failed;
  progress(formatted("tilings: {}, heats", row));
  std::vector<Contestant> all;
  for (const Tried& t : field.others) all.push_back(contestant(t));
  const auto left = harness::finalists(all, {.settle = wait_until_quiet});
  std::vector<Contestant> last = {contestant(*field.ours)};
  for (std::size_t i : left) last.push_back(all[i]);
  const auto samples = interleave(last, {.rounds = settings.rounds,
                                         .turn_seconds = settings.turn_seconds,
                                         .settle = wait_until_quiet});
  std::size_t best = 1;
  for (std::size_t i = 2; i < samples.size(); ++i)
    if (samples[i].median() < samples[best].median()) best = i;
  const double ratio = samples[0].median() / samples[best].median();
  json["model"] = tried_json(*field.ours, samples[0]);
  json["fastest_drawn"] = tried_json(field.others[left[best - 1]], samples[best]);
  json["ratio"] = ratio;
  json["ratio_of_fastest_runs"] = samples[0].least() / samples[best].least();
  json["within"] = ratio <= kWithin;
  json["date"] = harness::circumstances("")["date"];
  return json;
}

/// Rows that are finished are kept in a journal; after a part's first, none is begun that would not
/// end in it.
class Parts {
 public:
  explicit Parts(const Settings& settings) : settings_(settings) {
    if (settings.journal.empty()) return;
    const std::string all =
        formatted("{} {} {} {} {} {}", harness::build_hash(), settings.tilings, settings.rounds,
                  settings.turn_seconds, cpu::name_of(settings.isa), settings.seed);
    points_.open(settings.journal, kName, harness::hash_text(all), false);
  }

  /// Nothing where the time is up.
  std::optional<Json> row(const std::string& name, int threads) {
    try {
      return points_.once(kName, formatted("{} {}", name, threads), [&] {
        if (longest_ > 0 && settings_.part_seconds > 0 &&
            elapsed() + longest_ > settings_.part_seconds)
          throw Up{};
        Json json;
        longest_ =
            std::max(longest_, seconds_of([&] { json = one_row(name, threads, settings_); }));
        return json;
      });
    } catch (const Up&) {
      return std::nullopt;
    }
  }

 private:
  struct Up {};
  static constexpr const char* kName = "tilings";
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  const Settings& settings_;
  harness::Points points_;
  double longest_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Json tilings(const Settings& settings) {
  std::vector<std::string> rows = settings.rows;
  if (rows.empty())
    for (int i = 1; i <= 12; ++i) rows.push_back(formatted("chimera/G{}", i));
  Json json;
  json["tilings"] = Json::array();
  Parts parts(settings);
  int left = 0;
  for (int threads : settings.threads) {
    print(
        formatted("\nThe model's tiling and the fastest of {} drawn ones, {}, {} thread{}, medians "
                  "of {} interleaved turns\n",
                  settings.tilings, cpu::name_of(settings.isa), threads, threads == 1 ? "" : "s",
                  settings.rounds));
    Table table(
        {"row", "model ms", "fastest drawn ms", "ratio", "of the fastest runs", "the drawn one"});
    int within = 0, timed = 0;
    for (const std::string& row : rows) {
      std::optional<Json> found = parts.row(row, threads);
      if (!found) {
        ++left;
        continue;
      }
      Json one = std::move(*found);
      ++timed;
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
                    within, timed));
  }
  if (left > 0)
    print(formatted("{} rows are left for another part: run it again with --journal {}\n", left,
                    settings.journal));
  json["rows_left"] = left;
  return json;
}

}  // namespace tilewright::bench
