// Graphs of memory-intensive operators, small enough to build kernels of and to walk in no time.
#pragma once

#include <string>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright::testing {

/// Every one that is built in, and a drawn one.
inline const std::vector<std::string> kSmallGraphs = {
    "layernorm:rows=24,cols=40",
    "layernorm-backward:rows=24,cols=40",
    "softmax:rows=24,cols=40",
    "gelu:rows=24,cols=40",
    "batchnorm:batch=3,channels=4,size=20",
    "groupnorm:batch=3,groups=4,channels=2,size=20",
    "residual-layernorm:rows=24,cols=40",
    "adam:size=1000",
    "lstm-cell:batch=6,hidden=20",
    "masked-softmax:batch=2,heads=3,m=4,l=20",
    "squeeze-excite:batch=3,channels=8,size=20,squeezed=4",
    "attention-unit:batch=3,items=7,width=8,gather=0",
    "attention-unit:batch=3,items=7,width=8,rows=40",
    "rotary:tokens=3,heads=4,half=12",
    "column-norm:rows=24,cols=40",
    "cross-entropy:rows=24,cols=40",
    "cross-entropy:rows=24,cols=40,soft=1",
    "rmsnorm:rows=24,cols=40",
    "rmsnorm-backward:rows=24,cols=40",
    "swiglu:rows=24,cols=40",
    "add-layernorm-gelu:rows=24,cols=40",
    "random-graph:vertices=12,rows=24,cols=40,seed=5",
};

/// Whether an operator reads what another one makes.
inline bool has_intermediates(const Workload& w) {
  for (std::size_t t = 0; t < w.tensors().size(); ++t)
    if (w.is_intermediate(TensorId(static_cast<int>(t)))) return true;
  return false;
}

}  // namespace tilewright::testing
