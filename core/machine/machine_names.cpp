// Machines by name: carried files, the host, synthetic ones and the user's own files.
#include <map>
#include <mutex>

#include "core/base/document.h"
#include "core/base/error.h"
#include "core/base/names.h"
#include "core/machine/files/machine_files.h"
#include "core/machine/host_facts.h"
#include "core/machine/machine.h"

namespace tilewright {

std::vector<std::string> machine_names() {
  std::vector<std::string> names = {"host"};
  for (const MachineFile& file : machine_files()) names.emplace_back(file.name);
  return names;
}

namespace {

/// A machine that the program carries: its text is read once.
Machine carried(const MachineFile& file) {
  static std::mutex mutex;
  static std::map<std::string_view, Machine> known;
  const std::lock_guard lock(mutex);
  const auto at = known.find(file.name);
  if (at != known.end()) return at->second;
  return known
      .emplace(file.name, machine_from_yaml(
                              file.text, "core/machine/files/" + std::string(file.name) + ".yaml"))
      .first->second;
}

}  // namespace

Machine named_machine(std::string_view name) {
  if (name == "host") return detect_host();
  for (const MachineFile& file : machine_files())
    if (file.name == name) return carried(file);
  if (name.ends_with(".yaml") || name.ends_with(".yml")) {
    {
      const std::string path(name);
      return machine_from_yaml(read_text(path, "a machine file that exists"), path);
    }
  }
  if (name.starts_with("scratchpad:") || name.starts_with("cache:")) {
    return parse_synthetic_machine(name);
  }
  const std::vector<std::string> names = machine_names();
  const std::string near = nearest(name, names);
  throw InputError({.where = "",
                    .field = "machine",
                    .value = std::string(name),
                    .problem = near.empty() ? "is not a known machine"
                                            : "is not a known machine; did you mean " + near + "?",
                    .accepted = names_like(name, names, "tilewright machines") +
                                ", scratchpad:SIZE, cache:SIZE/WAYS, FILE.yaml"});
}

}  // namespace tilewright
