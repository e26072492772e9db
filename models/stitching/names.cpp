// Names of what options and schedules may be.

#include "core/base/name_table.h"
#include "models/stitching/stitching.h"

namespace tilewright::stitching {
namespace {

constexpr NameTable<Kind, 4> kKinds{{{Kind::light, "light"},
                                     {Kind::expensive, "expensive"},
                                     {Kind::reduction, "reduction"},
                                     {Kind::product, "product"}}};
constexpr NameTable<Groupings, 2> kGroupings{{{Groupings::few, "few"}, {Groupings::each, "each"}}};
constexpr NameTable<Products, 2> kProducts{
    {{Products::ridge, "ridge"}, {Products::points, "points"}}};
constexpr NameTable<Latency, 2> kLatencies{
    {{Latency::overlap, "overlap"}, {Latency::published, "published"}}};
constexpr NameTable<Scheme, 3> kSchemes{
    {{Scheme::thread, "thread"}, {Scheme::warp, "warp"}, {Scheme::block, "block"}}};

}  // namespace

std::string_view name_of(Kind k) { return name_in(kKinds, k); }
std::string_view name_of(Groupings g) { return name_in(kGroupings, g); }
std::string_view name_of(Products p) { return name_in(kProducts, p); }
std::string_view name_of(Latency l) { return name_in(kLatencies, l); }
std::string_view name_of(Scheme s) { return name_in(kSchemes, s); }
std::optional<Groupings> groupings_from_name(std::string_view n) { return value_in(kGroupings, n); }
std::optional<Products> products_from_name(std::string_view n) { return value_in(kProducts, n); }
std::optional<Latency> latency_from_name(std::string_view n) { return value_in(kLatencies, n); }

}  // namespace tilewright::stitching
