// What fusion is worth on a network, layer by layer.
#pragma once

#include <string>

#include "harness/answer.h"
#include "harness/request.h"

namespace tilewright::harness {

/// Cuts the workload as split_plan does ("followed", "each", "contractions"), folds parts that
/// differ in names alone into one layer with its count, and asks every model (`models`: "all", or
/// names with commas) for a plan of each layer. {"layers": [{"layer", "count", "operators",
/// "unfused", "bound_bytes", "plans": {model: {"bytes", "seconds", "kernels", "own_bytes"} or
/// {"reason"}}}], "models": [{"model", "layers", "refused", "reasons", "bytes", "seconds", ...}],
/// "unfused", "bound_bytes", ...}. Bytes are exact's, from and to home; seconds the planning
/// model's, of every plan alike. A layer that a model refuses counts in its sum as the operators
/// alone ("unfused"). Layers of weights alone are left out. Cost: the models' searches, once a
/// layer and model, on all cores.
Answer explain_layers(const Request& request, const std::string& how, const std::string& models);

}  // namespace tilewright::harness
