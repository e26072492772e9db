// A line on stderr that says how far a long verb is, where stderr is a terminal.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace tilewright::cli {

/// Quiet for two seconds, then the last thing said, twice a second, each over the last, and what is
/// left of it at the pace so far; wiped at the end. Where stderr is no terminal: nothing.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  /// What is being done, and how much of it: 0 where that is not known.
  void operator()(std::string_view what, double done);
  /// "simulating: 40 %, 12 s, about 18 s left", of what has taken `seconds` in all and has gone on
  /// for `since` of them from `from` to `done`.
  static std::string line(std::string_view what, double done, double seconds, double from,
                          double since);

 private:
  void show();

  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;
  bool shown_ = false;
  std::string what_;
  double done_ = 0;
  std::chrono::steady_clock::time_point what_start_;  ///< when `what_` was said first
  double from_ = 0;                                   ///< and how much of it was done then
  std::thread thread_;                                ///< only on a terminal
};

}  // namespace tilewright::cli
