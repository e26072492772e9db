// How few bytes any plan can move, and how few one does, as functions of the on-chip buffer's size.
//
// Two bounds, never mixed up:
//   proven      no plan moves less, whatever its orders, tiles and retention;
//   attainable  the least over a family of loop trees, each point with the plan that moves it.
//
// One memory of S words lies under home. A plan's buffers start empty (plan.md, rule 4) and hold at
// most S words at any time ("Memory use"). A multiply-add needs its three operands on chip.
// Iterations of unit-bound loops have buffers of their own; S is then what all units have together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/units.h"
#include "core/plan/plan.h"
#include "core/workload/workload.h"

namespace tilewright::bounds {

// ---- Proven -------------------------------------------------------------------------------------

struct Proven {
  Bytes bytes;
  std::string is;  ///< which of the bounds it is, in words
  friend bool operator==(const Proven&, const Proven&) = default;
};

/// What a plan may do.
enum class Freedom : std::uint8_t {
  any,               ///< fuse, and compute what it needs again: holds for every plan
  no_recomputation,  ///< fuse; every operation once
  unfused,           ///< one operator a kernel: intermediates go home and come back
};

/// A lower bound on the bytes between home and `capacity` bytes of memory. Cost: linear in the
/// products.
///
/// A product of V multiply-adds whose tensors have T_1, T_2, T_3 elements, every loop of it
/// indexing two or three of them (batch loops: all), moves at least the largest of
///   T_1 + T_2 + T_3                             compulsory,
///   2 V / sqrt(S)                               the I/O bound,
///   T_i + (V^2 / T_i) (1 - 1/S) / S             where V / T_i < sqrt(S): tensor i, with its full
///                                               reduction or reuse range in one residency.
/// For M x N x K the second is 2MNK/sqrt(S). It is Smith, Lowery, Langou and van de Geijn, "A Tight
/// I/O Lower Bound for Matrix Multiplication" (arXiv:1702.02017, 2019), by their argument: cut the
/// walk into segments of 2S events (an input element loaded, an output element's residency begun);
/// Loomis-Whitney (here Shearer) allows S^1.5 multiply-adds in one; each residency of an output
/// ends in a write. Their slack of -2S is not needed where the memory starts empty: the partial
/// segment, put first, starts from nothing and does fewer multiply-adds an event than a full one.
/// The form 2MNK/sqrt(S) + MN, quoted from Kwasniewski et al. (COSMA, SC 2019), is no bound where
/// K < sqrt(S): with M = N = 100, K = 4, S = 21 a plan moves 20,400 words; it would say 27,457.
/// The third is the same argument with unequal weights on the tensors.
///
/// A convolution is such a product of its image as pairs of a place and a tap, its taps and its
/// output. An element of the image serves p pairs at most (all taps where the stride is 1), so that
/// V / sqrt(p) takes the place of V. What lies in the padding is not counted.
///
/// unfused: the sum over operators (kernels meet at home, plan.md rule 15). A shared input counts
/// for each. no_recomputation: products of a graph together obey the same bound with V summed and
/// tensors joined in three classes, one of each class a product, where each product in turn has one
/// tensor in common with those before it at most. (Then the sum of sqrt(a b c) over the products is
/// at most the square root of the product of sums; with two in common it may be more.) Tensors that
/// element-wise operators make one of the other count as one, the scores and the weights of
/// attention for example. What the first residency of an intermediate saves is taken off once:
/// fused >= bound(V_1 + V_2, classes) - |C|. For two matrix products that is one product of M x L x
/// (K + N), less M L. Products may also be put in several sets that are added up, where no two sets
/// read the same tensor. All that the sets leave out counts as compulsory. any: only products that
/// read inputs form sets, and a pair of products, whose intermediate may be computed again instead
/// of kept, from ab/K^2 pairs of rows and columns on chip (again Loomis-Whitney); a segment of x
/// words then does at most max over t of sqrt(x - 2t) t + t^2/(4K) multiply-adds. Never above
/// no_recomputation's. Products that a mask by loops' indices (causal attention) hides parts of are
/// left out, and so are those that gather, and running ones (online softmax). Where types differ,
/// an element is a word of the smallest among these tensors.
Proven proven(const Workload& w, Bytes capacity, Freedom freedom = Freedom::any);

// ---- Attainable ---------------------------------------------------------------------------------

/// A choice of the loop tree with its cuts; what a front is made of.
struct Choice {
  std::int64_t buffer = 0;   ///< words of memory that it uses
  std::int64_t traffic = 0;  ///< words that it moves
  std::int32_t form = 0;     ///< which tree
  std::int64_t cut[5] = {};  ///< its steps
  friend bool operator==(const Choice&, const Choice&) = default;
};

/// Choices by growing buffer, each moving less than the one before.
class Curve {
 public:
  struct Part {
    OpId first, second;  ///< a product, or a fused chain of two
    std::vector<Choice> choices;
    std::int64_t repeats = 1;  ///< batch: everything moves that often
  };
  struct Point {
    Bytes buffer;
    Bytes traffic;
    friend bool operator==(const Point&, const Point&) = default;
  };

  Curve(const Workload& w, std::vector<Part> parts);

  /// All breakpoints.
  const std::vector<Point>& points() const { return points_; }
  /// The least bytes with that much memory; none below the smallest point's buffer.
  std::optional<Bytes> at(Bytes capacity) const;
  /// The plan that moves them, a kernel a part. Requires `capacity` not below the smallest point's.
  Plan plan(Bytes capacity, const std::string& level = {}) const;

 private:
  const Choice* best(const Part& part, Bytes capacity) const;

  Workload workload_;
  std::vector<Part> parts_;
  std::vector<Point> points_;
  std::int64_t word_ = 1;  ///< bytes
};

/// Which steps loops are cut by.
enum class Steps : std::uint8_t {
  all,       ///< every integer; the last piece may be smaller, and counts as it is
  dividing,  ///< those that divide the extent (perfect factors, as Timeloop and Orojenesis search)
};

/// One kernel a matrix product, each the best tree for the whole memory: every order of its loops,
/// every integer step, every retention. A product keeps one tensor's tile of t x u words while it
/// sweeps the third loop, a line of min(t, u) words of the second tensor, and one word of the
/// third:
///   output kept: t u + min(t, u) + 1 words, |A| ceil(N/u) + |B| ceil(M/t) + |C| moved;
///   input A kept: likewise, |A| + |B| ceil(M/t) + |C| (2 ceil(K/u) - 1); B alike.
/// Anything further (a tensor kept in two places, longer lines) needs more words for the same
/// traffic. A Reason for what is no set of matrix products. Cost: under a millisecond for 4096^3.
Result<Curve> attainable_unfused(const Workload& w, Steps steps = Steps::all);

/// The two products of a chain C[m,l] += A[m,k] B[k,l]; E[m,n] += C[m,l] D[l,n] in one kernel, C on
/// chip: m and l cut around both, A, B, D and E each kept at any depth of that nest or streamed
/// past a region of C by lines and words, n cut or whole (then A B is computed again for every part
/// of n). A Reason for anything else. Cost: milliseconds (chains of extents 512), tens of them
/// (32k).
Result<Curve> attainable_fused(const Workload& w, Steps steps = Steps::all);

/// Where fusion starts to pay.
struct Crossover {
  std::optional<Bytes> first;   ///< the smallest buffer with which one kernel moves less than two
  std::optional<Bytes> always;  ///< the smallest from which on it never moves more
};
Crossover crossover(const Curve& fused, const Curve& unfused);

}  // namespace tilewright::bounds
