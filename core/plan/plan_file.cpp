// Plan files: YAML and JSON of what `plan -o` writes and every verb that takes a PLAN reads.
#include <nlohmann/json.hpp>

#include "core/base/document.h"
#include "core/base/error.h"
#include "core/plan/file.h"

namespace tilewright {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxKernels = 4096;
constexpr std::size_t kMaxRewrites = 16;
constexpr std::size_t kMostOfArgument = 1 << 18;  // characters of a rewrite with its argument
constexpr std::size_t kMostLetters = 64;
// As the targets' options; 16 blocks are the largest cluster (CUDA C++ Programming Guide, technical
// specifications).
constexpr int kMostWarps = 16, kMostStages = 8, kMostCluster = 16;

Pin read_pin(const Field& f) {
  if (!f.is_map()) return {.level = f.identifier("a level")};
  f.only({"level", "at"});
  Pin pin;
  if (const auto level = f.get("level")) pin.level = level->identifier("a level");
  if (const auto at = f.get("at")) pin.at = at->identifier("a loop");
  return pin;
}

TensorFlags read_flags(const Field& f) {
  TensorFlags flags;
  for (const Field& item : f.items()) {
    const std::string name = item.text();
    bool* flag = name == "sliding" ? &flags.sliding : name == "running" ? &flags.running : nullptr;
    if (flag == nullptr) item.fail("is not a flag of a tensor", "sliding, running");
    if (*flag) item.fail("is given twice", "each flag once");
    *flag = true;
  }
  return flags;
}

/// Entries whose keys are names.
std::vector<std::pair<std::string, Field>> named_entries(const Field& f, const char* what) {
  auto entries = f.entries();
  for (const auto& [name, value] : entries) {
    if (!is_identifier(name)) {
      value.fail(std::string("stands under a key that is not a name of ") + what,
                 "letters, digits and _, no digit first, at most 64");
    }
  }
  return entries;
}

Launch read_launch(const Field& f) {
  f.only({"warps", "stages", "cluster", "ahead"});
  Launch launch;
  const auto number = [&f](const char* key, int most) -> std::optional<int> {
    const auto field = f.get(key);
    if (!field) return std::nullopt;
    return static_cast<int>(field->integer(1, most));
  };
  launch.warps = number("warps", kMostWarps);
  launch.stages = number("stages", kMostStages);
  launch.cluster = number("cluster", kMostCluster);
  launch.ahead = number("ahead", 1);
  return launch;
}

bool is_lower(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_letter(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z') || c == '_'; }

/// The name of a rewrite or of a model: `letter`s and hyphens.
std::string read_hyphenated(const Field& f, bool (*letter)(char), const char* problem,
                            const char* accepted) {
  std::string name = f.text();
  const bool plain = std::ranges::all_of(name, [&](char c) { return c == '-' || letter(c); });
  if (name.empty() || name.size() > kMostLetters || !plain) f.fail(problem, accepted);
  return name;
}

Kernel read_kernel(const Field& f) {
  f.only({"name", "by", "operators", "level", "tree", "tiles", "pins", "flags", "launch"});
  Kernel kernel;
  if (const auto by = f.get("by"))
    kernel.by = read_hyphenated(*by, is_letter, "is not a name of a model",
                                "letters, digits, _ and -, at most 64");
  if (const auto launch = f.get("launch")) kernel.launch = read_launch(*launch);
  if (const auto name = f.get("name")) kernel.name = name->identifier("a kernel");
  if (const auto operators = f.get("operators")) {
    for (const Field& item : operators->items()) {
      kernel.operators.push_back(item.identifier("an operator"));
    }
  }
  if (const auto level = f.get("level")) kernel.level = level->identifier("a level");
  const Field tree = f.at("tree");
  kernel.tree = parse_tree(tree.text(), tree.where() + ": " + tree.path());
  if (const auto tiles = f.get("tiles")) {
    for (const auto& [name, value] : named_entries(*tiles, "a loop")) {
      kernel.tiles.emplace(name, value.integer(1, INT64_MAX));
    }
  }
  if (const auto pins = f.get("pins")) {
    for (const auto& [name, value] : named_entries(*pins, "a tensor")) {
      kernel.pins.emplace(name, read_pin(value));
    }
  }
  if (const auto flags = f.get("flags")) {
    for (const auto& [name, value] : named_entries(*flags, "a tensor")) {
      kernel.flags.emplace(name, read_flags(value));
    }
  }
  return kernel;
}

/// A rewrite's name, letters, digits and hyphens, and behind a colon its argument: operators' names and
/// what stands between them.
std::string read_rewrite(const Field& f) {
  const std::string text = f.text();
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto spelled = [](std::string_view part, auto letter) {
    return std::ranges::all_of(part, letter);
  };
  const bool plain =
      colon > 0 && colon <= kMostLetters && text.size() <= kMostOfArgument &&
      spelled(std::string_view(text).substr(0, colon),
              [](char c) { return c == '-' || is_lower(c); }) &&
      spelled(std::string_view(text).substr(colon), [](char c) {
        return is_letter(c) || std::string_view(":=+/;").find(c) != std::string_view::npos;
      });
  if (!plain) f.fail("is not a rewrite", "online-softmax, compose, inline:OP, ...");
  return text;
}

std::vector<std::string> read_rewrites(const Field& f) {
  std::vector<std::string> names;
  for (const Field& item : f.items()) {
    std::string name = read_rewrite(item);
    if (names.size() == kMaxRewrites)
      f.fail("has too many rewrites", "at most " + std::to_string(kMaxRewrites));
    names.push_back(std::move(name));
  }
  return names;
}

/// The plan of a mapping with the key `kernels`.
Plan read_plan(const Field& f) {
  f.only({"schema", "workload", "workload_name", "rewrites", "machine", "model", "kernels"});
  if (const auto schema = f.get("schema")) schema->integer(1, 1);
  const Field kernels = f.at("kernels");
  Plan plan;
  for (const Field& item : kernels.items()) {
    if (plan.kernels.size() == kMaxKernels) {
      kernels.fail("has too many kernels", "at most " + std::to_string(kMaxKernels));
    }
    plan.kernels.push_back(read_kernel(item));
  }
  if (plan.kernels.empty()) kernels.fail("has no kernel", "at least one");
  return plan;
}

/// A document as JSON: plain scalars that are integers become numbers.
nlohmann::json json_of(const DocumentValue& v) {
  switch (v.kind) {
    case DocumentValue::Kind::null:
      return nullptr;
    case DocumentValue::Kind::string:
      return v.text;
    case DocumentValue::Kind::boolean:
      return v.text == "true";
    case DocumentValue::Kind::plain:
    case DocumentValue::Kind::number: {
      const auto number = nlohmann::json::parse(v.text, nullptr, false);
      return number.is_number() ? number : nlohmann::json(v.text);
    }
    case DocumentValue::Kind::list: {
      auto r = nlohmann::json::array();
      for (const DocumentValue& item : v.items) r.push_back(json_of(item));
      return r;
    }
    case DocumentValue::Kind::map: {
      auto r = nlohmann::json::object();
      for (const auto& [key, item] : v.entries) r[key] = json_of(item);
      return r;
    }
  }
  return nullptr;
}

/// A workload in the file itself. Its loops and tensors keep the order of the file, which JSON's objects
/// do not: they become arrays of records.
nlohmann::json workload_json_of(const DocumentValue& v) {
  nlohmann::json r = json_of(v);
  for (const auto& [key, item] : v.entries) {
    if ((key != "loops" && key != "tensors") || item.kind != DocumentValue::Kind::map) continue;
    auto records = nlohmann::json::array();
    for (const auto& [name, value] : item.entries)
      records.push_back({{"name", name}, {key == "loops" ? "extent" : "shape", json_of(value)}});
    r[key] = std::move(records);
  }
  return r;
}

bool is_path(std::string_view name) {
  return name.find('/') == 0 || name.ends_with(".yaml") || name.ends_with(".yml") ||
         name.ends_with(".onnx");
}

/// True where the name alone makes the workload again, whatever the working directory.
bool name_says_all(const PlanFile& f) {
  if (f.workload_name.empty() || is_path(f.workload_name)) return false;
  try {
    return named_workload(f.workload_name) == f.workload;
  } catch (const InputError&) {
    return false;
  }
}

Json pin_json(const Pin& pin) {
  if (pin.at.empty() && !pin.level.empty()) return pin.level;
  Json r = Json::object();
  if (!pin.level.empty()) r["level"] = pin.level;
  if (!pin.at.empty()) r["at"] = pin.at;
  return r;
}

Json kernel_json(const Kernel& k) {
  Json r = Json::object();
  if (!k.name.empty()) r["name"] = k.name;
  if (!k.by.empty()) r["by"] = k.by;
  if (!k.operators.empty()) r["operators"] = k.operators;
  if (!k.level.empty()) r["level"] = k.level;
  r["tree"] = to_text(k.tree);
  if (!k.tiles.empty()) r["tiles"] = k.tiles;
  for (const auto& [tensor, pin] : k.pins) r["pins"][tensor] = pin_json(pin);
  for (const auto& [tensor, flags] : k.flags) {
    Json names = Json::array();
    if (flags.sliding) names.push_back("sliding");
    if (flags.running) names.push_back("running");
    r["flags"][tensor] = std::move(names);
  }
  if (k.launch.warps) r["launch"]["warps"] = *k.launch.warps;
  if (k.launch.stages) r["launch"]["stages"] = *k.launch.stages;
  if (k.launch.cluster) r["launch"]["cluster"] = *k.launch.cluster;
  if (k.launch.ahead) r["launch"]["ahead"] = *k.launch.ahead;
  return r;
}

/// One line of YAML for scalars and what they are nested in.
std::string flow(const Json& j) {
  if (j.is_string()) return yaml_scalar(j.get<std::string>());
  if (!j.is_structured()) return j.dump();
  std::string r;
  for (const auto& [key, value] : j.items()) {
    if (!r.empty()) r += ", ";
    if (j.is_object()) r += yaml_scalar(key) + ": ";
    r += flow(value);
  }
  return j.is_object() ? "{" + r + "}" : "[" + r + "]";
}

std::string indented(const std::string& text, std::string_view by) {
  std::string r;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) r.append(by).append(text, begin, end - begin);
    r += '\n';
    begin = end + 1;
  }
  return r;
}

}  // namespace

PlanFile plan_file_from_yaml(std::string_view text, std::string_view where) {
  const DocumentValue document = read_yaml(text, where);
  const Field f(document, std::string(where));
  Plan plan = read_plan(f);
  const Field workload = f.at("workload");
  const auto optional_text = [&](const char* key) -> std::optional<std::string> {
    const auto field = f.get(key);
    return field ? std::optional(field->text()) : std::nullopt;
  };
  auto name = optional_text("workload_name");
  auto machine = optional_text("machine");
  auto model = optional_text("model");
  const auto make = [&] {
    if (workload.is_map()) return workload_from_json(workload_json_of(workload.value()), workload.where());
    const std::string spec = workload.text();
    if (!name) name = spec;
    try {
      return named_workload(spec);
    } catch (const InputError& e) {
      throw e.located(workload.where() + ": workload");
    }
  };
  Workload made = make();
  std::vector<std::string> rewrites;
  if (const auto field = f.get("rewrites")) rewrites = read_rewrites(*field);
  return {.workload = std::move(made),
          .workload_name = name.value_or(""),
          .machine = std::move(machine),
          .model = std::move(model),
          .plan = std::move(plan),
          .rewrites = std::move(rewrites)};
}

Json to_json(const Plan& p) {
  Json kernels = Json::array();
  for (const Kernel& k : p.kernels) kernels.push_back(kernel_json(k));
  return Json{{"kernels", std::move(kernels)}};
}

Json to_json(const PlanFile& f) {
  Json r = Json{{"schema", 1}};
  if (name_says_all(f)) {
    r["workload"] = f.workload_name;
  } else {
    r["workload"] = to_json(f.workload);
    if (!f.workload_name.empty()) r["workload_name"] = f.workload_name;
  }
  if (!f.rewrites.empty()) r["rewrites"] = f.rewrites;
  if (f.machine) r["machine"] = *f.machine;
  if (f.model) r["model"] = *f.model;
  r["kernels"] = to_json(f.plan)["kernels"];
  return r;
}

Plan plan_from_json(const nlohmann::json& j, std::string_view where) {
  const DocumentValue document = read_json(j, where);
  const Field f(document, std::string(where));
  if (const auto rewrites = f.get("rewrites"))
    rewrites->fail("is of a plan file", "kernels of the workload as it is given");
  return read_plan(f);
}

std::string to_yaml(const PlanFile& f) {
  std::string out = "schema: 1\n";
  if (name_says_all(f)) {
    out += "workload: " + yaml_scalar(f.workload_name) + "\n";
  } else {
    out += "workload:\n" + indented(to_yaml(f.workload), "  ");
    if (!f.workload_name.empty()) out += "workload_name: " + yaml_scalar(f.workload_name) + "\n";
  }
  if (!f.rewrites.empty()) out += "rewrites: " + flow(Json(f.rewrites)) + "\n";
  if (f.machine) out += "machine: " + yaml_scalar(*f.machine) + "\n";
  if (f.model) out += "model: " + yaml_scalar(*f.model) + "\n";
  out += "kernels:\n";
  const Json kernels = to_json(f.plan)["kernels"];
  for (const Json& kernel : kernels) {
    const char* lead = "  - ";
    for (const auto& [key, value] : kernel.items()) {
      out += lead + key + ": " + flow(value) + "\n";
      lead = "    ";
    }
  }
  return out;
}

}  // namespace tilewright
