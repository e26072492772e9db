// Other programs: found on the PATH, started from an argument vector (no shell reads it), waited for;
// and the temporary folders that they work in.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ir/error.h"

namespace tilewright {

/// The program's file, by the PATH unless the name has a slash; empty where there is none.
std::string on_path(const std::string& program);

/// A fresh directory, removed with all that is in it. `path()` is empty where none can be made; errno
/// then says why.
class TemporaryDirectory {
 public:
  /// Under the system's directory for temporary files where `under` is empty.
  explicit TemporaryDirectory(const std::filesystem::path& under = {});
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The C++ compiler and what comes before its own arguments ("ccache g++" is two words): `asked`, else
/// what CXX names, else c++, g++ or clang++ on the PATH.
Result<std::vector<std::string>> compiler_command(const std::string& asked = {});

/// Runs a program to its end, standard output and error in `log`, with `environment` ("NAME=value")
/// in place of what this process has of those names. Nothing where it ended with status 0; else its
/// name and the first line of the log that says "error", or the first one.
std::optional<Reason> run_program(std::span<const std::string> words,
                                  const std::filesystem::path& log,
                                  std::span<const std::string> environment = {});

}  // namespace tilewright
