#include "python/asked.h"

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/plan/file.h"

namespace tilewright::python {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSubject = "subject";
constexpr const char* kMachine = "machine";

/// As a workload file has it, in which the order of loops and tensors is kept; or as our JSON.
Workload workload_of(const Json& v, const std::string& where) {
  const bool as_file = !v.contains("loops") || v["loops"].is_object();
  return as_file ? workload_from_yaml(v.dump(), where) : workload_from_json(v, where);
}

/// A workload or plan: a name or path, or the document itself.
void read_subject(const Json& v, harness::Asked& asked) {
  if (v.is_string()) {
    asked.subject = v.get<std::string>();
  } else if (!v.is_object()) {
    throw InputError({.field = kSubject,
                      .value = v.dump(-1, ' ', false, Json::error_handler_t::replace),
                      .problem = "is not accepted",
                      .accepted = "a name, a path, or a document as a dict"});
  } else if (v.contains("kernels")) {
    asked.subject = "plan";
    asked.subject_text = to_yaml(plan_file_from_yaml(v.dump(), asked.subject));
  } else {
    asked.subject = "workload";
    asked.subject_text = to_yaml(workload_of(v, asked.subject));
  }
}

}  // namespace

harness::Asked asked_of(const harness::Verb& verb, const Json& options) {
  harness::Asked asked;
  Json rest = options;
  if (const auto subject = options.find(kSubject); subject != options.end()) {
    if (!subject->is_null()) read_subject(*subject, asked);
    rest.erase(kSubject);
  }
  if (const auto machine = options.find(kMachine);
      machine != options.end() && machine->is_object()) {
    asked.machine_text = machine->dump();
    rest.erase(kMachine);
  }
  asked.options = harness::option_values(harness::options_of(verb), rest, "");
  return asked;
}

}  // namespace tilewright::python
