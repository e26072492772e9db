// The verbs about the papers' tables and figures, beside those of harness/verbs.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/answer.h"
#include "harness/request.h"

namespace tilewright::harness {

Answer list_experiments();

struct ReproduceOptions {
  std::string id;                            ///< an experiment, or a paper: all of its experiments
  bool all = false;                          ///< every experiment; no id then
  std::optional<std::string> out = {};       ///< default results/ID; of several, results
  std::optional<std::int64_t> samples = {};  ///< instead of the experiment's own
  std::optional<std::string> size = {};      ///< small, medium, large: of kernels with counted misses
  std::optional<std::string> data = {};      ///< the folder where counted misses or recordings lie
};
/// A paper's table or figure, into DIR: report.md, result.json, points.csv, figure.svg; journal.jsonl has
/// the points of those that take long, and one that was killed goes on from it. Refused where what must
/// hold does not, and, before anything is written, where the data of its source are not there.
///
/// Of several ("chimera", or `all`): each in DIR/ID, those that are finished there (by this build, from
/// the same files and options) left as they are, and DIR/index.md and index.json. What this machine
/// cannot run is a row that says why. Refused where what must hold of one does not.
Answer reproduce(const Request& request, const ReproduceOptions& options);

}  // namespace tilewright::harness
