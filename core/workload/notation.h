// Index notation to operators; the printing side is to_text in files.h, where the notation is
// described. Used by the readers of workload files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/workload/workload.h"

namespace tilewright {

/// What operators are read against. Loops must be there; a tensor that is not is added with a shape
/// of zeros, for infer_shapes to fill in.
struct NotationContext {
  WorkloadSpec& spec;
  std::vector<bool> inferred;  ///< by tensor: its shape is still to be found
};

/// Parses one operator and appends it to context.spec. `name` overrides the default name (the first
/// target tensor's) when the text has none. Throws InputError naming the column, what was found and
/// what was expected. Cost: linear in the text, times the number of loops and tensors.
void parse_operator(NotationContext& context, std::string_view text, std::string_view where,
                    std::string_view name = {});

/// The largest value of an index over its loops, plus one; nothing past 64 bits.
std::optional<std::int64_t> end_of(const WorkloadSpec& spec, const Affine& index);

/// Gives every inferred tensor its shape: what its writer covers or, for inputs, the smallest that
/// holds every read. Throws InputError when an index leaves 64 bits.
void infer_shapes(NotationContext& context);

/// InputError for a name that is not known, with the nearest candidate.
InputError unknown_name(std::string_view where, std::string_view field, std::string_view given,
                        std::vector<std::string> candidates);

}  // namespace tilewright
