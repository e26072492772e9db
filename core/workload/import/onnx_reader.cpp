#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <protozero/pbf_reader.hpp>

#include "core/base/error.h"
#include "core/workload/import/onnx_model.h"

namespace tilewright::onnx {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;

constexpr int kMostNested = 16;             // graphs in attributes of graphs
constexpr std::size_t kMostNodes = 200000;  // of all graphs
constexpr std::size_t kMostRank = 32;

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  Model model() {
    Model m;
    bool graph = false;
    each({bytes_.data(), bytes_.size()}, [&](pbf_reader& in) {
      if (text(in, 2, m.producer)) return;
      if (in.tag() == 7 && is_message(in)) {
        m.graph = this->graph(in.get_message(), 0);
        graph = true;
      } else if (in.tag() == 8 && is_message(in)) {
        opset(in.get_message(), m);
      } else if (in.tag() == 25 && is_message(in)) {
        m.functions.push_back(function(in.get_message()));
      } else {
        in.skip();
      }
    });
    if (!graph) fail("", "has no graph", "an ONNX model");
    return m;
  }

 private:
  [[noreturn]] void fail(const std::string& field, const std::string& problem,
                         const std::string& accepted, const std::string& value = "") const {
    throw InputError(
        {.where = path_, .field = field, .value = value, .problem = problem, .accepted = accepted});
  }

  template <class F>
  void each(pbf_reader in, F field) {
    while (in.next()) field(in);
  }
  static bool is_message(const pbf_reader& in) {
    return in.wire_type() == pbf_wire_type::length_delimited;
  }
  static std::string_view viewed(pbf_reader& in) {
    const auto view = in.get_view();
    return {view.data(), view.size()};
  }
  static std::string text_of(pbf_reader& in) { return std::string(viewed(in)); }
  /// Reads the field if it is that one.
  static bool text(pbf_reader& in, std::uint32_t tag, std::string& to) {
    if (in.tag() != tag || !is_message(in)) return false;
    to = text_of(in);
    return true;
  }
  static bool texts(pbf_reader& in, std::uint32_t tag, std::vector<std::string>& to) {
    if (in.tag() != tag || !is_message(in)) return false;
    to.push_back(text_of(in));
    return true;
  }
  static bool integer(pbf_reader& in, std::uint32_t tag, std::int64_t& to) {
    if (in.tag() != tag || in.wire_type() != pbf_wire_type::varint) return false;
    to = in.get_int64();
    return true;
  }
  /// Repeated, packed or not.
  static bool integers(pbf_reader& in, std::uint32_t tag, std::vector<std::int64_t>& to) {
    if (in.tag() != tag) return false;
    if (in.wire_type() == pbf_wire_type::varint) {
      to.push_back(in.get_int64());
    } else if (is_message(in)) {
      for (const std::int64_t i : in.get_packed_int64()) to.push_back(i);
    } else {
      return false;
    }
    return true;
  }

  void opset(pbf_reader message, Model& m) {
    std::string domain;
    std::int64_t version = 0;
    each(message, [&](pbf_reader& in) {
      if (!text(in, 1, domain) && !integer(in, 2, version)) in.skip();
    });
    if (domain.empty() || domain == "ai.onnx") m.opset = version;
  }

  Graph graph(pbf_reader message, int depth) {
    if (depth > kMostNested)
      fail("graph", "is nested too deeply", "at most " + std::to_string(kMostNested) + " graphs");
    Graph g;
    each(message, [&](pbf_reader& in) {
      if (text(in, 2, g.name)) return;
      if (!is_message(in)) return in.skip();
      switch (in.tag()) {
        case 1:
          g.nodes.push_back(node(in.get_message(), depth));
          break;
        case 5:
          g.constants.push_back(tensor(in.get_message()));
          break;
        case 11:
          g.inputs.push_back(value_info(in.get_message()));
          break;
        case 12:
          g.outputs.push_back(value_info(in.get_message()));
          break;
        case 13:
          g.others.push_back(value_info(in.get_message()));
          break;
        case 15:
          fail("sparse_initializer", "cannot be read", "dense initialisers");
        default:
          in.skip();
      }
    });
    return g;
  }

  Function function(pbf_reader message) {
    Function f;
    each(message, [&](pbf_reader& in) {
      std::string attribute;
      if (text(in, 1, f.name) || texts(in, 4, f.inputs) || texts(in, 5, f.outputs) ||
          text(in, 10, f.domain))
        return;
      if (in.tag() == 7 && is_message(in))
        f.nodes.push_back(node(in.get_message(), 1));
      else if (in.tag() == 11 && is_message(in))
        f.defaults.push_back(attribute_of(in.get_message(), 1));
      else
        in.skip();
    });
    return f;
  }

  Node node(pbf_reader message, int depth) {
    if (++nodes_ > kMostNodes)
      fail("graph", "has too many nodes", "at most " + std::to_string(kMostNodes));
    Node n;
    each(message, [&](pbf_reader& in) {
      if (texts(in, 1, n.inputs) || texts(in, 2, n.outputs) || text(in, 3, n.name) ||
          text(in, 4, n.op) || text(in, 7, n.domain))
        return;
      if (in.tag() == 5 && is_message(in))
        n.attributes.push_back(attribute_of(in.get_message(), depth));
      else
        in.skip();
    });
    if (n.domain == "ai.onnx") n.domain.clear();
    return n;
  }

  Attribute attribute_of(pbf_reader message, int depth) {
    Attribute a;
    each(message, [&](pbf_reader& in) {
      std::string s;
      std::int64_t i = 0;
      if (text(in, 1, a.name) || integers(in, 8, a.integers) || texts(in, 9, a.texts) ||
          text(in, 21, a.refers_to))
        return;
      if (text(in, 4, s)) return void(a.text = s);
      if (integer(in, 3, i)) return void(a.integer = i);
      if (integer(in, 20, i)) return void(a.kind = static_cast<std::int32_t>(i));
      if (in.tag() == 2 && in.wire_type() == pbf_wire_type::fixed32) {
        a.number = in.get_float();
      } else if (in.tag() == 7 && in.wire_type() == pbf_wire_type::fixed32) {
        a.numbers.push_back(in.get_float());
      } else if (in.tag() == 7 && is_message(in)) {
        for (const float f : in.get_packed_float()) a.numbers.push_back(f);
      } else if (in.tag() == 5 && is_message(in)) {
        a.tensor = std::make_shared<Literal>(tensor(in.get_message()));
      } else if (in.tag() == 6 && is_message(in)) {
        a.graph = std::make_shared<Graph>(graph(in.get_message(), depth + 1));
      } else {
        in.skip();
      }
    });
    return a;
  }

  ValueInfo value_info(pbf_reader message) {
    ValueInfo v;
    each(message, [&](pbf_reader& in) {
      if (text(in, 1, v.name)) return;
      if (in.tag() == 2 && is_message(in))
        type(in.get_message(), v);
      else
        in.skip();
    });
    return v;
  }

  void type(pbf_reader message, ValueInfo& v) {
    each(message, [&](pbf_reader& in) {
      if (in.tag() != 1 || !is_message(in)) return in.skip();
      each(in.get_message(), [&](pbf_reader& of) {
        std::int64_t element = 0;
        if (integer(of, 1, element)) {
          v.type = static_cast<std::int32_t>(element);
        } else if (of.tag() == 2 && is_message(of)) {
          v.shape = dimensions(of.get_message());
        } else {
          of.skip();
        }
      });
    });
  }

  std::vector<Dimension> dimensions(pbf_reader message) {
    std::vector<Dimension> shape;
    each(message, [&](pbf_reader& in) {
      if (in.tag() != 1 || !is_message(in)) return in.skip();
      Dimension d;
      each(in.get_message(), [&](pbf_reader& of) {
        std::int64_t value = 0;
        if (integer(of, 1, value))
          d.value = value;
        else if (!text(of, 2, d.name))
          of.skip();
      });
      shape.push_back(std::move(d));
      if (shape.size() > kMostRank) fail("shape", "has too many dimensions", "at most 32");
    });
    return shape;
  }

  Literal tensor(pbf_reader message) {
    Literal t;
    std::int64_t type = 0, location = 0;
    std::vector<std::int64_t> numbers;  // int32_data, int64_data, uint64_data
    std::vector<double> floats;         // of which some are not packed
    std::string_view packed, raw;
    std::string_view packed_type;
    std::map<std::string, std::string> external;
    each(message, [&](pbf_reader& in) {
      if (integers(in, 1, t.shape) || integer(in, 2, type) || text(in, 8, t.name) ||
          integer(in, 14, location) || integers(in, 5, numbers) || integers(in, 7, numbers) ||
          integers(in, 11, numbers))
        return;
      if ((in.tag() == 4 || in.tag() == 10) && is_message(in)) {
        packed_type = in.tag() == 4 ? "f32" : "f64";  // reading ends the field
        packed = viewed(in);
      } else if (in.tag() == 4 && in.wire_type() == pbf_wire_type::fixed32) {
        floats.push_back(in.get_float());
      } else if (in.tag() == 10 && in.wire_type() == pbf_wire_type::fixed64) {
        floats.push_back(in.get_double());
      } else if (in.tag() == 9 && is_message(in)) {
        raw = viewed(in);
      } else if (in.tag() == 13 && is_message(in)) {
        std::string key, value;
        each(in.get_message(), [&](pbf_reader& of) {
          if (!text(of, 1, key) && !text(of, 2, value)) of.skip();
        });
        external[key] = value;
      } else {
        in.skip();
      }
    });
    t.type = static_cast<std::int32_t>(type);
    const std::string field = "tensor " + printable(t.name);
    if (t.shape.size() > kMostRank) fail(field, "has too many dimensions", "at most 32");
    for (const std::int64_t d : t.shape)
      if (d < 0) fail(field, "has a negative dimension", "0 or more", std::to_string(d));
    const std::int64_t count = t.elements();
    if (count < 0) fail(field, "has too many elements", "less than 2^62");
    const std::string_view name = value_type_of(t.type);
    if (name.empty()) return t;  // strings: what reads them says so
    if (location == 1) {
      t.values = outside(external, std::string(name), count, field);
    } else if (!raw.empty()) {
      t.values = inside(raw, name);
      check_bytes(raw.size(), count, name, field);
    } else if (!packed.empty() && (t.type == kFloat || t.type == kDouble)) {
      t.values = inside(packed, packed_type);
      check_bytes(packed.size(), count, packed_type, field);
    } else {
      if (t.type == kFloat16 || t.type == kBfloat16)
        for (const std::int64_t bits : numbers) {
          const auto half = static_cast<std::uint16_t>(bits);
          floats.push_back(value_at(name, reinterpret_cast<const char*>(&half)));
        }
      else if (t.type == kUint4 || t.type == kInt4)
        for (std::size_t i = 0; i < 2 * numbers.size(); ++i) {  // two of them a number
          if (i + 1 == 2 * numbers.size() && count % 2 != 0) break;
          const auto pair = static_cast<char>(numbers[i / 2]);
          floats.push_back(values_at(name, &pair, 2)[i % 2]);
        }
      else
        for (const std::int64_t n : numbers)
          floats.push_back(t.type == kUint64 ? static_cast<double>(static_cast<std::uint64_t>(n))
                                             : static_cast<double>(n));
      if (static_cast<std::int64_t>(floats.size()) != count)
        fail(field, "are not its shape's", std::to_string(count) + " elements",
             std::to_string(floats.size()) + " elements");
      t.values.list = std::move(floats);
    }
    return t;
  }

  /// What may be shown of a name that a file gives.
  static std::string printable(const std::string& name) {
    std::string out;
    for (const char c : name.substr(0, 64)) out += c >= ' ' && c <= '~' ? c : '?';
    return out;
  }

  void check_bytes(std::size_t bytes, std::int64_t count, std::string_view type,
                   const std::string& field) const {
    const auto all = static_cast<std::uint64_t>(count);
    if (values_in(type, bytes) >= all && bytes_of(type, all) == bytes) return;
    fail(field, "are not its shape's", std::to_string(count) + " elements of " + std::string(type),
         std::to_string(bytes) + " bytes");
  }

  Values inside(std::string_view data, std::string_view type) const {
    return {.file = path_, .offset = data.data() - bytes_.data(), .type = std::string(type)};
  }

  /// A file below the model's folder.
  Values outside(const std::map<std::string, std::string>& external, const std::string& type,
                 std::int64_t count, const std::string& field) const {
    namespace fs = std::filesystem;
    const auto entry = [&](const char* key) {
      const auto it = external.find(key);
      return it == external.end() ? std::string() : it->second;
    };
    const std::string location = entry("location");
    const fs::path asked(location);
    bool safe = !location.empty() && asked.is_relative() &&
                location.find('\0') == std::string::npos && location.find('\n') == location.npos;
    for (const fs::path& part : asked) safe = safe && part != "..";
    fs::path folder = fs::path(path_).parent_path();
    if (folder.empty()) folder = ".";  // below which a file that is not there has a canonical name
    if (safe) {                        // links may not lead out, either
      std::error_code error;
      const fs::path whole = fs::weakly_canonical(folder / asked, error);
      const fs::path top = fs::weakly_canonical(folder, error);
      const auto [end, rest] = std::mismatch(top.begin(), top.end(), whole.begin(), whole.end());
      safe = !error && end == top.end();
    }
    if (!safe)
      fail(field, "is not a place for its data", "a file in the model's folder",
           "'" + printable(location) + "'");
    std::int64_t offset = 0;
    const std::string at = entry("offset");
    if (!at.empty() && at.find_first_not_of("0123456789") == at.npos && at.size() < 19)
      offset = std::stoll(at);
    Values v{.file = (folder / asked).string(), .offset = offset, .type = type};
    std::error_code gone;
    if (!fs::exists(v.file, gone)) return {.type = type};  // drawn
    const MappedFile file(v.file, "the data of " + field);
    const auto size = static_cast<std::int64_t>(file.bytes().size());
    if (offset > size || values_in(type, static_cast<std::uint64_t>(size - offset)) <
                             static_cast<std::uint64_t>(count))
      fail(field, "is shorter than its data", std::to_string(count) + " elements of " + type,
           v.file);
    return v;
  }

  std::string_view bytes_;
  std::string path_;
  std::size_t nodes_ = 0;
};

}  // namespace

std::string_view value_type_of(std::int32_t type) {
  switch (type) {
    case kFloat:
      return "f32";
    case kUint8:
      return "u8";
    case kInt8:
      return "i8";
    case kUint16:
      return "u16";
    case kInt16:
      return "i16";
    case kInt32:
      return "i32";
    case kInt64:
      return "i64";
    case kBool:
      return "bool";
    case kFloat16:
      return "f16";
    case kDouble:
      return "f64";
    case kUint32:
      return "u32";
    case kUint64:
      return "u64";
    case kBfloat16:
      return "bf16";
    case kUint4:
      return "u4";
    case kInt4:
      return "i4";
    default:
      return "";
  }
}

bool is_float(std::int32_t type) {
  return type == kFloat || type == kFloat16 || type == kDouble || type == kBfloat16;
}
bool is_integer(std::int32_t type) {
  return !is_float(type) && type != kBool && !value_type_of(type).empty();
}

std::int64_t elements_of(const Shape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  std::int64_t n = 1;
  for (const std::int64_t d : shape)
    if (d == 0) return 0;
  for (const std::int64_t d : shape) {
    if (d > kMost / n) return -1;
    n *= d;
  }
  return n;
}

Literal::Literal(std::int32_t type, Shape shape, std::vector<double> list)
    : type(type), shape(std::move(shape)), values{.list = std::move(list)} {}

std::vector<double> Literal::read() const {
  if (missing())
    throw InputError({.field = "tensor " + name,
                      .value = "its data",
                      .problem = "is not there, and the graph's form depends on it",
                      .accepted = "the file of its data beside the model"});
  return read_values(values, static_cast<std::size_t>(elements()), "tensor " + name);
}

std::vector<std::int64_t> Literal::integers() const {
  std::vector<std::int64_t> out;
  for (const double d : read())
    out.push_back(std::isnan(d)  ? 0
                  : d >= 0x1p63  ? std::numeric_limits<std::int64_t>::max()
                  : d <= -0x1p63 ? std::numeric_limits<std::int64_t>::min()
                                 : static_cast<std::int64_t>(d));
  return out;
}

const Attribute* Node::find(std::string_view attribute) const {
  for (const Attribute& a : attributes)
    if (a.name == attribute) return &a;
  return nullptr;
}

Model read_model(std::string_view bytes, const std::string& path) {
  try {
    return Reader(bytes, path).model();
  } catch (const protozero::exception&) {
    throw InputError({.where = path,
                      .problem = "is not an ONNX model, or is cut off",
                      .accepted = "an .onnx file"});
  }
}

}  // namespace tilewright::onnx
