// Kernels of target cuda under Nsight Compute, for measure and for validate.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/run_cuda.h"

namespace tilewright::harness {

struct Counted {
  std::optional<std::string> refusal = {};        ///< where nothing could be counted
  std::vector<std::string> metrics_refused = {};  ///< that this version of ncu does not know
  std::string command = {};
};
/// Emits and builds every job on --threads threads, puts beside each what the models predict, and
/// counts all of them in one process of ncu for each setting of its cache control: the document's
/// "counted" has "all" and "none". Each kernel is verified before it is counted. A job that fails
/// has its refusal.
Counted count_cuda(std::vector<CudaJob>& jobs, const Request& request, CudaOptions cuda);

/// Into its document "predicted": bytes into the kernel's level by exact, Chimera and MCFuser, and
/// MCFuser's seconds.
void add_predictions(CudaJob& job);

/// measure --target cuda of one plan.
Answer measure_cuda(const Request& request, const MeasureOptions& options);

}  // namespace tilewright::harness
