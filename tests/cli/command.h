// Runs the built command from an argument vector and keeps what it printed.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tilewright::test {

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
  int lines_of_err() const {
    int n = 0;
    for (char c : err) n += c == '\n' ? 1 : 0;
    return n;
  }
};

/// The command's own arguments. `environment`: variables to set for it. `out`: where its standard output
/// goes; empty: into the outcome.
Outcome tilewright_command(
    std::vector<std::string> arguments,
    const std::vector<std::pair<std::string, std::string>>& environment = {},
    const std::string& out = {});

/// A fresh folder, removed with the object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const;
  std::vector<std::string> names() const;

 private:
  std::string path_;
};

}  // namespace tilewright::test
