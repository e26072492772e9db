#include "cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/base/error.h"

namespace tilewright::cli {
namespace {

void add(CLI::App& app, const Option& o, Invocation& invocation) {
  const std::string names = (o.short_name.empty() ? "" : o.short_name + ",") + o.name;
  if (o.value.empty()) {
    app.add_flag_callback(names, [&] { o.apply(invocation, ""); });
    return;
  }
  CLI::Option* added = app.add_option(names, [&](const CLI::results_t& values) {
    for (const std::string& v : values) {
      if (v.empty())
        throw InputError({.where = o.name,
                          .value = "nothing",
                          .problem = "is not accepted",
                          .accepted = o.help});
      o.apply(invocation, v);
    }
    return true;
  });
  added->type_size(1)->expected(1);
  if (o.repeated)
    added->expected(1, 256)->allow_extra_args(false);
  else
    added->multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

/// Every option that the verb takes, once a name.
std::vector<const Option*> options_of(const Verb& verb) {
  std::vector<const Option*> all;
  for (const std::string& name : verb.options) all.push_back(&option(name));
  if (!verb.plans) return all;
  for (const ModelGroup& group : model_options())
    for (const Option& o : group.options)
      if (std::ranges::none_of(all, [&o](const Option* a) { return a->name == o.name; }))
        all.push_back(&o);
  return all;
}

void parse(const Verb& verb, std::vector<std::string> arguments, Invocation& invocation) {
  CLI::App app(verb.summary, "tilewright " + verb.name);
  app.set_help_flag();
  app.allow_extras();
  const auto all = options_of(verb);
  for (const Option* o : all) add(app, *o, invocation);
  if (!verb.subject.empty()) app.add_option("subject", invocation.request.subject);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  for (const std::string& extra : app.remaining()) {
    const bool is_option = extra.size() > 1 && extra.front() == '-';
    std::vector<std::string> names;
    for (const Option* o : all) names.push_back(o->name);
    names.push_back("--help");
    const std::string near = nearest(extra.substr(0, extra.find('=')), names);
    // The nearest first: of many names an error shows the beginning.
    throw InputError(
        {.where = verb.name,
         .value = extra,
         .problem = is_option ? "is no option of this verb" : "is one argument too many",
         .accepted = (near.empty() || !is_option ? "" : "nearest " + near + ", of ") + join(names)});
  }
}

}  // namespace

namespace {

bool takes_value(const std::string& argument) {
  const auto is_it = [&argument](const Option& o) {
    return (argument == o.name || argument == o.short_name) && !o.value.empty();
  };
  return std::ranges::any_of(options(), is_it) ||
         std::ranges::any_of(model_options(), [&](const ModelGroup& group) {
           return std::ranges::any_of(group.options, is_it);
         });
}

}  // namespace

std::size_t find_verb_position(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    if (a.size() < 2 || a.front() != '-') return i;
    if (takes_value(a)) ++i;
  }
  return arguments.size();
}

Invocation parse_arguments(const Verb& verb, std::vector<std::string> arguments) {
  Invocation invocation;
  try {
    parse(verb, std::move(arguments), invocation);
  } catch (const CLI::ParseError& e) {
    throw InputError({.where = verb.name, .problem = e.what()});
  }
  return invocation;
}

}  // namespace tilewright::cli
