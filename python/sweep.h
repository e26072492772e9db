// Sweeps as Python sees them: text in, text out, so that points and rows go to other machines as
// they are.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tilewright::python {

/// (name, [(id, text of the point)]) of a sweep's file. Throws InputError.
std::pair<std::string, std::vector<std::pair<std::string, std::string>>> sweep_points(
    const std::string& text, const std::string& where);

/// The rows of points, each a line of JSON, in their order; `points` is a JSON array of what
/// sweep_points gave. Throws InputError.
std::string sweep_rows(const std::string& points);

}  // namespace tilewright::python
