// A fixture for tests that write ONNX files and import them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/workload/import/onnx_import.h"
#include "core/workload/text.h"
#include "tests/core/onnx_models.h"
#include "tests/support/temporary_folder.h"

namespace tilewright::onnx_test {

/// A folder of the test's own, with one for models in it.
class Files : public testing::Test {
 protected:
  Files() { std::filesystem::create_directories(path("")); }

  std::string folder() const { return folder_.path(); }
  std::string path(const std::string& name) const { return folder() + "/model/" + name; }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  OnnxImport import(const Graph& g, const OnnxOptions& options = {}) const {
    return import_onnx(write("model.onnx", model(g)), options);
  }
  std::string error(const Graph& g, const OnnxOptions& options = {}) const {
    try {
      import(g, options);
    } catch (const InputError& e) {
      return e.what();
    }
    return "taken";
  }

 private:
  TemporaryFolder folder_;
};

/// A product with weights of the file, and a relu.
inline Graph product() {
  return {.nodes = {node("MatMul", {"x", "w"}, {"product"}), node("Relu", {"product"}, {"y"})},
          .tensors = {floats("w", {2, 3}, {1, 2, 3, -4, -5, -6})},
          .inputs = {value("x", {4, 2})},
          .outputs = {value("y", {4, 3})}};
}

inline std::vector<std::string> operators(const Workload& w) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < w.operators().size(); ++i) out.push_back(to_text(w, OpId(i)));
  return out;
}

}  // namespace tilewright::onnx_test
