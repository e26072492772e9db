// A question asked in a child process, for libraries that decide once and for all when first used.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace tilewright::bench {

/// What `ask` returns in a forked child, whose libraries and environment are forgotten afterwards.
/// Nothing where it throws, aborts or is killed. To be called while there is one thread only.
std::optional<std::string> asked_in_child(const std::function<std::string()>& ask);

}  // namespace tilewright::bench
