// The models of this package: one line each in registry.cpp.
#pragma once

#include <span>

#include "models/model.h"

namespace tilewright {

/// In the order of lists; the first is the one that plans where no model is named.
std::span<const Model> builtin_models();

}  // namespace tilewright
