// An ONNX file as its messages say it, read without generated code. Only what an import needs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/mapped_file.h"
#include "core/workload/values.h"

namespace tilewright::onnx {

/// TensorProto.DataType, those that are more than names here.
enum Type : std::int32_t {
  kUnknown = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kBfloat16 = 16,
  kUint4 = 21,
  kInt4 = 22,
};
/// Of a value that is a list of others; no file has it.
constexpr std::int32_t kSequence = -1;
/// Its name among value_types(); empty for types that cannot be read (strings, complex).
std::string_view value_type_of(std::int32_t type);
bool is_integer(std::int32_t type);
bool is_float(std::int32_t type);

using Shape = std::vector<std::int64_t>;
/// Elements; -1 past 2^62.
std::int64_t elements_of(const Shape& shape);

/// A constant. Its values are a list, or bytes of the model's file or of another one beside it.
class Literal {
 public:
  Literal() = default;
  Literal(std::int32_t type, Shape shape, std::vector<double> list);
  std::int32_t type = kUnknown;
  Shape shape;
  std::string name;
  Values values;  ///< where they are; `list` where no file has them as bytes

  std::int64_t elements() const { return elements_of(shape); }
  /// Whether the file that has them is not there.
  bool missing() const { return values.drawn() && elements() > 0; }
  /// All of them, read now. Throws InputError where the file is short.
  std::vector<double> read() const;
  std::vector<std::int64_t> integers() const;
};

struct Graph;

struct Attribute {
  std::string name;
  std::int32_t kind = 0;  ///< AttributeProto.type
  std::optional<double> number = {};
  std::optional<std::int64_t> integer = {};
  std::optional<std::string> text = {};
  std::shared_ptr<const Literal> tensor = {};
  std::shared_ptr<const Graph> graph = {};
  std::vector<double> numbers = {};
  std::vector<std::int64_t> integers = {};
  std::vector<std::string> texts = {};
  std::string refers_to = {};  ///< in a function's body: the caller's attribute
};

struct Node {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> attributes;
  const Attribute* find(std::string_view attribute) const;
};

/// A dimension is a number, a name, or neither.
struct Dimension {
  std::optional<std::int64_t> value = {};
  std::string name = {};
};
struct ValueInfo {
  std::string name;
  std::int32_t type = kUnknown;
  std::optional<std::vector<Dimension>> shape = {};
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Literal> constants;
  std::vector<ValueInfo> inputs, outputs, others;
};

struct Function {
  std::string name, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<Attribute> defaults;
  std::vector<Node> nodes;
};

struct Model {
  std::string producer;
  std::int64_t opset = 0;  ///< of the standard operators
  Graph graph;
  std::vector<Function> functions;
};

/// `path` is the file's, beside which external data lie; `bytes` its contents. Throws InputError
/// where they are no such file, are cut off, or refer to a file outside of the model's folder.
/// Memory: the nodes, and values that the file has not as plain bytes.
Model read_model(std::string_view bytes, const std::string& path);

}  // namespace tilewright::onnx
