// The methods `side-by-side` and `contest`: several models' plans of every workload beside one
// another, with what GPUs were recorded to take, and what must hold of such a recording.
#include <algorithm>
#include <map>

#include "core/base/format.h"
#include "core/workload/text.h"
#include "experiments/report/experiment.h"
#include "experiments/report/sheet.h"
#include "harness/ask.h"
#include "harness/parallel.h"
#include "harness/recorded.h"
#include "harness/schedules.h"
#include "harness/statistics.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kMostNodes = 1'000'000;  // that exact evaluates of a plan: about a second

// ---- Recordings ---------------------------------------------------------------------------------

/// What one kernel or several of one contestant were recorded to take.
struct Measured {
  double seconds = 0;
  std::optional<std::int64_t> launches;  ///< of the plan that was timed
  std::string device, date, file;
};
/// By contestant: a model's name, or another compiler's.
using Contest = std::map<std::string, Measured>;
/// By device, the one that is recorded first first.
using Contests = std::vector<std::pair<std::string, Contest>>;

std::optional<Measured> measured_of(const Field& answer, const Measured& where) {
  const auto verified = answer.get("verified");
  auto seconds = answer.get("seconds_median");
  if (!seconds) seconds = answer.get("seconds");
  if (!seconds || answer.get("reason") || (verified && !verified->boolean())) return std::nullopt;
  Measured m = where;
  m.seconds = seconds->real();
  if (const auto launches = answer.get("launches"))
    m.launches = launches->is_list() ? static_cast<std::int64_t>(launches->items().size())
                                     : launches->integer(0, 1'000'000);
  return m;
}

/// Several recordings; of each device the first that has a number wins.
class Recordings {
 public:
  Recordings(const Experiment& e, const ReproduceOptions& options) {
    for (const std::string& path : recording_files(e, options)) read(path);
  }

  /// What was recorded of the workload, however its text names it.
  const Contests& of(const Workload& w) const {
    static const Contests none;
    const auto at = by_workload_.find(to_yaml(w));
    return at == by_workload_.end() ? none : at->second;
  }
  /// Rows in the order of the files: a name, and what was timed.
  const std::vector<std::pair<std::string, Contest>>& rows() const { return rows_; }
  const ordered_json& provenance() const { return provenance_; }

 private:
  void read(const std::string& path) {
    const DocumentValue value = read_recording(path, "--data");
    const Field recording(value, path);
    const Measured where{.device = recording.at("device").at("name").text(),
                         .date = recording.at("date").text().substr(0, 10),
                         .file = path.substr(path.rfind('/') + 1)};
    provenance_.push_back({{"file", where.file},
                           {"device", where.device},
                           {"date", where.date},
                           {"command", recording.at("command").text()}});
    const Field rows = recording.at("rows");
    if (rows.is_list()) {
      for (const Field& row : rows.items()) {
        Contest found;
        const std::string model = recording.at("model").text();
        for (const auto& [name, answer] : row.at("contestants").entries())
          if (auto m = measured_of(answer, where)) found[name == "ours" ? model : name] = *m;
        add(row.at("subject").text(), row.at("subject").text(), std::move(found));
      }
      return;
    }
    for (const auto& [name, row] : rows.entries()) {
      Contest found;
      // A step is Souffle's table 4; the last is the model itself.
      for (const auto& [column, answer] : row.at("ours").entries())
        if (auto m = measured_of(answer, where)) found[column == "V4" ? "souffle" : column] = *m;
      if (const auto others = row.get("others"))
        for (const auto& [column, answer] : others->entries())
          if (auto m = measured_of(answer, where)) found[column] = *m;
      add(name, row.at("workload").text(), std::move(found));
    }
  }

  void add(const std::string& name, const std::string& workload, Contest found) {
    rows_.emplace_back(name, found);
    Contests& all = by_workload_[to_yaml(named_workload(workload))];
    for (const auto& [who, m] : found) {
      auto at = std::ranges::find(all, m.device, [](const auto& one) { return one.first; });
      if (at == all.end()) at = all.insert(at, {m.device, {}});
      at->second.emplace(who, m);
    }
  }

  std::map<std::string, Contests> by_workload_;
  std::vector<std::pair<std::string, Contest>> rows_;
  ordered_json provenance_ = ordered_json::array();
};

void add_provenance(Reproduced& done, const Recordings& recordings) {
  done.result["recordings"] = recordings.provenance();
  for (const ordered_json& p : recordings.provenance())
    done.report += formatted("Recorded on {}, {}, by `{}` ({}).\n", p["device"].get<std::string>(),
                             p["date"].get<std::string>(), p["command"].get<std::string>(),
                             p["file"].get<std::string>());
  done.report += "\n";
}

// ---- Plans --------------------------------------------------------------------------------------

/// A model's own plan: kernels, bytes, and its seconds by the model of time that all are priced by.
ordered_json plan_of(const Model& maker, Request request, Setting setting) {
  request.model = maker.name;
  ordered_json row = {{"model", maker.name}};
  const Result<Proposal> best = propose(maker, request, setting);
  if (!best) {
    row["reason"] = best.reason();
    return row;
  }
  if (!best->rewrites.empty()) rewrite(setting, best->rewrites, "--model " + maker.name);
  row["kernels"] = best->plan.kernels.size();
  const auto once = each_kernel_once(best->plan, *setting.workload);
  row["bytes"] = once ? ordered_json(once->value) : ordered_json(nullptr);
  const Result<Alone> exact = alone_at(setting, best->plan, best->level, kMostNodes);
  row["exact_bytes"] = exact ? ordered_json(exact->total().value) : ordered_json(nullptr);
  row["compulsory_bytes"] = setting.workload->compulsory_bytes().value;
  row["own_seconds"] =
      best->price.traffic.seconds ? ordered_json(*best->price.traffic.seconds) : nullptr;
  row["search_seconds"] = best->search_seconds ? ordered_json(*best->search_seconds) : nullptr;
  const Result<Price> time = price(planning_model(), request, setting, best->plan);
  row["seconds"] = time && time->traffic.seconds ? ordered_json(*time->traffic.seconds) : nullptr;
  if (!time) row["seconds_reason"] = time.reason();
  return row;
}

/// Every model's plan of one workload.
ordered_json plans_of(const std::string& workload, const std::string& machine,
                      const std::vector<const Model*>& models) {
  const Request request = request_for(workload, machine);
  const Setting setting = setting_of(request);
  ordered_json plans = ordered_json::array();
  for (const Model* m : models) plans.push_back(plan_of(*m, request, setting));
  return {{"workload", workload},
          {"operators", setting.workload->operators().size()},
          {"compulsory_bytes", setting.workload->compulsory_bytes().value},
          {"plans", plans}};
}

std::string us(const ordered_json& seconds) {
  return seconds.is_number() ? formatted("{:.2f}", 1e6 * seconds.get<double>()) : "-";
}
std::string number(const ordered_json& n) { return n.is_number() ? n.dump() : "-"; }

ordered_json to_json(const Measured& m) {
  return {{"seconds", m.seconds},
          {"device", m.device},
          {"date", m.date},
          {"kernels", m.launches ? ordered_json(*m.launches) : nullptr},
          {"file", m.file}};
}

void add_row(Sheet& sheet, const std::string& workload, const std::string& who,
             const ordered_json& plan, const ordered_json& measured) {
  const auto at = [](const ordered_json& j, const char* key) {
    return j.contains(key) ? j[key] : ordered_json(nullptr);
  };
  sheet.add({workload, who, number(at(plan, "kernels")), number(at(plan, "bytes")),
             number(at(plan, "exact_bytes")), us(at(plan, "seconds")), us(at(plan, "own_seconds")),
             us(at(measured, "seconds")),
             measured.is_object() ? measured["device"].get<std::string>() : "-",
             number(at(measured, "kernels")),
             at(plan, "search_seconds").is_number()
                 ? formatted("{:.0f}", 1e3 * plan["search_seconds"].get<double>())
                 : "-",
             plan.value("reason", plan.value("seconds_reason", "-"))});
}

/// What must be true of the first model's plan: at most the bytes of a kernel an operator, at least
/// the workload's own.
void check_bytes(Reproduced& done, const ordered_json& row, const std::string& unfused) {
  const ordered_json& judged = row["plans"][0];
  const std::string what =
      row["workload"].get<std::string>() + ": " + judged["model"].get<std::string>() + "'s plan ";
  if (!judged.contains("kernels")) return fail(done, what + judged.value("reason", "is none"));
  if (!judged["bytes"].is_number()) return;
  const auto bytes = judged["bytes"].get<std::int64_t>();
  if (bytes < judged["compulsory_bytes"].get<std::int64_t>())
    fail(done, what + "moves fewer bytes than its inputs and outputs have");
  for (const ordered_json& p : row["plans"])
    if (p["model"] == unfused && p.contains("bytes") && p["bytes"].is_number() &&
        bytes > p["bytes"].get<std::int64_t>())
      fail(done, what + "moves more bytes than a kernel for each operator");
}

/// The device on which most of the models were timed.
const Contest& of_most(const Contests& all, const std::vector<const Model*>& models) {
  static const Contest none;
  const Contest* best = &none;
  const auto count = [&](const Contest& c) {
    return std::ranges::count_if(models, [&](const Model* m) { return c.contains(m->name); });
  };
  for (const auto& [device, contest] : all)
    if (count(contest) > count(*best) || best == &none) best = &contest;
  return *best;
}

/// Geometric means over workloads: of each model's seconds over the first's, predicted and measured
/// on each device; of the predicted over the measured.
class Means {
 public:
  void add(const ordered_json& row, const Contests& recorded) {
    const ordered_json& first = row["plans"][0];
    judged_ = first["model"].get<std::string>();
    for (const ordered_json& p : row["plans"]) {
      const auto model = p["model"].get<std::string>();
      if (!p.contains("kernels") || !first.contains("kernels")) continue;
      if (model != judged_) add(over_[model]["predicted"], p["seconds"], first["seconds"]);
      for (const auto& [device, contest] : recorded) {
        const auto its = contest.find(model), judged = contest.find(judged_);
        if (its == contest.end()) continue;
        if (judged != contest.end() && model != judged_)
          over_[model]["measured on " + device].add(its->second.seconds / judged->second.seconds);
        add(error_[model][device], p["seconds"], its->second.seconds);
      }
    }
  }

  void into(Reproduced& done) const {
    for (const auto& [model, all] : over_)
      for (const auto& [how, mean] : all)
        if (mean.value())
          done.compared.push_back(
              {.what = formatted("{} over {}, {}, geometric mean of {}", model, judged_, how,
                                 mean.count()),
               .ours = *mean.value(),
               .ours_source = how.starts_with("pre") ? "predicted" : "measured"});
    for (const auto& [model, all] : error_)
      for (const auto& [device, mean] : all)
        if (mean.value())
          done.compared.push_back(
              {.what = formatted("predicted over measured on {}, {}, geometric mean of {}", device,
                                 model, mean.count()),
               .ours = *mean.value(),
               .ours_source = "predicted"});
  }

 private:
  static void add(GeometricMean& mean, const ordered_json& above, const ordered_json& below) {
    if (above.is_number() && below.is_number() && below.get<double>() > 0)
      mean.add(above.get<double>() / below.get<double>());
  }

  std::string judged_;
  std::map<std::string, std::map<std::string, GeometricMean>> over_, error_;
};

/// Every built-in workload that is none of a paper's sizes must have a row.
void check_families(Reproduced& done, const std::vector<Field>& workloads) {
  std::vector<std::string> there;
  for (const Field& w : workloads)
    there.push_back(w.text().substr(0, w.text().find_first_of(":/")));
  for (const BuiltinWorkload& builtin : builtin_workloads())
    if (builtin.name.find('/') == std::string::npos &&
        std::ranges::find(there, builtin.name) == there.end())
      fail(done, builtin.name + " has no row");
}

}  // namespace

Reproduced reproduce_side_by_side(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"machine", "models", "unfused", "recordings", "workloads"});
  const std::string machine = top.at("machine").text();
  std::vector<const Model*> models;
  for (const Field& name : top.at("models").items())
    models.push_back(planners_of(name.text()).front());
  const Recordings recordings(e, run.options);
  Reproduced done;
  done.holds = true;
  add_provenance(done, recordings);
  const auto workloads = top.at("workloads").items();
  check_families(done, workloads);
  std::vector<ordered_json> rows(workloads.size());
  parallel_for(
      workloads.size(), threads_of(run.request),
      [&](std::size_t i) {
        const std::string name = workloads[i].text();
        rows[i] = run.points.once(e.id, name, [&] { return plans_of(name, machine, models); });
      },
      run.request.progress, "planning");
  Sheet sheet({"workload", "plan of", "kernels", "bytes, each kernel once", "bytes by exact",
               "us (predicted)", "own us (predicted)", "us (measured)", "measured on",
               "measured kernels", "search ms", "notes"});
  Means means;
  for (ordered_json& row : rows) {
    const std::string name = row["workload"].get<std::string>();
    const Contests& all = recordings.of(named_workload(name));
    Contest recorded = of_most(all, models);
    means.add(row, all);
    for (ordered_json& plan : row["plans"]) {
      const auto at = recorded.find(plan["model"].get<std::string>());
      if (at != recorded.end()) {
        plan["measured"] = to_json(at->second);
        recorded.erase(at);
      }
      add_row(sheet, name, plan["model"].get<std::string>(), plan,
              plan.contains("measured") ? plan["measured"] : ordered_json());
    }
    row["others"] = ordered_json::object();
    for (const char* other : {"xla", "compile", "eager", "cudnn"}) {
      const auto at = recorded.find(other);
      if (at == recorded.end()) continue;
      row["others"][other] = to_json(at->second);
      add_row(sheet, name, formatted("{} itself", other), ordered_json::object(),
              row["others"][other]);
    }
    check_bytes(done, row, top.at("unfused").text());
  }
  sheet.into(done);
  done.result["machine"] = machine;
  done.result["seconds_by"] = planning_model().name;
  done.result["side_by_side"] = rows;
  means.into(done);
  return done;
}

/// A recording's plans of several models beside other compilers: `others_over` is the least
/// geometric mean of the best other's time over the judged model's, `least_over` the least ratio to
/// a model's.
Reproduced reproduce_contest(const Experiment& e, const Run& run) {
  const Field top = document_of(e, {"recordings", "judged", "others", "must_hold"});
  const Recordings recordings(e, run.options);
  const std::string judged = top.at("judged").text();
  std::vector<std::string> others;
  for (const Field& name : top.at("others").items()) others.push_back(name.text());
  Reproduced done;
  done.holds = true;
  add_provenance(done, recordings);
  std::vector<std::string> models = {judged};
  for (const auto& [model, least] : top.at("must_hold").at("least_over").entries())
    models.push_back(model);
  std::vector<std::string> columns = {"row"};
  for (const std::string& name : models) columns.push_back(name + " us (measured)");
  for (const std::string& name : others) columns.push_back(name + " us (measured)");
  const auto must = top.at("must_hold").get("others_over");
  if (!others.empty()) columns.emplace_back("best other over " + judged);
  Sheet sheet(columns);
  GeometricMean best_over;
  std::map<std::string, GeometricMean> over;
  std::map<std::string, std::pair<double, std::string>> least;
  const auto cell = [](const Contest& contest, const std::string& name) {
    const auto at = contest.find(name);
    return at == contest.end() ? std::string("-") : formatted("{:.2f}", 1e6 * at->second.seconds);
  };
  for (const auto& [name, contest] : recordings.rows()) {
    const auto mine = contest.find(judged);
    if (mine == contest.end()) continue;
    std::vector<std::string> cells = {name};
    for (const std::string& model : models) {
      cells.push_back(cell(contest, model));
      const auto at = contest.find(model);
      if (model == judged || at == contest.end()) continue;
      const double ratio = at->second.seconds / mine->second.seconds;
      over[model].add(ratio);
      if (const auto [known, fresh] = least.emplace(model, std::pair(ratio, name));
          !fresh && ratio < known->second.first)
        known->second = {ratio, name};
    }
    std::optional<double> best;
    for (const std::string& other : others) {
      cells.push_back(cell(contest, other));
      if (const auto at = contest.find(other); at != contest.end())
        best = std::min(best.value_or(at->second.seconds), at->second.seconds);
    }
    if (best) best_over.add(*best / mine->second.seconds);
    if (!others.empty())
      cells.push_back(best ? formatted("{:.2f}", *best / mine->second.seconds) : "-");
    sheet.add(std::move(cells));
  }
  sheet.into(done);
  const auto mean = best_over.value();
  if (must && mean.value_or(0) < must->real())
    fail(done, formatted("the best other takes {:.2f} times {}'s time, not {:.2f}",
                         mean.value_or(0), judged, must->real()));
  if (mean)
    done.compared.push_back(
        {.what = formatted("best other over {}, geometric mean of {}", judged, best_over.count()),
         .ours = *mean,
         .ours_source = "measured"});
  for (const auto& [model, must] : top.at("must_hold").at("least_over").entries()) {
    const auto at = least.find(model);
    if (at == least.end() || at->second.first < must.real())
      fail(done, at == least.end() ? model + " was not timed beside it"
                                   : formatted("{}: {} takes {:.3f} of {}'s time",
                                               at->second.second, model, at->second.first, judged));
    if (at == least.end()) continue;
    done.compared.push_back({.what = formatted("{} over {}, least of {} ({})", model, judged,
                                               over[model].count(), at->second.second),
                             .ours = at->second.first,
                             .ours_source = "measured"});
  }
  return done;
}

}  // namespace tilewright::harness
