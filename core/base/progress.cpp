#include "core/base/progress.h"

#include <algorithm>
#include <utility>

namespace tilewright {
namespace {

constexpr double kLeastSaid = 0.002;  // a smaller advance is not worth saying

struct State {
  const ProgressListener::Hear* hear = nullptr;
  double from = 0, part = 1;  ///< of the step under way: what was done before it, and its length
  double said = 0;
};
thread_local State state;

}  // namespace

ProgressListener::ProgressListener(Hear hear)
    : hear_(std::move(hear)), before_{state.hear, state.from, state.part, state.said} {
  state = {.hear = hear_ ? &hear_ : nullptr};
}

ProgressListener::~ProgressListener() {
  state = {before_.hear, before_.from, before_.part, before_.said};
}

Steps::Steps(double count) : count_(std::max(count, 1.0)), from_(state.from), part_(state.part) {
  state.part = part_ / count_;
}

Steps::~Steps() {
  state.from = from_;
  state.part = part_;
}

void Steps::done() {
  ++done_;
  state.from = from_ + part_ * std::min(done_ / count_, 1.0);
  if (state.hear == nullptr || state.from < state.said + kLeastSaid) return;
  state.said = state.from;
  (*state.hear)(state.from);
}

}  // namespace tilewright
