// An option and the member that holds it: what a verb is asked is read by a loop over these.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/option.h"

namespace tilewright::harness {

/// One option of T: its spec, and how its value goes into a T.
template <class T>
struct Bound {
  OptionSpec spec;
  void (*read)(T& to, const Settings& from, std::string_view name);
};

namespace bound {

template <class M>
struct Member;
template <class T, class V>
struct Member<V T::*> {
  using Whole = T;
  using Value = V;
};
template <class V>
struct Inner {
  using Type = V;
};
template <class V>
struct Inner<std::optional<V>> {
  using Type = V;
};

}  // namespace bound

/// Bound::read of a member: a flag, a number, a text or the texts of a repeated option.
template <auto kMember>
void into(typename bound::Member<decltype(kMember)>::Whole& to, const Settings& from,
          std::string_view name) {
  using Value = typename bound::Inner<typename bound::Member<decltype(kMember)>::Value>::Type;
  auto& member = to.*kMember;
  if constexpr (std::is_same_v<Value, bool>) {
    member = from.flag(name);
  } else if constexpr (std::is_same_v<Value, std::string>) {
    member = from.text(name);
  } else if constexpr (std::is_floating_point_v<Value>) {
    member = from.number(name);
  } else if constexpr (std::is_unsigned_v<Value>) {
    member = from.whole(name);
  } else if constexpr (std::is_integral_v<Value>) {
    member = static_cast<Value>(from.integer(name));
  } else {
    member = from.texts(name);
  }
}

/// Reads every option that has a value, given or by default; the others leave `to` as it is.
template <class T>
void read(T& to, const std::vector<Bound<T>>& options, const Settings& from) {
  for (const Bound<T>& o : options)
    if (find_option(from.specs(), o.spec.name) != nullptr && from.has(o.spec.name))
      o.read(to, from, o.spec.name);
}

/// The same of those that were given: over what `to` has already.
template <class T>
void read_given(T& to, const std::vector<Bound<T>>& options, const Settings& from) {
  for (const Bound<T>& o : options)
    if (find_option(from.specs(), o.spec.name) != nullptr && from.given(o.spec.name))
      o.read(to, from, o.spec.name);
}

template <class T>
T read(const std::vector<Bound<T>>& options, const Settings& from) {
  T made = {};
  read(made, options, from);
  return made;
}

template <class T>
std::vector<OptionSpec> specs_of(const std::vector<Bound<T>>& options) {
  std::vector<OptionSpec> specs;
  for (const Bound<T>& o : options) specs.push_back(o.spec);
  return specs;
}

}  // namespace tilewright::harness
