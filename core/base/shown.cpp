#include "core/base/shown.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/base/format.h"

namespace tilewright::shown {
namespace {

constexpr std::size_t kIndent = 4;  ///< of a row that goes on below

/// Characters shown: bytes that start one in UTF-8.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

/// Whether a text that could begin at `at` gets a line of its own: where little room is left, or
/// where it is whole there and would be cut here.
bool on_its_own(std::size_t at, std::size_t text) {
  return at > 2 * kColumns / 3 ||
         (at > kColumns / 3 && at + 2 + text > kColumns && kIndent + text <= kColumns);
}

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || c == ',' || c == '.' || c == '-' || c == '+' || c == 'e';
  });
}

}  // namespace

std::string Table::text(bool fold) const {
  std::vector<std::size_t> widths;
  for (const std::string& h : header_) widths.push_back(width(h));
  std::vector<bool> right(header_.size(), true);
  for (const auto& row : rows_)
    for (std::size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], width(row[c]));
      if (!is_number(row[c])) right[c] = false;
    }
  const std::size_t gaps = header_.empty() ? 0 : 2 * (header_.size() - 1);
  const std::size_t all = std::accumulate(widths.begin(), widths.end(), gaps);
  // Where only a last text is too wide, that is folded.
  if (all > kColumns && !right.back() && all - widths.back() <= 2 * kColumns / 3) fold = true;
  // A row that is wider than a screen goes on below, and so does the header.
  std::vector<bool> below(header_.size(), false);
  std::size_t used = 0;
  for (std::size_t c = 0; c + (fold ? 1 : 0) < header_.size(); ++c) {
    below[c] = c > 0 && used + 2 + widths[c] > kColumns;
    used = (below[c] ? kIndent : used + (c > 0 ? 2 : 0)) + widths[c];
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& row) {
    std::string text;
    const auto go_on = [&] {
      text.erase(text.find_last_not_of(' ') + 1);
      out += text + "\n";
      text = std::string(kIndent, ' ');
    };
    for (std::size_t c = 0; c < row.size(); ++c) {
      const bool last = fold && c > 0 && c + 1 == row.size();
      if (below[c] || (last && on_its_own(width(text), width(row[c]))))
        go_on();
      else if (c > 0)
        text += "  ";
      if (last || width(text) + width(row[c]) > kColumns) {
        text += folded(row[c], width(text), width(text));
        text.pop_back();
        continue;
      }
      const std::string fill(widths[c] - width(row[c]), ' ');
      text += right[c] ? fill + row[c] : row[c] + fill;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line(header_);
  for (const auto& row : rows_) line(row);
  return out;
}

std::string folded(const std::string& text, std::size_t indent, std::size_t used) {
  std::string out, now;
  std::string gap;  // before the next word: none before the first, nor within a list that is cut
  bool begun = false;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = std::min(text.find(' ', begin), text.size()), next = end + 1;
    if (end - begin > kColumns - indent) {  // a list without blanks: cut behind a comma
      const std::size_t comma = text.rfind(',', begin + kColumns - indent - 1);
      if (comma != std::string::npos && comma > begin) end = next = comma + 1;
    }
    const std::string word = text.substr(begin, end - begin);
    if (begun && used + now.size() + gap.size() + word.size() > kColumns) {
      out += now + "\n";
      now = std::string(indent, ' ') + word;
      used = 0;
    } else {
      now += gap + word;
    }
    begun = true;
    gap = next == end ? "" : " ";
    begin = next;
  }
  return out + now + "\n";
}

std::string grouped(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string human_bytes(std::int64_t n) {
  const double b = static_cast<double>(n);
  if (n >= std::int64_t{1} << 30) return formatted("{:.2f} GiB", b / (1 << 30));
  if (n >= 1 << 20) return formatted("{:.2f} MiB", b / (1 << 20));
  if (n >= 1 << 10) return formatted("{:.2f} KiB", b / (1 << 10));
  return formatted("{} B", n);
}

std::string seconds(const nlohmann::ordered_json& value) {
  if (!value.is_number()) return "-";
  const double s = value.get<double>();
  if (s < 1e-3) return formatted("{:.3g} us", s * 1e6);
  if (s < 1) return formatted("{:.3g} ms", s * 1e3);
  return formatted("{:.3g} s", s);
}

std::string microseconds(const nlohmann::ordered_json& seconds, int digits) {
  return seconds.is_number() ? formatted("{:.{}f}", seconds.get<double>() * 1e6, digits) : "-";
}

std::string cell(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_integer()) return grouped(value.get<std::int64_t>());
  if (value.is_number()) return formatted("{:.4g}", value.get<double>());
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) return pairs(value);
  std::string out;
  for (const auto& v : value) out += (out.empty() ? "" : ", ") + cell(v);
  return out;
}

std::string pairs(const nlohmann::ordered_json& object) {
  std::string out;
  for (const auto& [key, value] : object.items())
    out += (out.empty() ? "" : " ") + key + "=" +
           (value.is_number_integer() ? std::to_string(value.get<std::int64_t>()) : cell(value));
  return out;
}

const nlohmann::ordered_json& get(const nlohmann::ordered_json& j, const char* key) {
  static const nlohmann::ordered_json none = nullptr;
  const auto at = j.find(key);
  return at == j.end() ? none : *at;
}

std::string text(const nlohmann::ordered_json& j, const char* key) { return cell(get(j, key)); }

std::string joined(const nlohmann::ordered_json& names) {
  std::string out;
  for (const auto& n : names) out += (out.empty() ? "" : " ") + n.get<std::string>();
  return out;
}

std::string bytes(const nlohmann::ordered_json& value) {
  if (!value.is_number_integer()) return "-";
  const auto n = value.get<std::int64_t>();
  return n < 1024 ? grouped(n) + " B" : formatted("{} B ({})", grouped(n), human_bytes(n));
}

std::string percent(const nlohmann::ordered_json& value) {
  return value.is_number() ? formatted("{:.2f} %", 100 * value.get<double>()) : "-";
}

std::string fixed(const nlohmann::ordered_json& value, int digits) {
  return value.is_number() ? formatted("{:.{}f}", value.get<double>(), digits) : "-";
}

std::string heading(const nlohmann::ordered_json& j) {
  return formatted("{} on {} by {}\n", text(j, "workload"), text(j, "machine"), text(j, "model"));
}

void Lines::add(const std::string& name, const std::string& value) {
  if (!value.empty() && value != "-") out_ += formatted("{:<16} {}", name, folded(value, 17, 17));
}

}  // namespace tilewright::shown
