// What a part of a kernel's tree does, as a walk over it adds up.
#pragma once

#include <numeric>
#include <vector>

namespace tilewright::quickest {

/// Bytes by object: tensors where they lie at home, then buffers in their own arrays.
using Objects = std::vector<double>;

inline double sum(const Objects& o) { return std::accumulate(o.begin(), o.end(), 0.0); }

/// What a subtree does in one run of it, one thread.
struct Work {
  double arithmetic = 0, packing = 0, begun = 0;
  Objects foot;                 ///< bytes that it touches, whole lines
  std::vector<Objects> moved;   ///< by cache: bytes that come in
  std::vector<Objects> copied;  ///< by cache: bytes that loads bring in, beside `moved`
};

/// Of `n` runs one was as `last`, the others as `middle`, which becomes the mean.
inline void average(Work& middle, const Work& last, double n) {
  const auto mean = [n](double& m, double l) { m = (m * (n - 1) + l) / n; };
  mean(middle.arithmetic, last.arithmetic);
  mean(middle.packing, last.packing), mean(middle.begun, last.begun);
  for (std::size_t c = 0; c < middle.moved.size(); ++c)
    for (std::size_t o = 0; o < middle.foot.size(); ++o) mean(middle.moved[c][o], last.moved[c][o]);
}

}  // namespace tilewright::quickest
