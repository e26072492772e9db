// validate on a GPU: predicted bytes against counted ones, predicted times against measured ones.
#pragma once

#include <string_view>

#include "harness/answer.h"
#include "harness/request.h"
#include "harness/verbs.h"

namespace tilewright::harness {

/// Whether a truth is counted or timed on a GPU: "ncu", "cuda-events".
bool on_gpu(std::string_view truth);

/// Of a chain: tilings drawn in a model's expressions (--orders; without it those that its rules
/// leave), multiples of 16 up to 256, each with equal probability, that fit the level. Bytes into
/// the SMs by exact and the models against ncu's. With --recorded the points are a file's.
/// Truth cuda-events, of a file only: the model's estimates against measured times.
Answer validate_cuda(const Request& request, const ValidateOptions& options);

}  // namespace tilewright::harness
