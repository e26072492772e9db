#include "experiments/report/verbs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/report/reproduce.h"

namespace tilewright::harness {
namespace {

Verb experiments_verb() {
  return {.name = "experiments",
          .summary = "the papers' tables and figures that reproduce knows",
          .run = [](const Request&, const Settings&) { return list_experiments(); }};
}

const std::vector<Bound<ReproduceOptions>>& reproduce_options() {
  static const std::vector<Bound<ReproduceOptions>> all = {
      {{.name = "all",
        .kind = OptionKind::flag,
        .help = "every experiment; those that are finished stay as they are"},
       into<&ReproduceOptions::all>},
      {{.name = "out",
        .kind = OptionKind::path,
        .writes = Writes::folder,
        .fallback = "results/ID; of several: results",
        .value = "DIR",
        .help = "the folder to write",
        .letter = "o"},
       into<&ReproduceOptions::out>},
      {{.name = "samples",
        .kind = OptionKind::integer,
        .high = 1'000'000,
        .fallback = "the experiment's own",
        .help = "tilings an order"},
       into<&ReproduceOptions::samples>},
      {{.name = "size",
        .value = "NAME",
        .help = "of the kernels: small, medium (default) or large"},
       into<&ReproduceOptions::size>},
      {{.name = "data",
        .kind = OptionKind::path,
        .value = "DIR",
        .help = "where counted misses or recordings lie"},
       into<&ReproduceOptions::data>},
  };
  return all;
}

Verb reproduce_verb() {
  std::vector<OptionSpec> options = specs_of(reproduce_options());
  for (const OptionSpec& o : shared_options({"threads"})) options.push_back(o);
  return {.name = "reproduce",
          .summary = "a paper's table or figure: our numbers beside the paper's",
          .subject = "ID",
          .details =
              "Writes report.md, result.json, points.csv and figure.svg into the folder (default "
              "results/ID).\n"
              "Long experiments keep each finished point in journal.jsonl. The next run of an "
              "interrupted one\n"
              "goes on from there. ID may also be a paper (chimera) or a list with commas; --all "
              "takes every\n"
              "experiment. Each is then written into results/ID, and results/index.md lists them. "
              "Finished ones\n"
              "are not repeated. For those that cannot be run here the index gives the reason.\n"
              "--size and --data are for validation/polybench, which reads others' counts from a "
              "folder\n"
              "(../shared/data/polybench-papi); --data also for what was recorded on a GPU\n"
              "(experiments/results). Where there is none the exit status is 3.",
          .returns =
              "Returns {'id', 'title', 'holds', 'compared', 'files', ...}; of several, a row each.",
          .options = std::move(options),
          .run = [](const Request& r, const Settings& s) {
            ReproduceOptions o = read(reproduce_options(), s);
            o.id = r.subject;
            return reproduce(r, o);
          }};
}

std::vector<Verb> make_verbs() {
  std::vector<Verb> all = harness_verbs();
  const auto after_lists =
      std::ranges::find_if(all, [](const Verb& v) { return v.subject == "[W]"; });
  all.insert(after_lists, experiments_verb());
  all.push_back(reproduce_verb());
  return all;
}

}  // namespace

std::span<const Verb> verbs() {
  static const std::vector<Verb> all = make_verbs();
  return all;
}

const Verb* find_verb(std::string_view name) {
  const auto at = std::ranges::find(verbs(), name, &Verb::name);
  return at == verbs().end() ? nullptr : &*at;
}

nlohmann::ordered_json verbs_json() {
  auto json = document();
  json["verbs"] = nlohmann::ordered_json::array();
  for (const Verb& v : verbs()) json["verbs"].push_back(to_json(v));
  return json;
}

}  // namespace tilewright::harness
