// Between home and registers or shared memory.
#include <algorithm>

#include "codegen/cuda/stitch.h"

namespace tilewright::cuda {
namespace {

constexpr std::int64_t kLongSums = 1024;  ///< elements of shared memory that a sum has for itself

}  // namespace

/// "lane == 0 && ...": the thread that acts for all that have the same.
std::string StitchEmitter::owner(const Copies& c) const {
  return both(c.lane.empty() ? "" : "lane == " + c.lane, c.warp.empty() ? "" : "warp == " + c.warp);
}

/// The element index along which neighbours in registers are neighbours at home; -1: none.
int StitchEmitter::contiguous(TensorId t, const Key& key, const std::vector<int>& ids) const {
  const Linear at = flat(t, key);
  for (int id : ids) {
    const Index& i = indices_[static_cast<std::size_t>(id)];
    const auto found = at.terms.find(id);
    if (i.kind == Index::Kind::element && i.unrolled && found != at.terms.end() &&
        found->second == 1)
      return id;
  }
  return -1;
}

/// How many elements are moved as one: they lie inside or outside together, on an aligned address.
std::int64_t StitchEmitter::vector_width(TensorId t, const Linear& at, int element,
                                         const std::vector<Linear>& inside) const {
  if (element < 0) return 1;
  for (const Linear& x : inside)
    if (x.terms.contains(element)) return 1;
  const auto bytes = size_of(workload_.tensor(t).dtype);
  const std::int64_t count = indices_[static_cast<std::size_t>(element)].count;
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
std::vector<Linear> StitchEmitter::moved_inside(const Value& v) const {
  std::vector<Linear> inside = v.inside;
  if (v.loaded())
    for (Linear& x : there(v.uses.front())) inside.push_back(std::move(x));
  return inside;
}

/// How a thread's values are moved: so many neighbours at once.
StitchEmitter::Strip StitchEmitter::strip_of(const Value& v) const {
  const int element = contiguous(v.tensor, v.key, own(v.key, k_.node(v.anchor).parent));
  const std::int64_t width =
      vector_width(v.tensor, flat(v.tensor, v.key), element, moved_inside(v));
  const bool whole = element >= 0 && width == indices_[static_cast<std::size_t>(element)].count;
  return {.element = element, .width = width, .whole = whole};
}

/// Whether all threads of a block are inside or none is.
bool StitchEmitter::of_block(const std::vector<Linear>& inside) const {
  return std::ranges::none_of(inside, [this](const Linear& x) {
    return std::ranges::any_of(x.terms, [this](const auto& term) {
      return indices_[static_cast<std::size_t>(term.first)].kind == Index::Kind::unit;
    });
  });
}

/// Each run of a thread's values, as one where it is aligned and `only`, besides what holds inside,
/// is the same for all of it. What all threads load alike, `only` counts.
void StitchEmitter::move(const Value& v, const std::string& function, const std::string& only) {
  const Strip run = strip_of(v);
  std::size_t opened = 0;
  for (int id : own(v.key, k_.node(v.anchor).parent))
    if (id != run.element) open_loop(id), ++opened;
  if (run.element >= 0 && !run.whole) open_loop(run.element, run.width), ++opened;
  Linear from = flat(v.tensor, v.key);
  if (run.whole) from.terms.erase(run.element);
  const std::vector<Linear> inside = moved_inside(v);
  std::string in = both(condition(inside), v.alike ? "" : only);
  const bool together = v.loaded() && !v.alike && !in.empty() && only.empty() && of_block(inside);
  if (!in.empty()) in = ", " + in;
  if (v.alike) in += ", " + only;
  const std::string values = "&" + (run.whole ? array(v, {}, run.element) + "[0]" : array(v));
  const std::string place = home(v.tensor) + " + " + offset_text(v.tensor, from);
  out_.line((together ? "load_together" : function) + "<" + std::to_string(run.width) + ">(" +
            (v.loaded() ? values + ", " + place : place + ", " + values) + in + ");");
  while (opened-- > 0) close_loop();
}

void StitchEmitter::load(const Value& v) {
  if (v.storage == Storage::direct) return;
  out_.comment("L." + workload_.tensor(v.tensor).name);
  if (v.storage == Storage::shared) return stage(v);
  const Copies c = copies(v.key, v.around);
  move(v, v.alike ? "load_alike" : "load_several", owner(c));
  if (c.lane.empty() || v.alike) return;
  const std::vector<int> ids = own(v.key, k_.node(v.anchor).parent);
  for (int id : ids) open_loop(id);
  out_.line(array(v) + " = shuffle(" + array(v) + ", " + c.lane + ");");
  for (std::size_t i = 0; i < ids.size(); ++i) close_loop();
}

/// Turns of loops whose tiles all lie in shared memory: they are loaded before the loop.
std::vector<int> StitchEmitter::turns_ahead(const Value& v) const {
  std::vector<int> turns;
  if (!v.loaded()) return turns;
  for (NodeId l : v.around)
    if (const int turn = facts_[l.index()].turn; turn >= 0 && !is_around(l, v.anchor))
      turns.push_back(turn);
  return turns;
}

/// The threads that share an instance bring its tile to shared memory, each element once: all of
/// them together or, where lanes have tiles of their own, one for those that have the same.
void StitchEmitter::stage(const Value& v) {
  const Copies c = copies({}, v.around);
  const bool alone = c.lane != "0";
  std::string mine = alone ? "0" : "lane";
  std::int64_t threads = alone ? 1 : 32;
  if (!c.warp.empty() && !alone) {
    std::int64_t inner = warps_;
    for (NodeId l : v.around) {
      const int id = facts_[l.index()].unit;
      if (id >= 0 && indices_[static_cast<std::size_t>(id)].unit == Binding::warp)
        inner = std::min(inner, indices_[static_cast<std::size_t>(id)].stride);
    }
    threads = 32 * inner;
    mine = c.warp == "0" ? "thread" : "(thread - 32 * (" + c.warp + "))";
  }
  std::string in = condition(facts_[v.anchor.index()].at.inside);
  if (alone) in = both(in, owner(c));
  Key key;
  std::size_t opened = 0;
  for (int turn : turns_ahead(v)) open_loop(turn), ++opened;
  for (std::size_t d = 0; d < v.tile.size(); ++d) {
    const Span& s = v.tile[d];
    const bool last = d + 1 == v.tile.size();
    const std::string name = names_.fresh("s");
    out_.line("TW_NO_UNROLL");
    out_.open("for (int " + name + " = " + (last ? mine : "0") + "; " + name + " < " +
              std::to_string(s.most) + "; " + name + " += " + std::to_string(last ? threads : 1) +
              ")");
    defined_.emplace_back();
    ++opened;
    Index i{.kind = Index::Kind::loop, .text = name, .count = s.most, .node = v.anchor};
    key.push_back(s.lo + index(add_index(i)));
    for (const Linear& e : s.ends) in = both(in, "(" + condition({e - key.back()}) + ")");
    if (s.from_zero) in = both(in, "(" + condition({key.back() + number(1)}) + ")");
  }
  if (v.tile.empty() && !alone) in = both(in, mine + " == 0");
  const std::string value =
      "load_one(" + home(v.tensor) + " + " + offset_text(v.tensor, flat(v.tensor, key)) + ")";
  out_.line((in.empty() ? "" : "if (" + in + ") ") + shared_at(v, key) + " = " + value + ";");
  while (opened-- > 0) close_loop();
  written_.push_back(static_cast<std::size_t>(&v - values_.data()));
}

void StitchEmitter::store(const Value& v) {
  out_.comment("S." + workload_.tensor(v.tensor).name);
  const std::string function = k_.buffer(v.buffer).atomic ? "add_several" : "store_several";
  Copies c = copies(v.key, {});
  if (!is_sum(v) || !shared_out(v)) return move(v, function, owner(c));
  c.warp.clear();
  move(v, function, both(owner(c), joining_warp(v)));
}

/// An element of the instance that this thread's units have.
std::string StitchEmitter::shared_at(const Value& v, const Key& key) const {
  Linear at = number(0);
  for (NodeId l : v.around) {
    const int id = facts_[l.index()].unit;
    if (id < 0 || k_.node(l).max_trips <= 1) continue;
    at = indices_[static_cast<std::size_t>(id)].count * at + v.elements * index(id);
  }
  for (int turn : turns_ahead(v))
    at = indices_[static_cast<std::size_t>(turn)].count * at + v.elements * index(turn);
  for (std::size_t d = 0; d < key.size(); ++d) at = at + v.pitch[d] * (key[d] - v.tile[d].lo);
  return v.name + "[" + variables_.text(at) + "]";
}

void StitchEmitter::lay_out() {
  const std::int64_t bytes = p_.f64 ? 8 : 4;
  const auto room = [&](std::int64_t elements) {
    const std::int64_t at = shared_bytes_;
    shared_bytes_ += 16 * ceil_div(elements * bytes, std::int64_t{16});
    return at;
  };
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    Value& v = values_[i];
    if (v.storage == Storage::shared) {
      std::int64_t instances = 1;
      for (NodeId l : v.around) {
        const int id = facts_[l.index()].unit;
        if (id >= 0 && k_.node(l).max_trips > 1)
          instances *= indices_[static_cast<std::size_t>(id)].count;
      }
      for (int turn : turns_ahead(v)) instances *= indices_[static_cast<std::size_t>(turn)].count;
      v.offset = room(instances * v.elements);
    }
    if (!is_sum(v)) continue;
    const std::vector<int> units = reduced_units(v);
    const bool joined = std::ranges::any_of(units, [&](int id) {
      return indices_[static_cast<std::size_t>(id)].unit != Binding::lane;
    });
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
    if (in_loop && !flips_.contains(v.anchor)) flips_[v.anchor] = names_.fresh("flip");
    scratch_[i] = room((in_loop ? 2 : 1) * elements);
  }
  if (longest > 0) {
    const std::int64_t at = room(longest);
    for (std::size_t i : long_sums_) scratch_[i] = at;
  }
  const Level* shared = nullptr;
  for (const Level& l : p_.machine().levels)
    if (l.managed == Managed::software && l.private_to == Unit::grid) shared = &l;
  std::int64_t most = std::int64_t{227} * 1024;
  if (p_.machine().kind == "gpu" && shared != nullptr && shared->capacity.value > 0)
    most = std::min(most, shared->capacity.value - 1024);
  if (p_.options.shared_room > 0) most = p_.options.shared_room;
  if (shared_bytes_ > most)
    throw Refused{"it takes " + std::to_string(shared_bytes_) +
                      " bytes of shared memory; a block has " + std::to_string(most),
                  Reason::Shortage{shared_bytes_, most}};
}

}  // namespace tilewright::cuda
