// A seeded random graph of memory-intensive operators, for tests and for timing searches.
#include <array>
#include <random>

#include "core/workload/catalogue/builtin_table.h"

namespace tilewright::builtin {
namespace {

/// What a tensor of the graph is indexed by.
enum class Shape : std::uint8_t { matrix, column, row };
constexpr std::array<const char*, 3> kIndex = {"[r,c]", "[r]", "[c]"};

struct Made {
  std::string name;
  Shape shape;
};

/// The same on every platform: only the engine's own numbers are used.
class Drawing {
 public:
  explicit Drawing(const Values& v)
      : engine_(static_cast<std::uint64_t>(v["seed"])),
        reach_(static_cast<std::size_t>(v["reach"])),
        indices_(v["indices"] == 1),
        rows_(v["rows"]),
        columns_(v["cols"]),
        draft_(v.dtype) {
    draft_.loop("r", v["rows"]).loop("c", v["cols"]);
  }

  RawWorkload take(std::int64_t vertices) {
    // The first operator names both loops, so that neither is left unused.
    draft_.op("v0: t0[r,c] = abs(x0[r,c])");
    made_.push_back({"t0", Shape::matrix});
    for (std::int64_t i = 1; i < vertices; ++i) add(i);
    return draft_.take();
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_() % n); }
  bool one_in(std::size_t n) { return below(n) == 0; }

  /// One of the last tensors, or a new input of some shape.
  Made operand() {
    if (one_in(5)) {
      const std::size_t shape = below(kIndex.size());
      return {"x" + std::to_string(++inputs_), static_cast<Shape>(shape)};
    }
    const std::size_t first = made_.size() > reach_ ? made_.size() - reach_ : 0;
    return made_[first + below(made_.size() - first)];
  }

  static std::string read(const Made& m) {
    return m.name + kIndex[static_cast<std::size_t>(m.shape)];
  }

  void add(std::int64_t i) {
    const std::string t = "t" + std::to_string(i);
    Made a = operand();
    if (indices_ && one_in(4)) return indexed(t, a);
    switch (below(8)) {
      case 0:
      case 1:
        return reduce(t, a);
      case 2:
        return expensive(t, a);
      case 3:
        return shifted(t, a);
      default:
        return binary(t, a, operand());
    }
  }

  void write(const std::string& t, Shape shape, const std::string& rest) {
    draft_.op("v" + t.substr(1) + ": " + t + kIndex[static_cast<std::size_t>(shape)] + rest);
    made_.push_back({t, shape});
  }

  /// Along rows or columns, where there is something to reduce.
  void reduce(const std::string& t, const Made& a) {
    if (a.shape != Shape::matrix) return write(t, a.shape, " = neg(" + read(a) + ")");
    const Shape to = one_in(4) ? Shape::row : Shape::column;
    write(t, to, (one_in(3) ? " max= " : " += ") + read(a));
  }

  void expensive(const std::string& t, const Made& a) {
    constexpr std::array<const char*, 4> kCalls = {"exp", "tanh", "sigmoid", "erf"};
    write(t, a.shape,
          std::string(" = ") + kCalls[below(kCalls.size())] + "(0.1 * " + read(a) + ")");
  }

  /// A slice that ends in padding: the elements one further on.
  void shifted(const std::string& t, const Made& a) {
    constexpr std::array<const char*, 3> kNext = {"[r,c+1]", "[r+1]", "[c+1]"};
    const bool only = (a.shape == Shape::column ? rows_ : columns_) == 1;  // there is no next one
    if (only || !a.name.starts_with('t')) return write(t, a.shape, " = abs(" + read(a) + ")");
    write(t, a.shape, " = " + a.name + kNext[static_cast<std::size_t>(a.shape)]);
  }

  /// Element by element, what is smaller broadcast.
  void binary(const std::string& t, const Made& a, const Made& b) {
    constexpr std::array<const char*, 3> kSigns = {" + ", " - ", " * "};
    const Shape to = a.shape == b.shape ? a.shape : Shape::matrix;
    write(t, to, " = " + read(a) + kSigns[below(kSigns.size())] + read(b));
  }

  /// The loops' indices as values.
  void indexed(const std::string& t, const Made& a) {
    const auto choose = [&](const char* first, const char* second) {
      write(t, a.shape, " = " + std::string(first) + read(a) + second);
    };
    switch (a.shape) {
      case Shape::matrix:
        return one_in(2) ? choose("select(lt(r, 2 * c), ", ", 0.5)")
                         : choose("select(lt(c, r + 1), select(lt(c, r - 5), -32768, ", "), 1)");
      case Shape::column:
        return choose("", " + 0.125 * r");
      case Shape::row:
        return choose("", " * select(lt(6, c), c, 2)");
    }
  }

  std::mt19937_64 engine_;
  std::size_t reach_;
  bool indices_;
  std::int64_t rows_, columns_;
  Draft draft_;
  std::vector<Made> made_;
  int inputs_ = 0;
};

RawWorkload random_graph(const Values& v) { return Drawing(v).take(v["vertices"]); }

}  // namespace

std::vector<Family> random_families() {
  return {{"random-graph",
           "a seeded random graph of element-wise operators, broadcasts, reductions and slices; "
           "indices=1: some read their loops' indices",
           "",
           {{"vertices", 10, 1, 20000},
            {"rows", 1024},
            {"cols", 256},
            {"reach", 6},
            {"seed", 1},
            {"indices", 0, 0, 1}},
           random_graph}};
}

}  // namespace tilewright::builtin
