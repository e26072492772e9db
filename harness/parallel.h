// A loop over independent pieces of work on several threads.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "harness/answer.h"

namespace tilewright::harness {

/// Calls work(i) for every i in [0, n), each once, on up to `threads` threads; tells progress after
/// each. Rethrows the first exception that a call ended with, after the others are done.
void parallel_for(std::size_t n, int threads, const std::function<void(std::size_t)>& work,
                  const Progress& progress = {}, std::string_view what = {});

}  // namespace tilewright::harness
