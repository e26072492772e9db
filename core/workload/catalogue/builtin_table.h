// Built-in workloads: one record each. A family's parameters and notation live in the file of its
// idea; the paper's rows are families with values.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/workload/workload_file.h"

namespace tilewright::builtin {

struct Parameter {
  std::string name;
  std::int64_t value = 1;  ///< default
  std::int64_t least = 1;
  std::int64_t most = 2147483647;
};

/// Values of every parameter of a family, and the element type.
struct Values {
  std::map<std::string, std::int64_t> numbers = {};
  DType dtype = DType::f32;
  std::int64_t operator[](const std::string& name) const { return numbers.at(name); }
};

struct Family {
  std::string name;
  std::string summary;
  std::string source;
  std::vector<Parameter> parameters;  ///< besides dtype
  RawWorkload (*make)(const Values& values);
  /// Of a network: inputs that each run is given, by name, "past*" by its beginning; the others
  /// are weights, drawn and the same in every run. Empty: each run is given all.
  std::vector<std::string> given = {};
};

struct Row {
  std::string name;  ///< "chimera/G1"
  std::string family;
  std::string summary;
  std::string source;
  DType dtype = DType::f32;
  std::map<std::string, std::int64_t> numbers;
  bool half_on_accelerators = false;  ///< the paper has f16 on GPUs and NPUs
};

std::vector<Family> gemm_families();
std::vector<Family> row_families();
std::vector<Family> conv_families();
std::vector<Family> graph_families();
std::vector<Family> random_families();
std::vector<Family> network_families();
std::vector<Family> vision_families();
std::vector<Family> transformer_families();
std::vector<Row> network_rows();
std::vector<Row> paper_rows();

/// The shortest text that reads back as this number.
inline std::string number_text(double value) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

/// A workload written as a file would be: loops and extents, tensors and dimensions, operators.
class Draft {
 public:
  explicit Draft(DType dtype);
  Draft& loop(std::string name, std::int64_t extent);
  /// Dimensions separated by commas: "b,m,k"; integers for what is no loop.
  Draft& tensor(std::string name, std::string_view dimensions);
  /// A tensor of another type than the workload's.
  Draft& type(std::string tensor, DType dtype);
  /// Values of an input are drawn from -largest to largest.
  Draft& range(std::string input, double largest);
  /// Of weights by which sums of `terms` products have the variance of what is summed.
  Draft& weights(std::string input, std::int64_t terms) {
    return range(std::move(input), std::sqrt(3.0 / static_cast<double>(terms)));
  }
  Draft& op(std::string notation);
  /// Once one is named, all must be; else what nobody reads is an output.
  Draft& output(std::string tensor);
  RawWorkload take() { return std::move(raw_); }

 private:
  RawWorkload raw_;
};

}  // namespace tilewright::builtin
