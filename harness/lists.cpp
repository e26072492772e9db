// The verbs that say what is there, each from its records.
#include "codegen/micro_kernels.h"
#include "core/base/document.h"
#include "core/base/format.h"
#include "core/workload/text.h"
#include "harness/files.h"
#include "harness/machine_json.h"
#include "harness/meters.h"
#include "harness/registry.h"
#include "harness/verbs.h"
#include "profilers/meter.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

ordered_json here_json(std::string_view name, std::string_view summary, const Availability& here) {
  return {{"name", name},
          {"summary", summary},
          {"usable", here.usable},
          {"reason", here.usable ? ordered_json(nullptr) : ordered_json(here.reason)},
          {"help", here.help.empty() ? ordered_json(nullptr) : ordered_json(here.help)},
          {"detail", here.detail.empty() ? ordered_json(nullptr) : ordered_json(here.detail)}};
}

}  // namespace

Answer list_models() {
  auto json = document();
  json["models"] = ordered_json::array();
  for (const Model& m : models()) {
    ordered_json options = ordered_json::array();
    for (const OptionSpec& o : m.options) options.push_back(tilewright::to_json(o));
    json["models"].push_back({{"name", m.name},
                              {"summary", m.summary},
                              {"source", m.source},
                              {"assumptions", m.assumptions},
                              {"options", options},
                              {"makes_plans", m.propose != nullptr}});
  }
  return {std::move(json), Status::done};
}

Answer list_machines() {
  auto json = document();
  json["machines"] = ordered_json::array();
  for (const std::string& name : machine_names()) {
    const Machine m = named_machine(name);
    json["machines"].push_back(machine_json(m));
    json["machines"].back()["name"] = name;
  }
  json["made"] = {{{"name", "scratchpad:SIZE[,SIZE...]"},
                   {"summary", "software-managed levels L1, L2, ... over DRAM"}},
                  {{"name", "cache:SIZE/WAYS[,SIZE/WAYS...]"},
                   {"summary", "LRU write-back caches of 64-byte lines, L1, L2, ... over DRAM"}},
                  {{"name", "FILE.yaml"}, {"summary", "a machine file"}}};
  return {std::move(json), Status::done};
}

Answer list_workloads() {
  auto json = document();
  json["workloads"] = ordered_json::array();
  for (const BuiltinWorkload& w : builtin_workloads())
    json["workloads"].push_back(
        {{"name", w.name}, {"summary", w.summary}, {"source", w.source}, {"defaults", w.defaults}});
  return {std::move(json), Status::done};
}

namespace {

/// What a document says. A scalar without quotes is a number where JSON reads one in it.
ordered_json content(const DocumentValue& value) {
  using Kind = DocumentValue::Kind;
  ordered_json json;
  if (value.kind == Kind::list) {
    json = ordered_json::array();
    for (const DocumentValue& item : value.items) json.push_back(content(item));
  } else if (value.kind == Kind::map) {
    json = ordered_json::object();
    for (const auto& [key, entry] : value.entries) json[key] = content(entry);
  } else if (value.kind == Kind::plain) {
    json = ordered_json::parse(value.text, nullptr, false);
    if (!json.is_number()) json = value.text;
  } else if (value.kind == Kind::string) {
    json = value.text;
  }
  return json;
}

/// Ends an answer with a file: its text, what it says, and where it was written.
Answer as_file(ordered_json json, const std::string& file, const std::optional<std::string>& out) {
  json["file"] = file;
  json["content"] = content(read_yaml(file, out.value_or("file")));
  if (out) json["out"] = *out;
  return {std::move(json), Status::done};
}

}  // namespace

Answer show_machine(const Request& request, const std::optional<std::string>& out) {
  auto json = document();
  json["machine"] = request.subject;
  const std::string text = to_yaml(named_machine(request.subject));
  Answer answer = as_file(std::move(json), text, out);
  if (out) write_file(*out, text, "-o");
  return answer;
}

Answer show_workload(const Request& request, const std::optional<std::string>& out) {
  const Setting setting = workload_of(request);
  auto json = document();
  name_workload(json, setting);
  const auto text = [](const Workload& w) { return to_yaml(w); };
  return as_file(
      std::move(json),
      out ? write_with_values(*out, *setting.workload, text) : to_yaml(*setting.workload), out);
}

namespace {

/// Those of a target, in the registry's order: what each takes and needs, and whether this machine
/// runs it.
ordered_json micro_kernels_json(const codegen::Target& target, bool usable) {
  ordered_json all = ordered_json::array();
  for (const codegen::MicroKernelRecord& r : codegen::micro_kernel_records()) {
    if (r.target != target.micro_kernels) continue;
    std::vector<std::string> types;
    for (DType t : r.types) types.emplace_back(name_of(t));
    all.push_back({{"name", r.name},
                   {"variant", r.variant.empty() ? ordered_json(nullptr) : ordered_json(r.variant)},
                   {"types", types},
                   {"block", r.block},
                   {"operands", r.operands},
                   {"needs", r.needs.empty() ? ordered_json(nullptr) : ordered_json(r.needs)},
                   {"usable", usable && r.runs_here},
                   {"summary", r.summary}});
  }
  return all;
}

}  // namespace

Answer list_targets() {
  auto json = document();
  json["targets"] = ordered_json::array();
  for (const codegen::Target* t : codegen::targets()) {
    const Availability here = t->here();
    json["targets"].push_back(here_json(t->name, t->summary, here));
    json["targets"].back()["micro_kernels"] = micro_kernels_json(*t, here.usable);
    ordered_json& options = json["targets"].back()["options"] = ordered_json::array();
    for (const OptionSpec& o : t->options()) options.push_back(tilewright::to_json(o));
  }
  return {std::move(json), Status::done};
}

Answer list_meters() {
  auto json = document();
  json["meters"] = ordered_json::array();
  for (const profilers::MeterRecord& m : profilers::meters()) {
    json["meters"].push_back(here_json(m.name, m.summary, m.here()));
    json["meters"].back()["target"] = target_of(m).name;
  }
  return {std::move(json), Status::done};
}

Answer doctor() {
  auto json = document();
  const Machine host = named_machine("host");
  json["host"] = machine_json(host);
  json["parts"] = ordered_json::array();
  const auto add = [&](const char* kind, ordered_json part) {
    part["kind"] = kind;
    json["parts"].push_back(std::move(part));
  };
  for (const codegen::Target* t : codegen::targets())
    add("target", here_json(t->name, t->summary, t->here()));
  for (const profilers::MeterRecord& m : profilers::meters())
    add("meter", here_json(m.name, m.summary, m.here()));
  json["needs_nothing"] = {"plan", "explain", "compare", "predict", "simulate", "validate"};
  json["next"] = ordered_json::array({"tilewright compare attention -m h200"});
  // The target that verbs take where none is named.
  const ordered_json standard = json["parts"].front();
  if (!standard["usable"].get<bool>())
    return refuse(std::move(json),
                  formatted("{} cannot run kernels here: {}", standard["name"].get<std::string>(),
                            standard["reason"].get<std::string>()));
  json["next"].push_back("tilewright run gemm-chain -m host");
  json["next"].push_back("tilewright calibrate -m host -o here.yaml");
  return {std::move(json), Status::done};
}

}  // namespace tilewright::harness
