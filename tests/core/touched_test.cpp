// Are the sectors that gathers touch those that their indices name, each once?
#include "core/workload/reference/touched.h"

#include <gtest/gtest.h>

#include <set>

#include "core/workload/text.h"

namespace tilewright {
namespace {

Workload make(const std::string& text) { return workload_from_yaml("name: t\n" + text, "test"); }

/// Bytes of the sectors that the elements lie in.
std::int64_t bytes_of_sectors(const std::set<std::int64_t>& elements, std::int64_t element,
                              std::int64_t sector, std::int64_t whole) {
  std::set<std::int64_t> sectors;
  for (std::int64_t e : elements) sectors.insert(e * element / sector);
  std::int64_t bytes = 0;
  for (std::int64_t s : sectors) bytes += std::min(sector, whole - s * sector);
  return bytes;
}

TEST(TouchedSectors, RowsThatAreLookedUpAgainCountOnce) {
  const Workload w = make(
      "loops: {b: 30, t: 4, d: 5}\ntensors: {T: [77, d], ids: [b, t]}\ndtypes: {ids: i32}\n"
      "operators: [\"y[b,d] += T[ids[b,t],d]\"]\n");
  const TensorId table = *w.find_tensor("T");
  const TensorValues values = gather_indices(w, 3);
  for (const std::int64_t sector : {4, 8, 16, 32, 64}) {
    std::set<std::int64_t> elements;
    for (double id : values[w.find_tensor("ids")->index()])
      for (int d = 0; d < 5; ++d) elements.insert(static_cast<std::int64_t>(id) * 5 + d);
    ASSERT_LT(elements.size(), 30U * 4 * 5) << "no row is looked up twice";
    TouchedSectors touched(w, values, sector);
    EXPECT_EQ(touched.of(table), Bytes(0));
    touched.add(OpId(0), 1);
    const std::int64_t wanted = bytes_of_sectors(elements, 4, sector, 77 * 5 * 4);
    EXPECT_EQ(touched.of(table), Bytes(wanted)) << sector;
    touched.add(OpId(0), 1);
    EXPECT_EQ(touched.of(table), Bytes(wanted)) << "a second operator touches them again";
  }
}

TEST(TouchedSectors, ElementsFarApartAndOutside) {
  const Workload w = make(
      "dtype: f64\nloops: {b: 9, d: 3}\ntensors: {T: [12, 50], ids: [b]}\ndtypes: {ids: i32}\n"
      "operators: [\"y[b,d] = T[4*d+5,ids[b]]\"]\n");
  const TensorValues values = gather_indices(w, 5);
  std::set<std::int64_t> elements;
  for (double id : values[w.find_tensor("ids")->index()])
    for (int d = 0; d < 3; ++d)
      if (4 * d + 5 < 12) elements.insert((4 * d + 5) * 50 + static_cast<std::int64_t>(id));
  TouchedSectors touched(w, values, 32);
  touched.add(OpId(0), 1);
  EXPECT_EQ(touched.of(*w.find_tensor("T")), Bytes(bytes_of_sectors(elements, 8, 32, 12 * 50 * 8)));
}

}  // namespace
}  // namespace tilewright
