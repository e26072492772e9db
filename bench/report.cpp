#include "bench/report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "core/base/format.h"
#include "harness/circumstances.h"

namespace tilewright::bench {

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_)
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c == widths.size()) widths.push_back(0);
      widths[c] = std::max(widths[c], row[c].size());
    }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      line += (c == 0 ? "" : "  ") + (c == 0 || c >= left_from_
                                          ? formatted("{:<{}}", row[c], widths[c])
                                          : formatted("{:>{}}", row[c], widths[c]));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

Json seconds_json(const Samples& seconds) {
  return {{"seconds_median", seconds.median()},
          {"seconds_min", seconds.least()},
          {"samples", seconds.count()}};
}

Json circumstances(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + word;
  return harness::circumstances(line);
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void progress(const std::string& text) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fputs(formatted("\r\033[K{}", text).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace tilewright::bench
