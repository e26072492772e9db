// Operators as matrix products: which loops are rows, columns and depth, and which are besides.
#include "core/workload/matrix_product.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/workload/text.h"

namespace tilewright {
namespace {

std::string roles(const char* loops, const char* op,
                  const std::map<std::string, std::int64_t>& sizes = {}) {
  const Workload w = workload_from_yaml(
      "name: w\ndtype: f16\nloops: {" + std::string(loops) + "}\noperators: [\"o: " + op + "\"]\n",
      "test");
  const auto size = [&](LoopId l) {
    const auto at = sizes.find(w.loop(l).name);
    return at == sizes.end() ? w.loop(l).extent : at->second;
  };
  const Result<MatrixProduct> p = matrix_product(w, OpId(0), size);
  if (!p) return p.reason();
  std::string all = w.tensor(w.op(OpId(0)).inputs[static_cast<std::size_t>(p->left)].tensor).name;
  for (const LoopId l : {p->rows, p->columns, p->depth}) all += " " + w.loop(l).name;
  for (const LoopId l : p->batch) all += " batch " + w.loop(l).name;
  for (const LoopId l : p->sums) all += " sum " + w.loop(l).name;
  return all + (p->in_rows ? "" : " apart");
}

TEST(MatrixProduct, HasRowsColumnsAndDepth) {
  EXPECT_EQ(roles("m: 8, n: 9, k: 7", "c[m,n] += a[m,k] * b[k,n]"), "a m n k");
  EXPECT_EQ(roles("m: 8, n: 9, k: 7", "c[m,n] += b[n,k] * a[m,k]"), "a m n k");
  EXPECT_EQ(roles("g: 3, m: 8, n: 9, k: 7", "c[g,m,n] += a[g,m,k] * b[g,k,n]"), "a m n k batch g");
  // Rows anywhere, heads before columns, and a sum over heads.
  EXPECT_EQ(roles("m: 8, h: 4, e: 9, d: 7", "q[h,m,e] += x[m,d] * w[d,h,e]"), "x m e d batch h");
  EXPECT_EQ(roles("m: 8, h: 4, n: 9, v: 7", "o[m,n] += x[h,m,v] * w[h,v,n]"), "x m n v sum h");
  // The most rows, where the plan has more than one of them.
  EXPECT_EQ(roles("b: 64, m: 2, n: 9, k: 7", "c[b,m,n] += a[b,m,k] * w[k,n]"), "a b n k batch m");
  EXPECT_EQ(roles("b: 64, m: 2, n: 9, k: 7", "c[b,m,n] += a[b,m,k] * w[k,n]", {{"b", 1}}),
            "a m n k batch b");
  // Elements of a row that do not follow one another.
  EXPECT_EQ(roles("g: 3, m: 8, n: 9, k: 7", "c[m,n,g] += a[m,k,g] * b[k,n,g]"),
            "a m n k batch g apart");
}

TEST(MatrixProduct, SaysWhatIsNone) {
  EXPECT_EQ(roles("m: 8, k: 7", "c[m] += a[m,k] * b[k]"),
            "o has fewer loops than a matrix product");
  EXPECT_EQ(roles("m: 8, n: 7, k: 5", "c[m,n] += a[m,k] * b[n]"),
            "o sums over a loop that one input does not have");
  EXPECT_EQ(roles("m: 8, n: 7, k: 5", "c[m,n] max= a[m,k] * b[n,k]"),
            "o is not a product of two tensors");
  EXPECT_EQ(roles("m: 8, n: 7, k: 5", "c[m,n] += a[k,k] * b[k,n] * a[m,m]"),
            "o is not a product of two tensors");
}

}  // namespace
}  // namespace tilewright
