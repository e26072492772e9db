// What the witnesses of traffic must agree on, and which plans they were shown.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "models/exact/exact.h"
#include "simulator/simulator.h"
#include "tests/support/random_trees.h"

namespace tilewright::testing {

/// Bytes read and written by boundary and tensor. Entries that are all zero say nothing.
inline std::map<std::pair<std::string, std::string>, std::pair<std::int64_t, std::int64_t>> moved(
    const Traffic& t) {
  std::map<std::pair<std::string, std::string>, std::pair<std::int64_t, std::int64_t>> bytes;
  for (const TrafficEntry& e : t.entries)
    if (e.read.value != 0 || e.written.value != 0)
      bytes[{e.boundary, e.tensor}] = {e.read.value, e.written.value};
  return bytes;
}

/// Counts the legal plans among those it is shown, and fails where exact and the simulator differ
/// in bytes, operations or memory, or where resolving what resolve prints changes a byte.
struct Agreement {
  int legal = 0, illegal = 0;
  int recomputing = 0;  ///< with more operations than points
  int reloading = 0;    ///< with an intermediate loaded back from an outer level
  std::string why;      ///< the last illegal one

  void look(const RandomCase& c, const std::string& which) {
    Result<Schedule> schedule = Reason{"not a plan"};
    try {
      schedule = resolve(c.plan, c.workload, c.machine);
    } catch (const InputError& e) {  // a pin at a loop that is not there
      schedule = Reason{e.what()};
    }
    if (!schedule) {
      ++illegal;
      why = schedule.reason() + ": " + to_text(c.plan.kernels.front().tree);
      return;
    }
    ++legal;
    const Traffic counted = exact(*schedule), simulated = simulate(*schedule);
    ASSERT_TRUE(counted.unavailable.empty()) << which << "\n" << describe(c);
    ASSERT_EQ(moved(counted), moved(simulated)) << which << "\n" << describe(c);
    ASSERT_EQ(counted.operations, simulated.operations) << which << "\n" << describe(c);
    ASSERT_EQ(counted.memory, simulated.memory) << which << "\n" << describe(c);
    const auto again = resolve(schedule->resolved, c.workload, c.machine);
    ASSERT_TRUE(again.ok()) << again.reason() << "\n" << describe(c);
    RandomCase resolved = c;
    resolved.plan = schedule->resolved;
    ASSERT_EQ(moved(exact(*again)), moved(counted)) << which << "\n"
                                                    << describe(c) << "resolved to\n"
                                                    << describe(resolved);
    note(c, *schedule, counted);
  }

 private:
  void note(const RandomCase& c, const Schedule& s, const Traffic& counted) {
    const Workload& w = *c.workload;
    bool again = false, back = false;
    for (std::size_t o = 0; o < w.operators().size(); ++o) {
      const auto at = counted.operations.find(w.operators()[o].name);
      again |= at != counted.operations.end() && at->second > w.operations(OpId(o));
    }
    for (const ScheduledKernel& k : s.kernels)
      for (const Buffer& b : k.buffers)
        back |= b.role == BufferRole::input && b.outer.valid() && w.is_intermediate(b.tensor) &&
                k.buffer(b.outer).role == BufferRole::intermediate;
    recomputing += again ? 1 : 0;
    reloading += back ? 1 : 0;
  }
};

}  // namespace tilewright::testing
