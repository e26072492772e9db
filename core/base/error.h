// Errors of three kinds: a broken invariant of ours (TW_CHECK), bad input (InputError), and an
// outcome that is data (Result).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tilewright {

/// Bad input from a user. what() is one line: "WHERE: FIELD: VALUE is not accepted; accepted: ...",
/// and one for each of `lines`.
class InputError : public std::runtime_error {
 public:
  struct Parts {
    std::string where = {};     ///< file, file:line, "--option" or empty
    std::string field = {};     ///< the key, loop, tensor, operator or option at fault
    std::string value = {};     ///< what was given
    std::string problem = {};   ///< what is wrong with it
    std::string accepted = {};  ///< what would have been accepted
    std::vector<std::string> lines = {};  ///< where several things are at fault, each of them
  };
  explicit InputError(Parts parts);
  const Parts& parts() const { return parts_; }
  /// The same error with `where` filled in if it was empty.
  InputError located(std::string_view where) const;

 private:
  Parts parts_;
};

/// Why an outcome that is data did not come about: a plan that is illegal or does not fit, a counter
/// that is not available.
struct Reason {
  /// What must lie in a memory at the same time, and what that memory has; bytes.
  struct Shortage {
    std::int64_t needed = 0, room = 0;
    friend bool operator==(const Shortage&, const Shortage&) = default;
  };
  std::string text;
  std::optional<Shortage> shortage = {};  ///< where it is for want of room: less would be taken
  friend bool operator==(const Reason&, const Reason&) = default;
};

/// A value or the reason for its absence. Never thrown.
template <class T>
class Result {
 public:
  Result(T value) : state_(std::move(value)) {}              // NOLINT: implicit by design
  Result(Reason reason) : state_(std::move(reason)) {}       // NOLINT: implicit by design
  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  const T& value() const& { return std::get<T>(state_); }
  T& value() & { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  const T& operator*() const& { return value(); }
  const T* operator->() const { return &value(); }
  const std::string& reason() const { return std::get<Reason>(state_).text; }
  const Reason& why() const { return std::get<Reason>(state_); }

 private:
  std::variant<T, Reason> state_;
};

/// The candidate nearest to `given` by edit distance, or "" when none is near enough to suggest.
std::string nearest(std::string_view given, std::span<const std::string> candidates);
/// "a, b, c"
std::string join(std::span<const std::string> items, std::string_view separator = ", ");
/// True for [A-Za-z_][A-Za-z0-9_]*, at most 64 characters. What is emitted of it has more letters.
bool is_identifier(std::string_view text);

[[noreturn]] void check_failed(const char* expression, const char* file, int line,
                               const std::string& message);

}  // namespace tilewright

/// A broken invariant of ours. Never reachable from input.
#define TW_CHECK(condition, message)                                                       \
  do {                                                                                     \
    if (!(condition)) ::tilewright::check_failed(#condition, __FILE__, __LINE__, message); \
  } while (false)
