// What YAML, JSON and the built-ins give alike, before names are bound. Used by the readers only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright {

/// A scalar of a file and where it stands ("file:line"; the file alone where lines are unknown).
struct RawText {
  std::string text = {};
  std::string where = {};
};

struct RawWorkload {
  struct LoopEntry {
    RawText name, extent;
  };
  struct TensorEntry {
    RawText name;
    std::vector<RawText> shape;
  };
  struct OperatorEntry {
    RawText name;  ///< empty: the text's own, or its target's
    RawText text;
  };
  std::string where = {};
  RawText name = {};
  std::optional<RawText> dtype = {};
  std::vector<LoopEntry> loops = {};
  std::vector<TensorEntry> tensors = {};
  std::vector<std::pair<RawText, RawText>> dtypes = {};  ///< tensor, type
  std::vector<std::pair<RawText, RawText>> ranges = {};  ///< input, largest value drawn
  struct ValuesEntry {
    RawText name;
    std::optional<RawText> file = {};  ///< "f32 at 4096 of model.onnx"; none: the list
    std::vector<RawText> list = {};
  };
  std::vector<ValuesEntry> values = {};
  std::vector<OperatorEntry> operators = {};
  std::vector<RawText> outputs = {};
};

/// The keys of a workload file.
const std::vector<std::string>& workload_keys();

/// Binds names and numbers, then Workload::create. Throws InputError with the place of what it
/// names.
Workload create(const RawWorkload& raw);

}  // namespace tilewright
