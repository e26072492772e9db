// What a section prints and what goes into the JSON document.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/samples.h"

namespace tilewright::bench {

using Json = nlohmann::ordered_json;

/// Columns of text, each as wide as its widest cell: the first to the left, the others to the
/// right, those from `left_from` on to the left again.
class Table {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  explicit Table(std::vector<std::string> head, std::size_t left_from = kNone)
      : rows_{std::move(head)}, left_from_(left_from) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::size_t left_from_ = kNone;
};

/// {"seconds_median": ..., "seconds_min": ..., "samples": n}
Json seconds_json(const Samples& seconds);

/// The processor's name, the operating system's and the compiler's, the load, the date (UTC) and
/// the command.
Json circumstances(const std::vector<std::string>& command);

/// Prints at once, so that a long run shows what it has.
void print(const std::string& text);
/// On stderr, over itself, where stderr is a terminal.
void progress(const std::string& text);

}  // namespace tilewright::bench
