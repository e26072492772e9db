// The space: loop schedules, cluster shapes, tiles, and the rules that prune them.
#include <algorithm>

#include "models/flashfuser/flashfuser.h"

namespace tilewright::flashfuser {
namespace {

bool is_loop(const LoopSchedule& s, Role r) { return std::ranges::find(s, r) != s.end(); }

/// Every order of every set of at most three dimensions, `s` first.
void add_schedules(LoopSchedule& s, std::vector<LoopSchedule>& out) {
  out.push_back(s);
  if (s.size() == kRoles - 1) return;
  for (Role r : {kM, kJ, kK, kN}) {
    if (is_loop(s, r)) continue;
    s.push_back(r);
    add_schedules(s, out);
    s.pop_back();
  }
}

bool kept(ClusterRule rule, const Cluster& c, std::int64_t most) {
  const std::int64_t one = c[kM] * c[kJ] * c[kK], two = c[kM] * c[kJ] * c[kN];
  switch (rule) {
    case ClusterRule::whole:
      return one <= most && c[kN] % c[kK] == 0 && c[kJ] % (c[kN] / c[kK]) == 0;
    case ClusterRule::equal:
      return one <= most && one == two;
    case ClusterRule::at_most:
      return one <= most && two <= most;
    case ClusterRule::counted:
      return one >= 2 && one <= most && c[kN] % c[kK] == 0;
  }
  return false;
}

}  // namespace

std::vector<LoopSchedule> all_schedules() {
  std::vector<LoopSchedule> out;
  LoopSchedule s;
  add_schedules(s, out);
  return out;
}

std::string to_text(const Chain& c, const LoopSchedule& s) {
  std::string out;
  const auto name = [&](Role r) {
    out += (out.empty() ? "" : " ") + c.workload->loop(c.loops[r]).name;
  };
  for (Role r : s) name(r);
  out += out.empty() ? "|" : " |";
  for (Role r : {kM, kJ, kK, kN})
    if (!is_loop(s, r)) name(r);
  return out;
}

bool reduces_first(const LoopSchedule& s) { return !is_loop(s, kK) || s.back() == kK; }
bool loops_over_n(const LoopSchedule& s) { return is_loop(s, kN); }

std::string_view name_of(ClusterRule r) {
  constexpr std::array kNames = {"whole groups", "equal products", "at most", "as counted"};
  return kNames[static_cast<std::size_t>(r)];
}

std::vector<Cluster> clusters(ClusterRule rule, std::int64_t most) {
  std::vector<Cluster> out;
  for (std::int64_t m = 1; m <= most; m *= 2)
    for (std::int64_t j = 1; j <= most; j *= 2)
      for (std::int64_t k = 1; k <= most; k *= 2)
        for (std::int64_t n = 1; n <= most; n *= 2)
          if (const Cluster c = {m, j, k, n}; kept(rule, c, most)) out.push_back(c);
  return out;
}

std::int64_t shuffle_group(const Cluster& c) { return c[kN] / c[kK]; }
std::int64_t reduce_group(const Cluster& c) { return c[kJ] / shuffle_group(c); }

std::vector<std::int64_t> tiles_of(std::int64_t extent, const Options& o) {
  std::vector<std::int64_t> out;
  const std::int64_t step = o.tile_step;
  if (extent % step == 0) {
    for (std::int64_t a = 1; a * a <= extent / step; ++a) {
      if (extent / step % a != 0) continue;
      out.push_back(a * step);
      if (a * a != extent / step) out.push_back(extent / a);
    }
    std::ranges::sort(out);
    return out;
  }
  for (std::int64_t t = step; t < extent; t *= 2) out.push_back(t);
  out.push_back(extent);
  return out;
}

}  // namespace tilewright::flashfuser
