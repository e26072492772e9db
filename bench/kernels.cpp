// Section 1: fused kernels on the processor. For each row and number of threads: the plan that
// chimera makes for target cpu, emitted, built, verified, then timed turn by turn with the peers
// and the peak.

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>

#include "bench/chain.h"
#include "bench/drawn.h"
#include "bench/peer.h"
#include "bench/sections.h"
#include "codegen/cpu/loaded.h"
#include "core/base/error.h"
#include "core/base/format.h"
#include "harness/ask.h"
#include "harness/in_runs.h"
#include "harness/kernel_batch.h"
#include "harness/registry.h"
#include "harness/schedules.h"
#include "harness/verified_kernel.h"

namespace tilewright::bench {
namespace {

constexpr const char* kOurs = "tilewright";
constexpr const char* kOursPrefetching = "tilewright/pf";
constexpr double kLeastPeakSeconds = 0.002;  // some slices of a tenth of a millisecond or more

/// A contestant and how its results compare with the reference.
struct Column {
  Contestant contestant;
  double relative_error = 0;
};

struct Ours {
  std::unique_ptr<harness::VerifiedKernel> kernel;
  std::string refusal;  ///< why there is none
};

/// As `tilewright run W -m MACHINE --model MODEL --threads N` makes it.
struct Prepared {
  harness::Scheduled on;
  Ours ours;
  std::optional<double> predicted = {};  ///< seconds, by the standard model
};

Ours verified(const harness::Scheduled& on, const Settings& settings, int threads,
              bool prefetch = false) {
  if (!on.schedule) return {nullptr, on.refusal.json.value("reason", "no schedule")};
  const Result<cpu::Source> source =
      cpu::emit(*on.schedule, {.isa = settings.isa, .threads = threads, .prefetch = prefetch});
  if (!source) return {nullptr, source.reason()};
  Result<cpu::Kernel> kernel = cpu::build(*source);
  if (!kernel) return {nullptr, kernel.reason()};
  harness::VerifyResult checked = harness::verify(
      std::make_unique<cpu::LoadedKernel>(std::move(kernel).value(), *on.setting.workload),
      *on.setting.workload, harness::reference_of(on.setting, settings.seed), {}, &*on.schedule);
  if (checked.kernel) return {std::move(checked.kernel), ""};
  return {nullptr, "verification failed: " + reason_of(checked.verification, *on.setting.workload)};
}

harness::Request request_of(const std::string& row, const Settings& settings, int threads,
                            const std::string& model) {
  harness::Request request;
  request.subject = row;
  request.machine = settings.machine;
  request.model = model;
  request.target = "cpu";
  request.threads = threads;
  request.seed = settings.seed;
  // Chimera plans for one level. A convolution's window and all channels at its points do not fit
  // the first cache, nor do whole rows of scores beside the operands: the plan is for the second,
  // and the micro-kernel blocks for the first.
  const Kind kind = kind_of(*harness::workload_of({.subject = row}).workload);
  if (model == "chimera" && (kind == Kind::convolutions || kind == Kind::softmax))
    request.level = "L2";
  return request;
}

Prepared prepare(const std::string& row, const Settings& settings, int threads,
                 const std::string& model) {
  const harness::Request request = request_of(row, settings, threads, model);
  Prepared p{harness::schedule_for_threads(request), {}};
  if (p.on.schedule) {
    harness::Setting warm = p.on.setting;
    warm.machine = harness::in_runs(*warm.workload, warm.machine);
    const auto price = harness::price(harness::planning_model(), request, warm, p.on.plan);
    if (price) p.predicted = price->traffic.seconds;
  }
  p.ours = verified(p.on, settings, threads);
  return p;
}

/// What peers compute, whatever it is.
struct Task {
  std::function<void()> forget;
  std::function<double()> error;
  std::function<bool()> right;
  /// Empty where the peer does not compute this kind.
  std::function<std::vector<Entry>(const Peer& peer, int threads)> entries;
};

Task task_of(const Workload& w, std::uint64_t seed) {
  if (kind_of(w) == Kind::chain) {
    const auto chain = std::make_shared<const Chain>(Chain::create(w, seed).value());
    return {.forget = [chain] { chain->forget(); },
            .error = [chain] { return chain->error(); },
            .right = [chain] { return chain->right(); },
            .entries = [chain](const Peer& p, int threads) { return p.prepare(*chain, threads); }};
  }
  const auto problem = std::make_shared<const Problem>(w, seed);
  const Kind kind = kind_of(w);
  return {.forget = [problem] { problem->forget(); },
          .error = [problem] { return problem->error(); },
          .right = [problem] { return problem->right(); },
          .entries =
              [problem, kind](const Peer& p, int threads) {
                const auto& prepare = kind == Kind::softmax    ? p.softmax
                                      : kind == Kind::products ? p.products
                                                               : p.convolutions;
                return prepare ? prepare(*problem, threads) : std::vector<Entry>{};
              }};
}

/// Runs the entry once on forgotten outputs and compares; throws where it is wrong.
Column checked(const Entry& entry, const Task& task) {
  task.forget();
  entry.run();
  if (entry.collect) entry.collect();
  const double error = task.error();
  // A library may add in any order, so it is held to the bounds that our kernels are held to.
  if (!task.right())
    throw std::runtime_error(formatted("{} is wrong: relative error {:.3g}", entry.name, error));
  const auto sample = [entry] {
    if (!entry.own_seconds) return seconds_of(entry.run);
    entry.run();
    return entry.own_seconds();
  };
  return {{.name = entry.name, .sample = sample}, error};
}

struct Cell {
  double gflops = 0;   ///< of the median
  double of_peak = 0;  ///< of the median of the peak
  double best = 0;     ///< the fastest run, of the highest peak
};

/// One row of the table on one number of threads.
struct Measured {
  Json json;
  std::map<std::string, Cell> cells;  ///< by contestant
};

Measured measure(const std::string& row, int threads, const Settings& settings,
                 const std::vector<Peer>& peers) {
  Prepared prepared = prepare(row, settings, threads, harness::planning_model().name);
  const Workload& w = *prepared.on.setting.workload;
  Measured out;
  out.json = {{"row", row},
              {"threads", threads},
              {"isa", cpu::name_of(settings.isa)},
              {"flops", w.flops()}};
  const Task task = task_of(w, settings.seed);
  std::vector<Column> columns;
  std::vector<std::string> notes;
  harness::VerifiedKernel* kernel = prepared.ours.kernel.get();
  if (kernel != nullptr) {
    columns.push_back({{.name = kOurs, .sample = [kernel] { return kernel->run(); }},
                       kernel->verification().relative_error});
    for (const std::string& note : harness::source_of(*kernel).notes) notes.push_back(note);
  } else {
    notes.push_back(std::string(kOurs) + ": " + prepared.ours.refusal);
  }
  Ours prefetching;
  if (kernel != nullptr && settings.prefetch)
    prefetching = verified(prepared.on, settings, threads, true);
  if (harness::VerifiedKernel* const other = prefetching.kernel.get())
    columns.push_back({{.name = kOursPrefetching, .sample = [other] { return other->run(); }},
                       other->verification().relative_error});
  std::vector<std::pair<std::string, Prepared>> others;
  for (const std::string& model : settings.models) try {
      others.emplace_back("by " + model, prepare(row, settings, threads, model));
      harness::VerifiedKernel* const other = others.back().second.ours.kernel.get();
      if (other == nullptr)
        notes.push_back(model + ": " + others.back().second.ours.refusal);
      else
        columns.push_back(
            {{.name = others.back().first, .sample = [other] { return other->run(); }},
             other->verification().relative_error});
    } catch (const InputError& refused) {
      notes.push_back(model + ": " + refused.what());
    }
  for (const Peer& peer : peers) try {
      for (const Entry& entry : task.entries(peer, threads))
        columns.push_back(checked(entry, task));
    } catch (const std::exception& refused) {
      notes.push_back(peer.name + ": " + refused.what());
    }

  const double peak_seconds = std::max(kLeastPeakSeconds, settings.turn_seconds);
  std::vector<Contestant> contestants{
      {.name = "peak",
       .sample = [&] { return cpu::fma_peak_gflops(settings.isa, threads, peak_seconds); },
       .warm_up = false}};
  for (const Column& c : columns) contestants.push_back(c.contestant);
  const std::vector<Samples> samples =
      interleave(contestants, {.rounds = settings.rounds,
                               .turn_seconds = settings.turn_seconds,
                               .settle = wait_until_quiet});

  const double peak = samples[0].median();
  out.json["peak_gflops"] = peak;
  out.json["peak_gflops_most"] = samples[0].most();
  if (kernel != nullptr) out.json["micro_kernel"] = harness::source_of(*kernel).micro_kernel;
  Json list = Json::array();
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Samples& s = samples[i + 1];
    const double gflops = w.flops() / s.median() * 1e-9;
    const double best = w.flops() / s.least() * 1e-9 / samples[0].most();
    out.cells[columns[i].contestant.name] = {gflops, gflops / peak, best};
    Json entry = {{"name", columns[i].contestant.name},
                  {"gflops", gflops},
                  {"of_peak", gflops / peak},
                  {"of_peak_best", best},
                  {"relative_error", columns[i].relative_error}};
    entry.update(seconds_json(s));
    const auto planned = [&](const Prepared& p) {
      entry["predicted_seconds"] = p.predicted ? Json(*p.predicted) : Json(nullptr);
      entry["tree"] = Json::array();
      for (const Kernel& k : p.on.plan.kernels) entry["tree"].push_back(to_text(k.tree));
    };
    if (columns[i].contestant.name == kOurs) planned(prepared);
    for (const auto& [name, p] : others)
      if (name == columns[i].contestant.name) planned(p);
    list.push_back(std::move(entry));
  }
  out.json["contestants"] = std::move(list);
  out.json["notes"] = notes;
  return out;
}

/// The peers that are here and asked for; says so for each that is not.
std::vector<Peer> available(const Settings& settings, Json& json) {
  json = Json::array();
  if (settings.no_peers) return {};
  std::vector<Peer> here;
  for (Peer& p : peers(settings.peers)) {
    const bool ok = p.missing.empty();
    print(formatted("{:<9} {}\n", p.name, ok ? p.description : "not available: " + p.missing));
    json.push_back({{"name", p.name},
                    {"available", ok},
                    {"description", p.description},
                    {"reason", ok ? Json(nullptr) : Json(p.missing)}});
    if (ok) here.push_back(std::move(p));
  }
  return here;
}

std::vector<std::string> rows_of(const Settings& settings) {
  if (!settings.rows.empty()) return settings.rows;
  if (settings.set == "drawn") return drawn_rows(settings.draw_seed, settings.draw);
  std::vector<std::string> rows;
  const bool softmax = settings.set.starts_with("softmax");
  if (settings.set == "chains" || softmax)
    for (int i = 1; i <= 12; ++i) {
      const std::string row = formatted("chimera/G{}", i);
      if (!softmax) {
        rows.push_back(row);
        continue;
      }
      const Workload w = *harness::workload_of({.subject = row}).workload;
      const auto extent = [&](const char* name) {
        const auto l = w.find_loop(name);
        return l ? w.loop(*l).extent : 1;
      };
      rows.push_back(formatted("attention:heads={},m={},l={},k={},n={}{}", extent("b"), extent("m"),
                               extent("l"), extent("k"), extent("n"),
                               settings.set == "softmax-online" ? ",online=1" : ""));
    }
  if (settings.set == "large")
    for (const auto& [m, l, k] : std::initializer_list<std::array<int, 3>>{{4096, 4096, 16},
                                                                           {4096, 8192, 16},
                                                                           {8192, 8192, 16},
                                                                           {4096, 4096, 32},
                                                                           {8192, 4096, 32},
                                                                           {8192, 8192, 32},
                                                                           {8192, 8192, 64}})
      rows.push_back(formatted("gemm-chain:m={},n={},k={},l={}", m, k, k, l));
  if (settings.set.starts_with("convolutions"))
    for (int i = 1; i <= 8; ++i)
      rows.push_back(
          formatted("chimera/C{}{}", i, settings.set == "convolutions-relu" ? ":relu=1" : ""));
  return rows;
}

/// Ours over every other column, row by row, and over the fastest of each row.
Json print_ratios(const std::vector<Measured>& rows, const std::vector<std::string>& names,
                  int threads) {
  Json json = Json::array();
  const auto ratio_line = [&](const std::string& title, const auto& other) {
    std::vector<double> medians, fastest;
    std::string slowest;
    for (const Measured& r : rows) {
      const auto ours = r.cells.find(kOurs);
      const std::optional<Cell> peer = other(r);
      if (ours == r.cells.end() || !peer) continue;
      medians.push_back(ours->second.gflops / peer->gflops);
      fastest.push_back(ours->second.best / peer->best);
      if (medians.back() <= *std::ranges::min_element(medians))
        slowest = r.json["row"].get<std::string>();
    }
    if (medians.empty()) return;
    const double least = *std::ranges::min_element(medians);
    print(
        formatted("{} over {}: {:.3f} (of the fastest runs {:.3f}), geometric mean of {} rows; "
                  "least {:.3f}, {}\n",
                  kOurs, title, geometric_mean(medians), geometric_mean(fastest), medians.size(),
                  least, slowest));
    json.push_back({{"over", title},
                    {"threads", threads},
                    {"rows", medians.size()},
                    {"ratio", geometric_mean(medians)},
                    {"ratio_of_fastest", geometric_mean(fastest)},
                    {"least", least},
                    {"least_row", slowest}});
  };
  std::size_t peers = 0;
  for (const std::string& name : names) {
    if (name.starts_with(kOurs)) continue;
    ++peers;
    ratio_line(name, [&](const Measured& r) {
      const auto cell = r.cells.find(name);
      return cell == r.cells.end() ? std::nullopt : std::optional(cell->second);
    });
  }
  if (peers < 2) return json;
  ratio_line("the fastest peer of each row", [](const Measured& r) {
    std::optional<Cell> most;
    for (const auto& [name, cell] : r.cells)
      if (!name.starts_with(kOurs) && !name.starts_with("by ")) {
        if (!most) most = cell;
        most->gflops = std::max(most->gflops, cell.gflops);
        most->best = std::max(most->best, cell.best);
      }
    return most;
  });
  return json;
}

/// Every contestant that any row has, ours first, the others as they first appear.
std::vector<std::string> names_of(const std::vector<Measured>& rows) {
  std::vector<std::string> names;
  for (const Measured& r : rows)
    for (const Json& c : r.json["contestants"]) {
      const std::string name = c["name"];
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  return names;
}

/// GFLOP/s and, beside it, percent of the peak; the geometric means below, each over the rows that
/// its column has.
Json print_table(const std::vector<Measured>& rows, int threads, Json& ratios) {
  const std::vector<std::string> names = names_of(rows);
  std::vector<std::string> head{"GFLOP/s (% of peak)", "peak"};
  head.insert(head.end(), names.begin(), names.end());
  Table table(head);
  const auto text = [](double gflops, double of_peak) {
    return formatted("{:.1f} ({:.1f})", gflops, 100 * of_peak);
  };
  for (const Measured& r : rows) {
    std::vector<std::string> line{r.json["row"].get<std::string>(),
                                  formatted("{:.1f}", r.json["peak_gflops"].get<double>())};
    for (const std::string& name : names) {
      const auto cell = r.cells.find(name);
      line.push_back(cell == r.cells.end() ? "-" : text(cell->second.gflops, cell->second.of_peak));
    }
    table.add(std::move(line));
  }
  Json means = Json::array();
  std::vector<std::string> last{"geometric mean", ""}, fastest{"  of the fastest runs", ""};
  for (const std::string& name : names) {
    std::vector<double> gflops, of_peak, best;
    for (const Measured& r : rows)
      if (const auto cell = r.cells.find(name); cell != r.cells.end()) {
        gflops.push_back(cell->second.gflops);
        of_peak.push_back(cell->second.of_peak);
        best.push_back(cell->second.best);
      }
    last.push_back(text(geometric_mean(gflops), geometric_mean(of_peak)) +
                   (gflops.size() < rows.size() ? formatted(" of {}", gflops.size()) : ""));
    means.push_back({{"name", name},
                     {"threads", threads},
                     {"rows", gflops.size()},
                     {"gflops", geometric_mean(gflops)},
                     {"of_peak", geometric_mean(of_peak)},
                     {"of_peak_best", geometric_mean(best)}});
    fastest.push_back(formatted("({:.1f})", 100 * geometric_mean(best)));
  }
  table.add(std::move(last));
  table.add(std::move(fastest));
  print("\n" + table.text());
  for (Json& ratio : print_ratios(rows, names, threads)) ratios.push_back(std::move(ratio));
  for (const Measured& r : rows)
    for (const Json& note : r.json["notes"])
      print(formatted("{}: {}\n", r.json["row"].get<std::string>(), note.get<std::string>()));
  double worst = 0;
  for (const Measured& r : rows)
    for (const Json& c : r.json["contestants"])
      worst = std::max(worst, c["relative_error"].get<double>());
  print(formatted("largest relative error of any contestant: {:.2g}\n", worst));
  return means;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> row_sets() {
  return {{"chains", "chimera/G1 to G12"},
          {"large", "GEMM chains whose intermediate leaves the last cache"},
          {"softmax", "G1 to G12 with softmax between the products"},
          {"softmax-online", "the same in one pass"},
          {"convolutions", "chimera/C1 to C8"},
          {"convolutions-relu", "the same with a ReLU between"},
          {"drawn", "products, layers, low rank, attention and convolutions at random (--draw)"}};
}

void check_kernels(const Settings& settings) {
  std::vector<std::string> sets;
  for (const auto& [name, summary] : row_sets()) sets.push_back(name);
  if (std::ranges::find(sets, settings.set) == sets.end())
    throw InputError({.where = "--set",
                      .value = settings.set,
                      .problem = "is not a set of rows",
                      .accepted = join(sets)});
  for (const std::string& row : rows_of(settings)) {
    const harness::Setting on = harness::workload_of({.subject = row});
    if (kind_of(*on.workload) == Kind::other)
      throw InputError(
          {.where = "--rows",
           .value = row,
           .problem = "is nothing that peers compute",
           .accepted = "float32 GEMM chains, attention without scale, convolution chains"});
  }
  const std::vector<std::string> names = peer_names();
  for (const std::string& name : settings.peers)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw InputError({.where = "--peers",
                        .value = name,
                        .problem = "is no peer",
                        .accepted = join(names) + ", none"});
}

Json kernels(const Settings& settings) {
  const std::vector<std::string> rows = rows_of(settings);
  Json json;
  const std::vector<Peer> here = available(settings, json["peers"]);
  json["kernels"] = Json::array();
  json["geometric_means"] = Json::array();
  json["ratios"] = Json::array();
  for (int threads : settings.threads) {
    std::vector<Measured> measured;
    print(formatted("\nChains, {}, float32, {} thread{}, medians of {} interleaved turns\n",
                    cpu::name_of(settings.isa), threads, threads == 1 ? "" : "s", settings.rounds));
    for (const std::string& row : rows) {
      progress(formatted("kernels: {} on {} thread(s)", row, threads));
      measured.push_back(measure(row, threads, settings, here));
    }
    progress("");
    for (Json& mean : print_table(measured, threads, json["ratios"]))
      json["geometric_means"].push_back(mean);
    for (Measured& m : measured) json["kernels"].push_back(std::move(m.json));
  }
  return json;
}

}  // namespace tilewright::bench
