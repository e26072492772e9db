// Linux's perf_event: readings of counters, and bytes by an event table's formulas.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/machine/machine.h"
#include "profilers/event_table.h"
#include "profilers/meter.h"

namespace tilewright::profilers {

/// One event as read: its count while it was on a counter, and for how long it was enabled and on
/// one (nanoseconds).
struct Reading {
  double count = 0;
  double enabled = 0, running = 0;
  /// Whether other events took turns on its counter.
  bool multiplexed() const { return running < enabled; }
  /// What it would have counted all the time: scaled, where multiplexed. NaN where it never ran.
  double value() const;
};

/// A measurement from readings by event: each formula's bytes at the machine's cache of that
/// number, rounded; why not where an event was never counted, and notes on what was scaled or is in
/// a count.
Measurement measurement_of(const EventTable& table, const Machine& machine,
                           const std::map<std::string, Reading>& readings);

}  // namespace tilewright::profilers
