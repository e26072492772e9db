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
  /// Of one iteration of the loop around: until what it has made is there for what reads it; and
  /// from the first wait for what was stored by parts all that follows, as no other iteration
  /// passes beside that (0: none waits so).
  double waits = 0, in_turn = 0;
  double waiting = 0;           ///< of the arithmetic, what comes after the first wait
  double once = 0;              ///< of such waits, those of all iterations of the loop around
  bool once_stored = false;     ///< one of these is for what was stored by parts
  Objects foot;                 ///< bytes that it touches, whole lines
  std::vector<Objects> moved;   ///< by cache: bytes that come in
  std::vector<Objects> copied;  ///< by cache: bytes that loads bring in, beside `moved`
};

/// Of `n` runs one was as `last`, the others as `middle`, which becomes the mean.
inline void average(Work& middle, const Work& last, double n) {
  const auto mean = [n](double& m, double l) { m = (m * (n - 1) + l) / n; };
  mean(middle.arithmetic, last.arithmetic);
  mean(middle.packing, last.packing), mean(middle.begun, last.begun);
  mean(middle.waits, last.waits), mean(middle.in_turn, last.in_turn);
  mean(middle.waiting, last.waiting);
  middle.once = std::max(middle.once, last.once);
  for (std::size_t c = 0; c < middle.moved.size(); ++c)
    for (std::size_t o = 0; o < middle.foot.size(); ++o) mean(middle.moved[c][o], last.moved[c][o]);
}

}  // namespace tilewright::quickest
