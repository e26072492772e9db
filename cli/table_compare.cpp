// The comparison of models as text: who moves least, every model's plan, and what each says of the
// others'.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/table.h"
#include "cli/tables.h"
#include "core/base/format.h"

namespace tilewright::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kCauses = 3;  // of a plan's own price, the largest

bool is_comparable(const ordered_json& plan) {
  return plan.contains("prices") && plan["fits"].get<bool>() && plan["gap"].is_number();
}

/// Of a plan's prices the one by that model; null where it has none.
ordered_json price_by(const ordered_json& plan, const std::string& model) {
  for (const ordered_json& price : plan["prices"])
    if (price["by"] == model && price.contains("seconds")) return price;
  return nullptr;
}

std::string times(const ordered_json& number, double of) {
  return number.is_number() && of > 0 ? formatted("{:.2f}", number.get<double>() / of) : "-";
}

/// The fewest bytes of the plans that fit the level, whose they are, and how far the next one is.
std::string verdict(const ordered_json& j) {
  std::map<std::int64_t, std::string> by_bytes;
  for (const ordered_json& p : j["plans"]) {
    if (!is_comparable(p)) continue;
    std::string& names = by_bytes[p["exact_bytes"].get<std::int64_t>()];
    names += (names.empty() ? "" : ", ") + p["model"].get<std::string>();
  }
  if (by_bytes.empty()) return "no plan fits the level\n";
  const auto& [least, names] = *by_bytes.begin();
  std::string out = formatted("least: {} with {} B", names, grouped(least));
  const double bound = j["bound_bytes"].get<double>();
  if (bound > 0) out += formatted(", {:.2f} of the bound", static_cast<double>(least) / bound);
  if (by_bytes.size() > 1) {
    const auto& [next, others] = *std::next(by_bytes.begin());
    out += formatted("; next {} ({:.2f} times as many)", others,
                     static_cast<double>(next) / static_cast<double>(least));
  }
  return out + "\n";
}

std::string plans_text(const ordered_json& j) {
  Table table({"plan of", "kernels", "level", "fits", "exact B", "of bound", "simulated B",
               "memory B", "own price B", "own us", "search ms"});
  for (const ordered_json& p : j["plans"]) {
    if (!p.contains("prices")) continue;
    const ordered_json own = price_by(p, p["model"].get<std::string>());
    table.add({text(p, "model"), std::to_string(p["plan"]["kernels"].size()), text(p, "level"),
               text(p, "fits"), text(p, "exact_bytes"),
               p["gap"].is_number() ? formatted("{:.2f}", p["gap"].get<double>()) : "-",
               text(p, "simulated_bytes"), text(p, "memory_bytes"), text(own, "volume_bytes"),
               microseconds(get(own, "seconds")),
               p["search_seconds"].is_number()
                   ? formatted("{:.2f}", 1e3 * p["search_seconds"].get<double>())
                   : "-"});
  }
  return table.text();
}

/// What each model says that each plan moves, over what it moves.
std::string prices_text(const ordered_json& j) {
  std::vector<std::string> pricing, header{"plan of"};
  for (const ordered_json& m : j["models"])
    for (const ordered_json& p : j["plans"])
      if (p.contains("prices") &&
          !get(price_by(p, m.get<std::string>()), "volume_bytes").is_null()) {
        pricing.push_back(m.get<std::string>());
        header.push_back("by " + pricing.back());
        break;
      }
  if (pricing.empty()) return "";
  Table table(header);
  for (const ordered_json& p : j["plans"]) {
    if (!p.contains("prices")) continue;
    std::vector<std::string> row{text(p, "model")};
    for (const std::string& m : pricing)
      row.push_back(times(get(price_by(p, m), "volume_bytes"), p["exact_bytes"].get<double>()));
    table.add(row);
  }
  return "\nbytes as each model prices each plan, over exact:\n" + table.text();
}

bool same_plan(const ordered_json& a, const ordered_json& b) {
  return a.contains("prices") && b.contains("prices") && a["tree"] == b["tree"] &&
         a["tiles"] == b["tiles"];
}

/// A plan, once for all the models whose it is; empty where it was printed for one before.
std::string plan_text(const ordered_json& plans, const ordered_json& p) {
  std::string names;
  for (const ordered_json& other : plans) {
    if (!same_plan(other, p)) continue;
    if (names.empty() && other["model"] != p["model"]) return "";
    names += (names.empty() ? "" : ", ") + text(other, "model");
  }
  std::string out = formatted("\n{}: {}\n", names, text(p, "tree"));
  if (!p["tiles"].empty()) out += formatted("  tiles {}\n", pairs(p["tiles"]));
  for (const auto& [op, again] : p["recomputed"].items())
    out += formatted("  {} is computed {:.2f} times over\n", op, again.get<double>());
  if (p.contains("simulated_reason")) out += "  " + text(p, "simulated_reason") + "\n";
  const ordered_json own = price_by(p, p["model"].get<std::string>());
  std::vector<ordered_json> causes;
  if (own.contains("causes")) causes.assign(own["causes"].begin(), own["causes"].end());
  const auto size = [](const ordered_json& c) { return std::abs(c["bytes"].get<std::int64_t>()); };
  std::ranges::stable_sort(causes, [&](const auto& a, const auto& b) { return size(a) > size(b); });
  for (std::size_t c = 0; c < causes.size() && c < kCauses; ++c)
    out += formatted("  its own price differs from exact: {} {}{} B: {}\n",
                     text(causes[c], "tensor"), causes[c]["bytes"] > 0 ? "+" : "",
                     text(causes[c], "bytes"), text(causes[c], "cause"));
  return out;
}

/// Models that have no plan, those of one reason together.
std::string without_plan(const ordered_json& j) {
  std::vector<std::pair<std::string, std::string>> by_reason;  // reason, models
  for (const ordered_json& p : j["plans"]) {
    if (p.contains("prices")) continue;
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
    out += formatted("no plan of {}: {}\n", models, reason);
  return out.empty() ? "" : "\n" + out;
}

}  // namespace

std::string compare_table(const ordered_json& j) {
  if (j.contains("prepared_operators")) return layers_table(j, false);
  if (!j.contains("plans")) return "";
  std::string out = formatted("{} on {}, level {}; {}\nbound {} B, {} ({})\n", text(j, "workload"),
                              text(j, "machine"), text(j, "level"), text(j, "counted"),
                              text(j, "bound_bytes"), text(j, "bound"), text(j, "bound_is"));
  out += verdict(j) + "\n" + plans_text(j) + prices_text(j);
  for (const ordered_json& p : j["plans"])
    if (p.contains("prices")) out += plan_text(j["plans"], p);
  out += without_plan(j);
  return out +
         "\nEach model's time is its own and no other's measure; --json has every price by every "
         "model, with what "
         "differs from exact by tensor.\n";
}

}  // namespace tilewright::cli
