#include "harness/recorded.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "core/base/format.h"
#include "harness/registry.h"
#include "harness/request.h"
#include "harness/statistics.h"

namespace tilewright::harness {
namespace {

using nlohmann::ordered_json;

constexpr const char* kIntoSm = "l1tex__m_xbar2l1tex_read_bytes.sum";

std::optional<double> read_bytes(const Field& predicted, const std::string& model) {
  const auto said = predicted.get(model);
  const auto bytes = said ? said->get("read_bytes") : std::nullopt;
  return bytes ? std::optional(bytes->real()) : std::nullopt;
}

/// What a model says of the points that it prices, against the truth.
template <class Prediction>
ordered_json agreement_json(const std::vector<CountedPoint>& points, const Prediction& of) {
  std::vector<double> x, y;
  for (const CountedPoint& p : points)
    if (const std::optional<double> said = of(p)) x.push_back(*said), y.push_back(p.truth);
  if (x.empty()) return nullptr;
  ordered_json json = {{"points", x.size()}};
  merge(json, to_json(agreement(x, y)));
  return json;
}

ordered_json residuals_json(const std::vector<CountedPoint>& points) {
  const std::string model = standard_model().name;
  double edges = 0, retention = 0, l2 = 0, priced = 0;
  for (const CountedPoint& p : points) {
    const auto said = p.by(model), full = p.by(model + "_full_edges");
    if (!said || !full || p.truth <= 0) continue;
    edges += (*full - *said) / p.truth;
    retention += (*said - p.exact) / p.truth;
    l2 += (p.exact - p.truth) / p.truth;
    priced += 1;
  }
  if (priced == 0) return nullptr;
  return {{"edges", edges / priced}, {"retention", retention / priced}, {"l2", l2 / priced}};
}

ordered_json models_json(const std::vector<CountedPoint>& points) {
  ordered_json json = {{"exact", agreement_json(points, [](const CountedPoint& p) {
                          return std::optional(p.exact);
                        })}};
  std::set<std::string> names;
  for (const CountedPoint& p : points)
    for (const auto& [name, bytes] : p.models) names.insert(name);
  for (const std::string& name : names)
    json[name] = agreement_json(points, [&name](const CountedPoint& p) { return p.by(name); });
  json["residuals"] = residuals_json(points);
  return json;
}

}  // namespace

DocumentValue read_recording(const std::string& path, std::string_view option) {
  const std::string text = read_file(path, option);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded())
    throw InputError({.where = path,
                      .value = text.substr(0, 40),
                      .problem = "is not a recording",
                      .accepted = "the JSON that experiments/gpu/counters or run writes"});
  return read_json(json, path);
}

namespace {

/// Registers that spill go through L2 as local memory, which no plan knows of.
std::string known_cause(const Field& point) {
  const auto spilled = point.get("spill_store_bytes");
  return spilled && spilled->integer(0, 1 << 30) > 0 ? ", registers spill" : "";
}

}  // namespace

const Model* notation_of(const Field& recorded) {
  for (const Model& m : builtin_models())
    if (!m.notation.empty() && recorded.get(m.notation)) return &m;
  return nullptr;
}

std::vector<CountedPoint> counted_points(const Field& block, std::string_view control) {
  std::vector<CountedPoint> points;
  for (const Field& p : block.at("points").items()) {
    const auto counted = p.at("counted").get(control);
    const auto truth = counted ? counted->at("metrics").get(kIntoSm) : std::nullopt;
    const Field predicted = p.at("predicted");
    const auto exact = read_bytes(predicted, "exact");
    if (!truth || !exact) continue;
    const Model* const written = notation_of(p);
    const auto group = p.get(written != nullptr ? written->notation : "tree");
    points.push_back({.name = p.at("name").text(),
                      .group = (group ? group->text() : "") + known_cause(p),
                      .truth = truth->real(),
                      .exact = *exact,
                      .models = {}});
    // Beside bounds, which are numbers or of every kernel: what models say, or why they say
    // nothing.
    for (const auto& [name, said] : predicted.entries())
      if (said.is_map() && name != "exact" && name != "each_kernel_once")
        points.back().models[name] = read_bytes(predicted, name);
  }
  return points;
}

ordered_json traffic_agreement_json(const std::vector<CountedPoint>& points) {
  ordered_json json = models_json(points);
  json["groups"] = ordered_json::object();
  std::map<std::string, std::vector<CountedPoint>> groups;
  for (const CountedPoint& p : points) groups[p.group].push_back(p);
  for (const auto& [name, some] : groups) json["groups"][name] = models_json(some);
  return json;
}

std::vector<TimedPoint> timed_points(const Field& block) {
  std::vector<TimedPoint> points;
  for (const Field& p : block.at("points").items())
    points.push_back({p.at("predicted_seconds").real(), p.at("seconds_median").real()});
  return points;
}

ordered_json time_agreement_json(const std::vector<TimedPoint>& points) {
  if (points.empty()) return nullptr;
  std::vector<double> predicted, measured;
  for (const TimedPoint& p : points) {
    predicted.push_back(p.predicted);
    measured.push_back(p.measured);
  }
  std::vector<TimedPoint> order = points;
  std::stable_sort(order.begin(), order.end(), [](const TimedPoint& a, const TimedPoint& b) {
    return a.predicted < b.predicted;
  });
  const double best = *std::min_element(measured.begin(), measured.end());
  double eight = order.front().measured;
  for (std::size_t i = 0; i < std::min<std::size_t>(8, order.size()); ++i)
    eight = std::min(eight, order[i].measured);
  return {{"points", points.size()},
          {"pearson", number_or_null(correlation(predicted, measured))},
          {"spearman", number_or_null(rank_correlation(predicted, measured))},
          {"best_seconds", best},
          {"first_choice_over_best", order.front().measured / best},
          {"best_of_first_eight_over_best", eight / best}};
}

ordered_json recorded_block(const std::string& path, const std::string& workload,
                            std::string_view figure, std::string_view what) {
  read_recording(path, "--recorded");
  const ordered_json recording = ordered_json::parse(read_file(path, "--recorded"));
  std::vector<std::string> there;
  const ordered_json* found = nullptr;
  // A block says its workload itself or, one level below, by the name that it stands under.
  const auto look_at = [&](const ordered_json& block, const std::string& name) {
    if (!block.is_object() || !block.contains("points") || !block["points"].is_array() ||
        !block.contains("failed"))
      return;
    const auto said = block.find("workload");
    if (said != block.end() && !said->is_string()) return;
    const std::string of = said == block.end() ? name : said->get<std::string>();
    if (of.empty()) return;
    const ordered_json& points = block["points"];
    if (!points.empty() && !(points.front().is_object() && points.front().contains(figure))) return;
    there.push_back(of);
    if (of == workload) found = &block;
  };
  if (recording.is_object())
    for (const auto& entry : recording.items()) {
      look_at(entry.value(), "");
      if (entry.value().is_object())
        for (const auto& below : entry.value().items()) look_at(below.value(), below.key());
    }
  if (found != nullptr) return *found;
  throw InputError(
      {.where = path,
       .value = workload,
       .problem = formatted("is not a workload of this recording of {}", what),
       .accepted = there.empty() ? formatted("a recording of {}", what) : join(there)});
}

Request recorded_request(const Field& recording, const std::string& workload) {
  Request request{.subject = workload, .machine = recording.at("machine").text()};
  if (const auto model = recording.get("model")) request.model = model->text();
  if (const auto stitch = recording.get("stitch"))
    for (const Field& option : stitch->items()) request.options["stitch"].push_back(option.text());
  return request;
}

}  // namespace tilewright::harness
