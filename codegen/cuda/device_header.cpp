#include "codegen/cuda/boxes_text.h"
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/device_text.h"
#include "codegen/cuda/hopper_text.h"
#include "codegen/cuda/pairs_text.h"
#include "codegen/cuda/products_text.h"
#include "codegen/cuda/stitch_text.h"
#include "codegen/cuda/sums_text.h"
#include "codegen/cuda/tf32_text.h"
#include "codegen/cuda/tiles_text.h"
#include "codegen/cuda/warpgroups_text.h"
#include "codegen/cuda/windows_text.h"

namespace tilewright::cuda {

std::span<const DeviceHeader> device_headers() {
  static constexpr DeviceHeader kHeaders[] = {
      {"tilewright_device.h", {k_device_text, sizeof k_device_text - 1}},
      {"tilewright_boxes.h", {k_boxes_text, sizeof k_boxes_text - 1}},
      {"tilewright_tiles.h", {k_tiles_text, sizeof k_tiles_text - 1}},
      {"tilewright_sums.h", {k_sums_text, sizeof k_sums_text - 1}},
      {"tilewright_products.h", {k_products_text, sizeof k_products_text - 1}},
      {"tilewright_tf32.h", {k_tf32_text, sizeof k_tf32_text - 1}},
      {"tilewright_stitch.h", {k_stitch_text, sizeof k_stitch_text - 1}},
      {"tilewright_hopper.h", {k_hopper_text, sizeof k_hopper_text - 1}},
      {"tilewright_warpgroups.h", {k_warpgroups_text, sizeof k_warpgroups_text - 1}},
      {"tilewright_pairs.h", {k_pairs_text, sizeof k_pairs_text - 1}},
      {"tilewright_windows.h", {k_windows_text, sizeof k_windows_text - 1}}};
  return kHeaders;
}

}  // namespace tilewright::cuda
