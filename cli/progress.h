// A line on stderr that says how far a long verb is, where stderr is a terminal.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace tilewright::cli {

/// Quiet for two seconds, then the last thing said, twice a second, each over the last; wiped at the
/// end. Where stderr is no terminal: nothing.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  /// What is being done, and how much of it: 0 where that is not known.
  void operator()(std::string_view what, double done);

 private:
  void show();

  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;
  bool shown_ = false;
  std::string what_;
  double done_ = 0;
  std::thread thread_;  ///< only on a terminal
};

}  // namespace tilewright::cli
