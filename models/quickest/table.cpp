// The planner's parts and edges: who proposed each, and what the other choice would cost.
#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "core/base/format.h"
#include "core/base/shown.h"
#include "models/tables.h"

namespace tilewright::quickest {
namespace {

using nlohmann::ordered_json;
using namespace shown;

constexpr std::size_t kMostNames = 6;
/// Rows of an explanation, so that it is a screen.
constexpr std::size_t kMostParts = 16, kMostEdges = 16;

std::string without_digits(std::string name) {
  std::erase_if(name, [](unsigned char c) { return std::isdigit(c) != 0; });
  return name;
}

/// Rows that differ in their first cell's digits alone are one, with how many they are.
class Folded {
 public:
  void add(std::vector<std::string> row) {
    std::vector<std::string> key = row;
    for (std::string& cell : key) cell = without_digits(cell) == cell ? cell : "#" + cell;
    key.front() = without_digits(row.front());
    for (std::size_t i = 0; i < keys_.size(); ++i)
      if (keys_[i] == key) {
        ++counts_[i];
        return;
      }
    keys_.push_back(std::move(key)), rows_.push_back(std::move(row)), counts_.push_back(1);
  }
  std::size_t size() const { return rows_.size(); }
  /// The first `most` rows, and how many more there are.
  std::string text(std::vector<std::string> header, std::size_t most, const char* what) const {
    const bool many = std::ranges::any_of(counts_, [](int n) { return n > 1; });
    if (many) header.emplace_back("alike");
    Table table(header);
    for (std::size_t i = 0; i < std::min(most, rows_.size()); ++i) {
      std::vector<std::string> row = rows_[i];
      if (many) row.push_back(std::to_string(counts_[i]));
      table.add(std::move(row));
    }
    if (rows_.size() <= most) return table.text();
    return table.text() +
           formatted("and {} more {}, which --json lists\n", rows_.size() - most, what);
  }

 private:
  std::vector<std::vector<std::string>> keys_, rows_;
  std::vector<int> counts_;
};

std::string some_of(const ordered_json& names) {
  std::string all;
  for (std::size_t i = 0; i < names.size() && i < kMostNames; ++i)
    all += (i == 0 ? "" : " ") + names[i].get<std::string>();
  if (names.size() > kMostNames) all += formatted(" and {} more", names.size() - kMostNames);
  return all;
}

std::string cost(const ordered_json& j, const std::string& after) {
  if (const ordered_json& time = get(j, ("seconds" + after).c_str()); time.is_number())
    return seconds(time);
  const ordered_json& moved = get(j, ("bytes" + after).c_str());
  return moved.is_number() ? grouped(static_cast<std::int64_t>(moved.get<double>())) + " B" : "-";
}

/// Of a plan that is joined of parts: whose each is, what it costs, and why edges are fused. Empty
/// for other plans. `a_screen`: not all rows.
std::string parts_text(const ordered_json& j, bool a_screen) {
  const ordered_json& parts =
      get(j, j.contains("parts_planned") ? "parts_planned" : "kernels_predicted");
  if (!parts.is_array() || parts.empty() || !parts.front().contains("by")) return "";
  const bool timed = parts.front().contains("seconds");
  const bool merged = std::ranges::any_of(
      parts, [](const ordered_json& p) { return p.contains("seconds_of_loops_apart"); });
  std::vector<std::string> head = {"part", "proposed by",
                                   timed ? "predicted" : "bytes, most that a model counts"};
  if (merged) head.emplace_back("by this plan alone");
  Folded rows;
  for (const ordered_json& p : parts) {
    std::vector<std::string> row = {some_of(p["operators"]), text(p, "by"),
                                    cost(p, "") + (p.contains("once") ? ", once" : "")};
    if (merged)
      row.push_back(cost(p, p.contains("seconds_of_loops_apart") ? "_of_loops_apart" : ""));
    rows.add(std::move(row));
  }
  std::string out = "\n" + rows.text(head, a_screen ? kMostParts : rows.size(), "parts");
  if (merged)
    out +=
        "run W takes loops that always go together as one loop; a kernel of this plan does not\n";
  if (!j.contains("edges")) return out;
  Folded edges;
  for (const ordered_json& e : j["edges"])
    edges.add({formatted("{} > {} > {}", text(e, "from"), text(e, "tensor"), text(e, "to")),
               e["fused"].get<bool>() ? "fused" : "apart", cost(e, "_fused"), cost(e, "_apart"),
               cost(e, "_fused") != "-" && cost(e, "_apart") != "-" ? "" : text(e, "why")});
  return out + "\n" +
         edges.text({"edge", "is", "fused", "apart", "note"}, a_screen ? kMostEdges : edges.size(),
                    "edges");
}

std::string explained(const ordered_json& j) {
  return j.contains("edges") ? heading(j) + parts_text(j, true) : "";
}

std::string planned(const ordered_json& j, const std::string& figures) {
  return figures + parts_text(j, false);
}

}  // namespace

ModelTable table() { return {.explained = explained, .planned = planned}; }

}  // namespace tilewright::quickest
