// A workload written down in another order.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "core/workload/expr.h"
#include "core/workload/workload.h"

namespace tilewright::testing {

/// The same workload with loops, tensors and operators declared in an order that is drawn, each
/// operator after what it reads; with `named`, by other names, too.
inline std::shared_ptr<const Workload> in_other_order(const Workload& w, std::mt19937_64& random,
                                                      bool named = false) {
  WorkloadSpec spec = w.spec();
  std::vector<std::size_t> loops(spec.loops.size()), tensors(spec.tensors.size());  // by place now
  const auto shuffle = [&](auto& items, std::vector<std::size_t>& now) {
    std::vector<std::size_t> order(items.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::shuffle(order, random);
    auto before = items;
    for (std::size_t i = 0; i < order.size(); ++i)
      items[i] = std::move(before[order[i]]), now[order[i]] = i;
  };
  shuffle(spec.loops, loops);
  shuffle(spec.tensors, tensors);
  const auto renumber = [&](LoopId& l) { l = LoopId(loops[l.index()]); };
  const auto renumber_all = [&](Access& a) {
    a.tensor = TensorId(tensors[a.tensor.index()]);
    for (Affine& index : a.index)
      for (Term& t : index.terms) renumber(t.loop);
  };
  for (TensorId& t : spec.outputs) t = TensorId(tensors[t.index()]);
  std::ranges::shuffle(spec.outputs, random);
  std::vector<bool> done(w.operators().size());
  spec.operators.clear();
  while (spec.operators.size() < done.size()) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < done.size(); ++i)
      if (!done[i] && std::ranges::all_of(w.operators()[i].inputs, [&](const Access& a) {
            const OpId producer = w.producer(a.tensor);
            return !producer.valid() || done[producer.index()];
          }))
        ready.push_back(i);
    const std::size_t next = ready[random() % ready.size()];
    done[next] = true;
    Operator op = w.operators()[next];
    std::ranges::for_each(op.loops, renumber);
    std::ranges::for_each(op.inputs, renumber_all);
    for (Output& out : op.outputs) {
      renumber_all(out.target);
      each_index(out.value, renumber);
      if (out.rescale) each_index(*out.rescale, renumber);
    }
    spec.operators.push_back(std::move(op));
  }
  if (named) {
    const auto other = [&](auto& items) {
      for (auto& item : items) item.name = "n" + std::to_string(random());
    };
    other(spec.loops), other(spec.tensors), other(spec.operators);
  }
  return std::make_shared<const Workload>(Workload::create(std::move(spec)));
}

}  // namespace tilewright::testing
