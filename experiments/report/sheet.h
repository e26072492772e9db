// A table of an experiment's result, in every form that a result has.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "experiments/report/experiment.h"

namespace tilewright::harness {

/// Rows of cells as Markdown and CSV and JSON at once; every cell is text.
class Sheet {
 public:
  explicit Sheet(std::vector<std::string> header) : header_(std::move(header)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  void into(Reproduced& done) const {
    const auto line = [](const std::vector<std::string>& cells, const char* begin,
                         const char* between, const char* end, bool quoted) {
      std::string text = begin;
      for (std::size_t i = 0; i < cells.size(); ++i) {
        const bool quote = quoted && cells[i].find(',') != std::string::npos;
        text += (i == 0 ? "" : between) + (quote ? "\"" + cells[i] + "\"" : cells[i]);
      }
      return text + end;
    };
    done.report += line(header_, "| ", " | ", " |\n", false);
    done.report += line(std::vector<std::string>(header_.size(), "---"), "|", "|", "|\n", false);
    done.csv += line(header_, "", ",", "\n", true);
    for (const auto& row : rows_) {
      done.report += line(row, "| ", " | ", " |\n", false);
      done.csv += line(row, "", ",", "\n", true);
    }
    done.result["columns"] = header_;
    done.result["table"] = rows_;
  }

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tilewright::harness
