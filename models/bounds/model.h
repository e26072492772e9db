// The bounds as a model, and as JSON: what plan, explain --curve and reproduce print of them.
#pragma once

#include <optional>

#include "models/bounds/bounds.h"
#include "models/model.h"

namespace tilewright::bounds {

/// The record: the best attainable plan at the capacity that is asked about.
Model model();

/// Both attainable curves of a workload, or why there is none, and how long they took.
struct Slopes {
  Result<Curve> unfused = Reason{""};
  Result<Curve> fused = Reason{""};
  double seconds = 0;
};
Slopes slopes_of(const Workload& w);

/// What a plan of `exactly` bytes is held against at that capacity: {"proven": {"bytes", "is",
/// "gap"}, "attainable": {"bytes", "kernels", "gap", "fused_bytes", "unfused_bytes"}}; a gap is null where exactly is not known.
/// Attainable's bytes are null, with a reason, where no curve is known or none goes that low.
nlohmann::ordered_json bounds_json(const Workload& w, Bytes capacity, std::optional<Bytes> exactly);

/// A curve's document: "curve" (rows by buffer size), "minimum", "crossover_bytes",
/// "search_seconds". `machine` marks its levels. At most about eight rows an octave; each is a
/// breakpoint.
nlohmann::ordered_json curve_json(const Workload& w, const Machine* machine);

}  // namespace tilewright::bounds
