// How to compute it: kernels, each with a loop tree in the notation of design/plan.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// What runs a loop's iterations.
enum class Binding : std::uint8_t { seq, grid, cluster, warp, lane, thread, vector, unroll };
std::string_view name_of(Binding b);
std::optional<Binding> binding_from_name(std::string_view name);

/// A node of the loop tree, with names as the plan writes them. Which fields mean something depends
/// on `kind`; the others keep their defaults, so that equality is of meaning.
struct Node {
  enum class Kind : std::uint8_t { loop, sequence, load, compute, store, sync, pack, drop };
  Kind kind = Kind::sequence;
  std::string name = {};    ///< loop: the loop; load, store, drop: tensor; compute: operator or tensor;
                            ///< sync: scope ("warp", "block", "grid")
  std::int64_t step = 0;    ///< loop: elements an iteration; 0: from the tile table
  Binding binding = Binding::seq;
  std::string level = {};   ///< load, store: target level; drop: where from; empty: default
  int copies = 1;           ///< load: 2 is double-buffered
  bool once = false;        ///< compute: skip a tile that is complete
  bool atomic = false;      ///< store: combine into the target
  std::vector<Node> children = {};  ///< loop: exactly one; sequence, pack: the parts
  /// Of a pack's part: the first of its blocks; none: the one after the last part's.
  std::optional<std::int64_t> first_block = {};
  friend bool operator==(const Node&, const Node&) = default;
};

/// Where a tensor lives, and from which loop's body on.
struct Pin {
  std::string level = {};  ///< empty: the default level
  std::string at = {};     ///< loop whose body is the home point; empty: inferred
  friend bool operator==(const Pin&, const Pin&) = default;
};

struct TensorFlags {
  bool sliding = false;
  bool running = false;
  friend bool operator==(const TensorFlags&, const TensorFlags&) = default;
};

/// How a kernel is launched. What is not said is for the target to choose; its options go before this.
struct Launch {
  std::optional<int> warps = {};    ///< that compute, a thread block
  std::optional<int> stages = {};   ///< of loaded tiles in shared memory
  std::optional<int> cluster = {};  ///< thread blocks
  /// 1: what a phase loads of tensors that no phase makes begins before the Y.grid that it follows.
  std::optional<int> ahead = {};
  bool empty() const { return !warps && !stages && !cluster && !ahead; }
  friend bool operator==(const Launch&, const Launch&) = default;
};

struct Kernel {
  std::string name = {};
  std::vector<std::string> operators = {};  ///< empty: those that the tree computes
  std::string level = {};                   ///< of L and of computes without loads; empty: innermost
  Node tree = {};
  std::map<std::string, std::int64_t> tiles = {};
  std::map<std::string, Pin> pins = {};
  std::map<std::string, TensorFlags> flags = {};
  Launch launch = {};
  std::string by = {};  ///< the model that proposed it; empty: the plan file's says for all
  friend bool operator==(const Kernel&, const Kernel&) = default;
};

struct Plan {
  std::vector<Kernel> kernels = {};
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Parses the notation. A sequence of one node is that node. Throws InputError naming the position
/// and what was expected. Depth and length are bounded, so that no input overflows the stack.
Node parse_tree(std::string_view text, std::string_view where = "tree");
/// Canonical text; parse_tree reads it back to the same value.
std::string to_text(const Node& tree);

/// "m=64,l=64,k=16": positive integers, each name once. Throws InputError.
std::map<std::string, std::int64_t> parse_tiles(std::string_view text,
                                                std::string_view where = "--tiles");

// Building by hand.
Node loop(std::string name, Node body, std::int64_t step = 0, Binding binding = Binding::seq);
Node sequence(std::vector<Node> parts);
Node load(std::string tensor, std::string level = {}, int copies = 1);
Node compute(std::string op, bool once = false);
Node store(std::string tensor, std::string level = {}, bool atomic = false);
Node sync(std::string scope);
Node drop(std::string tensor, std::string level = {});

}  // namespace tilewright
