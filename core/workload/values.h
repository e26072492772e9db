// Where an input's values come from, where they are known instead of drawn.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

/// Elements of a file, row-major, little-endian, from a byte on; or a list; or drawn by seed as
/// those of other inputs are, but the same in every run (weights that no file has).
struct Values {
  std::string file = {};    ///< empty: `list`
  std::int64_t offset = 0;  ///< bytes
  std::string type = {};    ///< of an element in the file: one of value_types()
  std::vector<double> list = {};
  bool drawn() const { return file.empty() && list.empty(); }
  friend bool operator==(const Values&, const Values&) = default;
};

/// Values that copies of a tensor share. Equal where what they say is equal.
class SharedValues {
 public:
  SharedValues() = default;
  explicit SharedValues(Values v) : values_(std::make_shared<const Values>(std::move(v))) {}
  explicit operator bool() const { return values_ != nullptr; }
  const Values& operator*() const { return *values_; }
  const Values* operator->() const { return values_.get(); }
  friend bool operator==(const SharedValues& a, const SharedValues& b) {
    return a.values_ == b.values_ || (a && b && *a == *b);
  }

 private:
  std::shared_ptr<const Values> values_;
};

/// f16, bf16, f32, f64, i8, u8, i16, u16, i32, u32, i64, u64, bool; u4 and i4: two a byte, the
/// lower half first.
const std::vector<std::string>& value_types();
bool is_value_type(std::string_view type);
/// How many whole elements so many bytes have.
std::uint64_t values_in(std::string_view type, std::uint64_t bytes);
/// The bytes of so many elements, less than 2^61.
std::uint64_t bytes_of(std::string_view type, std::uint64_t count);
/// The element that begins at `bytes`.
double value_at(std::string_view type, const char* bytes);
/// A whole run of them.
std::vector<double> values_at(std::string_view type, const char* bytes, std::size_t count);

/// The first `count` values. The file is mapped, not read whole. Throws InputError where it cannot
/// be read or ends before, or the list is not as long. Not for drawn ones.
std::vector<double> read_values(const Values& values, std::size_t count, std::string_view field);

/// "f32 at 4096 of model.onnx" or "drawn", and back. Throws InputError.
std::string to_text(const Values& values);
Values parse_values(std::string_view text, std::string_view where, std::string_view field);

}  // namespace tilewright
