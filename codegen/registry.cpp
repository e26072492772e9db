// The targets: a line each.
#include <mutex>

#include "codegen/target.h"

namespace tilewright::codegen {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<const Target*> all = {
      &kCpu,
      &kCuda,
      &kCudaEmulated,
      &kNpu,
  };
};

Registry& registry() {
  static Registry one;
  return one;
}

}  // namespace

std::vector<const Target*> targets() {
  const std::lock_guard lock(registry().mutex);
  return registry().all;
}

const Target* own_target(std::string_view machine_kind) {
  for (const Target* t : targets())
    if (!t->plans_of.empty() && t->plans_of == machine_kind) return t;
  return nullptr;
}

const Target& find_target(std::string_view name) {
  std::vector<std::string> names;
  for (const Target* t : targets()) {
    if (t->name == name) return *t;
    names.emplace_back(t->name);
  }
  throw InputError({.where = "--target",
                    .value = name.empty() ? "an empty text" : std::string(name),
                    .problem = "is not a target",
                    .accepted = join(names)});
}

void add_target(const Target& target) {
  const std::lock_guard lock(registry().mutex);
  for (const Target* t : registry().all)
    if (t->name == target.name)
      throw InputError({.where = "add_target",
                        .value = std::string(target.name),
                        .problem = "is a target already",
                        .accepted = "another name"});
  registry().all.push_back(&target);
}

Result<Timing> TargetKernel::time(std::optional<double>, const Progress&) {
  return Reason{"this target's kernels are not timed"};
}

std::optional<Reason> TargetKernel::run_profiled() {
  return Reason{"no profiler counts this target's kernels"};
}

Result<HostObject> Emitted::build_object(const std::filesystem::path&) {
  return Reason{"this target's kernels are not shared objects"};
}

}  // namespace tilewright::codegen
