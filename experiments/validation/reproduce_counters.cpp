// The method `counters`: PolyBench's kernels, simulated, against misses that hardware counted.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "core/base/format.h"
#include "core/machine/machine.h"
#include "experiments/report/counters.h"
#include "experiments/report/experiment.h"
#include "harness/parallel.h"
#include "harness/statistics.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;
using polybench::Kernel;

constexpr const char* kDefaultFolder = "../shared/data/polybench-papi";
constexpr std::array kLevels{"L1", "L2"};

std::string folder_of(const ReproduceOptions& options) {
  return options.data.value_or(kDefaultFolder);
}

/// The columns of a file of the artifact, by kernel: words between blanks, a header first.
using Counts = std::map<std::string, std::map<std::string, double>>;

[[noreturn]] void bad_line(const std::string& path, int line, const std::string& value,
                           const char* problem, const char* accepted) {
  throw InputError({.where = path + ":" + std::to_string(line),
                    .value = value,
                    .problem = problem,
                    .accepted = accepted});
}

Counts read_counts(const std::string& path) {
  std::istringstream text(read_file(path, "--data"));
  std::string line, word;
  std::getline(text, line);
  std::istringstream header(line);
  std::vector<std::string> columns;
  while (header >> word) columns.push_back(word);
  if (columns.size() < 2 || columns.front() != "KERNEL")
    bad_line(path, 1, line, "is not a header", "KERNEL ACCESS L1_MISS L2_MISS ...");
  Counts counts;
  for (int number = 2; std::getline(text, line); ++number) {
    std::istringstream words(line);
    std::string kernel;
    if (!(words >> kernel)) continue;
    for (std::size_t c = 1; c < columns.size(); ++c) {
      double value = 0;
      if (!(words >> word)) bad_line(path, number, line, "is too short", "a number a column");
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(value))
        bad_line(path, number, word, "is not a number", "a count");
      counts[kernel][columns[c]] = value;
    }
  }
  for (const Kernel& k : polybench::kernels())
    for (const char* level : kLevels)
      if (!counts[std::string(k.name)].contains(std::string(level) + "_MISS"))
        bad_line(path, 1, std::string(k.name), "has no count", "a line for each of 30 kernels");
  return counts;
}

/// One way to simulate: what the experiment's machine says, or other policies, with page walks or
/// not.
struct Variant {
  std::string name;
  std::optional<std::string> policy;
  bool walks = false;
};

std::vector<Variant> variants_of(const Field& top, polybench::Size size) {
  std::vector<Variant> all;
  for (const Field& f : top.at("variants").items()) {
    f.only({"name", "policy", "page_walks", "sizes"});
    Variant v{.name = f.at("name").text(), .walks = f.at("page_walks").boolean()};
    if (const auto policy = f.get("policy")) v.policy = policy->text();
    for (const Field& s : f.at("sizes").items())
      if (s.text() == name_of(size)) {
        all.push_back(std::move(v));
        break;
      }
  }
  return all;
}

PageWalkOptions walks_of(const Field& f) {
  const auto value = [](const Field& v) { return v.at("value").integer(1, INT32_MAX); };
  PageWalkOptions walks{.page = Bytes(value(f.at("page"))),
                        .inner_to_outer = {},
                        .entry = Bytes(value(f.at("entry")))};
  for (const Field& b : f.at("buffers").items())
    walks.inner_to_outer.push_back({.entries = b.at("entries").integer(1, INT32_MAX),
                                    .ways = b.at("ways").integer(0, INT32_MAX)});
  return walks;
}

std::vector<CacheGeometry> levels_of(const Field& top, const Variant& variant) {
  const Machine machine = named_machine(top.at("machine").text());
  std::vector<CacheGeometry> levels;
  for (const Field& name : top.at("levels").items()) {
    const auto id = machine.find(name.text());
    if (!id) name.fail("is not a level of the machine", "a level's name");
    levels.push_back(geometry_of(machine.level(*id)));
    if (variant.policy) levels.back().policy = *variant.policy;
  }
  TW_CHECK(levels.size() == kLevels.size(), "counts are of two levels");
  return levels;
}

double error_of(double predicted, double counted) {
  if (counted == 0) return predicted == 0 ? 0 : 1;
  return (predicted - counted) / counted;
}

/// Everything that is held against the counts at one size: our variants' and others' predictions.
struct Predictions {
  std::vector<std::string> names;                                    ///< ours first
  std::vector<std::map<std::string, std::array<double, 2>>> misses;  ///< by name, kernel, level
};

ordered_json row_of(const Kernel& kernel, const Predictions& all,
                    const std::map<std::string, double>& counted) {
  const std::string name(kernel.name);
  ordered_json row{{"kernel", name}};
  for (std::size_t l = 0; l < kLevels.size(); ++l) {
    const std::string level = kLevels[l];
    const auto column = [&](const std::string& c) -> ordered_json {
      const auto at = counted.find(level + "_" + c);
      // An interval without an end is written as the largest integer there is.
      if (at == counted.end() || at->second >= 9.2e18) return nullptr;
      return static_cast<std::int64_t>(at->second);
    };
    const double truth = counted.at(level + "_MISS");
    ordered_json one{
        {"measured", column("MISS")}, {"ci_low", column("CI_LOW")}, {"ci_high", column("CI_HIGH")}};
    for (std::size_t p = 0; p < all.names.size(); ++p)
      one[all.names[p]] = static_cast<std::int64_t>(all.misses[p].at(name)[l]);
    one["error"] = ordered_json::object();
    for (std::size_t p = 0; p < all.names.size(); ++p)
      one["error"][all.names[p]] = error_of(all.misses[p].at(name)[l], truth);
    row[level] = std::move(one);
  }
  return row;
}

ordered_json medians_of(const ordered_json& rows, const Predictions& all) {
  ordered_json medians;
  for (const char* level : kLevels)
    for (const std::string& name : all.names) {
      std::vector<double> errors;
      for (const ordered_json& row : rows)
        errors.push_back(std::abs(row[level]["error"][name].get<double>()));
      medians[level][name] = {{"median", median(errors)},
                              {"worst", *std::max_element(errors.begin(), errors.end())},
                              {"kernels", errors.size()}};
    }
  return medians;
}

void write_tables(Reproduced& done, const Predictions& all) {
  done.csv = "kernel,level,measured,ci_low,ci_high";
  for (const std::string& name : all.names) done.csv += "," + name;
  done.csv += "\n";
  for (const char* level : kLevels) {
    done.report += formatted("| {}: kernel | counted |", level);
    for (const std::string& name : all.names) done.report += " " + name + " |";
    done.report += "\n|---|---|";
    for (std::size_t i = 0; i < all.names.size(); ++i) done.report += "---|";
    done.report += "\n";
    for (const ordered_json& row : done.result["kernels"]) {
      const ordered_json& at = row[level];
      const std::string kernel = row["kernel"];
      done.report += formatted("| {} | {} |", kernel, at["measured"].dump());
      done.csv += formatted("{},{},{},{},{}", kernel, level, at["measured"].dump(),
                            at["ci_low"].dump(), at["ci_high"].dump());
      for (const std::string& name : all.names) {
        done.report += formatted(" {:+.2f} % |", 100 * at["error"][name].get<double>());
        done.csv += "," + at[name].dump();
      }
      done.report += "\n";
      done.csv += "\n";
    }
    done.report += "| median of the absolute | |";
    for (const std::string& name : all.names)
      done.report += formatted(" {:.2f} % |",
                               100 * done.result["errors"][level][name]["median"].get<double>());
    done.report += "\n\n";
  }
}

/// Kernels walked as plans beside what the recorder counted without page walks, which plans have
/// not.
void add_plans(Reproduced& done, ordered_json plans) {
  if (plans.empty()) return;
  done.report +=
      "| as a plan | tree | level | misses | recorded | difference |\n|---|---|---|---|---|---|\n";
  for (ordered_json& plan : plans) {
    const std::string beside = plan["beside"];
    for (const ordered_json& row : done.result["kernels"]) {
      if (row["kernel"] != plan["kernel"]) continue;
      for (const char* level : kLevels) {
        const auto walked = plan[level].get<std::int64_t>(),
                   recorded = row[level][beside].get<std::int64_t>();
        const double difference =
            error_of(static_cast<double>(walked), static_cast<double>(recorded));
        plan[level] = {{"misses", walked}, {"recorded", recorded}, {"difference", difference}};
        done.report +=
            formatted("| {} | {} | {} | {} | {} | {:+.3f} % |\n", plan["kernel"].get<std::string>(),
                      plan["tree"].get<std::string>(), level, walked, recorded, 100 * difference);
      }
    }
  }
  done.report += "\n";
  done.result["plans"] = std::move(plans);
}

/// Our counts of every kernel under every variant.
Predictions simulated(const Experiment& e, const Field& top, polybench::Size size, const Run& run,
                      ordered_json& kernels) {
  const std::vector<Variant> variants = variants_of(top, size);
  const auto all = polybench::kernels();
  std::vector<ordered_json> counted(variants.size() * all.size());
  const auto count = [&](std::size_t i) {
    const Variant& v = variants[i / all.size()];
    polybench::Options how;
    if (v.walks) how.walks = walks_of(top.at("page_walks"));
    const Kernel& k = all[i % all.size()];
    const std::string key = formatted("{} {} {}", k.name, name_of(size), v.name);
    counted[i] = run.points.once(e.id, key, [&] {
      const polybench::Counted one = polybench::count(k, k.of(size), levels_of(top, v), how);
      return ordered_json{{"accesses", one.accesses},
                          {"page_walks", one.walks},
                          {"lines", {one.levels[0].lines(), one.levels[1].lines()}}};
    });
  };
  parallel_for(counted.size(), threads_of(run.request), count, run.request.progress,
               "simulating kernels");
  Predictions predictions;
  for (const Variant& v : variants) {
    predictions.names.push_back(v.name);
    predictions.misses.emplace_back();
  }
  for (std::size_t i = 0; i < counted.size(); ++i)
    predictions.misses[i / all.size()][std::string(all[i % all.size()].name)] = {
        counted[i]["lines"][0].get<double>(), counted[i]["lines"][1].get<double>()};
  for (std::size_t k = 0; k < all.size(); ++k)  // of the first variant, which is ours
    kernels.push_back({{"kernel", all[k].name},
                       {"accesses", counted[k]["accesses"]},
                       {"page_walks", counted[k]["page_walks"]}});
  return predictions;
}

void add(Predictions& to, const std::string& name, const Counts& counts) {
  to.names.push_back(name);
  to.misses.emplace_back();
  for (const Kernel& k : polybench::kernels()) {
    const auto& of = counts.at(std::string(k.name));
    to.misses.back()[std::string(k.name)] = {of.at("L1_MISS"), of.at("L2_MISS")};
  }
}

void hold(Reproduced& done, const Field& top, polybench::Size size) {
  done.holds = true;
  done.result["must_hold"] = ordered_json::object();
  const auto limits = top.at("must_hold").get(name_of(size));
  if (!limits) return;
  for (const auto& [level, limit] : limits->entries()) {
    const double most = limit.real();
    const double got = done.result["errors"][level]["simulated"]["median"];
    done.result["must_hold"][level] = {{"max_median_error", most}};
    if (got <= most) continue;
    done.holds = false;
    done.reason += formatted("{}the median error at {} is {:.2f} %, above {:.2f} %",
                             done.reason.empty() ? "" : "; ", level, 100 * got, 100 * most);
  }
}

}  // namespace

std::vector<std::string> counters_files(const Experiment& e, const ReproduceOptions& options) {
  const std::string size =
      options.size.value_or(Field(*e.document, e.where).at("size").text());
  std::vector<std::string> files;
  for (const auto& [tool, rest] :
       {std::pair("papi-", "-o2.csv"), std::pair("dinero-", "-l1-l2.csv"),
        std::pair("haystack-", "-l1-l2.csv")}) {
    const std::string path = folder_of(options) + "/" + tool + size + rest;
    if (std::filesystem::exists(path)) files.push_back(path);
  }
  return files;
}

std::optional<std::string> counters_missing(const Experiment&, const ReproduceOptions& options) {
  const std::string size = options.size.value_or("medium");
  const std::string path = folder_of(options) + "/papi-" + size + "-o2.csv";
  std::error_code error;
  if (std::filesystem::exists(path, error)) return {};
  return "the counted misses are not here (no " + path +
         "); --data DIR names a folder with the artifact's papi-SIZE-o2.csv and "
         "dinero-SIZE-l1-l2.csv";
}

Reproduced reproduce_counters(const Experiment& e, const Run& run) {
  const ReproduceOptions& options = run.options;
  const Field top = document_of(e, {"machine", "levels", "size", "page_walks", "variants", "must_hold", "plans"});
  const std::string size_name = options.size.value_or(top.at("size").text());
  const polybench::Size size = *polybench::size_from_name(size_name);
  const std::string folder = folder_of(options);
  const Counts counted = read_counts(folder + "/papi-" + size_name + "-o2.csv");
  const Counts dinero = read_counts(folder + "/dinero-" + size_name + "-l1-l2.csv");

  Reproduced done;
  ordered_json ours = ordered_json::array();
  Predictions all = simulated(e, top, size, run, ours);
  add(all, "dinero", dinero);
  const std::string haystack = folder + "/haystack-" + size_name + "-l1-l2.csv";
  if (std::filesystem::exists(haystack)) add(all, "haystack", read_counts(haystack));

  done.result["size"] = size_name;
  done.result["machine"] = top.at("machine").text();
  done.result["by"] = all.names;
  done.result["data"] = folder;
  done.result["errors"] = nullptr;
  done.result["kernels"] = ordered_json::array();
  for (std::size_t k = 0; k < ours.size(); ++k) {
    const Kernel& kernel = polybench::kernels()[k];
    merge(ours[k], row_of(kernel, all, counted.at(std::string(kernel.name))));
    done.result["kernels"].push_back(std::move(ours[k]));
  }
  done.result["errors"] = medians_of(done.result["kernels"], all);
  done.report = formatted("Size {}, machine {}; relative errors against PAPI's counts.\n\n",
                          size_name, top.at("machine").text());
  write_tables(done, all);
  add_plans(done, run.points.once(e.id, "plans " + size_name,
                                  [&] { return plans_of(top, size, run.request); }));
  for (const char* level : kLevels) {
    const ordered_json& errors = done.result["errors"][level];
    done.compared.push_back({.what = formatted("{}: median error; the paper's: Dinero IV's", level),
                             .unit = "%",
                             .ours = 100 * errors["simulated"]["median"].get<double>(),
                             .ours_source = formatted("simulated against measured (PAPI)"),
                             .paper = 100 * errors["dinero"]["median"].get<double>()});
  }
  hold(done, top, size);
  return done;
}

}  // namespace tilewright::harness
