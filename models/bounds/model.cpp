#include "models/bounds/model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

namespace tilewright::bounds {
namespace {

using nlohmann::ordered_json;

ordered_json or_null(std::optional<Bytes> bytes) {
  return bytes ? ordered_json(bytes->value) : ordered_json(nullptr);
}

std::optional<Bytes> at(const Result<Curve>& curve, Bytes size) {
  return curve ? curve->at(size) : std::nullopt;
}

ordered_json ratio(std::optional<Bytes> a, std::optional<Bytes> b) {
  if (!a || !b || b->value == 0) return nullptr;
  return static_cast<double>(a->value) / static_cast<double>(b->value);
}

/// Breakpoints, the last of each eighth of an octave, and the first; where there is no curve,
/// powers of two up to the whole workload.
std::vector<Bytes> sizes_of(const Workload& w, const Slopes& slopes) {
  std::set<Bytes> sizes;
  for (const Result<Curve>* curve : {&slopes.unfused, &slopes.fused}) {
    if (!*curve) continue;
    const auto& points = (*curve)->points();
    sizes.insert(points.front().buffer);
    const auto octave = [](Bytes b) { return std::floor(8 * std::log2(double(b.value))); };
    for (std::size_t i = 0; i < points.size(); ++i)
      if (i + 1 == points.size() || octave(points[i + 1].buffer) != octave(points[i].buffer))
        sizes.insert(points[i].buffer);
  }
  if (!sizes.empty()) return {sizes.begin(), sizes.end()};
  Bytes all;
  for (const Tensor& t : w.tensors()) all += t.bytes();
  sizes.insert(Bytes(256));
  for (std::int64_t size = 256; size < 2 * all.value && size < INT64_MAX / 4; size *= 2)
    sizes.insert(Bytes(size));
  return {sizes.begin(), sizes.end()};
}

ordered_json trees_json(const Result<Curve>& curve, Bytes size) {
  if (!curve || !curve->at(size)) return nullptr;
  ordered_json trees = ordered_json::array();
  for (const Kernel& k : curve->plan(size).kernels) trees.push_back(to_text(k.tree));
  return trees;
}

ordered_json row_json(const Workload& w, const Slopes& slopes, Bytes size, bool several) {
  ordered_json row = {{"buffer_bytes", size.value}};
  row["unfused"] = {{"attainable_bytes", or_null(at(slopes.unfused, size))},
                    {"proven_bytes", bounds::proven(w, size, Freedom::unfused).bytes.value}};
  const Proven any = bounds::proven(w, size);
  if (several)
    row["fused"] = {{"attainable_bytes", or_null(at(slopes.fused, size))},
                    {"proven_bytes", any.bytes.value},
                    {"proven_without_recomputation_bytes",
                     bounds::proven(w, size, Freedom::no_recomputation).bytes.value}};
  row["proven_is"] = several ? any.is : bounds::proven(w, size, Freedom::unfused).is;
  return row;
}

ordered_json minimum_json(const Result<Curve>& curve, const char* none) {
  if (!curve) return {{"traffic_bytes", nullptr}, {"reason", none ? none : curve.reason()}};
  const Curve::Point& last = curve->points().back();
  return {{"traffic_bytes", last.traffic.value},
          {"buffer_bytes", last.buffer.value},
          {"least_buffer_bytes", curve->points().front().buffer.value},
          {"breakpoints", curve->points().size()}};
}

}  // namespace

Slopes slopes_of(const Workload& w) {
  const auto start = std::chrono::steady_clock::now();
  Slopes slopes;
  slopes.unfused = bounds::attainable_unfused(w);
  slopes.fused = bounds::attainable_fused(w);
  slopes.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return slopes;
}

ordered_json bounds_json(const Workload& w, Bytes capacity, std::optional<Bytes> exactly) {
  const Proven proven = bounds::proven(w, capacity);
  const Slopes slopes = slopes_of(w);
  const auto fused = at(slopes.fused, capacity), unfused = at(slopes.unfused, capacity);
  const bool one = fused && (!unfused || *fused <= *unfused);
  // What kernels of one operator move is no bound where fusing might do better, unknown by how
  // much.
  const bool known = slopes.fused || w.operators().size() == 1;
  const std::optional<Bytes> best = !known ? std::nullopt : one ? fused : unfused;
  ordered_json json;
  json["capacity_bytes"] = capacity.value;
  json["proven"] = {
      {"bytes", proven.bytes.value}, {"is", proven.is}, {"gap", ratio(exactly, proven.bytes)}};
  json["attainable"] = {{"bytes", or_null(best)}, {"gap", ratio(exactly, best)}};
  json["attainable"]["fused_bytes"] = or_null(fused);
  json["attainable"]["unfused_bytes"] = or_null(unfused);
  if (best)
    json["attainable"]["kernels"] = one ? ordered_json("fused") : ordered_json("one an operator");
  else
    json["attainable"]["reason"] = known            ? "no loop tree fits"
                                   : slopes.unfused ? slopes.fused.reason()
                                                    : slopes.unfused.reason();
  json["search_seconds"] = slopes.seconds;
  return json;
}

ordered_json curve_json(const Workload& w, const Machine* machine) {
  const Slopes slopes = slopes_of(w);
  const bool several = w.operators().size() > 1;
  const char* single = several ? nullptr : "the workload is one operator";
  ordered_json json;
  json["compulsory_bytes"] = w.compulsory_bytes().value;
  json["search_seconds"] = slopes.seconds;
  json["minimum"] = {{"unfused", minimum_json(slopes.unfused, nullptr)},
                     {"fused", minimum_json(slopes.fused, single)}};
  Crossover cross;
  if (slopes.fused && slopes.unfused) cross = crossover(*slopes.fused, *slopes.unfused);
  json["crossover_bytes"] = or_null(cross.first);
  json["never_loses_from_bytes"] = or_null(cross.always);
  json["curve"] = ordered_json::array();
  for (const Bytes size : sizes_of(w, slopes)) {
    ordered_json row = row_json(w, slopes, size, several);
    row["unfused"]["trees"] = trees_json(slopes.unfused, size);
    if (several) row["fused"]["trees"] = trees_json(slopes.fused, size);
    json["curve"].push_back(std::move(row));
  }
  if (machine == nullptr) return json;
  json["levels"] = ordered_json::array();
  for (const Level& l : machine->levels) {
    if (l.kind == LevelKind::home || l.kind == LevelKind::registers || l.capacity.value <= 0)
      continue;
    ordered_json row = row_json(w, slopes, l.capacity, several);
    row["level"] = l.name;
    if (several)
      row["fusion_saves"] = ratio(at(slopes.unfused, l.capacity), at(slopes.fused, l.capacity));
    json["levels"].push_back(std::move(row));
  }
  return json;
}

namespace {

Result<Proposal> propose(const Question& q, const Settings&) {
  const Workload& w = *q.workload;
  const LevelId level = q.planned_level();
  const Bytes capacity = q.room_at(level);
  const Slopes slopes = slopes_of(w);
  const auto fused = at(slopes.fused, capacity), unfused = at(slopes.unfused, capacity);
  if (!fused && !unfused) {
    if (!slopes.unfused) return Reason{slopes.unfused.reason()};
    return Reason{"no loop tree fits into " + std::to_string(capacity.value) + " bytes"};
  }
  const bool one = fused && (!unfused || *fused <= *unfused);
  const Curve& curve = one ? *slopes.fused : *slopes.unfused;
  Proposal out;
  out.plan = curve.plan(capacity, q.machine->level(level).name);
  out.level = level;
  out.search_seconds = slopes.seconds;
  ordered_json& json = out.detail;
  json["volume_bytes"] = (one ? *fused : *unfused).value;
  json["capacity_bytes"] = capacity.value;
  json["kernels"] = one ? "fused" : "one an operator";
  json["search_seconds"] = slopes.seconds;
  json["candidates"] = {
      {"unfused_breakpoints", slopes.unfused ? slopes.unfused->points().size() : 0},
      {"fused_breakpoints", slopes.fused ? slopes.fused->points().size() : 0}};
  return out;
}

}  // namespace

Model model() {
  return {.name = "bounds",
          .summary = "the least bytes of any plan, proven, and of the best loop tree, attained, by buffer size",
          .source = "Smith et al., arXiv:1702.02017 (2 V / sqrt(S), here without slack and for chains); the "
                    "trees are our own",
          .assumptions = {"one memory of that size under home, empty at first",
                          "attainable: matrix products and chains of two, each loop cut at most three times"},
          .no_price = "bounds price no plan; plan shows a plan's gap to them, explain --curve all sizes",
          .propose = propose};
}

}  // namespace tilewright::bounds
