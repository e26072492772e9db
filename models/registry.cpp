#include "models/registry.h"

#include <vector>

#include "models/tables.h"

// One line a model: its folder's namespace, and the function that makes its record.
#define TILEWRIGHT_MODELS(model_of)                                                 \
  model_of(chimera, model) model_of(mcfuser, model) model_of(mcfuser, nested_model) \
      model_of(exact_count, model) model_of(cached, model) model_of(bounds, model)  \
          model_of(fusionstitching, model) model_of(fusionstitching, xla_model)     \
              model_of(fusionstitching, unfused_model) model_of(souffle, model)     \
                  model_of(powerfusion, model) model_of(flashfuser, model)          \
                      model_of(xlapriority, model) model_of(inductor, model)        \
                          model_of(quickest, model)
// The same of those that have a text of their own: its folder's namespace.
#define TILEWRIGHT_TABLES(table_of)                                                 \
  table_of(mcfuser) table_of(fusionstitching) table_of(stitching) table_of(souffle) \
      table_of(powerfusion) table_of(flashfuser) table_of(quickest) table_of(chimera)

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

#define TILEWRIGHT_DECLARE_TABLE(folder) \
  namespace folder {                     \
  ModelTable table();                    \
  }
TILEWRIGHT_TABLES(TILEWRIGHT_DECLARE_TABLE)
#undef TILEWRIGHT_DECLARE_TABLE

std::span<const ModelTable> model_tables() {
#define TILEWRIGHT_TABLE(folder) folder::table(),
  static const std::vector<ModelTable> all = {TILEWRIGHT_TABLES(TILEWRIGHT_TABLE)};
#undef TILEWRIGHT_TABLE
  return all;
}

}  // namespace tilewright
