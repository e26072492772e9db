// How values lie: what a thread moves at once, and the places of tiles and of sums in shared
// memory.
#include <algorithm>

#include "core/lowering/gpu/lowering.h"

namespace tilewright::lowering {
namespace {

constexpr std::int64_t kLongSums = 1024;  ///< elements of shared memory that a sum has for itself

}  // namespace

Linear Lowering::flat(TensorId t, const Key& key) const {
  Linear x = number(0);
  const Tensor& tensor = workload_.tensor(t);
  for (std::size_t d = 0; d < key.size(); ++d) x = tensor.shape[d] * x + key[d];
  return x;
}

/// The element index along which neighbours in registers are neighbours at home; -1: none.
int Lowering::contiguous(TensorId t, const Key& key, const std::vector<int>& ids) const {
  const Linear at = flat(t, key);
  for (int id : ids) {
    const ProgramIndex& i = index(id);
    const auto found = at.terms.find(id);
    if (i.kind == ProgramIndex::Kind::element && i.unrolled && found != at.terms.end() &&
        found->second == 1)
      return id;
  }
  return -1;
}

/// How many elements are moved as one: they lie inside or outside together, on an aligned address.
std::int64_t Lowering::vector_width(TensorId t, const Linear& at, int element,
                                    const std::vector<Linear>& inside) const {
  if (element < 0) return 1;
  for (const Linear& x : inside)
    if (x.terms.contains(element)) return 1;
  const auto bytes = size_of(workload_.tensor(t).dtype);
  const std::int64_t count = index(element).count;
  std::int64_t width = kVectorBytes / bytes;
  const auto divides = [&] {
    if (count % width != 0 || at.constant % width != 0) return false;
    return std::ranges::all_of(at.terms, [&](const auto& term) {
      return term.first == element || term.second % width == 0;
    });
  };
  while (width > 1 && !divides()) width /= 2;
  return width;
}

/// What must hold for a value to be moved.
std::vector<Linear> Lowering::moved_inside(const Value& v) const {
  std::vector<Linear> inside = v.inside;
  if (v.loaded())
    for (Linear& x : there(v.uses.front())) inside.push_back(std::move(x));
  return inside;
}

/// How a thread's values are moved: so many neighbours at once.
Strip Lowering::strip_of(const Value& v) const {
  const int element = contiguous(v.tensor, v.key, own(v));
  const std::int64_t width =
      vector_width(v.tensor, flat(v.tensor, v.key), element, moved_inside(v));
  const bool whole = element >= 0 && width == index(element).count;
  return {.element = element, .width = width, .whole = whole};
}

/// Whether all threads of a block are inside or none is.
bool Lowering::of_block(const std::vector<Linear>& inside) const {
  return std::ranges::none_of(inside, [this](const Linear& x) {
    return std::ranges::any_of(x.terms, [this](const auto& term) {
      return index(term.first).kind == ProgramIndex::Kind::unit;
    });
  });
}

/// Turns of loops whose tiles all lie in shared memory: they are loaded before the loop.
std::vector<int> Lowering::turns_ahead(const Value& v) const {
  std::vector<int> turns;
  if (!v.loaded()) return turns;
  for (NodeId l : v.around)
    if (const int turn = facts_[l.index()].turn; turn >= 0 && !is_around(l, v.anchor))
      turns.push_back(turn);
  return turns;
}

/// An element of the instance that this thread's units have.
Linear Lowering::shared_at(const Value& v, const Key& key) const {
  Linear at = number(0);
  for (NodeId l : v.around) {
    const int id = facts_[l.index()].unit;
    if (id < 0 || k_.node(l).max_trips <= 1) continue;
    at = index(id).count * at + v.elements * linear(id);
  }
  for (int turn : turns_ahead(v)) at = index(turn).count * at + v.elements * linear(turn);
  for (std::size_t d = 0; d < key.size(); ++d) at = at + v.pitch[d] * (key[d] - v.tile[d].lo);
  return at;
}

/// The units that have a part of a sum each.
std::vector<int> Lowering::reduced_units(const Value& v) const {
  std::vector<int> units;
  for (int id : reduced(v))
    if (index(id).kind == ProgramIndex::Kind::unit) units.push_back(id);
  return units;
}

/// Lanes that have different sums once their parts are joined.
std::int64_t Lowering::scratch_lanes(const Value& v) const {
  return copies(v.key, {}).of_warp() ? 1 : kLanes;
}
std::int64_t Lowering::scratch_elements(const Value& v) const {
  return size_of_dims(own(v)) * warps_ * scratch_lanes(v);
}

/// Whether a sum over all warps is only written home: then each warp joins some of its values.
bool Lowering::shared_out(const Value& v) const {
  return v.uses.empty() && warps_ > 1 && copies(v.key, {}).of_block() &&
         std::ranges::any_of(reduced_units(v),
                             [this](int id) { return index(id).unit != Binding::lane; });
}

void Lowering::lay_out() {
  const std::int64_t bytes = p_.element_bytes();
  const auto room = [&](std::int64_t elements) {
    const std::int64_t at = p_.shared_bytes;
    p_.shared_bytes += 16 * ceil_div(elements * bytes, std::int64_t{16});
    return at;
  };
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    Value& v = values_[i];
    if (v.storage == Storage::shared) {
      std::int64_t instances = 1;
      for (NodeId l : v.around) {
        const int id = facts_[l.index()].unit;
        if (id >= 0 && k_.node(l).max_trips > 1) instances *= index(id).count;
      }
      for (int turn : turns_ahead(v)) instances *= index(turn).count;
      v.offset = room(instances * v.elements);
    }
    if (!v.sum) continue;
    const std::vector<int> units = reduced_units(v);
    const bool joined =
        std::ranges::any_of(units, [&](int id) { return index(id).unit != Binding::lane; });
    if (!joined || warps_ == 1) continue;
    const std::int64_t elements = scratch_elements(v);
    const bool in_loop = std::ranges::any_of(loops_around(v.anchor), [this](NodeId l) {
      return k_.node(l).binding != Binding::grid && facts_[l.index()].turn >= 0;
    });
    // Long arrays of sums use one place after the other, at a barrier each.
    if (elements > kLongSums) {
      long_sums_.insert(i);
      longest = std::max(longest, elements);
      continue;
    }
    if (in_loop && !flips_.contains(v.anchor)) flips_[v.anchor] = p_.names.fresh("flip");
    scratch_[i] = room((in_loop ? 2 : 1) * elements);
  }
  if (longest > 0) {
    const std::int64_t at = room(longest);
    for (std::size_t i : long_sums_) scratch_[i] = at;
  }
  const Level* shared = nullptr;
  for (const Level& l : machine_.levels)
    if (l.managed == Managed::software && l.private_to == Unit::grid) shared = &l;
  std::int64_t most = std::int64_t{227} * 1024;
  if (machine_.kind == "gpu" && shared != nullptr && shared->capacity.value > 0)
    most = std::min(most, shared->capacity.value - 1024);
  if (options_.shared_room > 0) most = options_.shared_room;
  if (p_.shared_bytes > most)
    throw Refused{"it takes " + std::to_string(p_.shared_bytes) +
                      " bytes of shared memory; a block has " + std::to_string(most),
                  Reason::Shortage{p_.shared_bytes, most}};
}

}  // namespace tilewright::lowering
