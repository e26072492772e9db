// What people see of a model's answers beside what all models have.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

namespace tilewright {

/// A model's own text of its documents, which it knows by what they hold.
struct ModelTable {
  /// The document of `explain`; empty: it is not this model's, or has nothing of its own. Null:
  /// never has.
  std::string (*explained)(const nlohmann::ordered_json& document) = nullptr;
  /// The document of `plan`: the figures that all plans have, and what the model adds around them.
  /// Null: nothing.
  std::string (*planned)(const nlohmann::ordered_json& document,
                         const std::string& figures) = nullptr;
};

/// In the order in which they are asked; one line each in registry.cpp.
std::span<const ModelTable> model_tables();

}  // namespace tilewright
