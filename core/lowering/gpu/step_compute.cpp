// How a compute gets its inputs, and where its results go.
#include <algorithm>

#include "core/lowering/gpu/lowering.h"

namespace tilewright::lowering {

/// An input at the compute's point.
Read Lowering::read(const Use& use) {
  const Operator& op = workload_.op(k_.node(use.node).op);
  const Access& a = op.inputs[static_cast<std::size_t>(use.input)];
  Read r{.from = Read::From::gather, .input = use.input, .tensor = a.tensor};
  if (is_gather(a)) {
    r.gather = gather(use);
    return r;
  }
  const std::size_t at = used_by_.at({use.node, use.input});
  const Value& v = values_[at];
  if (v.storage == Storage::shared) return read_shared(use);
  const Key key = use_key(use);
  r.value = static_cast<int>(at);
  if (v.storage == Storage::registers) {
    r.from = Read::From::registers;
    r.names = *match(v.key, key, v.scope);
    return r;
  }
  r.from = Read::From::home;
  r.inside = facts_[use.node.index()].inside;
  for (Linear& x : there(use)) r.inside.push_back(std::move(x));
  r.at = flat(v.tensor, key);
  r.copies = copies(key, v.around);
  return r;
}

Write Lowering::write(std::size_t value) const {
  const Value& v = values_[value];
  Write w{.value = static_cast<int>(value), .sum = v.sum};
  if (w.sum) {
    for (const Linear& x : facts_[v.producer.index()].inside)
      if (std::ranges::find(v.inside, x) == v.inside.end()) w.inside.push_back(x);
    return w;
  }
  if (v.storage == Storage::registers) return w;
  w.inside = v.inside;
  w.copies = copies(v.key, v.around);  // units with an instance of their own fill it
  w.leaves = leaves(v);
  if (v.storage == Storage::shared) w.shared_at = shared_at(v, v.key);
  w.home_at = flat(v.tensor, v.key);
  return w;
}

// ---- What is read from home, once ---------------------------------------------------------------

namespace {

bool from_home(const Read& r) {
  return r.from == Read::From::home || r.from == Read::From::gather || r.from == Read::From::run;
}

}  // namespace

/// The compute's element indices that say which element an input is.
std::set<int> Lowering::elements_named(NodeId id, int input) const {
  const Operator& op = workload_.op(k_.node(id).op);
  const Access& a = op.inputs[static_cast<std::size_t>(input)];
  std::set<int> ids;
  for (int l : gather_loops(op, a))
    for (const auto& [i, c] : facts_[id.index()].point[static_cast<std::size_t>(l)].terms)
      if (index(i).kind == ProgramIndex::Kind::element) ids.insert(i);
  for (int by : named_by(id, input)) ids.merge(elements_named(id, by));
  return ids;
}

/// What is read from home is read once for all values of the elements that do not say what it is:
/// where there is something to compute for any of them, there is for the first.
void Lowering::read_once(Step& step) const {
  const auto at_first = [&](std::vector<Linear>& inside, const std::vector<int>& dims,
                            TensorId tensor) {
    for (Linear& x : inside)
      for (int e : step.dims) {
        const auto term = x.terms.find(e);
        if (term == x.terms.end() || std::ranges::find(dims, e) != dims.end()) continue;
        if (term->second > 0)
          throw Refused{"a thread may have nothing to compute for its first element, and reads " +
                        name_of_tensor(tensor) + " once for all of them"};
        x.terms.erase(term);
      }
  };
  for (Read& r : step.reads) {
    if (!from_home(r)) continue;
    const std::set<int> named = elements_named(step.node, r.input);
    r.dims.assign(named.begin(), named.end());
    at_first(r.inside, r.dims, r.tensor);
    at_first(r.gather.inside, r.dims, r.tensor);
    if (r.from == Read::From::run) at_first(step.run->gather.inside, r.dims, r.tensor);
    for (int by : named_by(step.node, r.input))
      at_first(step.reads[static_cast<std::size_t>(by)].inside, r.dims, r.tensor);
  }
}

/// Puts the elements that say what is read from home before those that do not, for each read.
/// False where that is no order: of two reads, each needs an element that the other one does not.
bool Lowering::order_elements(Step& step) {
  std::vector<std::set<int>> all;
  for (const Read& r : step.reads) {
    if (!from_home(r)) continue;
    std::set<int>& named = all.emplace_back(r.dims.begin(), r.dims.end());
    if (r.from == Read::From::run) named.erase(step.run->element);
  }
  if (step.run)  // its element is the last of all
    all.emplace_back(step.dims.begin(), step.dims.end()).erase(step.run->element);
  std::ranges::sort(all, std::greater<>{}, [](const auto& named) { return named.size(); });
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && !std::ranges::includes(all[i - 1], all[i])) return false;
    std::stable_partition(step.dims.begin(), step.dims.end(),
                          [&](int e) { return all[i].contains(e); });
  }
  return true;
}

std::vector<int> ThreadProgram::loops_of(const Step& compute) {
  std::vector<int> loops = compute.dims;
  if (!compute.run) return loops;
  std::erase(loops, compute.run->element);
  loops.push_back(compute.run->element);
  return loops;
}

std::size_t ThreadProgram::depth_of(const Step& compute, const Read& r) {
  const std::vector<int> loops = loops_of(compute);
  std::size_t depth = loops.size();
  if (r.at_home())
    while (depth > 0 && ((r.from == Read::From::run && loops[depth - 1] == compute.run->element) ||
                         std::ranges::find(r.dims, loops[depth - 1]) == r.dims.end()))
      --depth;
  return depth;
}

std::int64_t ThreadProgram::loads_of(const Step& compute, const Read& r) const {
  const std::vector<int> loops = loops_of(compute);
  std::int64_t loads = 1;
  for (std::size_t i = 0; i < depth_of(compute, r); ++i) loads *= index(loops[i]).count;
  return r.from == Read::From::run
             ? loads * ceil_div(index(compute.run->element).count, compute.run->width)
             : loads;
}

/// A compute's reads, one of them several elements at once where `run` says so.
Step Lowering::reads_of(NodeId id, std::optional<Run> run) {
  const Operator& op = workload_.op(k_.node(id).op);
  Step step{.kind = Step::Kind::compute, .node = id};
  step.dims = facts_[id.index()].elements;
  step.run = std::move(run);
  if (step.run) {
    step.run->gather = gather({id, step.run->input});
    const std::set<int> by = named_by(id, step.run->input);
    step.run->named_by.assign(by.begin(), by.end());
  }
  for (int i = 0; i < static_cast<int>(op.inputs.size()); ++i) {
    if (step.run && i == step.run->input) {
      Read r{.from = Read::From::run, .input = i};
      r.tensor = op.inputs[static_cast<std::size_t>(i)].tensor;
      step.reads.push_back(std::move(r));
    } else {
      step.reads.push_back(read({id, i}));
    }
  }
  read_once(step);
  return step;
}

void Lowering::compute(NodeId id, std::vector<Step>& out) {
  Step step = reads_of(id, run_of(id));
  bool ordered = order_elements(step);
  if (!ordered && step.run) {
    step = reads_of(id, std::nullopt);
    ordered = order_elements(step);
  }
  if (!ordered)
    throw Refused{"operator " + workload_.op(k_.node(id).op).name +
                  ": a thread would read what one input names again for each element of another"};
  count_units(step, loops_around(id));
  step.point = facts_[id.index()].point;
  for (std::size_t at : made_by_.at(id)) step.writes.push_back(write(at));
  out.push_back(std::move(step));
  for (std::size_t at : made_by_.at(id)) {
    const Value& v = values_[at];
    if (v.storage == Storage::shared && !v.sum) written_.push_back(at);
    if (leaves(v) && !v.sum && v.storage == Storage::registers) store(at, out);
  }
}

}  // namespace tilewright::lowering
