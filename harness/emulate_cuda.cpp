// cuda-emulated: the emitted CUDA text executed on the CPU.
#include "harness/run_cuda.h"

namespace tilewright::harness {

Availability cuda_emulated_here() {
  return {.reason = "not available yet: this version does not execute CUDA on the CPU"};
}

void emulate_job(CudaJob& job, const Reference&) {
  job.refuse_with("target cuda-emulated is not available: " + cuda_emulated_here().reason);
}

}  // namespace tilewright::harness
