// What computes read in other ways than from registers: by other inputs' values (gathers), and of
// shared memory, held over a loop's turns where these read the same.
#include <algorithm>
#include <tuple>

#include "core/lowering/gpu/lowering.h"

namespace tilewright::lowering {
namespace {

constexpr std::int64_t kMostIndexed = std::int64_t{1}
                                      << 24;  // integers that f32 holds, all of them
constexpr std::int64_t kMostHeld = 16;  // elements of one read that registers hold over a loop

}  // namespace

// ---- gathers ----------------------------------------------------------------------------------

/// Inputs whose values say which element a gather reads.
std::set<int> Lowering::named_by(NodeId compute, int gather) const {
  std::set<int> inputs;
  const Operator& op = workload_.op(k_.node(compute).op);
  for (const Affine& a : op.inputs[static_cast<std::size_t>(gather)].index)
    if (a.gathered >= 0) inputs.insert(a.gathered);
  return inputs;
}

/// The compute's gather whose elements lie side by side along one of its element indices, which
/// neither says where they are nor whether they are there.
std::optional<Run> Lowering::run_of(NodeId id) const {
  const Operator& op = workload_.op(k_.node(id).op);
  const Facts& facts = facts_[id.index()];
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const Access& a = op.inputs[i];
    if (!is_gather(a) || a.index.back().gathered >= 0) continue;
    const Tensor& tensor = workload_.tensor(a.tensor);
    // What is not gathered, as an offset from an element that is as aligned as the gathered
    // dimensions' strides.
    Linear at = number(0);
    std::int64_t stride = tensor.elements().value, aligned = kVectorBytes;
    for (std::size_t d = 0; d < a.index.size(); ++d) {
      stride /= tensor.shape[d];
      if (a.index[d].gathered >= 0) {
        while (stride % aligned != 0) aligned /= 2;
        continue;
      }
      const Access alone{.tensor = a.tensor, .index = {a.index[d]}};
      at = at + stride * key_of(op, alone, facts.point).front();
    }
    for (int e : facts.elements) {
      const auto found = at.terms.find(e);
      if (found == at.terms.end() || found->second != 1) continue;
      const std::vector<Linear> inside = there({id, static_cast<int>(i)});
      if (std::ranges::any_of(inside, [e](const Linear& x) { return x.terms.contains(e); }))
        continue;  // some of them may not be there
      const bool names = std::ranges::any_of(named_by(id, static_cast<int>(i)), [&](int by) {
        return std::ranges::any_of(use_key({id, by}),
                                   [e](const Linear& x) { return x.terms.contains(e); });
      });
      const std::int64_t width = std::min(vector_width(a.tensor, at, e, facts.inside), aligned);
      if (!names && width > 1 && index(e).unrolled)
        return Run{.input = static_cast<int>(i), .element = e, .width = width, .name = ""};
    }
  }
  return std::nullopt;
}

/// Where a thread reads a gather: zero where its indices name no element. Threads that compute for
/// nothing read nothing, and lanes that compute the same read once.
Gather Lowering::gather(const Use& use) const {
  const Facts& facts = facts_[use.node.index()];
  const Operator& op = workload_.op(k_.node(use.node).op);
  const Access& a = op.inputs[static_cast<std::size_t>(use.input)];
  const Tensor& tensor = workload_.tensor(a.tensor);
  Key point;
  for (int l : gather_loops(op, a)) point.push_back(facts.point[static_cast<std::size_t>(l)]);
  Gather g{.tensor = a.tensor, .inside = facts.inside, .copies = copies(point, facts.at->loops)};
  for (Linear& x : there(use)) g.inside.push_back(std::move(x));
  // One element, the same for all threads: each reads it, from one sector.
  g.alike = g.copies.of_warp() && g.copies.of_block() &&
            std::ranges::none_of(point, [this](const Linear& x) {
              return std::ranges::any_of(x.terms, [this](const auto& term) {
                return index(term.first).kind == ProgramIndex::Kind::element;
              });
            });
  if (g.alike) g.copies = {};
  if (g.copies.warp)
    throw Refused{"operator " + op.name + ": every warp would read " + tensor.name +
                  " by the same values"};
  std::int64_t stride = tensor.elements().value;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    stride /= tensor.shape[d];
    Gather::Dimension dimension{
        .stride = stride, .extent = tensor.shape[d], .by = a.index[d].gathered};
    if (dimension.by >= 0 && tensor.shape[d] > kMostIndexed)
      throw Refused{"operator " + op.name + " indexes " + tensor.name +
                    " by values beyond 2^24, which floats do not hold"};
    if (dimension.by < 0) {
      const Access alone{.tensor = a.tensor, .index = {a.index[d]}};
      dimension.index = key_of(op, alone, facts.point).front();
    }
    g.dimensions.push_back(std::move(dimension));
  }
  return g;
}

// ---- shared memory ----------------------------------------------------------------------------

/// What must hold for the element that is read to be one of the tensor's: what a thread computes
/// for nothing, it may read as long as that is there. A warp without a part in the loop reads
/// nothing: a warp's barrier does not order it after the others.
std::vector<Linear> Lowering::guards(const Use& use) const {
  const Key key = use_key(use);
  std::vector<Linear> out;
  const auto idles_warps = [&](const Linear& x) {
    return x.terms.size() == 1 && index(x.terms.begin()->first).unit == Binding::warp;
  };
  // Of warps' and lanes' own tiles those of idle ones were not brought, nor made.
  const Value& v = values_[used_by_.at({use.node, use.input})];
  const auto shared = copies({}, v.around);
  const bool own_tiles = !(shared.of_warp() && shared.of_block());
  const auto idles_owner = [&](const Linear& x) {
    return own_tiles && std::ranges::any_of(v.around, [&](NodeId l) {
             return x.terms.contains(facts_[l.index()].unit);
           });
  };
  for (const Linear& x : facts_[use.node.index()].inside)
    if (idles_warps(x) || idles_owner(x) || std::ranges::any_of(x.terms, [&key](const auto& term) {
          return std::ranges::any_of(
              key, [&term](const Linear& k) { return k.terms.contains(term.first); });
        }))
      out.push_back(x);
  for (Linear& x : there(use)) out.push_back(std::move(x));
  return out;
}

Read Lowering::read_shared(const Use& use) const {
  const std::size_t at = used_by_.at({use.node, use.input});
  const Value& v = values_[at];
  Read r{.input = use.input, .tensor = v.tensor, .value = static_cast<int>(at)};
  if (const auto held = held_reads_.find({use.node, use.input}); held != held_reads_.end()) {
    r.from = Read::From::held;
    std::tie(r.name, r.dims) = held->second;
    return r;
  }
  if (const auto held = held_windows_.find({use.node, use.input}); held != held_windows_.end())
    return held->second;
  if (v.padded > 0) return read_padded(use);
  r.from = Read::From::shared;
  r.inside = guards(use);
  r.at = shared_at(v, use_key(use));
  return r;
}

/// Whether all turns of the loop, and of loops in it, read the same place, which nobody writes
/// meanwhile.
bool Lowering::holds_over(NodeId loop, const Use& use, const Value& v) const {
  if (v.storage != Storage::shared || v.padded > 0 || !is_around(loop, use.node) ||
      v.producer == loop || is_around(loop, v.producer) || v.anchor == loop ||
      is_around(loop, v.anchor))
    return false;
  std::vector<Linear> depends = use_key(use);
  for (Linear& x : guards(use)) depends.push_back(std::move(x));
  for (const Linear& x : depends)
    for (const auto& [id, c] : x.terms) {
      const ProgramIndex& i = index(id);
      if (i.kind == ProgramIndex::Kind::loop && (i.node == loop || is_around(loop, i.node)))
        return false;
      if (i.kind == ProgramIndex::Kind::element && !i.unrolled) return false;
    }
  return true;
}

/// What is read, whatever the reader's own indices are called; these, outermost first.
std::string Lowering::held_signature(const Use& use, std::vector<int>& dims) const {
  std::map<int, int> position;
  std::string text = std::to_string(used_by_.at({use.node, use.input}));
  for (const Linear& x : use_key(use)) {
    text += "," + std::to_string(x.constant);
    for (const auto& [id, c] : x.terms) {
      const ProgramIndex& i = index(id);
      if (i.kind == ProgramIndex::Kind::element && !position.contains(id)) {
        position[id] = static_cast<int>(dims.size());
        dims.push_back(id);
      }
      const bool own = position.contains(id);
      text += "+" + std::to_string(c) +
              (own ? "e" + std::to_string(position[id]) + ":" + std::to_string(i.count)
                   : "i" + std::to_string(id));
    }
  }
  return text;
}

/// Reads before a loop what its turns would read again and again: stores in between keep the
/// compiler from doing so.
void Lowering::hold_reads(NodeId loop, std::vector<Step>& out) {
  std::map<std::string, std::string> held;
  for (const auto& [key, at] : used_by_) {
    const Use use{key.first, key.second};
    const Value& v = values_[at];
    if (held_reads_.contains(key) || !holds_over(loop, use, v)) continue;
    std::vector<int> dims;
    const std::string signature = held_signature(use, dims);
    if (size_of_dims(dims) > kMostHeld) continue;
    if (const auto known = held.find(signature); known != held.end()) {
      held_reads_[key] = {known->second, dims};
      continue;
    }
    Step step = of_value(Step::Kind::hold, at);
    step.node = loop;
    step.dims = dims;
    step.read = read_shared(use);
    step.read.name = p_.names.fresh(identifier("", name_of_tensor(v.tensor)) + "_held");
    held[signature] = step.read.name;
    held_reads_[key] = {step.read.name, dims};
    out.push_back(std::move(step));
  }
}

}  // namespace tilewright::lowering
