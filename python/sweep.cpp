#include "python/sweep.h"

#include "core/base/error.h"
#include "harness/sweep.h"

namespace tilewright::python {

using Json = nlohmann::ordered_json;

std::pair<std::string, std::vector<std::pair<std::string, std::string>>> sweep_points(
    const std::string& text, const std::string& where) {
  const harness::Sweep sweep = harness::read_sweep(text, where);
  std::vector<std::pair<std::string, std::string>> points;
  points.reserve(sweep.points.size());
  for (const harness::SweepPoint& p : sweep.points)
    points.emplace_back(harness::id_of(p), harness::to_json(p).dump());
  return {sweep.name, std::move(points)};
}

std::string sweep_rows(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_array())
    throw InputError({.where = "points",
                      .value = "the text",
                      .problem = "is not a list",
                      .accepted = "a JSON array"});
  std::vector<harness::SweepPoint> points;
  points.reserve(json.size());
  for (const Json& p : json) points.push_back(harness::sweep_point_from_json(p));
  std::string lines;
  for (const Json& row : harness::sweep_rows(points))
    lines += row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return lines;
}

}  // namespace tilewright::python
