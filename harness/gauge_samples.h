// What one sample of a number that calibrate measures takes: passes over memory, and runs of
// verified kernels.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "core/base/error.h"
#include "harness/memory_passes.h"

namespace tilewright::harness {

using Sample = std::function<double()>;  ///< seconds a unit
using Prepared = Result<Sample>;         ///< a Reason: why it cannot be measured here

/// Seconds of loads from the first cache, some ten microseconds. A core whose units another uses,
/// outside of this machine's sight, takes twice as long.
double pace();

/// Seconds a byte of reading so many bytes a thread over and over.
Prepared reading(std::size_t bytes_a_thread, int threads);

/// Seconds a byte of writing so many bytes over and over: lines come in and go back, but for a pass
/// that goes past the caches.
Prepared writing(std::size_t bytes_wanted, void (*pass)(MemoryLine*, std::size_t) = write_pass);

/// Seconds a byte of reading what another core has just written and still has.
Prepared taking_over(std::size_t bytes);

/// Seconds of a step through lines of so many bytes in a random order.
Prepared chasing(std::size_t bytes);

/// Seconds of a line that is copied by rows of so many lines from a matrix's rows to an array of
/// its own, 64 KiB in all.
Prepared packing(std::size_t row);

/// Runs of a verified kernel of a workload and a tree, divided by `units`.
Prepared running(const std::string& workload, const std::string& tree, int threads, double units);

/// Seconds of a launch of one of eight small kernels of a program in turn, clock and all; or of one
/// after run_other_code.
Prepared launching(bool after_other_code);

/// Seconds of a launch of a kernel that computes almost nothing, over and over.
Prepared launching_nothing();

/// The same with arrays at several places, in turn: small tiles take longer where addresses
/// collide.
Prepared at_places(const std::function<Prepared()>& prepare);

}  // namespace tilewright::harness
