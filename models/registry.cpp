#include "models/registry.h"

#include <vector>

// One line a model: its folder's namespace, and the function that makes its record.
#define TILEWRIGHT_MODELS(model_of)                                                 \
  model_of(chimera, model) model_of(mcfuser, model) model_of(mcfuser, nested_model) \
      model_of(exact_count, model) model_of(cached, model) model_of(bounds, model)  \
          model_of(fusionstitching, model) model_of(fusionstitching, xla_model)     \
              model_of(fusionstitching, unfused_model) model_of(souffle, model)     \
                  model_of(powerfusion, model) model_of(flashfuser, model)          \
                      model_of(xlapriority, model) model_of(inductor, model)        \
                          model_of(quickest, model)

namespace tilewright {

#define TILEWRIGHT_DECLARE(folder, record) \
  namespace folder {                       \
  Model record();                          \
  }
TILEWRIGHT_MODELS(TILEWRIGHT_DECLARE)
#undef TILEWRIGHT_DECLARE

std::span<const Model> builtin_models() {
#define TILEWRIGHT_RECORD(folder, record) folder::record(),
  static const std::vector<Model> all = {TILEWRIGHT_MODELS(TILEWRIGHT_RECORD)};
#undef TILEWRIGHT_RECORD
  return all;
}

}  // namespace tilewright
