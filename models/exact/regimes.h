// the Ranges API of core/plan, with what it decides on the way noted in a signature: which
// sides of a footprint the tensor's edge clips, and which access of several reaches furthest.
#pragma once

#include "core/plan/schedule.h"
#include "models/exact/signature.h"

namespace tilewright::exact_model {

struct Place {
  const Schedule& s;
  const ScheduledKernel& k;
};

/// As tilewright::infer, noted.
Box infer(Place at, const Inference& inference, Ranges& r, const Box* held, Signature& sig);
/// As tilewright::load_box, noted.
Box load_box(Place at, NodeId load, const Ranges& r, Signature& sig);
/// As tilewright::tile_of, noted.
Box tile_of(Place at, const Buffer& b, const Ranges& r, Signature& sig);
/// As tilewright::write_box, noted.
Box write_box(Place at, OpId op, int output, const Ranges& r, Signature& sig);

/// As tilewright::new_part, noted.
Box new_part(const Box& held, const Box& now, Signature& sig);

}  // namespace tilewright::exact_model
