// The planner on a GPU: the same partition, kernels of our own for products, stitched ones for the
// rest, all priced by models/stitching/gpu_time.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/workload/cut.h"
#include "models/model.h"
#include "models/quickest/quickest.h"
#include "models/quickest/search.h"
#include "models/stitching/gpu_time.h"
#include "models/stitching/stitching.h"

namespace tilewright::quickest {

/// A product of matrices by the names of its loops.
struct GpuProduct {
  std::string op, rows, columns, depth;
  bool window = false;  ///< an operand is read through a window: a convolution
};
std::vector<GpuProduct> gpu_products(const Workload& w);
/// Trees for a group with one or two of them: none for more. `w` may be rewritten: what the loops
/// and products are called stays.
std::vector<Form> gpu_forms(const Workload& w, const std::vector<GpuProduct>& products);
/// The same of one product, whatever operators of its elements follow, in the tiles of
/// core/lowering/gpu/warpgroup_product.h, without and with a cluster's blocks that share its sum,
/// and of two in those of warpgroup_pair.h. Few enough to price them all.
std::vector<Form> warpgroup_forms(const Workload& w, const std::vector<GpuProduct>& products);
/// The same of one product whose right operand is images with their channels side by side.
std::vector<Form> image_forms(const Workload& w, const std::vector<GpuProduct>& products);
inline constexpr const char* kChannelsLast = "channels-last:";
/// Convolutions of which that rewrite may gain.
std::vector<std::string> channels_to_try(const Workload& w);
/// The same of one convolution by tensor cores, of a device that has clusters or not.
std::vector<Form> window_forms(const Workload& w, const std::vector<GpuProduct>& products,
                               bool clusters);

inline constexpr const char *kOnline = "online-softmax", *kLate = "scale-late",
                            *kChunks = "split-running:";
/// Attention whose rows make few blocks also in chunks of its keys, so that there are blocks for
/// all multiprocessors: about one for each, half as many, twice, which may have room together, and
/// more where blocks without chunks fill multiprocessors unevenly.
void try_chunks(const std::shared_ptr<const Workload>& w, double units, bool warpgroups,
                const std::function<bool(const stitching::Composition&)>& tried);

/// The workload with copies of element-wise operators in kernels that would else read what another
/// of the groups writes, one such change each, those that move fewest bytes first; where that moves
/// notably less than the groups do.
std::vector<stitching::Composition> recomputed(const std::shared_ptr<const Workload>& w,
                                               const std::vector<Part>& groups);

/// The machine with no more instructions than the target's text may have, and with the cycles that
/// its file lacks, as on an H200.
std::shared_ptr<const Machine> priced_machine(const Question& q);
/// Those cycles, for display.
nlohmann::ordered_json assumed_json(const Question& q);
/// What a kernel takes, by what; for display.
nlohmann::ordered_json gpu_time_json(const stitching::GpuTime& t, double clock);
/// Of any plan: the seconds of its kernels, without those that make constants, which run once
/// before all runs. Bytes are what `exact` says.
Result<Price> price_on_gpu(const Question& q, const Plan& plan);
Result<Proposal> propose_on_gpu(const Question& q, const Settings& settings);

}  // namespace tilewright::quickest
