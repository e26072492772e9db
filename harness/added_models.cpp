// Models that join the built-in ones while the program runs: those written in Python.
#include <algorithm>
#include <memory>
#include <mutex>

#include "core/base/names.h"
#include "harness/registry.h"

namespace tilewright::harness {
namespace {

/// Records are never freed: a verb on another thread may still use one that is removed or replaced,
/// and what a record holds (a Python object) must not be freed once the interpreter is gone.
struct Added {
  std::mutex mutex;
  std::vector<const Model*> models;
  std::vector<std::unique_ptr<const Model>> records;  // those in use, and removed ones
};

Added& added() {
  static Added& all = *new Added;
  return all;
}

auto named(std::string_view name) {
  return [name](const Model* m) { return m->name == name; };
}

}  // namespace

std::vector<std::reference_wrapper<const Model>> models() {
  std::vector<std::reference_wrapper<const Model>> all(builtin_models().begin(),
                                                       builtin_models().end());
  const std::lock_guard lock(added().mutex);
  for (const Model* m : added().models) all.emplace_back(*m);
  return all;
}

const Model& planning_model() { return builtin_models().back(); }

const Model& standard_model() {
  const auto all = builtin_models();
  const auto draws = std::ranges::find_if(all, [](const Model& m) { return m.draw != nullptr; });
  TW_CHECK(draws != all.end(), "no model whose plans can be written and drawn");
  return *draws;
}

const Model& find_model(std::string_view name) {
  std::vector<std::string> names;
  for (const Model& m : models()) {
    if (m.name == name) return m;
    names.push_back(m.name);
  }
  throw InputError({.where = "--model",
                    .value = name.empty() ? "an empty text" : std::string(name),
                    .problem = "is not a model",
                    .accepted = names_like(name, names, "tilewright models")});
}

std::vector<const Model*> planners_of(const std::string& text) {
  std::vector<const Model*> out;
  for (std::size_t begin = 0; text != "all" && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const Model& m = find_model(text.substr(begin, end - begin));
    if (m.propose == nullptr)
      throw InputError({.where = "--models",
                        .value = m.name,
                        .problem = "makes no plans; its count is in every row",
                        .accepted = "all, or names with commas between"});
    if (std::ranges::find(out, &m) == out.end()) out.push_back(&m);
    begin = end + 1;
  }
  if (text == "all")
    for (const Model& m : models())
      if (m.propose != nullptr) out.push_back(&m);
  return out;
}

void add_model(Model record) {
  std::string as_identifier = record.name;
  std::ranges::replace(as_identifier, '-', '_');
  const bool taken = std::ranges::any_of(
      builtin_models(), [&record](const Model& m) { return m.name == record.name; });
  if (taken || record.name == "all" || !is_identifier(as_identifier))
    throw InputError({.where = "model",
                      .field = "name",
                      .value = record.name.empty() ? "an empty text" : record.name,
                      .problem = taken ? "is a built-in model" : "is not a name for a model",
                      .accepted = "letters, digits, - and _, no built-in model's name"});
  const std::lock_guard lock(added().mutex);
  std::erase_if(added().models, named(record.name));
  added().records.push_back(std::make_unique<const Model>(std::move(record)));
  added().models.push_back(added().records.back().get());
}

void remove_model(std::string_view name) {
  const std::lock_guard lock(added().mutex);
  if (std::erase_if(added().models, named(name)) == 0)
    throw InputError({.where = "model",
                      .field = "name",
                      .value = std::string(name),
                      .problem = "is not a model that was added",
                      .accepted = "the name of one that was"});
}

}  // namespace tilewright::harness
