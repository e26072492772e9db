#include "cli/progress.h"
#include "core/base/format.h"

#include <unistd.h>

#include <cstdio>

namespace tilewright::cli {

using std::chrono::steady_clock;

ProgressLine::ProgressLine() : start_(steady_clock::now()) {
  if (::isatty(STDERR_FILENO) == 1) thread_ = std::thread([this] { show(); });
}

ProgressLine::~ProgressLine() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (shown_) std::fputs("\r\033[K", stderr);
}

void ProgressLine::operator()(std::string_view what, double done) {
  const std::lock_guard lock(mutex_);
  what_ = what;
  done_ = done;
}

void ProgressLine::show() {
  std::unique_lock lock(mutex_);
  auto wait = std::chrono::milliseconds(2000);
  while (!stop_.wait_for(lock, wait, [this] { return stopped_; })) {
    wait = std::chrono::milliseconds(500);
    const double seconds = std::chrono::duration<double>(steady_clock::now() - start_).count();
    const std::string share = done_ > 0 ? formatted(" {:.0f} %,", 100 * done_) : "";
    std::fputs(formatted("\r\033[K{}:{} {:.0f} s", what_.empty() ? "working" : what_, share, seconds)
                   .c_str(),
               stderr);
    shown_ = true;
  }
}

}  // namespace tilewright::cli
