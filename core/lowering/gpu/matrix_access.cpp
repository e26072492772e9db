#include "core/lowering/gpu/matrix_access.h"

#include <algorithm>

#include "core/lowering/checks.h"

namespace tilewright::lowering {

bool has_whole_loop(const Access& a, LoopId loop) {
  return std::ranges::any_of(a.index, [&](const Affine& i) { return i.plain_loop() == loop; });
}

namespace {

/// A dimension of one element, which no loop has.
bool is_single(const Workload& w, const Access& a, std::size_t d) {
  return a.index[d].terms.empty() && a.index[d].offset == 0 && w.tensor(a.tensor).shape[d] == 1;
}

}  // namespace

void check_loops(const Workload& w, const Access& a, std::span<const LoopId> partial) {
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    if (is_single(w, a, d)) continue;
    const auto loop = a.index[d].plain_loop();
    if (!loop || (w.loop(*loop).extent != w.tensor(a.tensor).shape[d] &&
                  std::ranges::find(partial, *loop) == partial.end()))
      throw Refused{"a tensor is indexed by more than loops"};
  }
}

void check_loops_within(const Workload& w, const Access& a) {
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    if (is_single(w, a, d)) continue;
    const auto loop = a.index[d].plain_loop();
    if (!loop || w.loop(*loop).extent > w.tensor(a.tensor).shape[d])
      throw Refused{"a tensor is indexed by more than loops"};
  }
}

void check_whole_loops(const Workload& w, const Access& a) { check_loops(w, a, {}); }

std::int64_t reached(const Workload& w, const Access& a, LoopId loop) {
  for (std::size_t d = 0; d < a.index.size(); ++d)
    if (a.index[d].plain_loop() == loop)
      return std::min(w.loop(loop).extent, w.tensor(a.tensor).shape[d]);
  return w.loop(loop).extent;
}

MatrixAccess matrix_access(const Workload& w, const Access& a, LoopId inner, LoopId outer,
                           std::span<const LoopId> products, LoopId joined) {
  const std::vector<std::int64_t> strides = strides_of(w.tensor(a.tensor));
  const auto stride = [&](LoopId loop) {
    for (std::size_t d = 0; d < strides.size(); ++d)
      if (a.index[d].plain_loop() == loop) return strides[d];
    return std::int64_t{0};
  };
  MatrixAccess m{.inner = stride(inner), .outer = stride(outer)};
  const std::string name = w.tensor(a.tensor).name;
  std::size_t mine = 0, begun = 0;
  for (std::size_t i = products.size(); i-- > 0;) {
    const std::int64_t extent = w.loop(products[i]).extent;
    if (!has_whole_loop(a, products[i])) {
      if (mine == 0) m.divide *= extent;
      continue;
    }
    if (mine > 0 && begun != i + 1)
      throw Refused{"tensor " + name + " has some of the loops that tell products apart"};
    if (mine == 0)
      m.apart = stride(products[i]);
    else if (stride(products[i]) != m.apart * m.modulo)
      throw Refused{"tensor " + name + "'s products do not lie at equal distances"};
    m.modulo *= extent;
    begun = i, ++mine;
  }
  std::size_t dimensions = 0;
  for (std::size_t d = 0; d < a.index.size(); ++d)
    if (!is_single(w, a, d) && !(joined.valid() && a.index[d].plain_loop() == joined)) ++dimensions;
  if (dimensions != mine + 2)
    throw Refused{"tensor " + name + " has some of the loops that tell products apart"};
  if (mine == 0) m.divide = 1;
  return m;
}

void check_box_rows(const Workload& w, TensorId t, const MatrixAccess& m) {
  const std::int64_t size = size_of(w.tensor(t).dtype);
  if (m.outer * size % 16 != 0 || m.apart * size % 16 != 0)
    throw Refused{"tensor " + w.tensor(t).name + "'s rows do not begin at multiples of 16 bytes"};
}

BoxMap box_map(const Workload& w, TensorId t, const MatrixAccess& m, std::int64_t inner,
               std::int64_t outer, int tall) {
  const std::int64_t size = size_of(w.tensor(t).dtype);
  BoxMap map{.tensor = t, .type = w.tensor(t).dtype};
  const std::int64_t apart = (m.modulo == 1 ? m.outer * outer : m.apart) * size;
  map.extent = {inner, outer, m.modulo, 1, 1};
  map.stride = {size, m.outer * size, apart, apart, apart};
  map.box = {128 / size, tall, 1, 1, 1};
  return map;
}

}  // namespace tilewright::lowering
