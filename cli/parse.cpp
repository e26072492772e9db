#include "cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "core/base/error.h"
#include "core/base/format.h"
#include "core/base/shown.h"
#include "experiments/report/verbs.h"
#include "harness/registry.h"

namespace tilewright::cli {

using shown::folded;

namespace {

using harness::OptionGroup;
using harness::Verb;

constexpr const char* kJson = "--json";

void add(CLI::App& app, const OptionSpec& spec, OptionValues& values) {
  const std::string names =
      (spec.letter.empty() ? "" : "-" + spec.letter + ",") + as_argument(spec);
  if (spec.kind == OptionKind::flag) {
    app.add_flag_callback(names, [&] { values[spec.name] = {"on"}; });
    return;
  }
  CLI::Option* added = app.add_option(names, [&](const CLI::results_t& texts) {
    for (const std::string& text : texts) {
      // Another value is checked by whoever is asked: models may take different ones under a name.
      if (text.empty()) check_option(spec, text, as_argument(spec));
      values[spec.name].push_back(text);
    }
    return true;
  });
  added->type_size(1)->expected(1);
  if (spec.repeated)
    added->expected(1, 256)->allow_extra_args(false);
  else
    added->multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

/// Every option that the verb takes, once a name.
std::vector<const OptionSpec*> once_a_name(const Verb& verb) {
  std::vector<const OptionSpec*> once;
  for (const OptionSpec* spec : harness::options_of(verb))
    if (std::ranges::find(once, spec->name, &OptionSpec::name) == once.end()) once.push_back(spec);
  return once;
}

/// Whether one of the arguments may be this option. The parser compares every option that it is
/// given with all the others, so it gets only these.
bool may_be_named(const OptionSpec& spec, const std::vector<std::string>& arguments) {
  return std::ranges::any_of(arguments, [&](const std::string& a) {
    if (a.size() < 2 || a[0] != '-') return false;
    return a[1] == '-' ? a.substr(0, a.find('=')) == as_argument(spec) : !spec.letter.empty();
  });
}

void parse(const Verb& verb, std::vector<std::string> arguments, Invocation& invocation) {
  CLI::App app(verb.summary, "tilewright " + verb.name);
  app.set_help_flag();
  app.allow_extras();
  const auto all = once_a_name(verb);
  for (const OptionSpec* spec : all)
    if (may_be_named(*spec, arguments)) add(app, *spec, invocation.asked.options);
  app.add_flag_callback(kJson, [&] { invocation.json = true; });
  if (!verb.subject.empty()) app.add_option("subject", invocation.asked.subject);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  for (const std::string& extra : app.remaining()) {
    const bool is_option = extra.size() > 1 && extra.front() == '-';
    std::vector<std::string> names;
    for (const OptionSpec* spec : all) names.push_back(as_argument(*spec));
    names.insert(names.end(), {kJson, "--help"});
    const std::string near = nearest(extra.substr(0, extra.find('=')), names);
    // The nearest first: of many names an error shows the beginning.
    throw InputError(
        {.where = verb.name,
         .value = extra,
         .problem = is_option ? "is not an option of this verb" : "is one argument too many",
         .accepted = !is_option ? (verb.subject.empty() ? "" : "one " + verb.subject + " and ") +
                                      "options, as tilewright " + verb.name + " --help lists"
                                : (near.empty() ? "" : "nearest " + near + "; ") + "tilewright " +
                                      verb.name + " --help lists all"});
  }
}

/// The parser's "--tiles: 1 required missing" and "--model: At Most 1 required but received 2".
std::string plain(const std::string& message) {
  const std::size_t colon = message.find(": "), count = message.rfind(' ');
  const std::string name = message.substr(0, colon);
  if (message.ends_with("missing")) return name + " stands without its value";
  if (message.find("required but received") != std::string::npos)
    return name + " is given" + message.substr(count) + " times";
  return message;
}

bool takes_value(const std::string& argument) {
  for (const Verb& verb : harness::verbs())
    for (const OptionSpec* spec : harness::options_of(verb))
      if (spec->kind != OptionKind::flag &&
          (argument == as_argument(*spec) ||
           (!spec->letter.empty() && argument == "-" + spec->letter)))
        return true;
  return false;
}

constexpr std::size_t kHelpAt = 27;  // the column that texts of options begin in

/// "default 1.2" stays on one line.
std::string line_of(const std::string& left, std::string help) {
  constexpr char kTied = '\x1f';
  const std::string_view word = "default ";
  for (std::size_t at = 0; (at = help.find(word, at)) != std::string::npos; at += word.size())
    help[at + word.size() - 1] = kTied;
  const std::string first = formatted("  {:<24} ", left);
  std::string line = first + folded(help, kHelpAt, first.size());
  std::ranges::replace(line, kTied, ' ');
  return line;
}

std::string line_of(const OptionSpec& spec) {
  const std::string value = value_name(spec);
  return line_of((spec.letter.empty() ? "" : "-" + spec.letter + ", ") + as_argument(spec) +
                     (value.empty() ? "" : " " + value),
                 help_text(spec) + (spec.repeated ? " (may be repeated)" : ""));
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
  } catch (const CLI::ArgumentMismatch& e) {
    throw InputError({.where = verb.name,
                      .problem = plain(e.what()),
                      .accepted = "what tilewright " + verb.name + " --help lists"});
  } catch (const CLI::ParseError& e) {
    throw InputError({.where = verb.name,
                      .problem = e.what(),
                      .accepted = "what tilewright " + verb.name + " --help lists"});
  }
  return invocation;
}

namespace {

/// The words of a text, between blanks and commas.
std::set<std::string> words_in(std::string text) {
  std::ranges::replace(text, ',', ' ');
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

/// Throws InputError where the word behind --help names nothing whose options could be listed.
void check_help_name(const std::vector<std::string>& words) {
  const auto help =
      std::ranges::find_if(words, [](const std::string& w) { return w == "--help" || w == "-h"; });
  if (help == words.end() || std::next(help) == words.end()) return;
  std::vector<std::string> names{"all"};
  for (const Model& m : harness::models()) names.push_back(m.name);
  for (const codegen::Target* t : codegen::targets()) names.emplace_back(t->name);
  for (const std::string& name : words_in(*std::next(help))) {
    if (name.front() == '-' || std::ranges::find(names, name) != names.end()) continue;
    const std::string near = nearest(name, names);
    throw InputError({.where = "--help",
                      .value = name,
                      .problem = "is not a model or a target",
                      .accepted = (near.empty() ? "" : "nearest " + near + ", of ") + join(names)});
  }
}

}  // namespace

std::string help_of(const Verb& verb, const std::vector<std::string>& words) {
  check_help_name(words);
  std::set<std::string> named;
  for (const std::string& word : words) named.merge(words_in(word));
  std::string text =
      formatted("tilewright {}: {}\n\nUsage: tilewright {}{} [OPTIONS]\n\n", verb.name,
                verb.summary, verb.name, verb.subject.empty() ? "" : " " + verb.subject);
  if (!verb.details.empty()) text += verb.details + "\n\n";
  text += "Options:\n";
  std::vector<std::string> left;
  for (const OptionGroup& group : harness::option_groups(verb)) {
    const auto is_named = [&](const std::string& whose) { return named.contains(whose); };
    const bool shown = group.of.empty() || named.contains("all") ||
                       std::ranges::any_of(words_in(group.of), is_named);
    if (!shown) left.push_back(group.of);
    if (!shown) continue;
    if (!group.of.empty()) text += formatted("\nOptions of {}:\n", group.of);
    for (const OptionSpec* spec : group.options) text += line_of(*spec);
    if (group.of.empty())
      text +=
          line_of(kJson, "one JSON document instead of a table") +
          line_of("--help [NAME|all]", "this; with the options of a model or target, or of all");
  }
  if (!left.empty())
    text += formatted(
        "\nOptions of models and targets are listed by --help NAME or --help all:\n"
        "  {}\n",
        join(left, "\n  "));
  return text;
}

}  // namespace tilewright::cli
