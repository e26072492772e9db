// Recordings of experiments/gpu: counted plans and timed candidates, and how well models agree with
// them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/document.h"
#include "harness/answer.h"
#include "harness/request.h"
#include "models/model.h"

namespace tilewright::harness {

/// A recording's file. Throws InputError for one that is no JSON.
DocumentValue read_recording(const std::string& path, std::string_view option);

/// A counted plan: what went into the SMs, and what models say of it. Bytes.
struct CountedPoint {
  std::string name, group;  ///< group: the expression, else the tree
  double truth = 0;
  double exact = 0;
  /// By model, "_full_edges" behind the name where partial tiles count as full ones; none: not
  /// priced.
  std::map<std::string, std::optional<double>> models = {};

  std::optional<double> by(const std::string& model) const {
    const auto at = models.find(model);
    return at == models.end() ? std::nullopt : at->second;
  }
};
/// The first model in whose notation a recorded plan is written; null: in no model's.
const Model* notation_of(const Field& recorded);
/// The points of a block of `experiments/gpu/counters`, counted under `control`: "all" or "none".
std::vector<CountedPoint> counted_points(const Field& block, std::string_view control);
/// By model {"points", "r2_identity", ...}, over all points and by group; and of the standard
/// model's full edges the residuals, each a mean fraction of the true bytes: "edges" (partial tiles
/// counted as full), "retention" (what the model says is loaded and the plan keeps, or the other
/// way round), "l2" (what the plan loads and the counter does not see, or the other way round).
/// They sum to the bias.
nlohmann::ordered_json traffic_agreement_json(const std::vector<CountedPoint>& points);

/// What a recording has of one workload: a block with its `workload`, its `points`, each of which
/// has `figure` ("counted", "seconds_median"), and its `failed`. Blocks stand in the file or one
/// level below. Throws InputError with the workloads that there are or, where there is no block,
/// with `what` the recording is to be of: "counters".
nlohmann::ordered_json recorded_block(const std::string& path, const std::string& workload,
                                      std::string_view figure, std::string_view what);

/// A workload as the recording's model and its options plan it on the recording's machine.
Request recorded_request(const Field& recording, const std::string& workload);

struct TimedPoint {
  double predicted = 0, measured = 0;  ///< seconds
};
std::vector<TimedPoint> timed_points(const Field& block);
/// Pearson's and Spearman's correlation, and what is lost by taking the model's first choice, or
/// the best of its first eight, instead of the fastest: times its time, above 1.
nlohmann::ordered_json time_agreement_json(const std::vector<TimedPoint>& points);

}  // namespace tilewright::harness
