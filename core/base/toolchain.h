// Programs started to build source: found on the PATH, run from an argument vector, in a temporary
// directory that is gone afterwards.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace tilewright {

/// A fresh directory, removed with all that is in it. `path` is empty where none could be made
/// (errno says why).
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::filesystem::path& under = {});
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

bool on_path(const std::string& program);
/// Where a program is, by its own path or by the PATH; empty where it is not.
std::filesystem::path find_program(const std::string& name);
/// The whole of a file; empty where there is none.
std::string text_of(const std::filesystem::path& file);
/// The C++ compiler and what comes before its own arguments ("ccache g++" is two words): `asked`, else
/// CXX, else the first of c++, g++ and clang++.
Result<std::vector<std::string>> compiler_command(const std::string& asked);
/// Whether this process runs under AddressSanitizer, built in or preloaded. Kernels that are built
/// for it are then checked, too, and each tensor lies in memory of its own, of its exact size.
bool under_address_sanitizer();
/// Runs a program to its end in the directory `in` (where empty, in this process's), its output in `log`,
/// `environment` ("NAME=value") in place of what this process has of those names. Nothing where it
/// succeeded; else the first line of the output that says "error". A compiler that runs in the
/// directory of its source is given no name that differs from run to run, so that ccache knows it again.
std::optional<Reason> run_program(const std::vector<std::string>& words,
                                  const std::filesystem::path& log,
                                  const std::vector<std::string>& environment = {},
                                  const std::filesystem::path& in = {});

}  // namespace tilewright
