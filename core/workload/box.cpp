#include "core/workload/box.h"

namespace tilewright {

Box new_part(const Box& held, const Box& now) {
  if (held.rank() != now.rank() || held.empty() || now.empty()) return now;
  int differs = -1;
  bool several = false;
  for (int d = 0; d < now.rank(); ++d) {
    if (held[d] == now[d]) continue;
    several = differs >= 0;
    differs = d;
    if (several) break;
  }
  if (contains(held, now)) {
    Box nothing = now;
    // A scalar cannot be empty; whoever holds it has found it by equality before asking.
    const int d = differs < 0 ? 0 : differs;
    if (now.rank() > 0) nothing[d] = {now[d].lo, now[d].lo};
    return nothing;
  }
  if (several || intersect(held[differs], now[differs]).empty()) return now;
  const Interval h = held[differs];
  const Interval n = now[differs];
  const bool below = n.lo < h.lo;
  const bool above = n.hi > h.hi;
  if (below && above) return now;
  Box fresh = now;
  fresh[differs] = below ? Interval{n.lo, h.lo} : Interval{h.hi, n.hi};
  return fresh;
}

std::string to_text(const Box& box) {
  if (box.rank() == 0) return "[]";
  std::string out;
  for (int d = 0; d < box.rank(); ++d) {
    if (d > 0) out += "x";
    out += "[" + std::to_string(box[d].lo) + "," + std::to_string(box[d].hi) + ")";
  }
  return out;
}

}  // namespace tilewright
