#include "core/machine/cache_behaviour.h"

namespace tilewright {
namespace {

constexpr int kBrripRare = 32;  // Jaleel et al., III-B: epsilon
constexpr int kQlruRare = 16;   // nanoBench: MR

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// One digit up to `most`, taken off the front.
std::optional<std::uint8_t> digit(std::string_view& text, int most) {
  if (text.empty() || text[0] < '0' || text[0] > '0' + most) return std::nullopt;
  const auto d = static_cast<std::uint8_t>(text[0] - '0');
  text.remove_prefix(1);
  return d;
}

/// What follows "qlru".
std::optional<Replacement> qlru(std::string_view text) {
  Replacement r{.kind = Replacement::Kind::ages};
  if (!take(text, "_h")) return std::nullopt;
  const auto from3 = digit(text, 2), from2 = digit(text, 1);
  if (!from3 || !from2 || *from2 > *from3) return std::nullopt;
  r.hit = {0, 0, *from2, *from3};
  if (take(text, "_mr")) {
    const auto often = digit(text, 3), rarely = digit(text, 3);
    if (!often || !rarely || *rarely >= *often) return std::nullopt;
    r.fill = *often, r.rare_fill = *rarely, r.rare = kQlruRare;
  } else if (take(text, "_m")) {
    const auto age = digit(text, 3);
    if (!age) return std::nullopt;
    r.fill = r.rare_fill = *age;
  } else {
    return std::nullopt;
  }
  if (!take(text, "_r")) return std::nullopt;
  const auto choice = digit(text, 2);
  if (!choice || !take(text, "_u")) return std::nullopt;
  const auto update = digit(text, 3);
  if (!update) return std::nullopt;
  r.highest_empty = *choice == 2;
  r.update = *update;
  r.on_miss_only = take(text, "_umo");
  if (!text.empty() || (*choice != 1 && r.update > 1)) return std::nullopt;
  return r;
}

}  // namespace

std::optional<Replacement> replacement_from_name(std::string_view name) {
  using Kind = Replacement::Kind;
  if (name == "lru") return Replacement{};
  if (name == "fifo") return Replacement{.kind = Kind::fifo};
  if (name == "random") return Replacement{.kind = Kind::random};
  if (name == "tree_plru") return Replacement{.kind = Kind::tree_plru};
  if (name == "bit_plru") return Replacement{.kind = Kind::bit_plru};
  const Replacement srrip{.kind = Kind::ages, .fill = 2, .rare_fill = 2, .on_miss_only = true};
  if (name == "srrip") return srrip;
  if (name == "brrip") {
    Replacement r = srrip;
    r.fill = 3, r.rare_fill = 2, r.rare = kBrripRare;
    return r;
  }
  return take(name, "qlru") ? qlru(name) : std::nullopt;
}

std::string_view replacement_names() {
  return "lru, fifo, random, tree_plru, bit_plru, srrip, brrip, or a qlru such as "
         "qlru_h11_m1_r0_u0";
}

std::string_view name_of(Inclusion i) {
  switch (i) {
    case Inclusion::non_inclusive:
      return "non-inclusive";
    case Inclusion::inclusive:
      return "inclusive";
    case Inclusion::exclusive:
      return "exclusive";
    case Inclusion::victim:
      return "victim";
  }
  return "non-inclusive";
}

std::string_view name_of(WriteHit w) { return w == WriteHit::back ? "back" : "through"; }

std::string_view name_of(WriteMiss w) {
  switch (w) {
    case WriteMiss::fetch:
      return "fetch";
    case WriteMiss::validate:
      return "validate";
    case WriteMiss::around:
      return "around";
  }
  return "fetch";
}

std::string_view name_of(Index i) {
  switch (i) {
    case Index::modulo:
      return "modulo";
    case Index::folded:
      return "folded";
    case Index::slices:
      return "slices";
  }
  return "modulo";
}

std::string_view name_of(PrefetchKind k) {
  switch (k) {
    case PrefetchKind::next_line:
      return "next_line";
    case PrefetchKind::adjacent:
      return "adjacent";
    case PrefetchKind::stride:
      return "stride";
  }
  return "next_line";
}

}  // namespace tilewright
