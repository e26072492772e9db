// The loop trees behind the choices.
#pragma once

#include <string>
#include <vector>

#include "models/bounds/bounds.h"
#include "models/bounds/product.h"

namespace tilewright::bounds {

/// Loops are named; steps of one trip are left out.
struct TreeMaker {
  const Workload& w;
  std::string name(LoopId l) const { return w.loop(l).name; }
  std::string name(TensorId t) const { return w.tensor(t).name; }
  std::string name(OpId o) const { return w.op(o).name; }
  Node cut(LoopId l, std::int64_t step, std::int64_t range, std::vector<Node> body) const;
  Node batch(const std::vector<LoopId>& loops, Node body) const;
};

std::vector<Choice> gemm_choices(const Product& p, Steps steps);
Node gemm_tree(const Workload& w, const Product& p, const Choice& c);

std::vector<Choice> chain_choices(const Chain& chain, Steps steps);
Node chain_tree(const Workload& w, const Chain& chain, const Choice& c);

}  // namespace tilewright::bounds
