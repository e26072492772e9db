// Valgrind's part in cachegrind and lackey: what it can run, and the addresses that a kernel
// executes.
#pragma once

#include <filesystem>
#include <optional>

#include "core/base/availability.h"
#include "core/base/error.h"
#include "profilers/driver.h"
#include "profilers/meter.h"

namespace tilewright::profilers {

/// Whether Valgrind and a compiler for the driver are here.
Availability valgrind_here();

/// Why Valgrind cannot run the kernel: several threads, AVX-512, too large for the room that it
/// leaves at these addresses; none: it can.
std::optional<Reason> valgrind_refuses(const BuiltKernel& kernel);

/// Executes the kernel under Valgrind's lackey, which prints every address that is fetched, loaded
/// and stored, into `file` (a line each, some 15 bytes). Between the markers it is the kernel's. A
/// Reason where it cannot.
std::optional<Reason> trace_execution(const BuiltKernel& kernel, const std::filesystem::path& file);

}  // namespace tilewright::profilers
