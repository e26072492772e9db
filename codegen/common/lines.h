// The text that emitters write.
#pragma once

#include <cstdint>
#include <string>

#include "core/lowering/symbolic.h"

namespace tilewright::codegen {

using lowering::identifier, lowering::times;

/// Text that cannot end a comment's line: names of levels and kernels come from files.
std::string one_line(std::string text);
/// Letters, digits, '-' and '_' only, at most 80: names of workloads reach comments and file names.
std::string harmless(const std::string& text);

/// Lines of C++ with their indentation.
class Lines {
 public:
  explicit Lines(int depth) : depth_(depth) {}
  void line(const std::string& text);
  void comment(const std::string& text) { line("// " + one_line(text)); }
  /// A preprocessor line, at the margin.
  void directive(const std::string& text) { text_ += text + "\n"; }
  void open(const std::string& text) { line(text.empty() ? "{" : text + " {"), ++depth_; }
  void close() { --depth_, line("}"); }
  /// Ends what open() began where the closing line was written already.
  void end() { --depth_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_;
};

}  // namespace tilewright::codegen
