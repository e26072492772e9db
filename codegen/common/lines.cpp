#include "codegen/common/lines.h"

namespace tilewright::codegen {
namespace {

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

std::string one_line(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~' || c == '\\') c = '_';
  return text;
}

std::string harmless(const std::string& text) {
  std::string out;
  for (char c : text.substr(0, 80)) out += is_alphanumeric(c) || c == '-' || c == '_' ? c : '_';
  return out.empty() ? "schedule" : out;
}

void Lines::line(const std::string& text) {
  text_.append(static_cast<std::size_t>(2 * depth_), ' ');
  text_ += text + "\n";
}

}  // namespace tilewright::codegen
