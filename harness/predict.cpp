// predict: one model's price of a plan.
#include "harness/registry.h"
#include "harness/verbs.h"

namespace tilewright::harness {

Answer predict(const Request& request) {
  const Setting setting = setting_of(request);
  std::string name = request.model.value_or("");
  if (!request.model && setting.file && setting.file->model) name = *setting.file->model;
  if (name.empty()) {
    std::vector<std::string> names;
    for (const ModelRecord& m : models()) names.push_back(m.name);
    throw InputError({.where = "--model",
                      .value = "nothing",
                      .problem = "says which model prices the plan",
                      .accepted = join(names)});
  }
  const ModelRecord& model = find_model(name);
  check_model_options(request, model.name);
  return model.price(request, setting);
}

}  // namespace tilewright::harness
