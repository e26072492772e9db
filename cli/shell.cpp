#include "cli/shell.h"

#include <algorithm>
#include <vector>

#include "codegen/target.h"
#include "core/base/error.h"
#include "core/base/format.h"
#include "core/machine/machine.h"
#include "core/workload/text.h"
#include "experiments/report/verbs.h"
#include "harness/registry.h"
#include "harness/verb.h"

namespace tilewright::cli {
namespace {

using harness::Verb;

std::string spaced(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : " ") + w;
  return out;
}

std::vector<std::string> workload_names() {
  std::vector<std::string> names;
  for (const BuiltinWorkload& w : builtin_workloads()) names.push_back(std::string(w.name));
  return names;
}

/// What a verb's subject can be, as far as it is a list of names.
std::vector<std::string> subjects_of(const Verb& verb) {
  if (verb.subject == "[M]") return machine_names();
  if (verb.subject.find('W') != std::string::npos) return workload_names();
  return {};
}

/// What an option's value can be, as far as it is a list of names.
std::vector<std::string> values_of(const OptionSpec& option) {
  if (option.kind == OptionKind::choice) return option.names;
  std::vector<std::string> names;
  if (option.name == "machine") names = machine_names();
  if (option.name == "model" || option.name == "models")
    for (const Model& m : harness::models()) names.push_back(std::string(m.name));
  if (option.name == "target")
    for (const codegen::Target* t : codegen::targets()) names.push_back(std::string(t->name));
  return names;
}

/// The options of a verb, each name once.
std::vector<const OptionSpec*> named_options(const Verb& verb) {
  std::vector<const OptionSpec*> out;
  for (const OptionSpec* o : harness::options_of(verb))
    if (std::ranges::none_of(out, [&](const OptionSpec* had) { return had->name == o->name; }))
      out.push_back(o);
  return out;
}

std::string bash_script() {
  std::string verbs, cases;
  for (const Verb& v : harness::verbs()) {
    verbs += (verbs.empty() ? "" : " ") + v.name;
    std::vector<std::string> options = {"--json", "--help"};
    std::string values;
    for (const OptionSpec* o : named_options(v)) {
      options.push_back(as_argument(*o));
      const std::vector<std::string> names = values_of(*o);
      if (names.empty()) continue;
      const std::string letter = o->letter.empty() ? "" : "|-" + o->letter;
      values +=
          formatted("        {}{}) words=\"{}\" ;;\n", as_argument(*o), letter, spaced(names));
    }
    cases += formatted("    {})\n      options=\"{}\"\n", v.name, spaced(options));
    if (v.subject.find('W') != std::string::npos) cases += "      subjects=$workloads\n";
    if (v.subject == "[M]") cases += "      subjects=$machines\n";
    if (!values.empty()) cases += "      case \"$previous\" in\n" + values + "      esac\n";
    cases += "      ;;\n";
  }
  return formatted(
      "# Completion of tilewright for bash: source it, or put it into a bash-completion folder.\n"
      "_tilewright() {{\n"
      "  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  local verb=${{COMP_WORDS[1]}} words= options= subjects=\n"
      "  local workloads=\"{}\" machines=\"{}\"\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"$verb\" in\n{}"
      "  esac\n"
      "  if [ -z \"$words\" ]; then\n"
      "    case \"$current\" in\n"
      "      -*) words=$options ;;\n"
      "      *) [ \"$COMP_CWORD\" -eq 2 ] && words=$subjects ;;\n"
      "    esac\n"
      "  fi\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "}}\n"
      "complete -o default -F _tilewright tilewright\n",
      spaced(workload_names()), spaced(machine_names()), verbs, cases);
}

/// A text within single quotes of fish.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text)
    out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "'";
}

std::string fish_script() {
  std::string out =
      "# Completion of tilewright for fish: put it into "
      "~/.config/fish/completions/tilewright.fish.\n";
  for (const Verb& v : harness::verbs()) {
    out += formatted("complete -c tilewright -n __fish_use_subcommand -a {} -d {}\n", v.name,
                     quoted(v.summary));
    const std::string within =
        formatted("complete -c tilewright -n '__fish_seen_subcommand_from {}'", v.name);
    if (const auto names = subjects_of(v); !names.empty())
      out += within + " -a " + quoted(spaced(names)) + "\n";
    out += within + " -l json -d 'the whole answer as JSON'\n";
    for (const OptionSpec* o : named_options(v)) {
      const std::vector<std::string> names = values_of(*o);
      out += within + " -l " + o->name;
      if (!o->letter.empty()) out += " -s " + o->letter;
      if (o->kind != OptionKind::flag)
        out += names.empty() ? " -r" : " -x -a " + quoted(spaced(names));
      out += " -d " + quoted(o->help) + "\n";
    }
  }
  return out;
}

/// Text of a manual page: no line may begin with a control character, hyphens of options stay.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return !out.empty() && (out[0] == '.' || out[0] == '\'') ? "\\&" + out : out;
}

}  // namespace

std::string completion_script(std::string_view shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return "autoload -U +X bashcompinit && bashcompinit\n" + bash_script();
  if (shell == "fish") return fish_script();
  throw InputError({.where = "--completion",
                    .value = std::string(shell),
                    .problem = "is not a shell with a completion script",
                    .accepted = "bash, zsh, fish"});
}

std::string manual_page() {
  std::string out =
      ".TH TILEWRIGHT 1\n"
      ".SH NAME\ntilewright \\- data movement of fused tensor kernels: predicted, simulated, "
      "measured\n"
      ".SH SYNOPSIS\n.B tilewright\n.I VERB\n[\\fISUBJECT\\fR] [\\fIOPTIONS\\fR]\n"
      ".SH DESCRIPTION\n"
      "A workload and a machine go into a model, out comes a plan. The plan is counted, simulated, "
      "made a\n"
      "kernel, verified, timed and measured. Every verb takes \\fB\\-\\-json\\fR.\n"
      "Exit status: 0 success, 2 bad input, 3 a negative result, 1 an internal error.\n";
  for (const Verb& v : harness::verbs()) {
    out += ".SH " + v.name + "\n" + roff(v.summary) + ".\n";
    out +=
        formatted(".PP\n.B tilewright {}\n{}\n", v.name, v.subject.empty() ? "" : roff(v.subject));
    if (!v.details.empty()) out += ".PP\n" + roff(v.details) + "\n";
    for (const harness::OptionGroup& g : harness::option_groups(v)) {
      if (!g.options.empty() && !g.of.empty()) out += ".PP\nOptions of " + roff(g.of) + ":\n";
      for (const OptionSpec* o : g.options)
        out +=
            formatted(".TP\n\\fB{}{}\\fR\n{}\n", o->letter.empty() ? "" : "\\-" + o->letter + ", ",
                      roff(as_argument(*o)), roff(help_text(*o)));
    }
  }
  return out;
}

}  // namespace tilewright::cli
