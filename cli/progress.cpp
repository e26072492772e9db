#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace tilewright::cli {

using std::chrono::steady_clock;

ProgressLine::ProgressLine()
    : start_(steady_clock::now()), last_(start_), terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::operator()(std::string_view what, double done) {
  if (!terminal_) return;
  const auto now = steady_clock::now();
  if (now - start_ < std::chrono::seconds(2) || now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string line = fmt::format("\r\033[K{}: {:.0f} % after {:.0f} s", what, 100 * done, seconds);
  std::fputs(line.c_str(), stderr);
}

}  // namespace tilewright::cli
