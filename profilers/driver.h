// A built kernel in a process of its own, at stated addresses, under a program that counts.
//
// The driver maps the arena at its address from a file that holds what the tensors hold before the
// run, loads the kernel's shared object, calls it, and writes the arena to another file, which is
// checked. Filling and writing are system calls: nothing but the kernel accesses the arena, so that
// simulated caches are cold of it when the kernel starts. A store to each of two lines of a page
// below the arena marks where the kernel begins and ends.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/toolchain.h"
#include "profilers/meter.h"

namespace tilewright::profilers {

/// Below the arena: stored to just before the kernel begins, and just after it has ended.
struct Markers {
  std::int64_t begin = 0, end = 0;
};
Markers markers_of(const BuiltKernel& kernel);

/// The driver and its files, for one kernel. The kernel must outlive it.
class KernelDriver {
 public:
  /// A Reason where there is no compiler or no room for files. Cost: one compilation a process.
  static Result<std::unique_ptr<KernelDriver>> prepare(const BuiltKernel& kernel);

  /// Runs the driver as the last words of `under` (a program and its options), the kernel so many
  /// times; zero times is all the rest. A Reason where it fails or the kernel's outputs are wrong.
  std::optional<Reason> run(const std::vector<std::string>& under, std::int64_t times);
  const std::filesystem::path& directory() const { return directory_.path(); }
  /// As the last run was started.
  const std::string& command() const { return command_; }

 private:
  explicit KernelDriver(const BuiltKernel& kernel) : kernel_(kernel) {}
  std::optional<Reason> write_image() const;
  std::optional<Reason> check_result() const;

  const BuiltKernel& kernel_;
  TemporaryDirectory directory_;
  std::string driver_, command_;
};

}  // namespace tilewright::profilers
