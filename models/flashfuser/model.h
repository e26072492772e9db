// FlashFuser as a model: its record, and what its experiments ask beside it.
#pragma once

#include "models/flashfuser/options.h"
#include "models/model.h"

namespace tilewright::flashfuser {

Model model();

struct Asked {
  Chain chain;
  Device device;
  LevelId level;
  Options options;
};
Result<Asked> asked_of(const Question& q, const Settings& settings);
nlohmann::ordered_json funnel_json(const std::vector<Count>& funnel);

}  // namespace tilewright::flashfuser
