#include "harness/request.h"

#include <algorithm>
#include <string_view>
#include <thread>

#include "core/workload/catalogue/row_types.h"
#include "core/workload/rewrite/rewrite.h"

namespace tilewright::harness {
namespace {

[[noreturn]] void bad(std::string where, std::string value, std::string problem,
                      std::string accepted) {
  throw InputError({.where = std::move(where),
                    .value = std::move(value),
                    .problem = std::move(problem),
                    .accepted = std::move(accepted)});
}

bool ends_with_yaml(std::string_view name) {
  return name.ends_with(".yaml") || name.ends_with(".yml");
}

/// A plan file has its kernels at the top of the document; a workload file has none. Keys of the
/// top mapping start a line, whatever the rest looks like; what is malformed is left to the
/// parsers.
bool is_plan_text(std::string_view text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.starts_with("kernels") || line.starts_with("plan")) {
      line.remove_prefix(line.starts_with("plan") ? 4 : 7);
      while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
      if (line.starts_with(':')) return true;
    }
    begin = end + 1;
  }
  return false;
}

std::vector<std::string> loop_names(const Workload& w) {
  std::vector<std::string> names;
  for (const Loop& l : w.loops()) names.push_back(l.name);
  return names;
}

std::vector<std::string> tensor_names(const Workload& w) {
  std::vector<std::string> names;
  for (const Tensor& t : w.tensors()) names.push_back(t.name);
  return names;
}

std::string suggest(std::string_view given, const std::vector<std::string>& names) {
  const std::string near = nearest(given, names);
  return near.empty() ? join(names) : join(names) + " (nearest: " + near + ")";
}

/// "NAME=VALUE" in two.
std::pair<std::string, std::string> assignment(const std::string& text, const char* option,
                                               const char* accepted) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    bad(option, text.empty() ? "an empty text" : text, "is not an assignment", accepted);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

void apply_pins(const Request& request, const Workload& w, Kernel& kernel) {
  for (const std::string& text : request.pins) {
    auto [name, value] = assignment(text, "--pin", "TENSOR=LEVEL or TENSOR=LEVEL@LOOP");
    if (!w.find_tensor(name))
      bad("--pin", name, "is not a tensor of the workload", suggest(name, tensor_names(w)));
    Pin pin;
    const std::size_t at = value.find('@');
    pin.level = value.substr(0, at);
    if (at != std::string::npos) {
      pin.at = value.substr(at + 1);
      if (!w.find_loop(pin.at))
        bad("--pin", pin.at, "is not a loop of the workload", suggest(pin.at, loop_names(w)));
    }
    if (!kernel.pins.emplace(name, pin).second)
      bad("--pin", name, "is given twice", "one pin a tensor");
  }
}

void apply_flags(const Request& request, const Workload& w, Kernel& kernel) {
  for (const std::string& text : request.flags) {
    const auto [name, value] = assignment(text, "--flag", "TENSOR=sliding or TENSOR=running");
    if (!w.find_tensor(name))
      bad("--flag", name, "is not a tensor of the workload", suggest(name, tensor_names(w)));
    TensorFlags& flags = kernel.flags[name];
    if (value == "sliding") {
      flags.sliding = true;
    } else if (value == "running") {
      flags.running = true;
    } else {
      bad("--flag", value, "is not a flag", "sliding, running");
    }
  }
}

}  // namespace

namespace {

/// The subject as it is named.
Setting read_subject(const Request& request) {
  if (request.subject.empty())
    bad("W", "no workload", "is given",
        "a built-in name (tilewright workloads), a workload file or a plan file (.yaml)");
  Setting setting;
  setting.workload_name = request.subject;
  if (request.subject_text || ends_with_yaml(request.subject)) {
    const std::string text =
        request.subject_text ? *request.subject_text : read_file(request.subject, "W");
    if (is_plan_text(text)) {
      setting.file = plan_file_from_yaml(text, request.subject);
      setting.workload = std::make_shared<const Workload>(setting.file->workload);
      if (!setting.file->workload_name.empty()) setting.workload_name = setting.file->workload_name;
      return setting;
    }
  }
  setting.workload = std::make_shared<const Workload>(
      request.subject_text ? workload_from_yaml(*request.subject_text, request.subject)
                           : named_workload(request.subject));
  return setting;
}

/// With the plan file's rewrites or the request's.
Setting rewritten(const Request& request, Setting setting) {
  if (!setting.file) {
    rewrite(setting, request.rewrites, "--rewrite");
    return setting;
  }
  if (!request.rewrites.empty())
    bad("--rewrite", request.subject, "is a plan already, of the workload as it says",
        "a workload where it is to be rewritten");
  rewrite(setting, setting.file->rewrites, request.subject + ": rewrites");
  return setting;
}

/// Convention 3: rows of a paper that has f16 on GPUs and NPUs have it there, unless the request
/// says otherwise.
Setting with_row_defaults(const Request& request, Setting setting) {
  const std::string& kind = setting.machine->kind;
  const std::string& name = request.subject;
  if ((kind != "gpu" && kind != "npu") || setting.file || request.subject_text ||
      !half_on_accelerators(name) || name.find("dtype=") != std::string::npos)
    return setting;
  setting.workload_name = name + (name.find(':') == std::string::npos ? ":" : ",") + "dtype=f16";
  setting.workload = std::make_shared<const Workload>(named_workload(setting.workload_name));
  return setting;
}

}  // namespace

Setting workload_of(const Request& request) { return rewritten(request, read_subject(request)); }

void rewrite(Setting& setting, std::span<const std::string> names, std::string_view where) {
  for (const std::string& name : names) {
    const Result<Workload> changed = [&] {
      try {
        return tilewright::apply(name, *setting.workload);
      } catch (const InputError& e) {
        throw e.located(where);
      }
    }();
    if (!changed)
      bad(std::string(where), name, "does not apply: " + changed.reason(),
          "a rewrite that changes " + setting.workload_name);
    if (!setting.original) setting.original = setting.workload;
    setting.workload = std::make_shared<const Workload>(*changed);
    setting.rewrites.push_back(name);
  }
}

void name_workload(nlohmann::ordered_json& json, const Setting& setting) {
  json["workload"] = setting.workload_name;
  if (!setting.rewrites.empty()) json["rewrites"] = setting.rewrites;
}

Setting setting_of(const Request& request) {
  Setting setting = read_subject(request);
  if (request.machine_text) {
    setting.machine = std::make_shared<const Machine>(
        machine_from_yaml(*request.machine_text, request.machine.value_or("machine")));
    return rewritten(request, with_row_defaults(request, std::move(setting)));
  }
  std::optional<std::string> machine = request.machine;
  if (!machine && setting.file) machine = setting.file->machine;
  if (!machine)
    bad("-m", "no machine", "is given",
        "a name (tilewright machines), host for this machine, a .yaml file, scratchpad:32K, "
        "cache:48K/12,1M/16");
  setting.machine = std::make_shared<const Machine>(named_machine(*machine));
  return rewritten(request, with_row_defaults(request, std::move(setting)));
}

std::shared_ptr<const Machine> machine_of(const Request& request) {
  if (request.machine_text)
    return std::make_shared<const Machine>(
        machine_from_yaml(*request.machine_text, request.machine.value_or("machine")));
  if (!request.machine)
    bad("-m", "no machine", "is given",
        "a name (tilewright machines), host for this machine, a .yaml file, cache:48K/12,1M/16");
  return std::make_shared<const Machine>(named_machine(*request.machine));
}

LevelId level_of(const Request& request, const Machine& machine) {
  if (!request.level) return machine.default_level();
  const auto id = machine.find(*request.level);
  std::vector<std::string> names;
  for (const Level& l : machine.levels)
    if (l.kind != LevelKind::home) names.push_back(l.name);
  if (!id || *id == machine.home())
    bad("--level", *request.level, "is not an on-chip level of " + machine.name,
        suggest(*request.level, names));
  return *id;
}

Bytes capacity_of(const Request& request, const Setting& setting, LevelId level) {
  if (!request.capacity) return setting.machine->level(level).capacity;
  const std::string& text = *request.capacity;
  constexpr const char* kAccepted =
      "a size in bytes (4096B, 32K, 1M) or in elements (262144e), above zero";
  if (text.ends_with('e')) {
    const auto count = parse_bytes(text.substr(0, text.size() - 1) + "B");
    const auto bytes =
        count ? checked_mul(count->value, size_of(setting.workload->dtype())) : std::nullopt;
    const bool digits = text.size() > 1 && std::all_of(text.begin(), text.end() - 1,
                                                       [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || !bytes || *bytes <= 0) bad("--capacity", text, "is not a capacity", kAccepted);
    return Bytes(*bytes);
  }
  const auto bytes = parse_bytes(text);
  if (!bytes || bytes->value <= 0)
    bad("--capacity", text.empty() ? "an empty text" : text, "is not a capacity", kAccepted);
  return *bytes;
}

std::map<std::string, std::int64_t> tiles_of(const Request& request, const Workload& workload) {
  if (!request.tiles) return {};
  auto tiles = parse_tiles(*request.tiles);
  for (const auto& [name, size] : tiles) {
    const auto loop = workload.find_loop(name);
    if (!loop)
      bad("--tiles", name, "is not a loop of the workload", suggest(name, loop_names(workload)));
    const std::int64_t extent = workload.loop(*loop).extent;
    if (size > extent)
      bad("--tiles: " + name, std::to_string(size), "is larger than the loop",
          "1 to " + std::to_string(extent));
  }
  return tiles;
}

std::optional<Plan> plan_in_place(const Request& request, const Setting& setting) {
  if (setting.file) {
    if (request.tree || request.tiles || !request.pins.empty() || !request.flags.empty())
      bad("--tree, --tiles, --pin, --flag", request.subject, "is a plan already",
          "a workload where a plan is given in place");
    return setting.file->plan;
  }
  if (!request.tree) return std::nullopt;
  Kernel kernel;
  kernel.tree = parse_tree(*request.tree, "--tree");
  kernel.tiles = tiles_of(request, *setting.workload);
  if (request.level)
    kernel.level = setting.machine->level(level_of(request, *setting.machine)).name;
  apply_pins(request, *setting.workload, kernel);
  apply_flags(request, *setting.workload, kernel);
  return Plan{.kernels = {std::move(kernel)}};
}

Settings settings_among(const Request& request, std::span<const OptionSpec> specs,
                        std::string_view owner) {
  return {specs, options_among(request.options, specs), std::string(owner)};
}

Layout layout_of(const Request& request) {
  if (!request.layout || *request.layout == "tiled") return Layout::tiled;
  if (*request.layout == "row-major") return Layout::row_major;
  bad("--layout", *request.layout, "is not a layout", "tiled, row-major");
}

std::string_view name_of(Layout layout) { return layout == Layout::tiled ? "tiled" : "row-major"; }

int threads_of(const Request& request) {
  if (request.threads) {
    if (*request.threads < 1 || *request.threads > 1024)
      bad("--threads", std::to_string(*request.threads), "is not a number of threads", "1 to 1024");
    return *request.threads;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace tilewright::harness
