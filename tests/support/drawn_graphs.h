// Seeded graphs with what random-graph has none of: products and batched ones, sums over several
// dimensions, transposes, shifts, lifts to more dimensions, operators of two outputs, rows that are
// looked up.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace tilewright::testing {

class GraphDrawer {
 public:
  explicit GraphDrawer(unsigned seed) : random_(seed) {}

  /// YAML of a workload of `operators` operators or more. Every tensor of the graph is read or an
  /// output.
  std::string text(int operators) {
    made_ = {{"X", "ab"}};
    for (int i = 0; i < operators; ++i) add();
    std::string dims;
    for (const Made& m : made_) dims += m.dims;
    std::string out = "name: drawn\nloops: {a: " + size(9, 40) + ", b: " + size(9, 40);
    if (dims.find('h') != std::string::npos) out += ", h: " + size(2, 4);
    if (dims.find('k') != std::string::npos) out += ", k: " + size(8, 24);
    out += "}\n";
    if (!tables_.empty()) out += "tensors: {I: [a]" + tables_ + "}\ndtypes: {I: i32}\n";
    out += "operators:\n";
    for (const std::string& o : operators_) out += "  - \"" + o + "\"\n";
    return out;
  }

 private:
  struct Made {
    std::string name, dims;
  };

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  std::string size(int from, int to) {
    return std::to_string(from + static_cast<int>(below(static_cast<std::size_t>(to - from + 1))));
  }
  static std::string at(const std::string& name, const std::string& dims) {
    std::string out = name + "[";
    for (std::size_t i = 0; i < dims.size(); ++i)
      out += (i == 0 ? "" : ",") + std::string(1, dims[i]);
    return out + "]";
  }
  static std::string at(const Made& m) { return at(m.name, m.dims); }
  Made fresh(std::string dims) { return {"t" + std::to_string(++count_), std::move(dims)}; }
  std::string weight(const std::string& dims) { return at("w" + std::to_string(++weights_), dims); }
  /// One of the last few.
  Made operand() {
    const std::size_t last = std::min<std::size_t>(made_.size(), 4);
    return made_[made_.size() - 1 - below(last)];
  }
  void emit(const Made& out, const std::string& rest) {
    operators_.push_back("o" + std::to_string(operators_.size()) + ": " + at(out) + rest);
    made_.push_back(out);
  }

  void add() {
    const Made x = operand();
    const bool wide = x.dims.size() >= 2;
    switch (below(11)) {
      case 0:  // a product: the last dimension is summed, another takes its place
      case 1: {
        if (!wide) return emit(fresh(x.dims), " = tanh(" + at(x) + ")");
        const char from = x.dims.back();
        const char to = x.dims.find('k') == std::string::npos   ? 'k'
                        : x.dims.find('b') == std::string::npos ? 'b'
                                                                : 'a';
        if (x.dims.find(to) != std::string::npos)
          return emit(fresh(x.dims), " = abs(" + at(x) + ")");
        Made z = fresh(x.dims.substr(0, x.dims.size() - 1) + to);
        // A weight of each head where there are heads: a batched product.
        std::string w = std::string(1, from) + to;
        if (x.dims[0] == 'h' && x.dims.size() == 3 && below(2) == 0) w = "h" + w;
        return emit(z, " += " + at(x) + " * " + weight(w));
      }
      case 2: {  // a transpose
        if (!wide) return emit(fresh(x.dims), " = neg(" + at(x) + ")");
        std::string dims = x.dims;
        std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
        return emit(fresh(dims), " = " + at(x) + " * 0.5");
      }
      case 3: {  // a shift; what lies outside is zero
        if (x.name == "X") return emit(fresh(x.dims), " = relu(" + at(x) + ")");
        std::string index;
        const std::size_t moved = below(x.dims.size());
        for (std::size_t i = 0; i < x.dims.size(); ++i)
          index += (i == 0 ? "" : ",") + std::string(1, x.dims[i]) + (i == moved ? "-1" : "");
        return emit(fresh(x.dims), " = " + at(x) + " + " + x.name + "[" + index + "]");
      }
      case 4:  // a sum over the last dimension, or all but the first
      case 5: {
        if (!wide) return emit(fresh(x.dims), " = sigmoid(" + at(x) + ")");
        const std::size_t left = x.dims.size() == 3 ? 1 + below(2) : 1;
        return emit(fresh(x.dims.substr(0, left)), (below(3) == 0 ? " max= " : " += ") + at(x));
      }
      case 6:  // more dimensions
        if (x.dims.find('h') == std::string::npos && x.dims.size() <= 2)
          return emit(fresh("h" + x.dims), " = " + at(x) + " * " + weight("h"));
        return emit(fresh(x.dims), " = " + at(x) + " * 0.25");
      case 7: {  // two outputs
        const Made y = fresh(x.dims), z = fresh(x.dims);
        operators_.push_back("o" + std::to_string(operators_.size()) + ": " + at(y) + " = relu(" +
                             at(x) + "); " + at(z) + " = " + at(x) + " * 0.5");
        made_.push_back(y);
        made_.push_back(z);
        return;
      }
      case 8: {  // rows that are looked up
        const std::string table = "E" + std::to_string(++weights_);
        tables_ += ", " + table + ": [7, b]";
        return emit(fresh("ab"), " = 0.5 * " + table + "[I[a],b]");
      }
      default: {  // element by element, what is smaller broadcast
        const Made y = operand();
        const Made& more = y.dims.size() > x.dims.size() ? y : x;
        const Made& less = &more == &y ? x : y;
        bool inside = true;
        for (const char d : less.dims) inside = inside && more.dims.find(d) != std::string::npos;
        if (!inside) return emit(fresh(x.dims), " = exp(0.1 * " + at(x) + ")");
        return emit(fresh(more.dims),
                    " = " + at(more) + (below(2) == 0 ? " + " : " * ") + at(less));
      }
    }
  }

  std::mt19937 random_;
  std::vector<Made> made_;
  std::vector<std::string> operators_;
  std::string tables_;
  int count_ = 0, weights_ = 0;
};

/// Products of one tensor with columns of several sizes, each perhaps read element by element, a
/// product of another tensor and a sum beside them, and a product with a long sum and few results.
inline std::string drawn_branches(unsigned seed) {
  std::mt19937 random(seed);
  const auto size = [&random](unsigned from, unsigned to) {
    return from + random() % (to - from + 1);
  };
  std::string loops = "m: " + std::to_string(size(9, 40)) + ", d: " + std::to_string(size(16, 80)) +
                      ", z: 37, e: " + std::to_string(size(1500, 6000));
  std::string operators;
  const auto add = [&operators](const std::string& text) { operators += "  - \"" + text + "\"\n"; };
  const unsigned products = 2 + random() % 3;
  for (unsigned i = 0; i < products; ++i) {
    const std::string n = std::to_string(i), c = i > 0 && random() % 4 == 0 ? "c0" : "c" + n;
    if (c == "c" + n) loops += ", " + c + ": " + std::to_string(size(8, 90));
    add("p" + n + ": P" + n + "[m," + c + "] += X[m,d] * W" + n + "[d," + c + "]");
    if (random() % 3 > 0)
      add("r" + n + ": R" + n + "[m," + c + "] = relu(P" + n + "[m," + c + "]) + b" + n + "[" + c +
          "]");
  }
  add("y: Y[m,c0] += Z[m,z] * V[z,c0]");
  if (random() % 2 == 0) add("s: S[m] += Q[m,d]");
  add("l: L[m,c0] += T[m,e] * U[e,c0]");
  if (random() % 2 == 0) add("g: G[m,c0] = L[m,c0] * 0.5");
  return "name: branches\ndtype: " + std::string(random() % 2 == 0 ? "f16" : "f32") + "\nloops: {" +
         loops + "}\noperators:\n" + operators;
}

}  // namespace tilewright::testing
