// What a node says of itself: attributes, axes, known inputs.
#include "core/workload/import/onnx_node.h"

#include <algorithm>
#include <cmath>

namespace tilewright::onnx {

const Attribute* NodeReader::find(std::string_view attribute) const {
  const Attribute* a = node.find(attribute);
  if (a != nullptr) asked_.push_back(a);
  return a;
}

const Attribute* NodeReader::not_asked_for() const {
  // What changes no value, what training or rounding alone needs, and what other attributes or
  // inputs make void.
  static constexpr std::string_view kNeedless =
      " allowzero antialias auto_pad axes axis block_size ceil_mode consumed_inputs "
      "coordinate_transformation_mode count_include_pad cubic_coeff_a dilations dtype epsilon "
      "exclude_outside extrapolation_value group is_test keep_aspect_ratio_policy keepdims "
      "kernel_shape kv_num_heads momentum nearest_mode noop_with_empty_axes num_outputs "
      "output_dtype output_padding output_sequence output_shape pads precision q_num_heads "
      "qk_matmul_output_mode ratio round_mode saturate scales seed select_last_index "
      "softmax_precision sorted spatial stash_type storage_order strides value ";
  for (const Attribute& a : node.attributes)
    if (std::ranges::find(asked_, &a) == asked_.end() &&
        kNeedless.find(" " + a.name + " ") == kNeedless.npos)
      return &a;
  return nullptr;
}

std::int64_t NodeReader::integer(std::string_view attribute, std::int64_t otherwise) const {
  const Attribute* a = find(attribute);
  return a != nullptr && a->integer ? *a->integer : otherwise;
}
double NodeReader::real(std::string_view attribute, double otherwise) const {
  const Attribute* a = find(attribute);
  return a != nullptr && a->number ? *a->number : otherwise;
}
std::string NodeReader::text(std::string_view attribute, std::string otherwise) const {
  const Attribute* a = find(attribute);
  return a != nullptr && a->text ? *a->text : otherwise;
}
std::vector<std::int64_t> NodeReader::integers(std::string_view attribute) const {
  const Attribute* a = find(attribute);
  return a != nullptr ? a->integers : std::vector<std::int64_t>{};
}
std::vector<double> NodeReader::reals(std::string_view attribute) const {
  const Attribute* a = find(attribute);
  return a != nullptr ? a->numbers : std::vector<double>{};
}

std::size_t NodeReader::axis(std::int64_t of, std::size_t rank) {
  const auto n = static_cast<std::int64_t>(rank);
  if (of < -n || of >= n)
    throw Unsupported{"axis " + std::to_string(of) + " is outside of rank " + std::to_string(n)};
  return static_cast<std::size_t>(of < 0 ? of + n : of);
}

std::vector<std::int64_t> NodeReader::permutation(std::size_t rank) const {
  std::vector<std::int64_t> order = integers("perm");
  if (order.empty())
    for (std::size_t d = rank; d-- > 0;) order.push_back(static_cast<std::int64_t>(d));
  std::vector<std::int64_t> sorted = order;
  std::ranges::sort(sorted);
  for (std::size_t d = 0; d < sorted.size(); ++d)
    if (sorted[d] != static_cast<std::int64_t>(d)) throw Unsupported{"perm is not a permutation"};
  if (order.size() != rank) throw Unsupported{"perm is of another rank"};
  return order;
}

std::vector<double> NodeReader::known_values(std::size_t i) const { return values_of(at(i)); }

std::vector<std::int64_t> NodeReader::known_integers(std::size_t i) const {
  std::vector<std::int64_t> out;
  for (const double d : known_values(i))
    out.push_back(d >= 0x1p62     ? std::int64_t{1} << 62
                  : d <= -0x1p62  ? -(std::int64_t{1} << 62)
                  : std::isnan(d) ? 0
                                  : static_cast<std::int64_t>(d));
  return out;
}

std::optional<std::vector<std::int64_t>> NodeReader::integers_of(std::string_view attribute,
                                                                 std::size_t input) const {
  if (has(input)) return known_integers(input);
  if (find(attribute) != nullptr) return integers(attribute);
  return std::nullopt;
}

std::vector<std::int64_t> NodeReader::parts_of(std::int64_t whole) const {
  const auto parts = static_cast<std::int64_t>(node.outputs.size());
  std::vector<std::int64_t> sizes;
  if (const auto given = integers_of("split", 1)) {
    sizes = *given;
  } else if (parts > 0) {
    sizes.assign(static_cast<std::size_t>(parts), (whole + parts - 1) / parts);
    sizes.back() = whole - sizes.front() * (parts - 1);
  }
  if (sizes.size() > node.outputs.size()) throw Unsupported{"as many outputs as parts"};
  std::int64_t left = whole;
  for (const std::int64_t n : sizes) {
    if (n < 0 || n > left) throw Unsupported{"parts that are not the whole"};
    left -= n;
  }
  if (left != 0) throw Unsupported{"parts that are not the whole"};
  return sizes;
}

}  // namespace tilewright::onnx
