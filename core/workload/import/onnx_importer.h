// A model's graph on its way into a workload, node by node.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/workload/import/onnx_import.h"
#include "core/workload/import/onnx_node.h"

namespace tilewright::onnx {

/// A name of the file as a message may have it.
std::string shown(std::string_view name, std::size_t most = 80);

class Importer {
 public:
  /// All must outlive it.
  Importer(const Model& m, const std::string& path, const OnnxOptions& options);

  /// Throws InputError.
  OnnxImport run(const std::string& name);

 private:
  [[noreturn]] void fail(const std::string& field, const std::string& value,
                         const std::string& problem, const std::string& accepted) const;
  [[noreturn]] void fail_unsupported() const;
  Builder::Result made_of(const std::string& name,
                          const std::vector<std::pair<std::string, Value>>& outputs);
  void note(const std::string& text);

  void constants(const Graph& g);
  void inputs();
  std::int64_t bound(const std::string& name) const;

  // Nodes. An Unsupported that they throw names its node.
  void nodes(const std::vector<Node>& all, int depth);
  void one(const Node& n, int depth);
  void said(const Node& n);
  void say_whole_if_cut(NodeReader& n, Saying say);
  static Value constant_of(const Node& n);
  /// What is made of it is not said either.
  void lose(const std::string& name);
  void unsupported(const Node& n, const std::string& why);
  /// What makes its outputs cannot be said. Under --skip they become inputs, where their shapes are
  /// known.
  void leave(const Node& n);
  std::optional<Value> declared(const std::string& name);
  const Value& given(const std::string& name) const;

  // Nodes with graphs of their own.
  const Function* function(const Node& n) const;
  /// The body, under the names of the call, in the node's place.
  void call_function(const Function& f, const Node& n, int depth);
  /// A branch whose condition is known stands in its node's place.
  void branch(const Node& n, int depth);
  /// Of a condition that is found while running both are computed, and each element is chosen.
  void both_branches(const Node& n, int depth, const Value& condition);
  /// Turns whose number is known stand one after another.
  void loop(const Node& n, int depth);
  void scan(const Node& n, int depth);
  const Graph& body_of(const Node& n, int depth);
  /// Runs a body's nodes once; false where one of them cannot be said.
  bool once(const Graph& body, int depth);
  /// What turns leave, one behind the other, as a dimension of its own.
  Value stacked(const std::string& name, std::vector<Value> turns, std::size_t dim);

  const Model& m_;
  std::string path_;
  const OnnxOptions& options_;
  Builder b_;
  std::map<std::string, Value> known_;
  std::set<std::string> lost_, given_, read_;
  std::vector<std::string> problems_, notes_, cut_, missing_;
  std::map<std::string, std::int64_t> counts_;
  std::size_t steps_ = 0;
};

}  // namespace tilewright::onnx
