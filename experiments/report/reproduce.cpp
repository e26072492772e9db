// reproduce: an experiment's method, and the folder it leaves behind.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/base/format.h"
#include "experiments/report/experiment.h"
#include "simulator/polybench/polybench.h"

namespace tilewright::harness {

using nlohmann::ordered_json;

/// Their reports one after the other, their points with the panel named.
Reproduced reproduce_panels(const Experiment& e, const Run& run) {
  Reproduced all;
  all.holds = true;
  all.result["panels"] = ordered_json::array();
  for (const Field& panel : document_of(e, {"panels"}).at("panels").items()) {
    const Experiment& part = find_experiment(panel.text());
    Reproduced one = method_of(part).run(part, run);
    one.result["id"] = part.id;
    one.result["holds"] = one.holds;
    all.report += formatted("\n## {}: {}\n\n{}\n\n{}", part.id, part.title, part.about, one.report);
    bool first = true;
    for (std::size_t begin = 0; begin < one.csv.size();) {
      const std::size_t end = std::min(one.csv.find('\n', begin), one.csv.size());
      const std::string line = one.csv.substr(begin, end - begin);
      if (!first)
        all.csv += part.id + "," + line + "\n";
      else if (all.csv.empty())
        all.csv = "panel," + line + "\n";
      first = false;
      begin = end + 1;
    }
    for (Compared& c : one.compared) {
      c.what = part.id + ": " + c.what;
      all.compared.push_back(std::move(c));
    }
    if (!one.holds) fail(all, part.id + ": " + one.reason);
    all.result["panels"].push_back(std::move(one.result));
  }
  return all;
}

namespace {

/// --size is for counted misses only, --data for them and for recordings.
void check_options(const Experiment& e, const ReproduceOptions& options) {
  const auto refuse_option = [&](const char* option, const std::string& value) {
    throw InputError({.where = option,
                      .value = value,
                      .problem = "is not for " + e.id,
                      .accepted = "an experiment on counted misses, as validation/polybench"});
  };
  if (options.size && e.method != "counters") refuse_option("--size", *options.size);
  if (options.data && method_of(e).files == nullptr) refuse_option("--data", *options.data);
  if (options.size && !polybench::size_from_name(*options.size))
    throw InputError({.where = "--size",
                      .value = options.size->empty() ? "an empty text" : *options.size,
                      .problem = "is not a size",
                      .accepted = "small, medium, large"});
}

ordered_json number_json(const std::optional<double>& n) {
  return n ? ordered_json(*n) : ordered_json(nullptr);
}

/// Ours over the paper's, less one; nothing where there is no such number.
std::optional<double> difference_of(const Compared& c) {
  if (!c.ours || !c.paper || *c.paper == 0) return std::nullopt;
  return *c.ours / *c.paper - 1;
}

const std::string& source_of(const Experiment& e, const Compared& c) {
  return c.paper_source.empty() ? e.source : c.paper_source;
}

ordered_json compared_json(const Experiment& e, const std::vector<Compared>& all) {
  ordered_json rows = ordered_json::array();
  for (const Compared& c : all)
    rows.push_back({{"what", c.what},
                    {"unit", c.unit},
                    {"ours", number_json(c.ours)},
                    {"ours_source", c.ours_source},
                    {"paper", number_json(c.paper)},
                    {"paper_source", source_of(e, c)},
                    {"relative_difference", number_json(difference_of(c))}});
  return rows;
}

std::string number_text(const std::optional<double>& n, const std::string& unit) {
  if (!n) return "-";
  // Counts in full, everything else to four digits.
  const std::string digits = *n == std::floor(*n) && std::abs(*n) < 1e15 ? formatted("{:.0f}", *n)
                                                                         : formatted("{:.4g}", *n);
  return digits + (unit.empty() ? "" : " " + unit);
}

std::string compared_report(const Experiment& e, const std::vector<Compared>& all) {
  if (all.empty()) return "";
  std::string text =
      "\n## Ours beside the paper's\n\n"
      "| what | ours | which is | the paper's | from | difference |\n|---|---|---|---|---|---|\n";
  for (const Compared& c : all) {
    const auto difference = difference_of(c);
    text += formatted("| {} | {} | {} | {} | {} | {} |\n", c.what, number_text(c.ours, c.unit),
                      c.ours_source, number_text(c.paper, c.unit), source_of(e, c),
                      difference ? formatted("{:+.1f} %", 100 * *difference) : std::string("-"));
  }
  return text + (e.difference ? "\nWhy they differ: " + *e.difference + "\n" : "");
}

/// The machines that the experiment's file names, for all of its rows and for one.
std::string machines_text(const Experiment& e) {
  const Field top(*e.document, e.where);
  std::vector<std::string> names;
  const auto add = [&names](const Field& of) {
    const auto machine = of.get("machine");
    if (machine && std::ranges::find(names, machine->text()) == names.end())
      names.push_back(machine->text());
  };
  add(top);
  if (const auto rows = top.get("rows"); rows && rows->is_list())
    for (const Field& row : rows->items()) add(row);
  return names.empty() ? ""
                       : formatted(" Machine{}: {}.", names.size() > 1 ? "s" : "", join(names));
}

/// The method's own picture, else one of what was compared; nothing where there is no number.
std::string figure_of(const Experiment& e, const Reproduced& done) {
  if (!done.chart.empty()) return to_svg(done.chart);
  constexpr std::size_t kMost = 24;
  std::vector<Pair> pairs;
  std::string sources;
  std::size_t numbers = 0;
  for (const Compared& c : done.compared) {
    if (!c.ours || !c.paper) continue;
    if (++numbers > kMost) continue;
    pairs.push_back(
        {c.what, number_text(c.ours, c.unit), number_text(c.paper, c.unit), *c.ours, *c.paper});
    if (sources.find(c.ours_source) == std::string::npos)
      sources += (sources.empty() ? "" : ", ") + c.ours_source;
  }
  if (pairs.empty()) return "";
  std::string caption =
      formatted("{}. Ours: {}.{} The paper's: {}. Each pair of bars has its own scale.", e.title,
                sources, machines_text(e), e.source);
  if (!done.note.empty()) caption += " " + done.note;
  if (numbers > kMost)
    caption += formatted(" The first {} of {} numbers; report.md has all.", kMost, numbers);
  return pairs_svg(e.id, pairs, caption);
}

std::string report_of(const Experiment& e, const Reproduced& done, const std::string& command,
                      bool figure) {
  std::string text =
      formatted("# {}: {}\n\nSource of the paper's numbers: {}. Ours: `{}` ({}).\n\n{}\n\n{}\n",
                e.id, e.title, e.source, command, name_of(method_of(e).how), e.about, done.report);
  text += compared_report(e, done.compared);
  if (e.needs) text += "\nNot reproduced here: it would need " + *e.needs + "\n";
  if (figure) text += "\n![" + e.id + "](figure.svg)\n";
  return text + (done.holds ? "\nEvery condition of the experiment holds.\n"
                            : "\nA condition does not hold: " + done.reason + ".\n");
}

std::string command_of(const Experiment& e, const ReproduceOptions& options) {
  return "tilewright reproduce " + e.id +
         (options.samples ? " --samples " + std::to_string(*options.samples) : "") +
         (options.size ? " --size " + *options.size : "");
}

ordered_json head_of(const Experiment& e) {
  auto json = document();
  json["id"] = e.id;
  json["title"] = e.title;
  json["paper"] = e.source;
  json["status"] = name_of(method_of(e).how);
  if (method_of(e).how != Reproduction::needs) return json;
  // Its paper's numbers are all that there is.
  json["paper_numbers"] = ordered_json::array();
  if (const auto paper = document_of(e, {"paper"}).get("paper"))
    for (const Field& p : paper->items())
      json["paper_numbers"].push_back(
          {{"what", p.at("what").text()}, {"value", p.at("value").text()}});
  return json;
}

/// The result of a folder that this build has finished with the same files and options.
std::optional<ordered_json> finished(const std::string& folder, const std::string& fingerprint) {
  const std::string path = folder + "/result.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  ordered_json json = ordered_json::parse(read_file(path, "--out"), nullptr, false);
  if (!json.is_object() || json.value("fingerprint", std::string()) != fingerprint)
    return std::nullopt;
  return json;
}

Answer answer_of(ordered_json json) {
  if (json.value("holds", false)) return {std::move(json), Status::done};
  const std::string reason = json["id"].get<std::string>() + " does not hold: " +
                             json.value("why", std::string("no reason is given"));
  return refuse(std::move(json), reason);
}

/// Writes the folder's files, result.json last, and returns the result.
ordered_json write_folder(const Experiment& e, const ReproduceOptions& options,
                          const std::string& folder, const std::string& fingerprint,
                          const Reproduced& done) {
  auto json = head_of(e);
  json["about"] = e.about;
  json["holds"] = done.holds;
  if (!done.holds) json["why"] = done.reason;
  merge(json, done.result);
  json["compared"] = compared_json(e, done.compared);
  if (!done.note.empty()) json["note"] = done.note;
  if (const auto drawn = Field(*e.document, e.where).get("drawn")) {
    json["drawn"] = ordered_json::array();
    for (const Field& column : drawn->items()) json["drawn"].push_back(column.text());
  }
  json["difference"] = e.difference ? ordered_json(*e.difference) : ordered_json(nullptr);
  json["needs"] = e.needs ? ordered_json(*e.needs) : ordered_json(nullptr);
  json["command"] = command_of(e, options);
  json["fingerprint"] = fingerprint;
  json["folder"] = folder;
  json["files"] = {folder + "/report.md", folder + "/result.json", folder + "/points.csv"};
  const std::string figure = figure_of(e, done);
  if (!figure.empty()) {
    json["files"].push_back(folder + "/figure.svg");
    write_file(folder + "/figure.svg", figure, "--out");
  }
  write_file(folder + "/report.md", report_of(e, done, command_of(e, options), !figure.empty()),
             "--out");
  write_file(folder + "/points.csv", done.csv, "--out");
  write_file(folder + "/result.json", json.dump(2) + "\n", "--out");
  return json;
}

}  // namespace

Answer reproduce_into(const Experiment& e, const Request& request, const ReproduceOptions& options,
                      const std::string& folder, bool keep, const std::string& beside) {
  if (const auto why = missing(e, options))
    return refuse(head_of(e), e.id + " is not available: " + *why);
  const std::string fingerprint = fingerprint_of(e, options);
  auto before = finished(folder, fingerprint);
  if (before && keep) {
    (*before)["already_there"] = true;
    return answer_of(std::move(*before));
  }
  make_folder(folder, "--out");
  Points points;
  points.open(folder + "/journal.jsonl", e.id, fingerprint, before.has_value());
  std::error_code ignored;
  std::filesystem::remove(folder + "/result.json", ignored);
  if (e.method == "panels")
    for (const Field& panel : Field(*e.document, e.where).at("panels").items()) {
      const Experiment& part = find_experiment(panel.text());
      points.adopt(beside + "/" + part.id + "/journal.jsonl", part.id,
                   fingerprint_of(part, options));
    }
  const Reproduced done = method_of(e).run(e, {request, options, points});
  return answer_of(write_folder(e, options, folder, fingerprint, done));
}

namespace {

/// "chimera", "mcfuser/fig7,bounds": papers and experiments, in their own order, each once.
std::vector<const Experiment*> named(const std::string& ids) {
  std::vector<const Experiment*> all;
  const auto add = [&all](const Experiment& e) {
    if (std::find(all.begin(), all.end(), &e) == all.end()) all.push_back(&e);
  };
  for (std::size_t begin = 0; begin <= ids.size();) {
    const std::size_t end = std::min(ids.find(',', begin), ids.size());
    const std::string id = ids.substr(begin, end - begin);
    const std::size_t before = all.size();
    for (const Experiment& e : experiments())
      if (e.id.starts_with(id + "/")) add(e);
    if (all.size() == before) add(find_experiment(id));
    begin = end + 1;
  }
  return all;
}

}  // namespace

Answer reproduce(const Request& request, const ReproduceOptions& options) {
  std::vector<const Experiment*> several;
  if (options.all)
    for (const Experiment& e : experiments()) several.push_back(&e);
  else if (const auto all = named(options.id); all.size() > 1 || all.front()->id != options.id)
    several = all;
  if (options.all && !options.id.empty())
    throw InputError({.where = "--all",
                      .value = options.id,
                      .problem = "is given as well",
                      .accepted = "an experiment, a paper, or --all"});
  if (!several.empty()) {
    if (options.size)
      throw InputError({.where = "--size",
                        .value = *options.size,
                        .problem = "is not for several experiments",
                        .accepted = "validation/polybench alone"});
    return reproduce_all(several, request, options, options.out.value_or("results"));
  }
  const Experiment& e = find_experiment(options.id);
  check_options(e, options);
  const std::string folder = options.out.value_or("results/" + e.id);
  const std::string above = options.out ? *options.out + "/../.." : "results";
  return reproduce_into(e, request, options, folder, false, above);
}

}  // namespace tilewright::harness
