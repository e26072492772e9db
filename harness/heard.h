// A request's progress as what a computation on this thread says of itself.
#pragma once

#include <string_view>

#include "core/base/progress.h"
#include "harness/request.h"

namespace tilewright::harness {

/// Tells the request's progress how much of `what` is done; nothing where the request has none.
/// `request` and `what` must outlive it.
inline ProgressListener::Hear heard(const Request& request, std::string_view what) {
  if (!request.progress) return {};
  return [&request, what](double done) { request.progress(what, done); };
}

}  // namespace tilewright::harness
