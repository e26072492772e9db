// The points of `validate`: a plan each, what a model predicts of it and what is true.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/ask.h"
#include "harness/metered_kernel.h"
#include "harness/meters.h"
#include "harness/schedules.h"
#include "harness/verbs.h"
#include "models/model.h"

namespace tilewright::harness::validation {

/// What all points share.
struct Subject {
  Setting setting;
  const Model* model = nullptr;   ///< predicts
  const Model* drawer = nullptr;  ///< says plans in its notation; null: tiles of `base` are redrawn
  std::optional<Plan> base = {};
  Question question = {};   ///< of the model
  Question drawn_for = {};  ///< of the drawer
  Settings settings;    ///< of the model, partial tiles at their size unless it is told otherwise
  Settings full_edges;  ///< of the model, partial tiles as full ones
  Settings drawer_settings;
  std::shared_ptr<const Machine> walked = {};  ///< what is simulated: see walked_machine
  LevelId walked_level = {};
  std::string walked_boundary = {};
  LevelId level = {};
  std::string boundary = {};
  Bytes capacity = {};
  Layout layout = Layout::tiled;
  const profilers::MeterRecord* meter = nullptr;  ///< the truth; null: the simulator
  std::optional<Reference> reference = {};        ///< with a meter: what kernels are verified on

  /// Whether partial tiles may be priced in two ways.
  bool has_edges() const { return find_option(model->options, "edges") != nullptr; }
};

struct Point {
  Words words;                        ///< text and tiles, for display where it is a plan
  Plan plan = {};                     ///< of the drawer's words it is made when it is evaluated
  nlohmann::ordered_json tiles = {};  ///< as they are shown
  std::int64_t predicted = 0;         ///< bytes, partial tiles at their size
  std::int64_t predicted_full = 0;    ///< bytes, full edges
  std::int64_t truth = 0;             ///< bytes towards the level
  // Not every truth counts these.
  std::optional<std::int64_t> written = {};  ///< bytes out of it
  std::optional<std::int64_t> resident_dirty = {};
  std::int64_t memory = 0;
  std::int64_t packing = 0;
  std::optional<std::int64_t> iteration = {};  ///< bytes: see harness/iteration.h
  // By tensor: what makes up `predicted`, and where it is known `truth`.
  std::map<std::string, std::int64_t> predicted_by = {}, truth_by = {};
  std::string failure = {};  ///< why it has no truth
};

const Workload& workload(const Subject& s);

/// How a point is named: in the drawer's notation, or by its tree.
std::string text_key(const Subject& s);
/// As the answer has it.
nlohmann::ordered_json point_json(const Subject& s, const Point& p);

/// Fills in everything but words, or the plan; of a tiling of that block that `once` has finished
/// before, from there. Cost: a walk of the plan by the simulator, or a run under the meter.
void evaluate(const Subject& s, Point& p, const std::string& block, const Once& once);
/// The same of many, on the request's threads.
std::vector<Point> evaluated(const Subject& s, std::vector<Point> points, const Request& request,
                             const Once& once, const std::string& block);

}  // namespace tilewright::harness::validation
