#include "tests/cli/command.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/places.h"

namespace tilewright::test {
namespace {

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

Outcome tilewright_command(std::vector<std::string> arguments,
                           const std::vector<std::pair<std::string, std::string>>& environment,
                           const std::string& into) {
  const Folder folder;
  const std::string out = into.empty() ? folder.path("out") : into, err = folder.path("err");
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    if (std::freopen(out.c_str(), "w", stdout) == nullptr) ::_exit(126);
    if (std::freopen(err.c_str(), "w", stderr) == nullptr) ::_exit(126);
    std::string program = test::in_build(TILEWRIGHT_COMMAND);
    std::vector<char*> argv{program.data()};
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          into.empty() ? slurp(out) : "", slurp(err)};
}

Folder::Folder() {
  std::string name = std::filesystem::temp_directory_path() / "tilewright-test-XXXXXX";
  path_ = ::mkdtemp(name.data());
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Folder::write(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
  return path(name);
}

std::vector<std::string> Folder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename());
  return names;
}

}  // namespace tilewright::test
