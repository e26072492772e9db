// Kernels under Nsight Compute, for measure and for validate.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/pipeline.h"

namespace tilewright::harness {

struct Counted {
  std::optional<std::string> refusal = {};        ///< where nothing could be counted
  std::vector<std::string> metrics_refused = {};  ///< that this version of ncu does not know
  std::string command = {};
};
/// Emits and builds every job on --threads threads, puts beside each what the models predict, and
/// counts all of them in one process of ncu for each setting of its cache control: the document's
/// "counted" has "all" and "none". Each kernel is verified before it is counted. A job that fails
/// has its refusal. All jobs are of one target.
Counted count_by_ncu(std::vector<Job>& jobs, const Request& request,
                     const MeasureOptions& options = {});

/// Into its document "predicted": bytes into the kernel's level by exact and by every model that
/// prices partial tiles, with its seconds.
void add_predictions(Job& job);

/// From now on this process is the command itself, whatever its file is called: ncu starts it once
/// more. Else it starts the command tilewright that is on the PATH.
void run_as_command();

/// measure of one plan by a meter that counts processes.
Answer measure_by_process(Job job, const MeasureOptions& options);

}  // namespace tilewright::harness
