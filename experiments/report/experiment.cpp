#include "experiments/report/experiment.h"

#include <algorithm>

#include "core/base/names.h"

namespace tilewright::harness {
namespace {

constexpr const char* kKeys[] = {"id",    "title", "source",     "method",
                                 "about", "drawn", "difference", "needs"};

}  // namespace

Experiment read_experiment(std::string_view text, const std::string& where) {
  Experiment e;
  e.where = where;
  e.text = text;
  e.document = std::make_shared<const DocumentValue>(read_yaml(text, e.where));
  const Field top(*e.document, e.where);
  const auto said = [&top](const char* key) { return top.at(key).text(); };
  e.id = said("id");
  e.title = said("title");
  e.source = said("source");
  e.method = said("method");
  e.about = said("about");
  if (const auto why = top.get("difference")) e.difference = why->text();
  if (const auto what = top.get("needs")) e.needs = what->text();
  if (method_of(e).how == Reproduction::needs) top.at("needs");
  return e;
}

const std::vector<Experiment>& experiments() {
  static const std::vector<Experiment> all = [] {
    std::vector<Experiment> read_all;
    for (const ExperimentFile& f : experiment_files()) {
      read_all.push_back(read_experiment(f.text, "experiments/" + std::string(f.name) + ".yaml"));
      TW_CHECK(read_all.back().id == f.name, "an experiment named otherwise than its file");
    }
    return read_all;
  }();
  return all;
}

const Experiment& find_experiment(std::string_view id) {
  std::vector<std::string> ids;
  for (const Experiment& e : experiments()) {
    if (e.id == id) return e;
    ids.push_back(e.id);
  }
  throw InputError({.where = "ID",
                    .value = std::string(id),
                    .problem = id.empty() ? "no experiment is given" : "is not an experiment",
                    .accepted = names_like(id, ids, "tilewright experiments")});
}

Field document_of(const Experiment& e, std::initializer_list<const char*> keys) {
  const Field top(*e.document, e.where);
  for (const auto& [key, value] : top.entries()) {
    const auto is = [&key = key](const char* known) { return key == known; };
    if (std::any_of(std::begin(kKeys), std::end(kKeys), is) ||
        std::any_of(keys.begin(), keys.end(), is))
      continue;
    value.fail("is not a key of the method " + e.method,
               join(std::vector<std::string>(keys.begin(), keys.end())));
  }
  return top;
}

void fail(Reproduced& done, const std::string& reason) {
  done.holds = false;
  done.reason += (done.reason.empty() ? "" : "; ") + reason;
}

Request request_for(const std::string& workload, const std::string& machine) {
  Request r;
  r.subject = workload;
  r.machine = machine;
  return r;
}

}  // namespace tilewright::harness
