// The command: finds the verb, reads its options, prints its answer. Exit status: 0 done, 2 bad
// input (one line), 3 a negative result, 1 an internal error.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "cli/parse.h"
#include "cli/progress.h"
#include "cli/shell.h"
#include "cli/tables.h"
#include "core/base/error.h"
#include "core/base/format.h"
#include "core/base/leftovers.h"
#include "core/base/names.h"
#include "core/base/shown.h"
#include "experiments/report/verbs.h"
#include "harness/measure_ncu.h"

namespace tilewright::cli {
namespace {

using harness::Verb;

constexpr int kDone = 0, kOurFault = 1, kBadInput = 2, kRefused = 3;

/// One line, whatever a library put into the message.
int complain(std::string message, int status) {
  std::replace_if(
      message.begin(), message.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  message.erase(message.find_last_not_of(' ') + 1);
  std::fputs(formatted("tilewright: {}\n", message).c_str(), stderr);
  return status;
}

void put(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return;
  throw InputError({.where = "standard output",
                    .value = "the answer",
                    .problem = std::string("cannot be written (") + std::strerror(errno) + ")",
                    .accepted = "a file or a pipe that takes it"});
}

/// A descriptor that is closed would be given to the next file that is opened.
void open_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(file, F_GETFD) < 0)
      ::open(file == STDOUT_FILENO ? "/dev/full" : "/dev/null", O_RDWR);
}

std::vector<std::string> verb_names() {
  std::vector<std::string> names;
  for (const Verb& v : harness::verbs()) names.push_back(v.name);
  return names;
}

std::string overview() {
  std::string text =
      "tilewright: how much data will this plan move, and is that true?\n\n"
      "Usage: tilewright VERB [SUBJECT] [OPTIONS]; tilewright VERB --help says more.\n\n";
  for (const Verb& v : harness::verbs())
    text += formatted("  {:<12} {}", v.name, folded(v.summary, 15, 15));
  text +=
      "\nWith the Python package:\n\n"
      "  plot         a picture of any verb's JSON answer\n"
      "  sweep        one question for every combination of workloads, machines, models and tiles\n"
      "\nA verb that is not built in is looked for as tilewright-VERB on the PATH.\n"
      "--completion bash, zsh or fish prints a completion script, --manual the manual page.\n"
      "Every verb takes --json. Exit status: 0 success, 2 bad input, 3 a negative result, 1 an "
      "internal error.\n";
  return text;
}

int run_verb(const Verb& verb, std::vector<std::string> arguments) {
  if (std::find_if(arguments.begin(), arguments.end(), [](const std::string& a) {
        return a == "--help" || a == "-h";
      }) != arguments.end()) {
    put(help_of(verb, arguments));
    return kDone;
  }
  Invocation invocation = parse_arguments(verb, std::move(arguments));
  harness::Answer answer;
  {
    ProgressLine line;
    invocation.asked.progress = [&line](std::string_view what, double done) { line(what, done); };
    answer = harness::ask(verb, invocation.asked);
  }
  put(invocation.json ? document_text(answer.json) : table_of(verb.name, answer.json));
  if (answer.ok()) return kDone;
  return complain(answer.json.value("reason", std::string("refused")), kRefused);
}

/// Replaces this process by tilewright-VERB, which lies beside it (a Python environment need not be
/// activated) or on the PATH; returns only where there is none.
int run_external(const std::string& name, std::vector<std::string> arguments) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
  if (plain && !name.empty()) {
    std::string program = "tilewright-" + name;
    std::vector<char*> argv{program.data()};
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (!error) ::execv((self.parent_path() / program).c_str(), argv.data());
    ::execvp(program.c_str(), argv.data());
  }
  const auto names = verb_names();
  throw InputError(
      {.where = "verb",
       .value = name.empty() ? "nothing" : name,
       .problem = "is not a verb, and there is no tilewright-" + name + " beside it or on the PATH",
       .accepted = names_like(name, names, "tilewright --help")});
}

int dispatch(std::vector<std::string> arguments) {
  if (!arguments.empty() && arguments.front() == "--completion")
    return put(completion_script(arguments.size() == 2 ? arguments[1] : "")), kDone;
  const std::size_t at = find_verb_position(arguments);
  if (at == arguments.size()) {
    for (const std::string& a : arguments) {
      if (a == "--help" || a == "-h") return put(overview()), kDone;
      if (a == "--manual") return put(manual_page()), kDone;
      if (a == "--version") return put("tilewright " TILEWRIGHT_VERSION "\n"), kDone;
    }
    throw InputError(
        {.where = "verb",
         .problem = "is missing",
         .accepted = join(verb_names()) + ", --help, --version, --completion SHELL, --manual"});
  }
  std::string name = arguments[at];
  arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(at));
  if (name == "help") {
    if (arguments.empty()) return put(overview()), kDone;
    if (arguments.front() == "--json") return put(document_text(harness::verbs_json())), kDone;
    name = arguments.front();
    arguments.front() = "--help";
  }
  if (const Verb* verb = harness::find_verb(name)) return run_verb(*verb, std::move(arguments));
  return run_external(name, std::move(arguments));
}

int guarded(std::vector<std::string> arguments) {
  try {
    return dispatch(std::move(arguments));
  } catch (const InputError& e) {
    return complain(e.what(), kBadInput);
  } catch (const std::bad_alloc&) {
    return complain("this needs more memory than there is; accepted: smaller sizes", kBadInput);
  } catch (const std::exception& e) {
    return complain(formatted("internal error: {}", e.what()), kOurFault);
  }
}

}  // namespace
}  // namespace tilewright::cli

int main(int argc, char** argv) {
  tilewright::cli::open_standard_files();
  tilewright::remove_leftovers_on_signals();
  tilewright::harness::run_as_command();
  return tilewright::cli::guarded(std::vector<std::string>(argv + 1, argv + argc));
}
