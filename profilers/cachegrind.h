// Valgrind's cachegrind: what it prints and what caches it can be asked for.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/machine/machine.h"

namespace tilewright::profilers {

/// Totals by event of a file that cachegrind has written ("Dr", "D1mr", ...): its lines "events:"
/// and "summary:". A Reason where it has not one of each, as many numbers as events, or a number
/// that is none.
Result<std::map<std::string, std::int64_t>> cachegrind_totals(std::string_view text);

/// The two caches that cachegrind models, as the machine has them.
struct CachegrindCaches {
  LevelId first, last;         ///< the machine's innermost cache and, if another, its outermost
  std::string first_boundary;  ///< outwards of it
  std::string last_boundary;   ///< empty where there is one cache only, or `last` cannot be had
  std::string d1, ll;          ///< options: SIZE,WAYS,LINE
  std::map<std::string, std::string> unavailable;  ///< boundary -> why
  std::vector<std::string> notes;  ///< where the machine's caches do what cachegrind's do not
};
/// A Reason where the machine has no hardware cache or the first cannot be had: cachegrind's sets
/// are a power of two, its lines at least 16 bytes.
Result<CachegrindCaches> cachegrind_caches(const Machine& machine);

}  // namespace tilewright::profilers
