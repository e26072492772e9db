#include <algorithm>

#include "core/base/error.h"
#include "core/workload/import/onnx_builder.h"

namespace tilewright::onnx {

int Axes::make(std::int64_t extent) {
  axes_.push_back({.extent = extent});
  return static_cast<int>(axes_.size()) - 1;
}

std::size_t Axes::find(int axis) const {
  auto a = static_cast<std::size_t>(axis);
  while (axes_[a].same >= 0) a = static_cast<std::size_t>(axes_[a].same);
  return a;
}

std::vector<int> Axes::leaves(int axis) const {
  const Axis& a = axes_[find(axis)];
  if (a.outer < 0) return {static_cast<int>(find(axis))};
  std::vector<int> all = leaves(static_cast<int>(a.outer));
  for (const int l : leaves(static_cast<int>(a.inner))) all.push_back(l);
  return all;
}

bool Axes::split(int axis, std::int64_t inner) {
  const std::size_t at = find(axis);
  if (axes_[at].rigid) return false;
  TW_CHECK(axes_[at].outer < 0 && axes_[at].extent % inner == 0, "an axis that cannot be cut so");
  const int o = make(axes_[at].extent / inner), i = make(inner);
  axes_[at].outer = o;
  axes_[at].inner = i;
  return true;
}

void Axes::unify(int a, int b) {
  const std::size_t x = find(a), y = find(b);
  if (x == y) return;
  TW_CHECK(axes_[x].outer < 0 && axes_[y].outer < 0 && axes_[x].extent == axes_[y].extent,
           "axes that are not alike");
  axes_[y].same = static_cast<std::ptrdiff_t>(x);
  axes_[x].rigid = axes_[x].rigid || axes_[y].rigid;
}

/// Whether tensors of this axis may have one more dimension.
bool Builder::has_room(int axis) const {
  return std::ranges::none_of(tensors_, [&](const Stored& s) {
    bool has = false;
    std::size_t dims = 0;
    for (const int d : s.dims) {
      const std::vector<int> leaves = axes_.leaves(d);
      dims += leaves.size();
      has = has || std::ranges::any_of(leaves, [&](int l) { return axes_.same(l, axis); });
    }
    return has && dims >= static_cast<std::size_t>(kMaxRank);
  });
}

std::size_t Builder::stored_rank(const std::vector<Vars>& dims) {
  std::size_t rank = 0;
  for (const Vars& d : dims) rank += expanded(d).size();
  return rank;
}

std::optional<std::size_t> Builder::cut_too_often(const std::vector<View>& reads,
                                                  const std::vector<std::size_t>& ranks,
                                                  std::size_t rank) {
  std::vector<std::set<std::int64_t>> ends(rank);
  std::size_t all = 0, most = 0, worst = 0;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    std::size_t own = 0, cut = 0;
    for (std::size_t d = 0; d < ranks[i]; ++d) {
      const Vars vs = expanded(reads[i].dims[d]);
      std::int64_t end = 1;
      for (std::size_t v = vs.size(); v-- > 0;)
        ends[d + rank - ranks[i]].insert(end *= extent(vs[v]));
      own += vs.size();
      cut += vs.size() > 1 ? 1 : 0;
    }
    if (cut > 0 && own > most) most = own, worst = i;
  }
  for (const auto& e : ends) all += e.size();
  if (all <= static_cast<std::size_t>(kMaxRank) || most == 0) return std::nullopt;
  return worst;
}

}  // namespace tilewright::onnx
