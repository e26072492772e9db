// ONNX files written field by field, for tests.
#pragma once

#include <cstdint>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <vector>

namespace tilewright::onnx_test {

using protozero::pbf_writer;

inline std::string attribute_int(const std::string& name, std::int64_t value) {
  std::string out;
  pbf_writer w(out);
  w.add_string(1, name);
  w.add_int64(3, value);
  w.add_int32(20, 2);
  return out;
}
inline std::string attribute_ints(const std::string& name,
                                  const std::vector<std::int64_t>& values) {
  std::string out;
  pbf_writer w(out);
  w.add_string(1, name);
  for (const std::int64_t v : values) w.add_int64(8, v);
  w.add_int32(20, 7);
  return out;
}

inline std::string attribute_text(const std::string& name, const std::string& value) {
  std::string out;
  pbf_writer w(out);
  w.add_string(1, name);
  w.add_bytes(4, value);
  w.add_int32(20, 3);
  return out;
}

inline std::string node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs,
                        const std::vector<std::string>& attributes = {},
                        const std::string& domain = "") {
  std::string out;
  pbf_writer w(out);
  for (const std::string& i : inputs) w.add_string(1, i);
  for (const std::string& o : outputs) w.add_string(2, o);
  w.add_string(4, op);
  for (const std::string& a : attributes) w.add_message(5, a);
  if (!domain.empty()) w.add_string(7, domain);
  return out;
}

/// A dimension below 0 has the name "n", "m", ... and no value.
inline std::string value(const std::string& name, const std::vector<std::int64_t>& shape,
                         int type = 1) {
  std::string dims, tensor, kind, out;
  {
    pbf_writer w(dims);
    for (const std::int64_t d : shape) {
      std::string dim;
      pbf_writer of(dim);
      if (d >= 0)
        of.add_int64(1, d);
      else
        of.add_string(2, std::string(1, static_cast<char>('m' - d)));
      w.add_message(1, dim);
    }
  }
  pbf_writer(tensor).add_int32(1, type);
  pbf_writer(tensor).add_message(2, dims);
  pbf_writer(kind).add_message(1, tensor);
  pbf_writer w(out);
  w.add_string(1, name);
  w.add_message(2, kind);
  return out;
}

inline std::string tensor_head(const std::string& name, const std::vector<std::int64_t>& shape,
                               int type) {
  std::string out;
  pbf_writer w(out);
  for (const std::int64_t d : shape) w.add_int64(1, d);
  w.add_int32(2, type);
  w.add_string(8, name);
  return out;
}
inline std::string floats(const std::string& name, const std::vector<std::int64_t>& shape,
                          const std::vector<float>& values) {
  std::string out = tensor_head(name, shape, 1);
  pbf_writer(out).add_bytes(9, reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof(float));
  return out;
}
inline std::string packed_floats(const std::string& name, const std::vector<std::int64_t>& shape,
                                 const std::vector<float>& values) {
  std::string out = tensor_head(name, shape, 1);
  pbf_writer(out).add_packed_float(4, values.begin(), values.end());
  return out;
}
inline std::string integers(const std::string& name, const std::vector<std::int64_t>& shape,
                            const std::vector<std::int64_t>& values) {
  std::string out = tensor_head(name, shape, 7);
  pbf_writer(out).add_packed_int64(7, values.begin(), values.end());
  return out;
}
inline std::string outside(const std::string& name, const std::vector<std::int64_t>& shape,
                           const std::string& location, std::int64_t offset) {
  std::string out = tensor_head(name, shape, 1);
  pbf_writer w(out);
  const auto entry = [&](const std::string& key, const std::string& text) {
    std::string e;
    pbf_writer of(e);
    of.add_string(1, key);
    of.add_string(2, text);
    w.add_message(13, e);
  };
  entry("location", location);
  entry("offset", std::to_string(offset));
  w.add_int32(14, 1);
  return out;
}

struct Graph {
  std::vector<std::string> nodes, tensors, inputs, outputs, others;
  std::int64_t opset = 17;
};

inline std::string model(const Graph& g) {
  std::string graph, opset, out;
  {
    pbf_writer w(graph);
    for (const std::string& n : g.nodes) w.add_message(1, n);
    w.add_string(2, "test");
    for (const std::string& t : g.tensors) w.add_message(5, t);
    for (const std::string& i : g.inputs) w.add_message(11, i);
    for (const std::string& o : g.outputs) w.add_message(12, o);
    for (const std::string& v : g.others) w.add_message(13, v);
  }
  pbf_writer(opset).add_int64(2, g.opset);
  pbf_writer w(out);
  w.add_int64(1, 9);
  w.add_string(2, "tests");
  w.add_message(7, graph);
  w.add_message(8, opset);
  return out;
}

}  // namespace tilewright::onnx_test
