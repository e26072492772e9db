#include "cli/progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "core/base/format.h"

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
  if (what_ != what || done < done_) {
    what_start_ = steady_clock::now();
    from_ = done;
  }
  what_ = what;
  done_ = done;
}

std::string ProgressLine::line(std::string_view what, double done, double seconds, double from,
                               double since) {
  std::string text(what.empty() ? "working" : what);
  text += done > 0 ? formatted(": {:.0f} %, {:.0f} s", 100 * done, seconds)
                   : formatted(": {:.0f} s", seconds);
  if (done > 0 && done < 1) {  // at this step's pace, or where it has none yet at that of all
    const double pace = done > from ? (done - from) / since : done / seconds;
    text += formatted(", about {:.0f} s left", std::ceil((1 - done) / pace));
  }
  return text;
}

void ProgressLine::show() {
  std::unique_lock lock(mutex_);
  auto wait = std::chrono::milliseconds(2000);
  while (!stop_.wait_for(lock, wait, [this] { return stopped_; })) {
    wait = std::chrono::milliseconds(500);
    const auto since = [now = steady_clock::now()](steady_clock::time_point then) {
      return std::chrono::duration<double>(now - then).count();
    };
    const std::string text = line(what_, done_, since(start_), from_, since(what_start_));
    std::fputs(formatted("\r\033[K{}", text).c_str(), stderr);
    shown_ = true;
  }
}

}  // namespace tilewright::cli
