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

}  // namespace tilewright::onnx
