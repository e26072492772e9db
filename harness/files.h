// Files that a command writes.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

#include "core/base/option.h"
#include "core/plan/file.h"

namespace tilewright::harness {

/// A file on its way. A regular file is whole or not there: it is written beside its name and
/// renamed over it by finish(), a link to it stays a link, and its permissions stay. What is no
/// regular file (a device, a pipe, /dev/stdout), and a file that has several names, is written
/// through. Without finish() nothing of a regular file is left.
class OutputFile {
 public:
  enum class Becomes { whole, line_by_line };
  /// `option` names the file in errors. `line_by_line`: a regular file is emptied and grows in
  /// place, for those who watch it. Throws InputError where it cannot be opened.
  OutputFile(std::string path, std::string_view option, Becomes becomes = Becomes::whole);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  std::ostream& stream();
  /// Throws InputError where anything could not be written so far; to be called after a line that
  /// others wait for.
  void flush();
  /// Writes what is left and gives the file its name. Throws InputError where that, or anything
  /// before, went wrong.
  void finish();

 private:
  class Buffer;
  [[noreturn]] void fail(const std::string& why) const;
  void open_beside();
  void open_through(int flags);
  void drop();

  std::string path_, option_;
  std::string part_;  ///< what is renamed; empty: written through
  std::string name_;  ///< over this one: where links lead
  std::unique_ptr<Buffer> buffer_;
  std::ostream stream_;
};

/// Throws InputError, as an OutputFile or make_folder() would, unless `path` can become what the
/// option writes. Leaves nothing.
void check_output(const OptionSpec& option, const std::string& path);

/// Writes what `text` says of a workload to `path`, for -o, and returns it. Long lists of values
/// (constants that an import has computed: over 1,024 numbers, or 65,536 whole ones) stand as f64
/// in PATH.values, unless `path` is a device or a pipe. Throws InputError where the text is too
/// long to be read again, or a file cannot be written; then neither is there, unless the last
/// renaming fails.
std::string write_with_values(const std::string& path, const Workload& workload,
                              const std::function<std::string(const Workload&)>& text);
/// The same of a plan file.
void write_plan_file(const std::string& path, const PlanFile& file);

}  // namespace tilewright::harness
