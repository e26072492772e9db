// Workload::create: what makes a specification a workload.
#include "core/workload/workload_check.h"

#include <algorithm>
#include <boost/graph/strong_components.hpp>
#include <cmath>
#include <functional>
#include <queue>
#include <string>
#include <unordered_map>

#include "core/base/format.h"
#include "core/workload/operator_graph.h"
#include "core/workload/text.h"
#include "core/workload/workload.h"

namespace tilewright {
namespace {

using namespace check_workload;  // NOLINT: the two files are one idea

/// Of all tensors together, so that 64 bits count what moves once in and once out.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 62;

template <class Items>
void check_names(const Items& items, const std::string& kind) {
  std::unordered_map<std::string_view, std::size_t> seen;
  for (const auto& item : items) {
    if (!is_identifier(item.name))
      fail(kind, "'" + item.name + "'", "is not an identifier",
           "letters, digits and _, not starting with a digit, at most 64");
    if (!seen.emplace(item.name, seen.size()).second)
      fail(kind + "." + item.name, "", "is declared twice", "each name once");
  }
}

void check_workload_name(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./:=,+").find(c) != std::string_view::npos;
  };
  if (name.size() > 128 || !std::all_of(name.begin(), name.end(), allowed))
    fail("name", "'" + name + "'", "is not a name of a workload",
         "at most 128 letters, digits and _-./:=,+");
}

void check_extents(const WorkloadSpec& s) {
  for (const Loop& l : s.loops)
    if (l.extent < 1)
      fail("loops." + l.name, std::to_string(l.extent), "is not an extent",
           "1..9223372036854775807");
  std::int64_t all = 0;
  for (const Tensor& t : s.tensors) {
    const std::string field = "tensors." + t.name;
    if (t.shape.size() > static_cast<std::size_t>(kMaxRank))
      fail(field, std::to_string(t.shape.size()), "dimensions are too many",
           "at most " + std::to_string(kMaxRank));
    for (std::int64_t extent : t.shape)
      if (extent < 1)
        fail(field, std::to_string(extent), "is not an extent", "1..9223372036854775807");
    const auto n = checked_product(t.shape, [](std::int64_t e) { return e; });
    const auto bytes = n ? checked_mul(*n, size_of(t.dtype)) : std::nullopt;
    if (!bytes) fail(field, "", "has more bytes than 64 bits can count", "less than 2^63 bytes");
    const auto sum = checked_add(all, *bytes);
    if (!sum || *sum > kMaxBytes)
      fail("tensors", "", "have more bytes together than are counted", "at most 2^62 bytes");
    all = *sum;
  }
}

void check_ranges(const WorkloadSpec& s, const std::vector<OpId>& producer) {
  for (std::size_t i = 0; i < s.tensors.size(); ++i) {
    const double range = s.tensors[i].range;
    const std::optional<double>& least = s.tensors[i].least;
    const std::string field = "ranges." + s.tensors[i].name;
    if (!(range > least.value_or(0)) || !std::isfinite(range) || !std::isfinite(least.value_or(0)))
      fail(field, range_text(s.tensors[i]), "is not a range of values",
           "a positive number, or LOW to HIGH");
    if ((range != 1 || least) && producer[i].valid())
      fail(field, "", "is of a tensor that an operator writes", "inputs, whose values are drawn");
  }
}

void check_values(const WorkloadSpec& s, const std::vector<OpId>& producer) {
  for (std::size_t i = 0; i < s.tensors.size(); ++i) {
    const Tensor& t = s.tensors[i];
    if (!t.values) continue;
    const std::string field = "values." + t.name;
    if (producer[i].valid())
      fail(field, "", "are of a tensor that an operator writes", "values of inputs");
    const auto count = static_cast<std::size_t>(t.elements().value);
    if (!t.values->drawn() && t.values->file.empty() && t.values->list.size() != count)
      fail(field, std::to_string(t.values->list.size()) + " values", "are not the tensor's",
           std::to_string(count) + " values");
  }
}

void check_all_used(const WorkloadSpec& s, const std::vector<OpId>& producer,
                    const std::vector<std::vector<OpId>>& readers) {
  std::vector<bool> used(s.loops.size(), false);
  for (const Operator& op : s.operators)
    for (LoopId l : op.loops) used[l.index()] = true;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      fail("loops." + s.loops[i].name, "", "indexes no tensor", "loops that an operator uses");
  for (std::size_t t = 0; t < s.tensors.size(); ++t)
    if (!producer[t].valid() && readers[t].empty())
      fail("tensors." + s.tensors[t].name, "", "is used by no operator",
           "tensors that an operator reads or writes");
}

std::vector<OpId> find_producers(const WorkloadSpec& s) {
  std::vector<OpId> producer(s.tensors.size());
  for (std::size_t i = 0; i < s.operators.size(); ++i)
    for (const Output& out : s.operators[i].outputs) {
      OpId& p = producer[out.target.tensor.index()];
      if (p.valid())
        fail("tensors." + s.tensors[out.target.tensor.index()].name, "",
             p.index() == i ? "is written twice by operator " + s.operators[i].name
                            : "is written by operators " + s.operators[p.index()].name + " and " +
                                  s.operators[i].name,
             "one writer a tensor");
      p = OpId(i);
    }
  return producer;
}

/// Operators that read each tensor, in the order of the file, each once.
std::vector<std::vector<OpId>> find_readers(const WorkloadSpec& s) {
  std::vector<std::vector<OpId>> readers(s.tensors.size());
  for (std::size_t i = 0; i < s.operators.size(); ++i)
    for (const Access& in : s.operators[i].inputs) {
      std::vector<OpId>& r = readers[in.tensor.index()];
      if (r.empty() || r.back() != OpId(i)) r.push_back(OpId(i));
    }
  return readers;
}

[[noreturn]] void fail_cycle(const WorkloadSpec& s, const OperatorGraph& graph) {
  std::vector<int> component(boost::num_vertices(graph));
  boost::strong_components(graph, boost::make_iterator_property_map(
                                      component.begin(), boost::get(boost::vertex_index, graph)));
  for (auto [e, end] = boost::edges(graph); e != end; ++e) {
    const auto from = boost::source(*e, graph);
    if (component[from] != component[boost::target(*e, graph)]) continue;
    std::vector<std::string> names;
    for (std::size_t v = 0; v < component.size(); ++v)
      if (component[v] == component[from]) names.push_back(s.operators[v].name);
    fail("operators", join(names), "form a cycle", "operators that can be put in order");
  }
  TW_CHECK(false, "no order, yet no cycle");
  std::abort();
}

/// Producers first; among those that are ready, the first in the file.
std::vector<OpId> order_of(const WorkloadSpec& s, const OperatorGraph& graph) {
  std::vector<std::size_t> waiting(boost::num_vertices(graph));
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t v = 0; v < waiting.size(); ++v) {
    waiting[v] = boost::in_degree(v, graph);
    if (waiting[v] == 0) ready.push(v);
  }
  std::vector<OpId> order;
  while (!ready.empty()) {
    const std::size_t v = ready.top();
    ready.pop();
    order.push_back(graph[v]);
    for (auto [e, end] = boost::out_edges(v, graph); e != end; ++e)
      if (--waiting[boost::target(*e, graph)] == 0) ready.push(boost::target(*e, graph));
  }
  if (order.size() != waiting.size()) fail_cycle(s, graph);
  return order;
}

void settle_outputs(WorkloadSpec& s, const std::vector<OpId>& producer,
                    const std::vector<std::vector<OpId>>& readers) {
  if (s.outputs.empty())
    for (std::size_t t = 0; t < s.tensors.size(); ++t)
      if (producer[t].valid() && readers[t].empty()) s.outputs.push_back(TensorId(t));
  std::vector<bool> seen(s.tensors.size(), false);
  for (TensorId t : s.outputs) {
    if (!t.valid() || t.index() >= s.tensors.size())
      fail("outputs", std::to_string(t.value), "is not a tensor of this workload");
    const std::string& name = s.tensors[t.index()].name;
    if (!producer[t.index()].valid())
      fail("outputs", name, "is written by no operator", "tensors that an operator writes");
    if (seen[t.index()]) fail("outputs", name, "is listed twice", "each output once");
    seen[t.index()] = true;
  }
  for (std::size_t t = 0; t < s.tensors.size(); ++t)
    if (producer[t].valid() && readers[t].empty() && !seen[t])
      fail("tensors." + s.tensors[t].name, "", "is written, read by nobody and no output",
           "tensors that are read or listed in outputs");
}

}  // namespace

Workload Workload::create(WorkloadSpec spec) {
  check_workload_name(spec.name);
  check_names(spec.loops, "loops");
  check_names(spec.tensors, "tensors");
  check_names(spec.operators, "operators");
  if (spec.operators.empty()) fail("operators", "", "are missing", "at least one operator");
  check_extents(spec);
  for (Operator& op : spec.operators) check_operator(spec, op);

  Workload w;
  w.producer_ = find_producers(spec);
  w.consumers_ = find_readers(spec);
  check_all_used(spec, w.producer_, w.consumers_);
  check_ranges(spec, w.producer_);
  check_values(spec, w.producer_);
  w.order_ = order_of(spec, operator_graph(spec.operators.size(), w.producer_, w.consumers_));

  std::vector<std::size_t> rank(w.order_.size());
  for (std::size_t i = 0; i < w.order_.size(); ++i) rank[w.order_[i].index()] = i;
  for (std::vector<OpId>& readers : w.consumers_)
    std::sort(readers.begin(), readers.end(),
              [&](OpId a, OpId b) { return rank[a.index()] < rank[b.index()]; });
  settle_outputs(spec, w.producer_, w.consumers_);
  for (const Operator& op : spec.operators) {
    std::vector<LoopId> reduced = op.loops;
    for (const Affine& index : op.outputs.front().target.index)
      for (const Term& t : index.terms) std::erase(reduced, t.loop);
    w.reductions_.push_back(std::move(reduced));
  }
  w.spec_ = std::move(spec);
  return w;
}

}  // namespace tilewright
