// What operators take from the registers of the one before them. Internal header of the folder.
#pragma once

#include <set>
#include <utility>

#include "core/plan/schedule.h"

namespace tilewright::quickest {

/// Buffers whose values are in registers as they are read, by operator, and those that are never
/// stored, since all who read them are such. `beside`: operators that read none of another's
/// values, and stand in its loops for those that read both.
struct InRegisters {
  std::set<std::pair<OpId, BufferId>> reads;
  std::set<OpId> beside;
  std::set<BufferId> unstored;
};

/// As a kernel for processors has it, with vectors of so many lanes. Cost: its nodes squared.
InRegisters in_registers(const Schedule& s, const ScheduledKernel& k, std::int64_t lanes);

}  // namespace tilewright::quickest
