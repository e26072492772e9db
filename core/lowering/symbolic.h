// Ranges as source text: the Ranges API of core/plan/schedule.h, run on expressions instead of
// numbers. What is known when the source is written (constants, differences, bounds) is folded, the
// rest becomes variables of the emitted program.
#pragma once

#include <boost/container/flat_map.hpp>
#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/workload/box.h"

namespace tilewright::lowering {

/// sum of coefficient * variable + constant; variables by index into Variables.
struct Linear {
  /// Few, and many of them: no allocation for each.
  using Terms =
      boost::container::flat_map<int, std::int64_t, std::less<int>,
                                 boost::container::small_vector<std::pair<int, std::int64_t>, 4>>;
  Terms terms = {};
  std::int64_t constant = 0;
  bool is_constant() const { return terms.empty(); }
  friend bool operator==(const Linear&, const Linear&) = default;
};
Linear number(std::int64_t value);
Linear operator+(const Linear& a, const Linear& b);
Linear operator-(const Linear& a, const Linear& b);
Linear operator*(std::int64_t factor, const Linear& a);

/// Something that an emitter refuses, thrown inside it and turned into emit's Reason.
struct Refused {
  std::string text;
  std::optional<Reason::Shortage> shortage = {};
};

/// A range [lo, hi) of the emitted program.
struct SymRange {
  Linear lo, hi;
  std::int64_t most = 0;            ///< no larger than this, ever
  bool nonempty = true;             ///< never empty
  std::vector<Linear> within = {};  ///< lo and hi of a range that it is a part of, where known
  friend bool operator==(const SymRange&, const SymRange&) = default;
};
using SymBox = std::vector<SymRange>;
SymRange whole_range(std::int64_t extent);

/// The int64 expressions of the emitted program, each with the bounds that are known of its value.
class Variables {
 public:
  /// A variable written as `text` with min <= value <= max, a multiple of `multiple`.
  Linear add(std::string text, std::int64_t min, std::int64_t max, std::int64_t multiple = 1);
  /// lo and hi of a range whose size is at most `most`, so that hi - lo is known to be. `multiple`:
  /// lo is one of it.
  SymRange add_range(std::string lo, std::string hi, Interval bounds, std::int64_t most,
                     bool nonempty, std::int64_t multiple = 1);
  /// What the value is known to be a multiple of; 0: it is 0.
  std::int64_t multiple(const Linear& x) const;
  std::int64_t lower(const Linear& x) const;
  std::int64_t upper(const Linear& x) const;
  std::size_t count() const { return all_.size(); }
  /// The variables from that one on are declared no more.
  void forget(std::size_t from);
  /// C++ text; in parentheses where it is more than one term and `nested`. Throws Refused where a
  /// variable is declared no more.
  std::string text(const Linear& x, bool nested = false) const;
  /// "{lo, hi}"
  std::string text(const SymRange& r) const;

 private:
  struct Variable {
    std::string text;
    std::int64_t min = 0;
    std::int64_t max = 0;
    std::int64_t multiple = 1;
    int low = -1;  ///< of the end of a range: its beginning
    bool gone = false;
    std::int64_t most = 0;
  };
  std::vector<Variable> all_;
};

/// `prefix` and what of `name` may stand in an identifier; other characters become '_'.
std::string identifier(const std::string& prefix, const std::string& name);
/// "2 * i", or "i".
std::string times(std::int64_t factor, const std::string& text);

/// Names of the emitted program, each handed out once.
class Names {
 public:
  /// `base` itself or with a number after it. `base` must be an identifier without a C++ meaning.
  std::string fresh(const std::string& base);

 private:
  std::map<std::string, int> used_;  ///< and the last number that was after each
};

}  // namespace tilewright::lowering
