// A line on stderr that says how far a long verb is, where stderr is a terminal.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace tilewright::cli {

/// Quiet for two seconds, then at most ten lines a second, each over the last; wiped at the end.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void operator()(std::string_view what, double done);

 private:
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
  bool terminal_ = false;
  bool shown_ = false;
};

}  // namespace tilewright::cli
