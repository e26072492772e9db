#include "harness/experiment.h"

#include <algorithm>

namespace tilewright::harness {
namespace {

Experiment read(const ExperimentFile& file) {
  Experiment e;
  e.where = "experiments/" + std::string(file.name) + ".yaml";
  e.document = std::make_shared<const DocumentValue>(read_yaml(file.text, e.where));
  const Field top(*e.document, e.where);
  const auto text = [&top](const char* key) { return top.at(key).text(); };
  e.id = text("id");
  e.title = text("title");
  e.source = text("source");
  e.method = text("method");
  e.about = text("about");
  TW_CHECK(e.id == file.name, "an experiment named otherwise than its file");
  return e;
}

}  // namespace

const std::vector<Experiment>& experiments() {
  static const std::vector<Experiment> all = [] {
    std::vector<Experiment> read_all;
    for (const ExperimentFile& f : experiment_files()) read_all.push_back(read(f));
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
  const std::string near = nearest(id, ids);
  throw InputError({.where = "ID",
                    .value = id.empty() ? "nothing" : std::string(id),
                    .problem = "is no experiment",
                    .accepted = join(ids) + (near.empty() ? "" : " (nearest: " + near + ")")});
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
