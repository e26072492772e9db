// Scalars and quantities as documents write them.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/base/document.h"

namespace tilewright {
namespace {
/// True for what some YAML reader takes for a truth value, nothing or a number.
bool reads_as_other(std::string_view text) {
  constexpr std::array<std::string_view, 9> kWords = {"null", "true", "false", "yes", "no",
                                                      "on",   "off",  "y",     "n"};
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (std::find(kWords.begin(), kWords.end(), lower) != kWords.end()) return true;
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  return error != std::errc::invalid_argument && end == text.data() + text.size();
}
}  // namespace

std::string yaml_scalar(std::string_view text) {
  constexpr std::string_view kInner = " _-./+()*=<>;'";  // safe in block and flow, not at the start
  const auto word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const bool plain = !text.empty() && word(text.front()) && text.back() != ' ' &&
                     !reads_as_other(text) && std::all_of(text.begin(), text.end(), [&](char c) {
                       return word(c) || kInner.find(c) != std::string_view::npos;
                     });
  if (plain) return std::string(text);
  std::string r = "\"";
  for (char c : text) {
    constexpr std::string_view kHex = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      r += '\\';
      r += c;
    } else if (c == '\n') {
      r += "\\n";
    } else if (c == '\t') {
      r += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      r += "\\x";
      r += kHex[byte >> 4];
      r += kHex[byte & 15];
    } else {
      r += c;
    }
  }
  return r + "\"";
}

std::string shortest(double value) {
  std::array<char, 64> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), end);
}

namespace {
struct Prefix {
  std::string_view text;
  double scale;
};
constexpr std::array<Prefix, 5> kPrefixes = {
    {{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"K", 1e3}, {"", 1.0}}};
}  // namespace

std::optional<double> parse_quantity(std::string_view text, std::string_view unit) {
  double v = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc()) return std::nullopt;
  std::string_view suffix(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  double scale = 1.0;
  if (!suffix.empty()) {
    if (!suffix.ends_with(unit)) return std::nullopt;
    suffix.remove_suffix(unit.size());
    const auto* known = std::find_if(kPrefixes.begin(), kPrefixes.end(),
                                     [&](const Prefix& p) { return p.text == suffix; });
    if (known == kPrefixes.end()) return std::nullopt;
    scale = known->scale;
  }
  v *= scale;
  if (!std::isfinite(v) || v < 0) return std::nullopt;
  return v;
}

std::string quantity_text(double value, std::string_view unit) {
  for (const Prefix& p : kPrefixes) {
    if (value < p.scale && !p.text.empty()) continue;
    const std::string text =
        shortest(value / p.scale) + " " + std::string(p.text) + std::string(unit);
    if (p.text.empty() || parse_quantity(text, unit) == value) return text;
  }
  return shortest(value) + " " + std::string(unit);
}

}  // namespace tilewright
