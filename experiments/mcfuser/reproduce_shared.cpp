// The method `shared`: MCFuser's estimate of shared memory against emitted kernels (Fig. 10).
#include <algorithm>
#include <random>

#include "codegen/cuda/build.h"
#include "codegen/cuda/cuda.h"
#include "core/base/format.h"
#include "core/workload/text.h"
#include "experiments/report/experiment.h"
#include "experiments/report/rows.h"
#include "harness/ask.h"
#include "harness/registry.h"
#include "models/mcfuser/model.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

struct Point {
  std::string workload, expression, tiles;
  std::int64_t stages = 0;
  std::int64_t loaded = 0,
               all = 0;  ///< bytes by eq. (1), in both readings of which tensors it sums
  std::int64_t actual = 0;
};

struct Drawing {
  std::vector<Point> points;
  std::vector<cuda::Source> small;  ///< that could be declared statically
  std::int64_t refused = 0;
  std::string first_refusal;
};

/// A class that rule 2 keeps and tiles that rule 3 keeps, each as likely as any other.
mcfuser::Candidate draw(const mcfuser::Space& space, const mcfuser::Chain& chain,
                        std::mt19937_64& random) {
  const auto kept = space.kept();
  mcfuser::Candidate c{.group = kept[random() % kept.size()]};
  c.tiles.assign(chain.workload->loops().size(), 1);
  for (std::size_t d = 0; d < chain.dims.size(); ++d) {
    const auto& sizes = space.kept_sizes[d];
    c.tiles[chain.dims[d].index()] = sizes[random() % sizes.size()];
  }
  return c;
}

void emit_drawn(const std::string& name, const Setting& setting, const mcfuser::Fused& on,
                const mcfuser::Candidate& c, const std::vector<std::int64_t>& stages,
                Drawing& drawing) {
  const mcfuser::Options options;
  const Plan plan =
      mcfuser::plan_of(on.chain, c.group->sub, c.tiles, *setting.machine, on.level, options);
  const auto schedule = resolve(plan, setting.workload, setting.machine);
  const auto estimate = [&](mcfuser::Shared reading) {
    return mcfuser::shared_memory(on.chain, on.device, reading, c.tiles);
  };
  for (const std::int64_t s : stages) {
    const auto refuse = [&](const std::string& reason) {
      if (drawing.refused++ == 0) drawing.first_refusal = name + ": " + reason;
    };
    if (!schedule) {
      refuse(schedule.reason());
      continue;
    }
    auto source = cuda::emit(*schedule,
                             {.stages = static_cast<int>(s), .shared_room = std::int64_t{1} << 40});
    if (!source) {
      refuse(source.reason());
      continue;
    }
    const std::int64_t actual = source->launches.back().shared_bytes;
    drawing.points.push_back({.workload = name,
                              .expression = mcfuser::to_text(on.chain, c.group->first),
                              .tiles = mcfuser::tiles_json(on.chain, c.tiles).dump(),
                              .stages = s,
                              .loaded = estimate(mcfuser::Shared::loaded),
                              .all = estimate(mcfuser::Shared::all),
                              .actual = actual});
    if (actual <= 48 * 1024) drawing.small.push_back(std::move(source).value());
  }
}

/// How many of the sample ptxas gives the same figure for; nothing where nothing here builds.
std::optional<std::pair<int, int>> ask_ptxas(std::vector<cuda::Source> sources, std::size_t sample,
                                             std::mt19937_64& random) {
  std::shuffle(sources.begin(), sources.end(), random);
  if (sources.size() > sample) sources.resize(sample);
  int equal = 0, asked = 0;
  for (cuda::Source& source : sources) {
    const cuda::Launch& launch = source.launches.back();
    source.text =
        "#define TW_STATIC_SHARED " + std::to_string(launch.shared_bytes) + "\n" + source.text;
    const auto built = cuda::build(source, {.architecture = "sm_80", .builder = "nvcc"});
    if (!built) return std::nullopt;
    ++asked;
    for (const auto& figures : built->kernels)
      if (figures.symbol == launch.symbol && figures.static_shared_bytes == launch.shared_bytes)
        ++equal;
  }
  return std::pair(equal, asked);
}

std::string percent(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? "-"
                    : formatted("{:.1f} %",
                                100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

/// Our quadrants beside the paper's, in each reading; with the stages that kernels have by default.
void add_compared(Reproduced& done, const ordered_json& groups, const Field& paper) {
  for (const ordered_json& g : groups) {
    if (g["stages"] != 1 || g["candidates"] == 0) continue;
    const double all = g["candidates"].get<double>() / 100;
    const auto add = [&](const char* what, double count, const char* key) {
      done.compared.push_back(
          {.what = formatted("{}; eq. (1) sums tensors: {}, one stage", what,
                             g["reading"].get<std::string>()),
           .unit = "%",
           .ours = count / all,
           .ours_source = "predicted (mcfuser) against the emitted kernels' shared memory",
           .paper = paper.at(key).real()});
    };
    add("agree (I and III); the paper: over",
        g["kept_and_fits"].get<double>() + g["dropped_and_too_large"].get<double>(),
        "agree_over_percent");
    add("kept, too large (II)", g["kept_but_too_large"].get<double>(),
        "kept_but_too_large_percent");
    add("dropped but fits (IV)", g["dropped_but_fits"].get<double>(), "dropped_but_fits_percent");
  }
}

}  // namespace

Reproduced reproduce_shared(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"machine", "workloads", "candidates", "slack", "stages",
                                    "ptxas_sample", "paper", "must_hold"});
  const std::int64_t count = top.at("candidates").integer(1, 100000);
  const double slack = top.at("slack").real();
  std::vector<std::int64_t> stages;
  for (const Field& f : top.at("stages").items()) stages.push_back(f.integer(0, 8));
  std::mt19937_64 random(1);
  Drawing drawing;
  Reproduced done;
  double room = 0;
  for (const Field& f : Rows(run, top.at("workloads").items())) {
    Request request;
    request.subject = f.text();
    request.machine = top.at("machine").text();
    const Setting setting = setting_of(request);
    const auto on = mcfuser::fused_of(question_of(request, setting, find_model("mcfuser")));
    if (!on) {
      done.reason = f.text() + ": " + on.reason();
      return done;
    }
    room = static_cast<double>(on->device.shared.value);
    mcfuser::Options all;
    all.rules[3] = false;
    const auto space = mcfuser::space_of(on->chain, on->device, all);
    if (!space) {
      done.reason = f.text() + ": " + space.reason();
      return done;
    }
    for (std::int64_t i = 0; i < count; ++i)
      emit_drawn(f.text(), setting, *on, draw(*space, on->chain, random), stages, drawing);
  }

  done.holds = static_cast<std::int64_t>(drawing.points.size()) >=
               top.at("must_hold").at("points").integer(1, INT32_MAX);
  if (!done.holds)
    done.reason = formatted("only {} candidates were emitted", drawing.points.size());
  done.csv =
      "workload,expression,tiles,stages,estimated_loaded_bytes,estimated_all_bytes,actual_bytes\n";
  ordered_json groups = ordered_json::array();
  done.report +=
      "| eq. (1) sums | stages of reloaded tiles | candidates | kept and fits (I) | kept, too "
      "large (II) | dropped, too large (III) | dropped but fits (IV) | I and III "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (const mcfuser::Shared reading : {mcfuser::Shared::loaded, mcfuser::Shared::all})
    for (const std::int64_t s : stages) {
      std::int64_t quadrant[4] = {0, 0, 0, 0}, total = 0;
      for (const Point& p : drawing.points) {
        if (p.stages != s) continue;
        const bool kept =
            static_cast<double>(reading == mcfuser::Shared::all ? p.all : p.loaded) <= slack * room;
        const bool fits = static_cast<double>(p.actual) <= room;
        ++quadrant[kept ? (fits ? 0 : 1) : (fits ? 3 : 2)];
        ++total;
      }
      const std::string name = s == 0 ? "two" : std::to_string(s);
      done.report += "| " + std::string(mcfuser::name_of(reading)) + " | " + name + " | " +
                     std::to_string(total);
      for (const std::int64_t q : quadrant) done.report += " | " + percent(q, total);
      done.report += " | " + percent(quadrant[0] + quadrant[2], total) + " |\n";
      groups.push_back({{"reading", mcfuser::name_of(reading)},
                        {"stages", s == 0 ? 2 : s},
                        {"candidates", total},
                        {"kept_and_fits", quadrant[0]},
                        {"kept_but_too_large", quadrant[1]},
                        {"dropped_and_too_large", quadrant[2]},
                        {"dropped_but_fits", quadrant[3]}});
    }
  const Field paper = top.at("paper");
  done.report += "| (paper) | - | - | - | " + paper.at("kept_but_too_large_percent").text() +
                 " % | - | " + paper.at("dropped_but_fits_percent").text() + " % | over " +
                 paper.at("agree_over_percent").text() + " % |\n\n";
  add_compared(done, groups, paper);
  for (const Point& p : drawing.points)
    done.csv += p.workload + ",\"" + p.expression + "\",\"" +
                [&] {
                  std::string t = p.tiles;
                  std::erase(t, '"');
                  return t;
                }() +
                "\"," + std::to_string(p.stages == 0 ? 2 : p.stages) + "," +
                std::to_string(p.loaded) + "," + std::to_string(p.all) + "," +
                std::to_string(p.actual) + "\n";
  done.report += formatted(
      "A block has {:.0f} bytes; dropped: estimated above {} times that. {} candidates could not "
      "be emitted{}.\n",
      room, slack, drawing.refused,
      drawing.refused > 0 ? " (the first: " + drawing.first_refusal + ")" : "");
  const auto asked =
      ask_ptxas(std::move(drawing.small),
                static_cast<std::size_t>(top.at("ptxas_sample").integer(0, 1000)), random);
  done.report += asked ? formatted("ptxas reports the same for {} of {} sampled kernels.\n",
                                   asked->first, asked->second)
                       : "No nvcc here: ptxas was not asked.\n";
  if (asked && asked->first != asked->second) {
    done.holds = false;
    done.reason = "ptxas reports other figures than the launches ask for";
  }
  done.result["shared_max_bytes"] = static_cast<std::int64_t>(room);
  done.result["slack"] = slack;
  done.result["groups"] = groups;
  done.result["refused"] = drawing.refused;
  if (asked) done.result["ptxas"] = {{"asked", asked->second}, {"equal", asked->first}};
  return done;
}

}  // namespace tilewright::harness
