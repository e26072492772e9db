// The method `ablation`: Chimera's Fig. 10. Cost model, fusion and micro-kernel, each on and off:
// eight versions of a chain's kernels, each built, verified and timed on this machine.
#include <cmath>

#include "core/base/format.h"
#include "core/workload/subgraph.h"
#include "experiments/report/experiment.h"
#include "experiments/report/sheet.h"
#include "harness/ask.h"
#include "harness/circumstances.h"
#include "harness/kernel_batch.h"
#include "harness/registry.h"
#include "harness/statistics.h"
#include "harness/turns.h"
#include "models/chimera/model.h"
#include "models/chimera/sampler.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr double kFarSlower = 2;
constexpr const char* kNaive = "scalar";  // plain loops, as the compiler vectorises them

struct Version {
  bool model, fusion, micro_kernel;
  /// As the paper names them: the baseline has none.
  std::string name() const {
    const std::string letters =
        std::string(model ? "C" : "") + (fusion ? "F" : "") + (micro_kernel ? "M" : "");
    return letters.empty() ? "baseline" : "v-" + letters;
  }
};

constexpr Version kVersions[] = {{false, false, false}, {true, false, false}, {false, true, false},
                                 {false, false, true},  {true, true, false},  {true, false, true},
                                 {false, true, true},   {true, true, true}};

/// What one chain is compared by.
struct Chain {
  std::string name;
  Request request;
  Setting setting;
  LevelId level;
  int threads = 1;
  std::int64_t draws = 100;
  mutable std::optional<Reference> known = {};
  /// Made when a kernel is first verified: a chain whose points are all kept needs none.
  const Reference& reference() const {
    if (!known) known = reference_of(*setting.workload, request.seed);
    return *known;
  }
};

Chain chain_of(const std::string& workload, const std::string& machine, int threads,
               std::int64_t draws, std::uint64_t seed) {
  Request request = request_for(workload, machine);
  request.target = "cpu";
  request.seed = seed;
  request.threads = threads;
  Setting setting = setting_of(request);
  const LevelId level = level_of(request, *setting.machine);
  return {workload, std::move(request), std::move(setting), level, threads, draws};
}

/// The workloads that get a kernel each.
std::vector<std::shared_ptr<const Workload>> parts_of(const Chain& c, bool fusion) {
  if (fusion) return {c.setting.workload};
  std::vector<std::shared_ptr<const Workload>> parts;
  for (OpId op : c.setting.workload->topological_order())
    parts.push_back(
        std::make_shared<const Workload>(subgraph(*c.setting.workload, std::array{op})));
  return parts;
}

/// The model's plan of every part, its tiles suited to micro-kernels whether there is one or not.
Result<Plan> model_plan(const Chain& c, bool fusion) {
  Plan plan;
  for (const auto& part : parts_of(c, fusion)) {
    Setting setting = c.setting;
    setting.workload = part;
    const Result<Proposal> best = propose(find_model("chimera"), c.request, setting);
    if (!best) return Reason{best.reason()};
    plan.kernels.push_back(best->plan.kernels.front());
    plan.kernels.back().name = part->name();
  }
  return plan;
}

/// Plans whose parts' tilings are drawn, each part's on its own.
std::vector<Plan> drawn_plans(const Chain& c, bool fusion) {
  std::vector<Plan> plans;
  std::uint64_t seed = c.request.seed;
  for (const auto& part : parts_of(c, fusion)) {
    const auto tilings = chimera::draw_unguided(*part, c.draws, seed++);
    if (plans.empty()) plans.resize(tilings.size());
    plans.resize(std::min(plans.size(), tilings.size()));
    for (std::size_t i = 0; i < plans.size(); ++i) {
      plans[i].kernels.push_back(
          chimera::plan_of(*part, tilings[i].order, tilings[i].tiles, *c.setting.machine, c.level)
              .kernels.front());
      plans[i].kernels.back().name = part->name();
    }
  }
  return plans;
}

std::vector<Result<std::unique_ptr<VerifiedKernel>>> kernels_of(
    const Chain& c, const std::vector<std::pair<Plan, std::string>>& plans,
    const Progress& progress) {
  std::vector<BatchItem> items;
  for (const auto& [plan, micro_kernel] : plans)
    items.push_back({resolve(plan, c.setting.workload, c.setting.machine), micro_kernel});
  return verified_kernels(
      *c.setting.workload, items, c.reference(),
      {.threads = c.threads, .jobs = threads_of(Request{}), .progress = progress});
}

/// Of the drawn plans, the one whose kernel is fastest on this machine: {"best": its number,
/// "verified", "failed", "in_heats"}, or {"reason"}.
ordered_json fastest_drawn(const Chain& c, bool fusion, bool micro_kernel,
                           const Progress& progress) {
  std::vector<std::pair<Plan, std::string>> plans;
  for (Plan& plan : drawn_plans(c, fusion))
    plans.emplace_back(std::move(plan), micro_kernel ? "" : kNaive);
  const auto kernels = kernels_of(c, plans, progress);
  double least = INFINITY;
  std::size_t failed = 0;
  std::string why = "no tiling could be drawn";
  for (const auto& k : kernels) {
    if (k)
      least = std::min(least, k.value()->verification().seconds);
    else
      ++failed, why = k.reason();
  }
  std::vector<Contestant> all;
  std::vector<std::size_t> number;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    // One that took so much longer in the run that verified it is not run again.
    if (!kernels[i] || kernels[i].value()->verification().seconds > kFarSlower * least) continue;
    VerifiedKernel* const kernel = kernels[i].value().get();
    // Verification was its first run, and all share their tensors.
    all.push_back({.sample = [kernel] { return kernel->run(); }, .warm_up = false});
    number.push_back(i);
  }
  if (all.empty()) return {{"reason", why}};
  const auto best = finalists(all, {.finalists = 1, .settle = wait_until_quiet});
  return {{"best", number[best.front()]},
          {"verified", kernels.size() - failed},
          {"failed", failed},
          {"in_heats", all.size()}};
}

/// Of the point that fastest_drawn() was kept as.
std::string drawn_key(const Chain& c, bool fusion, bool micro_kernel) {
  return c.name + (fusion ? ", drawn, fused" : ", drawn, unfused") +
         (micro_kernel ? ", micro-kernel" : ", naive");
}

std::string text_of(const Plan& plan) {
  std::string text;
  for (const Kernel& k : plan.kernels) {
    text += (text.empty() ? "" : "; ") + to_text(k.tree);
    for (const auto& [loop, tile] : k.tiles) text += formatted(" {}={}", loop, tile);
  }
  return text;
}

/// The drawn plans that are fastest, by Version::fusion and micro_kernel.
struct Chosen {
  ordered_json by[2][2];
};

Chosen chosen_for(const Chain& c, const Experiment& e, const Run& run) {
  Chosen chosen;
  for (const bool fusion : {false, true})
    for (const bool micro_kernel : {false, true})
      chosen.by[fusion][micro_kernel] = run.points.once(
          e.id, drawn_key(c, fusion, micro_kernel),
          [&] { return fastest_drawn(c, fusion, micro_kernel, run.request.progress); });
  return chosen;
}

/// The versions' kernels in turns.
ordered_json timed(const Chain& c, const Chosen& chosen, int rounds, const Progress& progress) {
  std::vector<std::pair<Plan, std::string>> plans;
  for (const Version& v : kVersions) {
    const std::string micro_kernel = v.micro_kernel ? "" : kNaive;
    if (v.model) {
      const Result<Plan> plan = model_plan(c, v.fusion);
      if (!plan) return {{"reason", v.name() + ": " + plan.reason()}};
      plans.emplace_back(*plan, micro_kernel);
    } else {
      const ordered_json& best = chosen.by[v.fusion][v.micro_kernel];
      if (best.contains("reason"))
        return {{"reason", v.name() + ": " + best["reason"].get<std::string>()}};
      plans.emplace_back(drawn_plans(c, v.fusion)[best["best"].get<std::size_t>()], micro_kernel);
    }
  }
  const auto kernels = kernels_of(c, plans, progress);
  std::vector<Contestant> all;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (!kernels[i]) return {{"reason", kVersions[i].name() + ": " + kernels[i].reason()}};
    VerifiedKernel* const kernel = kernels[i].value().get();
    all.push_back({.name = kVersions[i].name(), .sample = [kernel] { return kernel->run(); }});
  }
  const auto samples = interleave(all, {.rounds = rounds, .settle = wait_until_quiet});
  ordered_json json = {{"versions", ordered_json::object()}};
  for (std::size_t i = 0; i < all.size(); ++i)
    json["versions"][all[i].name] = {{"seconds_median", samples[i].median()},
                                     {"seconds_min", samples[i].least()},
                                     {"samples", samples[i].count()},
                                     {"micro_kernel", source_of(*kernels[i].value()).micro_kernel},
                                     {"plan", text_of(plans[i].first)}};
  for (const char* key : {"cpu", "cpus_online", "compiler", "load_average", "date"})
    json[key] = circumstances("")[key];
  return json;
}

/// Every chain's times, "chain" added. What is compared comes last and all at once, when the
/// machine may be kept quiet for it.
std::vector<ordered_json> timed_chains(const std::vector<Chain>& chains, int rounds,
                                       const Experiment& e, const Run& run) {
  std::vector<Chosen> chosen;
  for (const Chain& c : chains) chosen.push_back(chosen_for(c, e, run));
  std::vector<ordered_json> points;
  for (std::size_t i = 0; i < chains.size(); ++i) {
    points.push_back(run.points.once(e.id, chains[i].name, [&] {
      return timed(chains[i], chosen[i], rounds, run.request.progress);
    }));
    points.back()["chain"] = chains[i].name;
  }
  return points;
}

/// Of the baseline over each version, by chain and in the geometric mean: the paper's form.
void add_table(const std::vector<ordered_json>& points, Reproduced& done) {
  std::vector<std::string> header = {"chain"}, mean = {"geometric mean"};
  for (const Version& v : kVersions) header.push_back(v.name() + ", speed-up (measured)");
  header.insert(header.end(), {"baseline ms (measured)", "v-CFM ms (measured)"});
  Sheet sheet(std::move(header));
  std::map<std::string, GeometricMean> means;
  for (const ordered_json& point : points) {
    const auto seconds = [&](const std::string& version) {
      return point["versions"][version]["seconds_median"].get<double>();
    };
    std::vector<std::string> row = {point["chain"].get<std::string>()};
    for (const Version& v : kVersions) {
      const double faster = seconds("baseline") / seconds(v.name());
      means[v.name()].add(faster);
      row.push_back(formatted("{:.2f}", faster));
    }
    row.push_back(formatted("{:.3f}", 1e3 * seconds("baseline")));
    row.push_back(formatted("{:.3f}", 1e3 * seconds("v-CFM")));
    sheet.add(std::move(row));
  }
  for (const Version& v : kVersions)  // the baseline's own is 1
    if (v.model || v.fusion || v.micro_kernel)
      done.result["drawn"].push_back(v.name() + ", speed-up (measured)");
  done.result["geometric_means"] = ordered_json::object();
  for (const Version& v : kVersions) {
    const auto faster = means[v.name()].value();
    mean.push_back(fixed_or_dash(faster, 2));
    done.result["geometric_means"][v.name()] = number_or_null(faster);
  }
  mean.insert(mean.end(), {"", ""});
  sheet.add(std::move(mean));
  sheet.into(done);
}

}  // namespace

std::optional<std::string> compiler_missing(const Experiment&, const ReproduceOptions&) {
  const Availability here = codegen::find_target("cpu").here();
  return here.usable ? std::nullopt
                     : std::optional<std::string>("it builds kernels: " + here.reason);
}

Reproduced reproduce_ablation(const Experiment& e, const Run& run) {
  const Field top =
      document_of(e, {"machine", "workloads", "threads", "draws", "rounds", "paper", "must_hold"});
  const std::int64_t draws = run.options.samples.value_or(top.at("draws").integer(1, 100000));
  const int threads = static_cast<int>(top.at("threads").integer(1, 4096));
  const int rounds = static_cast<int>(top.at("rounds").integer(1, 100000));
  std::vector<Chain> chains;
  for (const Field& f : top.at("workloads").items())
    chains.push_back(
        chain_of(f.text(), top.at("machine").text(), threads, draws, run.request.seed));
  Reproduced done;
  done.holds = true;
  std::vector<ordered_json> points = timed_chains(chains, rounds, e, run);
  std::erase_if(points, [&](const ordered_json& p) {
    if (!p.contains("reason")) return false;
    fail(done, p["chain"].get<std::string>() + ": " + p["reason"].get<std::string>());
    return true;
  });
  if (points.empty()) return done;
  const std::string cpu = points.back()["cpu"];
  done.report += formatted(
      "Measured on {}, {} of its {} threads, kernels built by the system's compiler, last chain "
      "{}. Times of "
      "the baseline over those of each version, medians of interleaved turns; drawn: {} tilings, "
      "seed "
      "{}.\n\n",
      cpu, threads, points.back()["cpus_online"].get<int>(),
      points.back()["date"].get<std::string>(), draws, run.request.seed);
  done.result = {
      {"threads", threads}, {"draws", draws}, {"seed", run.request.seed}, {"chains", points}};
  add_table(points, done);
  const ordered_json& means = done.result["geometric_means"];
  for (const Field& p : top.at("paper").items())
    done.compared.push_back({.what = p.at("what").text(),
                             .unit = "speed-up over the version with none of the three, "
                                     "geometric mean",
                             .ours = means.at(p.at("version").text()).get<double>(),
                             .ours_source = "measured (clock, " + cpu + ")",
                             .paper = p.at("value").real()});
  const double least = top.at("must_hold").at("all_over_baseline").real();
  const double all = means["v-CFM"];
  if (all < least)
    fail(done,
         formatted("all three together are {:.2f} times the baseline, not {:.2f}", all, least));
  return done;
}

}  // namespace tilewright::harness
