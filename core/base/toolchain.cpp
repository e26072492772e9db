#include "core/base/toolchain.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "core/base/leftovers.h"

extern char** environ;

namespace tilewright {

namespace fs = std::filesystem;

namespace {

/// The first line that says "error", else the first.
std::string first_diagnostic(const fs::path& log) {
  std::ifstream in(log);
  std::string first, line;
  while (std::getline(in, line)) {
    if (first.empty()) first = line;
    if (line.find("error") != std::string::npos) return line;
  }
  return first.empty() ? "no diagnostic" : first;
}

/// This process's environment with some entries replaced.
std::vector<std::string> environment_with(std::vector<std::string> entries) {
  const std::size_t replaced = entries.size();
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string_view entry = *e;
    const std::string_view name = entry.substr(0, entry.find('=') + 1);
    bool kept = true;
    for (std::size_t i = 0; i < replaced; ++i) kept = kept && !entries[i].starts_with(name);
    if (kept) entries.emplace_back(entry);
  }
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> p;
  for (std::string& w : words) p.push_back(w.data());
  p.push_back(nullptr);
  return p;
}

}  // namespace

TemporaryDirectory::TemporaryDirectory(const fs::path& under) {
  std::error_code error;
  const fs::path parent = under.empty() ? fs::temp_directory_path(error) : under;
  std::string name = ((parent.empty() ? fs::path("/tmp") : parent) / "tilewright-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return;
  path_ = name;
  leftover(path_);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (path_.empty()) return;
  fs::remove_all(path_, ignored);
  no_leftover(path_);
}

fs::path find_program(const std::string& name) {
  const auto runs = [](const fs::path& file) {
    std::error_code none;
    return ::access(file.c_str(), X_OK) == 0 && !fs::is_directory(file, none);
  };
  if (name.find('/') != std::string::npos) return runs(name) ? fs::path(name) : fs::path();
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path file = fs::path(folder.empty() ? "." : folder) / name;
    if (runs(file)) return file;
  }
  return {};
}

bool on_path(const std::string& program) { return !find_program(program).empty(); }

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  return std::move(text).str();
}

Result<std::vector<std::string>> compiler_command(const std::string& asked) {
  const char* variable = std::getenv("CXX");
  const std::string given = !asked.empty() ? asked : variable != nullptr ? variable : "";
  std::vector<std::string> words;
  std::istringstream split(given);
  for (std::string word; split >> word;) words.push_back(word);
  if (!words.empty()) {
    if (on_path(words.front())) return words;
    return Reason{"the compiler " + words.front() + (asked.empty() ? " that CXX names" : "") +
                  " is not on the PATH"};
  }
  for (const char* name : {"c++", "g++", "clang++"})
    if (on_path(name)) return std::vector<std::string>{name};
  return Reason{
      "no C++ compiler on the PATH: tried c++, g++ and clang++; CXX may name one; try: sudo "
      "apt-get "
      "install g++"};
}

bool under_address_sanitizer() {
  static const bool is = dlsym(RTLD_DEFAULT, "__asan_init") != nullptr;
  return is;
}

std::optional<Reason> run_program(const std::vector<std::string>& words, const fs::path& log,
                                  const std::vector<std::string>& environment, const fs::path& in) {
  std::vector<std::string> arguments = words, all = environment;
  if (under_address_sanitizer()) all.emplace_back("LD_PRELOAD=");  // it is for this process alone
  std::vector<std::string> variables = environment_with(std::move(all));
  const std::vector<char*> argv = pointers(arguments), envp = pointers(variables);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  // Names are of this process's directory: the log is open before the other is entered.
  const std::string program =
      in.empty() ? words.front() : fs::absolute(find_program(words.front())).string();
  if (!in.empty()) posix_spawn_file_actions_addchdir_np(&actions, in.c_str());
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, program.c_str(), &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return Reason{words.front() + " does not start: " + std::strerror(failed)};
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return Reason{words.front() + ": " + std::strerror(errno)};
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  return Reason{words.front() + ": " + first_diagnostic(log)};
}

}  // namespace tilewright
