// How far a long computation is, for whoever listens on its thread.
#pragma once

#include <functional>

namespace tilewright {

/// Hears how much is done, from 0 to 1, of what this thread computes while the listener lives.
class ProgressListener {
 public:
  using Hear = std::function<void(double done)>;
  explicit ProgressListener(Hear hear);
  ~ProgressListener();
  ProgressListener(const ProgressListener&) = delete;
  ProgressListener& operator=(const ProgressListener&) = delete;

 private:
  Hear hear_;
  struct Before {
    const Hear* hear;
    double from, part, said;
  } before_;
};

/// Steps of a computation, taken to be of equal length. Steps made while those of a caller are
/// under way divide the caller's step. Costs some nanoseconds where nobody listens.
class Steps {
 public:
  explicit Steps(double count);
  ~Steps();
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  /// The next step is done.
  void done();

 private:
  double count_, done_ = 0, from_, part_;
};

}  // namespace tilewright
