// The comparison of models as text: who moves least, every model's plan, and what each says of the
// others'.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/tables.h"
#include "core/base/format.h"
#include "core/base/shown.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

bool has_plan(const ordered_json& plan) { return plan.contains("kernels"); }

/// Where exact gives up, nothing says that the plan does not fit.
bool fits(const ordered_json& plan) { return has_plan(plan) && plan.value("fits", true); }
/// A plan for another level than the one compared has bytes of that level, and no gap to the bound.
bool has_bytes_of_the_level(const ordered_json& plan) {
  return fits(plan) && (!plan.contains("gap") || plan["gap"].is_number());
}

/// Of a plan's prices the one by that model; null where it has none.
ordered_json price_by(const ordered_json& plan, const std::string& model) {
  if (!plan.contains("prices")) return nullptr;
  for (const ordered_json& price : plan["prices"])
    if (price["by"] == model && price.contains("seconds")) return price;
  return nullptr;
}

/// "A, B with 1,024 B; next C (1.50 times as many)": who has least of a number.
template <class Show>
std::string least(const ordered_json& plans, bool (*comparable)(const ordered_json&),
                  const char* key, const char* more, Show show) {
  std::map<double, std::string> by;
  for (const ordered_json& p : plans) {
    if (!comparable(p) || !get(p, key).is_number()) continue;
    std::string& names = by[p[key].get<double>()];
    names += (names.empty() ? "" : ", ") + text(p, "model");
  }
  if (by.empty()) return "";
  const auto& [first, names] = *by.begin();
  std::string out = formatted("{} with {}", names, show(first));
  if (by.size() > 1 && first > 0)
    out += formatted("; next {} ({:.2f} times {})", std::next(by.begin())->second,
                     std::next(by.begin())->first / first, more);
  return out;
}

/// The least predicted time and the fewest bytes of the plans that fit their level.
std::string verdict(const ordered_json& j) {
  const std::string time = least(j["plans"], fits, "seconds", "as long",
                                 [](double s) { return formatted("{:.2f} us", 1e6 * s); });
  // Where some plan is not counted, the operands of all are what can be set side by side.
  const bool counted = std::ranges::none_of(j["plans"], [](const ordered_json& p) {
    return has_plan(p) && get(p, "exact_bytes").is_null();
  });
  const char* const key = counted ? "exact_bytes" : "each_kernel_once_bytes";
  const std::string bytes =
      least(j["plans"], has_bytes_of_the_level, key, "as many", [&](double b) {
        const double bound = j["bound_bytes"].get<double>();
        return grouped(static_cast<std::int64_t>(b)) + " B" +
               (bound > 0 ? formatted(", {:.2f} of the bound", b / bound) : "");
      });
  if (bytes.empty() && time.empty()) return "no plan fits the level, or none can be counted\n";
  return (time.empty() ? folded("least time: no plan has seconds by " + text(j, "seconds_by"))
                       : folded("least time, predicted: " + time)) +
         (bytes.empty()
              ? "least bytes: exact gives up on every plan\n"
              : folded((counted ? "least bytes: " : "least bytes of operands: ") + bytes));
}

/// A row a plan, the fastest first, those without seconds last.
std::string plans_text(const ordered_json& j) {
  std::vector<ordered_json> plans;
  for (const ordered_json& p : j["plans"])
    if (has_plan(p)) plans.push_back(p);
  std::ranges::stable_sort(plans, {}, [](const ordered_json& p) {
    return p["seconds"].is_number() ? p["seconds"].get<double>() : HUGE_VAL;
  });
  std::vector<std::vector<std::string>> rows;
  for (const ordered_json& p : plans) {
    const ordered_json own = price_by(p, p["model"].get<std::string>());
    const bool elsewhere = p.contains("level") && p["level"] != j["level"];
    rows.push_back({text(p, "model") + (elsewhere ? formatted(" (for {})", text(p, "level")) : "") +
                        (fits(p) ? "" : " (too large)"),
                    text(p, "kernels"), microseconds(p["seconds"]), text(p, "exact_bytes"),
                    get(p, "gap").is_number() ? formatted("{:.2f}", p["gap"].get<double>()) : "-",
                    text(p, "each_kernel_once_bytes"), microseconds(get(p, "own_seconds")),
                    text(own, "volume_bytes"), seconds(get(p, "search_seconds"))});
  }
  // The last columns are left out where a row would not fit a line; --json has them.
  std::vector<std::string> header = {"plan of",    "kernels", "us",    "B",     "of bound",
                                     "operands B", "own us",  "own B", "search"};
  for (;; header.pop_back()) {
    Table table(header);
    for (std::vector<std::string>& row : rows) {
      row.resize(header.size());
      table.add(row);
    }
    std::string text = table.text();
    if (header.size() <= 6 ||
        std::ranges::count(text, '\n') == static_cast<std::ptrdiff_t>(rows.size()) + 1)
      return text;
  }
}

/// Whether a walk through simulated memories moves what exact counts.
std::string simulated(const ordered_json& j) {
  std::string differ, not_walked;
  std::size_t walked = 0;
  for (const ordered_json& p : j["plans"]) {
    if (!has_plan(p)) continue;
    if (get(p, "simulated_bytes").is_null())
      not_walked += (not_walked.empty() ? "" : ", ") + text(p, "model");
    else if (p["simulated_bytes"] != p["exact_bytes"])
      differ += formatted("{}{} {} B", differ.empty() ? "" : ", ", text(p, "model"),
                          text(p, "simulated_bytes"));
    else
      ++walked;
  }
  std::string out = formatted("simulated: {} moved the bytes of column B exactly",
                              walked == 1 ? "1 plan" : formatted("{} plans", walked));
  if (!differ.empty()) out += "; otherwise: " + differ;
  if (!not_walked.empty()) out += "; not walked (--json says why): " + not_walked;
  return folded(out);
}

/// The models whose plan this is; empty where it was printed for one before.
std::string same_plans(const ordered_json& plans, const ordered_json& p) {
  std::string names;
  for (const ordered_json& other : plans) {
    if (!has_plan(other) || other["tree"] != p["tree"] || other["tiles"] != p["tiles"] ||
        other["kernels"] != p["kernels"])
      continue;
    if (names.empty() && other["model"] != p["model"]) return "";
    names += (names.empty() ? "" : ", ") + text(other, "model");
  }
  return names;
}

/// Plans of one kernel, once for all the models whose they are.
std::string trees_text(const ordered_json& j) {
  std::string out;
  for (const ordered_json& p : j["plans"]) {
    if (!has_plan(p) || p["kernels"] != 1) continue;
    const std::string names = same_plans(j["plans"], p);
    if (names.empty()) continue;
    std::string line = formatted("{}: {}", names, text(p, "tree"));
    if (!p["tiles"].empty()) line += " tiles " + pairs(p["tiles"]);
    if (line.size() > 3 * kColumns) line = line.substr(0, 3 * kColumns - 20) + " ... (--json: all)";
    out += folded(line);
  }
  return out.empty() ? "" : "\n" + out;
}

/// Models that have no plan, those of one reason together.
std::string without_plan(const ordered_json& j) {
  std::vector<std::pair<std::string, std::string>> by_reason;  // reason, models
  for (const ordered_json& p : j["plans"]) {
    if (has_plan(p)) continue;
    const std::string reason = text(p, "reason"), model = text(p, "model");
    const auto at =
        std::ranges::find(by_reason, reason, &std::pair<std::string, std::string>::first);
    if (at == by_reason.end())
      by_reason.emplace_back(reason, model);
    else
      at->second += ", " + model;
  }
  std::string out;
  for (const auto& [reason, models] : by_reason)
    out += folded(formatted("no plan of {}: {}", models, reason));
  return out.empty() ? "" : "\n" + out;
}

}  // namespace

std::string compare_table(const ordered_json& j) {
  if (j.contains("prepared_operators")) return layers_table(j, false);
  if (!j.contains("plans")) return "";
  return folded(formatted("{} on {}, level {}", text(j, "workload"), text(j, "machine"),
                          text(j, "level"))) +
         verdict(j) + "\n" + plans_text(j) + simulated(j) + trees_text(j) + without_plan(j) + "\n" +
         folded(formatted(
             "us: every plan priced by {}, products included. B: {}, by exact; the bound, {} B, is "
             "{} ({}). operands B: each kernel's inputs and outputs once. own: what the plan's "
             "model says itself, which may leave products out; compare it with no other row's. "
             "search: how long the model looked for its plan. --json: every price by every model, "
             "and why a price differs from exact, by tensor.",
             text(j, "seconds_by"), text(j, "counted"), text(j, "bound_bytes"), text(j, "bound"),
             text(j, "bound_is")));
}

}  // namespace tilewright::cli
