// One walk's sets dealt to several threads: a set's lines never meet those of another one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "simulator/simulator.h"

namespace tilewright {

/// Bytes [low, high) of every `round`: what one thread touches of all memory.
struct SetShare {
  int index = 0, count = 1;
  std::int64_t round = 1;
  std::int64_t low = 0, high = 1;
};

/// Memory falls into rounds of so many bytes that bytes at different places of a round lie in
/// different sets of every level; their longest line divides it. 0: there are none, and `why`.
///
/// Sets are by themselves where a set is the line's number modulo the sets and nothing else is kept
/// for all of them: no prefetchers, no open DRAM rows, no share of clean victims that is drawn; one
/// core. Policies that draw do so for each set on its own. With lines of several lengths, the
/// levels' sets must cover the same bytes in whole longest lines.
std::int64_t independent_round(const Machine& m, const SimulateOptions& options, std::string& why);

/// Of a TrafficEntry that says nothing, which a Traffic leaves out.
bool is_zero(const TrafficEntry& e);

/// Runs `share` for each thread's share and adds up; on one thread where sets are not by themselves
/// (Simulated::why_serial). What each thread skips is its own: the least is told.
Simulated simulate_by_sets(const Schedule& s, const SimulateOptions& options,
                           const std::function<Simulated(const SetShare&)>& share);

}  // namespace tilewright
