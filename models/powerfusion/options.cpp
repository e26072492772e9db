#include "models/powerfusion/options.h"

#include <array>

namespace tilewright::powerfusion {
namespace {

template <class T, std::size_t N>
std::optional<T> one_named(const std::array<const char*, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i)
    if (name == names[i]) return static_cast<T>(i);
  return {};
}

constexpr std::array kPrices = {"auto", "overlap", "parallel", "bytes"};
constexpr std::array kSearches = {"auto", "exhaustive", "bound", "beam"};
constexpr std::array kLibraries = {"ridge", "type", "none"};
constexpr std::array kScopeTests = {"units", "printed"};

template <std::size_t N>
OptionSpec choice_of(const char* name, const std::array<const char*, N>& names, const char* help,
                     const char* source, const char* published = "") {
  return {.name = name,
          .kind = OptionKind::choice,
          .names = {names.begin(), names.end()},
          .standard = names.front(),
          .published = published,
          .help = help,
          .source = source};
}

OptionSpec count_of(const char* name, int high, const char* standard, const char* help) {
  return {.name = name,
          .kind = OptionKind::integer,
          .low = 1,
          .high = static_cast<std::uint64_t>(high),
          .standard = standard,
          .help = help,
          .source = "section 6"};
}

OptionSpec number_of(const char* name, const char* standard, const char* help, const char* source) {
  return {.name = name,
          .kind = OptionKind::number,
          .standard = standard,
          .help = help,
          .source = source};
}

}  // namespace

std::optional<PriceBy> price_by_from_name(std::string_view n) {
  return one_named<PriceBy>(kPrices, n);
}
std::optional<Search> search_from_name(std::string_view n) {
  return one_named<Search>(kSearches, n);
}
std::optional<Library> library_from_name(std::string_view n) {
  return one_named<Library>(kLibraries, n);
}
std::optional<ScopeTest> scope_test_from_name(std::string_view n) {
  return one_named<ScopeTest>(kScopeTests, n);
}

std::span<const OptionSpec> option_specs() {
  static const std::vector<OptionSpec> specs = {
      choice_of("scope", kScopeTests,
                "how the scope of a sync is decided. units: by which unit holds each element; "
                "printed: by comparing access patterns first",
                "section 5.1, figure 5", "printed"),
      choice_of("swap", std::array{"forward", "none"},
                "element-wise gOperators are moved behind data movements and syncs (forward), or "
                "stay where they are",
                "section 5.1"),
      choice_of("duplicate", std::array{"light", "no"},
                "each reader computes cheap slices, gathers and transposes itself (light), or "
                "they are computed once",
                "section 5.1"),
      choice_of("library", kLibraries,
                "contractions that are left to a library: those whose intensity is above --ridge, "
                "all, or none",
                "section 6"),
      number_of("ridge", "0",
                "operations per byte above which a contraction is compute-bound; 0 stands for the "
                "machine's ridge point",
                "section 6"),
      choice_of("merges", kSearches,
                "how the operators that share a kernel are searched for. auto: exactly for graphs "
                "of up to --exact operators, else with a beam; exhaustive: all merges; bound: by "
                "branch and bound; beam: with a beam of --width plans",
                "section 6"),
      count_of("exact", 12, "10", "with --merges auto: operators up to which the search is exact"),
      count_of("width", 64, "8", "partial plans that the beam search keeps"),
      choice_of("price-by", kPrices,
                "the time of a kernel. overlap: the longest of its resources; parallel: its data "
                "movements and syncs; bytes: its bytes over the bandwidth; auto: overlap where "
                "the machine file has the cycles of instructions, else parallel",
                "section 6", "parallel"),
      number_of("kernel-us", "2",
                "with --price-by parallel or bytes: microseconds that a kernel launch takes",
                "section 8.3"),
      choice_of("pack", std::array{"yes", "no"}, "independent operators may share a kernel",
                "section 6"),
  };
  return specs;
}

stitching::Options Options::kernels() const {
  stitching::Options o;
  o.products = library == Library::type ? stitching::Products::points : stitching::Products::ridge;
  return o;
}

Options options_of(const Settings& s) {
  Options o;
  o.rewriting.scope = s.choice<ScopeTest>("scope", scope_test_from_name);
  o.rewriting.swap = s.text("swap") == "forward";
  o.duplicate = s.text("duplicate") == "light";
  o.library = s.choice<Library>("library", library_from_name);
  o.ridge = s.number("ridge");
  o.search = s.choice<Search>("merges", search_from_name);
  o.exact = static_cast<int>(s.integer("exact"));
  o.beam = static_cast<int>(s.integer("width"));
  o.price = s.choice<PriceBy>("price-by", price_by_from_name);
  o.launch_us = s.number("kernel-us");
  o.pack = s.text("pack") == "yes";
  return o;
}

}  // namespace tilewright::powerfusion
