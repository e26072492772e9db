// Which hardware events say how many bytes cross a cache's boundary: a table a microarchitecture,
// as text (profilers/events/*.yaml) with encodings, formulas, units and sources.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "profilers/formula.h"

namespace tilewright::profilers {

/// An event of the core's own counters, as Linux's raw events take it.
struct Event {
  std::string name;
  std::int64_t code = 0;  ///< event select: 8 bits (Intel), 12 bits (AMD)
  std::int64_t umask = 0;
  std::string source;
  /// perf_event_attr.config: select in bits 0 to 7 and 32 to 35, unit mask in bits 8 to 15.
  std::uint64_t config() const;
};

/// What crosses the boundary outwards of the n-th cache, in bytes.
struct BoundaryFormulas {
  int cache = 1;                   ///< 1: outwards of L1
  std::optional<Formula> read;     ///< towards the inner level
  std::optional<Formula> written;  ///< none: no event counts it; `note` says so
  std::string note;
};

struct EventTable {
  std::string name;
  std::string vendor;  ///< as CPUID says: GenuineIntel, AuthenticAMD
  std::int64_t family = 0;
  std::vector<std::int64_t> models;  ///< of that family; empty: every one
  std::string checked;               ///< on which machines its numbers have been looked at; "none"
  std::vector<Event> events;
  std::vector<BoundaryFormulas> boundaries;

  const Event& event(const std::string& name) const;
};

/// Throws InputError with the line: unknown keys, formulas over events that are not listed, ...
EventTable event_table_from_yaml(std::string_view text, std::string_view where);

/// Those that the library carries.
const std::vector<EventTable>& event_tables();

/// A processor as /proc/cpuinfo says it.
struct ProcessorId {
  std::string vendor;
  std::int64_t family = -1, model = -1;
};
ProcessorId processor_id(std::string_view cpuinfo);
/// The table of a processor; null where there is none.
const EventTable* table_for(const ProcessorId& id);

/// The text of a file in profilers/events; generated from the folder.
struct EventFile {
  std::string_view name;
  std::string_view text;
};
std::span<const EventFile> event_files();

}  // namespace tilewright::profilers
