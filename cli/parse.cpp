#include "cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/base/error.h"

namespace tilewright::cli {
namespace {

void parse(const Verb& verb, std::vector<std::string> arguments, Invocation& invocation) {
  CLI::App app(verb.summary, "tilewright " + verb.name);
  app.set_help_flag();
  app.allow_extras();
  for (const std::string& name : verb.options) {
    const Option& o = option(name);
    const std::string names = (o.short_name.empty() ? "" : o.short_name + ",") + o.name;
    if (o.value.empty()) {
      app.add_flag_callback(names, [&] { o.apply(invocation, ""); });
      continue;
    }
    CLI::Option* added = app.add_option(names, [&](const CLI::results_t& values) {
      for (const std::string& v : values) o.apply(invocation, v);
      return true;
    });
    added->type_size(1)->expected(1);
    if (o.repeated)
      added->expected(1, 256)->allow_extra_args(false);
    else
      added->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  }
  if (!verb.subject.empty()) app.add_option("subject", invocation.request.subject);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  for (const std::string& extra : app.remaining()) {
    const bool is_option = extra.size() > 1 && extra.front() == '-';
    std::vector<std::string> names = verb.options;
    names.push_back("--help");
    const std::string near = nearest(extra.substr(0, extra.find('=')), names);
    throw InputError(
        {.where = verb.name,
         .value = extra,
         .problem = is_option ? "is no option of this verb" : "is one argument too many",
         .accepted = join(names) + (near.empty() || !is_option ? "" : " (nearest: " + near + ")")});
  }
}

}  // namespace

std::size_t find_verb_position(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& a = arguments[i];
    if (a.size() < 2 || a.front() != '-') return i;
    for (const Option& o : options())
      if ((a == o.name || a == o.short_name) && !o.value.empty()) ++i;
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
