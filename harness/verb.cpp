#include "harness/verb.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/files.h"
#include "harness/registry.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr const char* kTarget = "target ";

bool has_verb(const OptionSpec& option, std::string_view verb) {
  return option.verbs.empty() || std::ranges::find(option.verbs, verb) != option.verbs.end();
}

/// The options of one or several that have the same, under all of their names.
void add_group(std::vector<OptionGroup>& groups, const std::string& kind, std::string_view name,
               std::vector<const OptionSpec*> options) {
  if (options.empty()) return;
  for (OptionGroup& g : groups)
    if (g.options == options) {
      g.of += ", " + std::string(name);
      return;
    }
  groups.push_back({kind + std::string(name), std::move(options)});
}

std::vector<const OptionSpec*> pointers(std::span<const OptionSpec> specs) {
  std::vector<const OptionSpec*> all;
  for (const OptionSpec& spec : specs) all.push_back(&spec);
  return all;
}

std::vector<const OptionSpec*> target_options(const codegen::Target& target,
                                              std::string_view verb) {
  std::vector<const OptionSpec*> all = pointers(target.options());
  std::erase_if(all, [verb](const OptionSpec* o) { return !has_verb(*o, verb); });
  return all;
}

}  // namespace

std::string with_nearest(std::string_view given, const std::vector<std::string>& names) {
  const std::string near = nearest(given, names);
  return (near.empty() ? "" : "nearest " + near + ", of ") + join(names);
}

std::vector<OptionGroup> option_groups(const Verb& verb) {
  std::vector<OptionGroup> groups{{"", pointers(verb.options)}};
  if (verb.targets)
    for (const codegen::Target* t : codegen::targets())
      add_group(groups, kTarget, t->name, target_options(*t, verb.name));
  if (!verb.models) return groups;
  groups.push_back({"every model", pointers(defaults_options())});
  for (const Model& m : models()) add_group(groups, "", m.name, pointers(m.options));
  return groups;
}

std::vector<const OptionSpec*> options_of(const Verb& verb) {
  std::vector<const OptionSpec*> all;
  for (const OptionGroup& g : option_groups(verb))
    all.insert(all.end(), g.options.begin(), g.options.end());
  return all;
}

Settings settings_of(const Verb& verb, const Asked& asked) {
  OptionValues own;
  for (const auto& [name, texts] : asked.options)
    if (find_option(verb.options, name) != nullptr) own.emplace(name, texts);
  return {verb.options, own, verb.name};
}

Request request_of(const Verb& verb, const Asked& asked) {
  Request request{.subject = asked.subject,
                  .subject_text = asked.subject_text,
                  .machine_text = asked.machine_text,
                  .progress = asked.progress};
  read(request, request_options(), settings_of(verb, asked));
  OptionValues others = asked.options;
  std::erase_if(others,
                [&](const auto& o) { return find_option(verb.options, o.first) != nullptr; });
  if (others.empty()) return request;
  const std::vector<OptionGroup> groups = option_groups(verb);
  for (const auto& [name, texts] : others) {
    bool known = false;
    for (const OptionGroup& g : groups) {
      if (std::ranges::find(g.options, name, &OptionSpec::name) == g.options.end()) continue;
      known = true;
      (g.of.starts_with(kTarget) ? request.target_options : request.options)[name] = texts;
    }
    if (known) continue;
    std::vector<std::string> names;
    for (const OptionSpec* o : options_of(verb)) names.push_back(as_argument(*o));
    throw InputError({.where = verb.name,
                      .value = "--" + name,
                      .problem = "is not an option of this verb",
                      .accepted = with_nearest("--" + name, names)});
  }
  return request;
}

Answer ask(const Verb& verb, const Asked& asked) {
  const Request request = request_of(verb, asked);
  const Settings settings = settings_of(verb, asked);
  for (const OptionSpec* option : options_of(verb))
    if (const auto given = asked.options.find(option->name); given != asked.options.end())
      for (const std::string& path : given->second) check_output(*option, path);
  return verb.run(request, settings);
}

Settings target_settings(const Request& request, std::string_view target, std::string_view verb) {
  const codegen::Target& record = codegen::find_target(target);
  const std::vector<const OptionSpec*> has = target_options(record, verb);
  std::vector<std::string> known;
  for (const OptionSpec* o : has) known.push_back(as_argument(*o));
  for (const auto& [name, texts] : request.target_options)
    if (std::ranges::find(known, "--" + name) == known.end())
      throw InputError({.where = "target " + std::string(target),
                        .value = "--" + name,
                        .problem = "is not one of its options",
                        .accepted = with_nearest("--" + name, known)});
  return {record.options(), request.target_options, "target " + std::string(target)};
}

OptionValues option_values(const std::vector<const OptionSpec*>& options,
                           const ordered_json& object, std::string_view where,
                           const std::vector<std::string>& others) {
  OptionValues values;
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(others, key) != others.end()) continue;
    std::optional<InputError> error;
    bool known = false, taken = false;
    for (const OptionSpec* o : options) {
      if (as_key(*o) != key) continue;
      known = true;
      if (value.is_null() || taken) continue;
      try {
        values[o->name] = option_texts(*o, value, where, key);
        taken = true;
      } catch (const InputError& e) {  // another model may take it
        if (!error) error = e;
      }
    }
    if (!taken && error) throw *error;
    if (known) continue;
    std::vector<std::string> names = others;
    for (const OptionSpec* o : options)
      if (std::ranges::find(names, as_key(*o)) == names.end()) names.push_back(as_key(*o));
    throw InputError({.where = std::string(where),
                      .field = key,
                      .value = value.dump(-1, ' ', false, ordered_json::error_handler_t::replace),
                      .problem = "is not an option here",
                      .accepted = with_nearest(key, names)});
  }
  return values;
}

ordered_json to_json(const Verb& verb) {
  ordered_json json = {{"name", verb.name},       {"summary", verb.summary},
                       {"subject", verb.subject}, {"details", verb.details},
                       {"returns", verb.returns}, {"options", ordered_json::array()}};
  for (const OptionGroup& g : option_groups(verb))
    for (const OptionSpec* o : g.options) {
      json["options"].push_back(tilewright::to_json(*o));
      json["options"].back()["text"] = help_text(*o);
      json["options"].back()["of"] = g.of;
    }
  return json;
}

}  // namespace tilewright::harness
