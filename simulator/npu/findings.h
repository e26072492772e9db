// Faults as they are found: one for each kind, pair of statements and object, put into words.
#pragma once

#include <map>
#include <tuple>

#include "simulator/npu/emulator.h"
#include "simulator/npu/shadow.h"
#include "simulator/npu/units.h"

namespace tilewright::npu {

class FindingCollector {
 public:
  FindingCollector(const Code& code, int most) : code_(code), most_(most) {}

  /// Counts it; true where it is new and to be described with add().
  bool is_new(Fault fault, int statement, int other, int object);
  /// `what` is the predicate of a sentence about the statement.
  void add(Fault fault, std::int64_t block, int statement, int other, int object,
           std::int64_t offset, const std::string& what);
  void refusal(const Refusal& r, std::int64_t block, int statement);
  /// `address` of the conflict: bytes of the memory, for tensors of the tensor.
  void conflict(const Conflict& c, const Actor& actor, int object);
  std::vector<Finding> take() { return std::move(found_); }

 private:
  std::string statement_text(int statement) const;

  using Key = std::tuple<Fault, int, int, int>;
  const Code& code_;
  int most_;
  std::map<Key, std::size_t> index_;
  std::vector<Finding> found_;
};

}  // namespace tilewright::npu
