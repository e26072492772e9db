// What targets are asked, out of the settings of the one that is: each target has some of these.
#pragma once

#include "core/base/option.h"
#include "harness/bound_option.h"
#include "harness/verbs.h"

namespace tilewright::harness {

/// Reads into `o` what `settings` (target_settings) has a value for, or with `only_given` what was
/// given; the rest of `o` stays. Options: EmitOptions, RunOptions, MeasureOptions.
template <class Options>
void read_target_options(Options& o, const Settings& settings, bool only_given = false) {
  const auto read_to = [&]<class T>(const char* name, T& to) {
    if (find_option(settings.specs(), name) == nullptr) return;
    if (only_given ? !settings.given(name) : !settings.has(name)) return;
    if constexpr (std::is_same_v<T, bool>) {
      to = settings.flag(name);
    } else if constexpr (std::is_same_v<T, std::optional<int>>) {
      to = static_cast<int>(settings.integer(name));
    } else {
      to = settings.text(name);
    }
  };
  read_to("isa", o.isa);
  read_to("micro-kernel", o.micro_kernel);
  read_to("prefetch", o.prefetch);
  read_to("warps", o.cuda.warps);
  read_to("stages", o.cuda.stages);
  read_to("arch", o.cuda.arch);
  read_to("cache", o.cuda.cache);
  read_to("cold", o.cuda.cold);
  if constexpr (requires { o.timeline; }) read_to("timeline", o.timeline);
}

}  // namespace tilewright::harness
