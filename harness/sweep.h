// A sweep: one question asked of every combination of workloads, machines, models, orders and
// tiles. The caller decides where points are answered (threads, a cluster) and keeps the rows.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/document.h"
#include "harness/verb.h"

namespace tilewright::harness {

/// One point: what `verb` is asked. The text of it, as JSON, is what is sent to whoever answers.
struct SweepPoint {
  std::string verb;  ///< predict, plan, simulate
  std::string workload, machine, model;
  std::string order = {};                          ///< empty: the model's own
  std::map<std::string, std::int64_t> tiles = {};  ///< empty: solved, or the model's own
  std::map<std::string, std::string> options = {};
  friend bool operator==(const SweepPoint&, const SweepPoint&) = default;
};
nlohmann::ordered_json to_json(const SweepPoint& p);
/// Throws InputError for what to_json has not written.
SweepPoint sweep_point_from_json(const nlohmann::ordered_json& j);
/// The point's name in a file of rows: a hash of what it asks.
std::string id_of(const SweepPoint& p);

/// The verb of a point. Throws InputError where it is none that a sweep asks.
const Verb& sweep_verb(std::string_view name);
/// What the point asks of its verb. Throws InputError for an option that the verb does not have, and
/// for a value that it does not take.
Asked asked_of(const SweepPoint& p);

struct Sweep {
  std::string name;
  std::vector<SweepPoint> points;
};

/// More points than this are refused before any is made.
inline constexpr std::int64_t kMostSweepPoints = 2'000'000;

/// Reads a sweep's file (docs/sweeps.md). Points come in the file's order, workloads outermost; a
/// point that two combinations lead to is there once. Names are checked: a workload, machine, model
/// or option that is not known, an order or a loop that no workload of the sweep has. Throws
/// InputError. Cost: microseconds a point.
Sweep read_sweep(std::string_view text, const std::string& where,
                 std::int64_t most = kMostSweepPoints);

/// Answers of points, a row each: flat, numbers and text only, the same keys for the same kind of
/// point. "status" is done, refused (with "reason": nothing fits, not legal, not available) or bad
/// input (a tile larger than its loop). Workloads and machines are read once. Cost: predict, tens
/// of microseconds a point; plan, milliseconds; simulate, as the verb.
std::vector<nlohmann::ordered_json> sweep_rows(const std::vector<SweepPoint>& points);

}  // namespace tilewright::harness
