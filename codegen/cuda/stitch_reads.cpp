// What computes read in other ways than from registers: by other inputs' values (gathers), and of
// shared memory, held over a loop's turns where these read the same.
#include <algorithm>

#include "codegen/cuda/stitch.h"

namespace tilewright::cuda {
namespace {

constexpr std::int64_t kMostIndexed = std::int64_t{1}
                                      << 24;  // integers that f32 holds, all of them
constexpr std::int64_t kMostHeld = 16;  // elements of one read that registers hold over a loop

}  // namespace

// ---- gathers ----------------------------------------------------------------------------------

/// Inputs whose values say which element a gather reads.
std::set<int> StitchEmitter::named_by(NodeId compute, int gather) const {
  std::set<int> inputs;
  const Operator& op = workload_.op(k_.node(compute).op);
  for (const Affine& a : op.inputs[static_cast<std::size_t>(gather)].index)
    if (a.gathered >= 0) inputs.insert(a.gathered);
  return inputs;
}

/// The compute's gather whose elements lie side by side along one of its element indices, which
/// neither says where they are nor whether they are there.
std::optional<StitchEmitter::Run> StitchEmitter::run_of(NodeId id) const {
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
      const bool names = std::ranges::any_of(named_by(id, static_cast<int>(i)), [&](int by) {
        return std::ranges::any_of(use_key({id, by}),
                                   [e](const Linear& x) { return x.terms.contains(e); });
      });
      const std::int64_t width = std::min(vector_width(a.tensor, at, e, facts.inside), aligned);
      if (!names && width > 1 && indices_[static_cast<std::size_t>(e)].unrolled)
        return Run{.input = static_cast<int>(i), .element = e, .width = width, .name = ""};
    }
  }
  return std::nullopt;
}

/// Where this thread reads a gather: zero where its indices name no element. Threads that compute
/// for nothing read nothing, and lanes that compute the same read once.
StitchEmitter::Gathered StitchEmitter::gathered_at(const Use& use) {
  const Facts& facts = facts_[use.node.index()];
  const Operator& op = workload_.op(k_.node(use.node).op);
  const Access& a = op.inputs[static_cast<std::size_t>(use.input)];
  const Tensor& tensor = workload_.tensor(a.tensor);
  Key point;
  for (int l : gather_loops(op, a)) point.push_back(facts.point[static_cast<std::size_t>(l)]);
  Copies c = copies(point, facts.at.loops);
  // One element, the same for all threads: each reads it, from one sector.
  const bool alike =
      c.lane == "0" && c.warp == "0" && !std::ranges::any_of(point, [this](const Linear& x) {
        return std::ranges::any_of(x.terms, [this](const auto& term) {
          return indices_[static_cast<std::size_t>(term.first)].kind == Index::Kind::element;
        });
      });
  if (alike) c = {};
  if (!c.warp.empty())
    throw Refused{"operator " + op.name + ": every warp would read " + tensor.name +
                  " by the same values"};
  Gathered g{.there = both(condition(facts.inside), owner(c)),
             .place = home(a.tensor),
             .lane = c.lane,
             .alike = alike};
  std::int64_t stride = tensor.elements().value;
  for (std::size_t d = 0; d < a.index.size(); ++d) {
    stride /= tensor.shape[d];
    std::string index;
    if (const int by = a.index[d].gathered; by >= 0) {
      if (tensor.shape[d] > kMostIndexed)
        throw Refused{"operator " + op.name + " indexes " + tensor.name +
                      " by values beyond 2^24, which floats do not hold"};
      index = named("i64", "index", "i64(x" + std::to_string(by) + ")");
      g.there =
          both(g.there, index + " >= 0 && " + index + " < " + std::to_string(tensor.shape[d]));
    } else {
      const Access alone{.tensor = a.tensor, .index = {a.index[d]}};
      index = "i64(" + variables_.text(key_of(op, alone, facts.point).front()) + ")";
    }
    g.place += " + " + times(stride, index);
  }
  return g;
}

std::string StitchEmitter::read_gathered(const Use& use) {
  const Gathered g = gathered_at(use);
  const std::string element =
      g.alike ? "to_float(read_alike(" + g.place + ", thread == 0))" : "load_one(" + g.place + ")";
  const std::string loaded = g.there + " ? " + element + " : " + real() + "(0)";
  return g.lane.empty() ? loaded : "shuffle(" + loaded + ", " + g.lane + ")";
}

/// The values of a run, in an array of their own.
void StitchEmitter::load_run(NodeId id, Run& run) {
  const Index& e = indices_[static_cast<std::size_t>(run.element)];
  const OpId op = k_.node(id).op;
  const Access& a = workload_.op(op).inputs[static_cast<std::size_t>(run.input)];
  run.name = names_.fresh(identifier("", workload_.tensor(a.tensor).name) + "_run");
  out_.line(real() + " " + run.name + "[" + std::to_string(e.count) + "];");
  open_loop(run.element, run.width);
  const Gathered g = gathered_at({id, run.input});
  out_.line("load_several<" + std::to_string(run.width) + ">(&" + run.name + "[" + e.text + "], " +
            g.place + ", " + g.there + ");");
  close_loop();
  if (g.lane.empty()) return;
  open_loop(run.element);
  const std::string value = run.name + "[" + e.text + "]";
  out_.line(value + " = shuffle(" + value + ", " + g.lane + ");");
  close_loop();
}

// ---- slices -----------------------------------------------------------------------------------

/// The innermost node around a value's maker and all uses.
NodeId StitchEmitter::scope_of(const Value& v) const {
  NodeId scope = k_.node(v.anchor).parent;
  for (const Use& use : v.uses) scope = common(scope, k_.node(use.node).parent);
  return scope;
}

/// The parts of a load's tile that are read, X[i] and X[i+64], say, as values of their own. None
/// where two of them overlap, or where one does not fit a thread's registers: a tile in shared
/// memory then brings each element once.
std::vector<StitchEmitter::Value> StitchEmitter::slices_of(const Value& v) {
  Point at = facts_[v.producer.index()].at;
  for (const Inference& i : k_.node(v.producer).lookahead) infer(i, at);
  const auto same = [](const std::vector<Span>& a, const std::vector<Span>& b) {
    return std::ranges::equal(a, b, [](const Span& s, const Span& t) {
      return s.lo == t.lo && s.most == t.most && s.ends == t.ends && s.from_zero == t.from_zero;
    });
  };
  const auto apart = [](const std::vector<Span>& a, const std::vector<Span>& b) {
    for (std::size_t d = 0; d < a.size(); ++d) {
      const Linear gap = b[d].lo - a[d].lo;
      if (gap.terms.empty() && (gap.constant >= a[d].most || -gap.constant >= b[d].most))
        return true;
    }
    return false;
  };
  std::vector<Value> out;
  for (const Use& use : v.uses) {
    const OpId op = k_.node(use.node).op;
    std::vector<Span> box =
        access_box(op, workload_.op(op).inputs[static_cast<std::size_t>(use.input)], at);
    auto slice = std::ranges::find_if(out, [&](const Value& s) { return same(s.tile, box); });
    if (slice == out.end()) {
      if (std::ranges::any_of(out, [&](const Value& s) { return !apart(s.tile, box); })) return {};
      slice = out.insert(out.end(), v);
      slice->uses.clear();
      slice->tile = std::move(box);
    }
    slice->uses.push_back(use);
  }
  for (const Value& slice : out) {
    Value tried = slice;
    tried.scope = scope_of(tried);
    if (k_.node(tried.scope).kind == NodeKind::pack || !fits_registers(tried)) return {};
  }
  return out;
}

void StitchEmitter::split_slices() {
  for (std::size_t i = 0, loaded = values_.size(); i < loaded; ++i) {
    if (!values_[i].loaded() || values_[i].uses.size() < 2) continue;
    std::vector<Value> slices = slices_of(values_[i]);
    if (slices.size() < 2) continue;
    for (std::size_t s = 0; s < slices.size(); ++s) {
      const std::size_t at = s == 0 ? i : values_.size();
      for (const Use& use : slices[s].uses) used_by_[{use.node, use.input}] = at;
      if (s == 0)
        values_[i] = std::move(slices[s]);
      else
        values_.push_back(std::move(slices[s]));
    }
  }
}

// ---- shared memory ----------------------------------------------------------------------------

/// What must hold for the element that is read to be one of the tensor's: what a thread computes
/// for nothing, it may read as long as that is there. A warp without a part in the loop reads
/// nothing: a warp's barrier does not order it after the others.
std::vector<Linear> StitchEmitter::guards(const Use& use) const {
  const Key key = use_key(use);
  std::vector<Linear> out;
  const auto idles_warps = [&](const Linear& x) {
    return x.terms.size() == 1 &&
           indices_[static_cast<std::size_t>(x.terms.begin()->first)].unit == Binding::warp;
  };
  // Of lanes' own tiles those of idle lanes were not brought.
  const Value& v = values_[used_by_.at({use.node, use.input})];
  const bool own_tiles = v.loaded() && copies({}, v.around).lane != "0";
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

std::string StitchEmitter::read_shared(const Use& use) {
  const auto held = held_reads_.find({use.node, use.input});
  if (held != held_reads_.end()) {
    std::string text = held->second.name;
    for (int id : held->second.dims)
      text += "[" + indices_[static_cast<std::size_t>(id)].text + "]";
    return text;
  }
  const Value& v = values_[used_by_.at({use.node, use.input})];
  const std::string in = condition(guards(use));
  const std::string value = shared_at(v, use_key(use));
  return in.empty() ? value : in + " ? " + value + " : " + real() + "(0)";
}

/// Whether all turns of the loop, and of loops in it, read the same place, which nobody writes
/// meanwhile.
bool StitchEmitter::holds_over(NodeId loop, const Use& use, const Value& v) const {
  if (v.storage != Storage::shared || !is_around(loop, use.node) || v.producer == loop ||
      is_around(loop, v.producer) || v.anchor == loop || is_around(loop, v.anchor))
    return false;
  std::vector<Linear> depends = use_key(use);
  for (Linear& x : guards(use)) depends.push_back(std::move(x));
  for (const Linear& x : depends)
    for (const auto& [id, c] : x.terms) {
      const Index& i = indices_[static_cast<std::size_t>(id)];
      if (i.kind == Index::Kind::loop && (i.node == loop || is_around(loop, i.node))) return false;
      if (i.kind == Index::Kind::element && !i.unrolled) return false;
    }
  return true;
}

/// What is read, whatever the reader's own indices are called; these, outermost first.
std::string StitchEmitter::held_signature(const Use& use, std::vector<int>& dims) const {
  std::map<int, int> position;
  std::string text = std::to_string(used_by_.at({use.node, use.input}));
  for (const Linear& x : use_key(use)) {
    text += "," + std::to_string(x.constant);
    for (const auto& [id, c] : x.terms) {
      const Index& i = indices_[static_cast<std::size_t>(id)];
      if (i.kind == Index::Kind::element && !position.contains(id)) {
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
void StitchEmitter::hold_reads(NodeId loop) {
  std::map<std::string, HeldRead> held;
  for (const auto& [key, at] : used_by_) {
    const Use use{key.first, key.second};
    const Value& v = values_[at];
    if (held_reads_.contains(key) || !holds_over(loop, use, v)) continue;
    HeldRead read;
    const std::string signature = held_signature(use, read.dims);
    if (size_of_dims(read.dims) > kMostHeld) continue;
    if (const auto known = held.find(signature); known != held.end()) {
      read.name = known->second.name;
      held_reads_[key] = read;
      continue;
    }
    std::string sizes, element;
    for (int id : read.dims)
      sizes += "[" + std::to_string(indices_[static_cast<std::size_t>(id)].count) + "]";
    const std::string value =
        names_.fresh(identifier("", workload_.tensor(v.tensor).name) + "_held");
    out_.line(real() + " " + value + sizes + ";");
    for (int id : read.dims) open_loop(id);
    for (int id : read.dims) element += "[" + indices_[static_cast<std::size_t>(id)].text + "]";
    out_.line(value + element + " = " + read_shared(use) + ";");
    for (std::size_t i = 0; i < read.dims.size(); ++i) close_loop();
    read.name = value;
    held[signature] = read;
    held_reads_[key] = std::move(read);
  }
}

}  // namespace tilewright::cuda
