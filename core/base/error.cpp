#include "core/base/error.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "core/base/names.h"

namespace tilewright {
namespace {

constexpr std::size_t kMaxShown = 160;  // characters of a value that an error shows

/// Printable, on one line, and short: input decides what is in here.
std::string shown(std::string_view text, std::size_t most) {
  std::string out;
  bool blank = false;
  for (char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    const bool space = c == '\n' || c == '\r' || c == '\t' || c == ' ';
    if (space && blank) continue;
    blank = space;
    out += space ? ' ' : control ? '?' : c;
    if (out.size() >= most) return out + "...";
  }
  return out;
}

std::string one_line(const InputError::Parts& p) {
  std::string line;
  const auto lead = [&line](const std::string& part) {
    if (!part.empty()) line += shown(part, kMaxShown) + ": ";
  };
  lead(p.where);
  lead(p.field);
  if (!p.value.empty()) line += shown(p.value, kMaxShown) + " ";
  line += p.problem.empty() ? "is not accepted" : shown(p.problem, 4 * kMaxShown);
  if (!p.accepted.empty()) line += "; accepted: " + shown(p.accepted, 4 * kMaxShown);
  for (const std::string& more : p.lines) line += "\n  " + shown(more, 2 * kMaxShown);
  return line;
}

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

/// Levenshtein distance, ignoring case.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (lower(a[i - 1]) != lower(b[j - 1]) ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row.back();
}

}  // namespace

InputError::InputError(Parts parts)
    : std::runtime_error(one_line(parts)), parts_(std::move(parts)) {}

InputError InputError::located(std::string_view where) const {
  Parts parts = parts_;
  if (parts.where.empty()) parts.where = std::string(where);
  return InputError(std::move(parts));
}

std::string nearest(std::string_view given, std::span<const std::string> candidates) {
  if (given.empty() || given.size() > 128) return "";
  const std::size_t limit = 1 + given.size() / 3;
  std::string best;
  std::size_t least = limit + 1;
  for (const std::string& c : candidates) {
    if (c.empty() || c.size() > 128) continue;
    const std::size_t d = distance(given, c);
    // Everything replaced is no likeness: "a" is not near "b".
    if (d < least && d < std::max(given.size(), c.size())) {
      least = d;
      best = c;
    }
  }
  return best;
}

std::string names_like(std::string_view given, std::span<const std::string> names,
                       std::string_view command) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> left(names.begin(), names.end()), like;
  while (like.size() < kMost) {
    const std::string near = nearest(given, left);
    if (near.empty()) break;
    std::erase(left, near);
    like.push_back(near);
  }
  // A part of a longer name: "norm", "chain".
  for (const std::string& name : left)
    if (given.size() >= kMost && like.size() < kMost && name.find(given) != std::string::npos)
      like.push_back(name);
  return (like.empty() ? "a name" : join(like) + " or another name") + " that " +
         std::string(command) + " lists";
}

std::string join(std::span<const std::string> items, std::string_view separator) {
  std::string out;
  for (const std::string& item : items) {
    if (&item != items.data()) out += separator;
    out += item;
  }
  return out;
}

bool is_identifier(std::string_view text) {
  if (text.empty() || text.size() > 64) return false;
  const auto letter = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  };
  if (!letter(text.front())) return false;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

void check_failed(const char* expression, const char* file, int line, const std::string& message) {
  // Thrown, so that the command ends in status 1 and a Python process goes on.
  throw std::logic_error(std::string(file) + ":" + std::to_string(line) + ": " + expression + ": " +
                         message);
}

}  // namespace tilewright
