// Machines by name: carried files, the host, synthetic ones and the user's own files.
#include <fstream>
#include <iterator>

#include "core/base/error.h"
#include "core/machine/files/machine_files.h"
#include "core/machine/host_facts.h"
#include "core/machine/machine.h"

namespace tilewright {
namespace {

constexpr std::streamsize kMaxFile = 1 << 20;

Machine machine_from_file(const std::string& path) {
  const auto fail = [&](const char* problem) {
    throw InputError({.where = path,
                      .field = "machine",
                      .value = "",
                      .problem = problem,
                      .accepted = "a machine file"});
  };
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("the file cannot be opened");
  std::string text(static_cast<std::size_t>(kMaxFile) + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) fail("the file cannot be read");
  if (in.gcount() > kMaxFile) fail("the file is longer than 1 MiB");
  text.resize(static_cast<std::size_t>(in.gcount()));
  return machine_from_yaml(text, path);
}

}  // namespace

std::vector<std::string> machine_names() {
  std::vector<std::string> names = {"host"};
  for (const MachineFile& file : machine_files()) names.emplace_back(file.name);
  return names;
}

Machine named_machine(std::string_view name) {
  if (name == "host") return detect_host();
  for (const MachineFile& file : machine_files()) {
    if (file.name == name) {
      return machine_from_yaml(file.text, "core/machine/files/" + std::string(name) + ".yaml");
    }
  }
  if (name.ends_with(".yaml") || name.ends_with(".yml")) {
    return machine_from_file(std::string(name));
  }
  if (name.starts_with("scratchpad:") || name.starts_with("cache:")) {
    return parse_synthetic_machine(name);
  }
  const std::vector<std::string> names = machine_names();
  const std::string near = nearest(name, names);
  throw InputError({.where = "",
                    .field = "machine",
                    .value = std::string(name),
                    .problem = near.empty() ? "is no known machine"
                                            : "is no known machine; did you mean " + near + "?",
                    .accepted = join(names) + ", scratchpad:SIZE, cache:SIZE/WAYS, FILE.yaml"});
}

}  // namespace tilewright
