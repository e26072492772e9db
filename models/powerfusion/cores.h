// PowerFusion's kernels on machines whose units are cores: CPUs, NPUs, Cambricon's MLU (section 7).
#pragma once

#include "models/model.h"
#include "models/powerfusion/powerfusion.h"

namespace tilewright::powerfusion {

/// A machine that is no GPU by what prices are made of: its cores as `sms`, DRAM's bandwidth into
/// all of the first level under it, f32's peak (0: not said). No cycles of instructions. A Reason
/// naming the field where the machine's file does not give the bandwidth; a CPU's is then assumed.
Result<Device> cores_of(const Machine& m);
/// What cores_of() has taken that the machine's file does not say; none where it has not.
std::optional<std::string> assumed_of(const Machine& m);
/// Whether the device is one of those.
inline bool is_cores(const Device& d) { return d.clock_hz == 0; }

/// The level that vector instructions work on: a DaVinci core's Unified Buffer, which is beside the
/// machine's default level; elsewhere that level.
LevelId vector_level(const Machine& m);

/// A kernel of loops: cores take blocks of rows, of which as many as twice the cores, or smaller
/// ones until their tiles have room. A Reason where they have none, or blocks would need one
/// another's parts. Cost: a resolve of the kernel's operators for each size.
Result<StitchedKernel> on_cores(const Graph& g, const Device& d, const Operators& p,
                                int most_operators);
Kernel core_kernel(const Graph& g, const Device& d, const StitchedKernel& k,
                   const std::string& name);
/// Memory kernels as core_kernel() has them; of a library's the fastest that the question's others
/// make of the product alone, plain tiles of 64 where nobody makes one. Cost: their search, for each
/// form of product once.
Plan cores_plan(const Question& q, const Graph& g, const Device& d, const PlanPrice& p);

/// Seconds of a GIR without its launch: its moves from and to DRAM, each bytes over bandwidth *
/// parts of lines that it needs * cores that have blocks.
double cores_seconds(const Gir& g, const Device& d);

}  // namespace tilewright::powerfusion
