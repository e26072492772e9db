// Documents and numbers as text for people: columns, lines, cells.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tilewright::shown {

/// Rows of cells, each column as wide as its widest cell; numbers to the right. A row that is wider
/// than kColumns goes on below, indented.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  /// `fold`: the last column is a text that goes on where it begins, or below where little room is.
  std::string text(bool fold = false) const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

inline constexpr std::size_t kColumns = 100;  ///< of a line of text for people

/// A text in lines of at most kColumns, of which the first begins behind `used` columns; those that
/// go on are indented.
std::string folded(const std::string& text, std::size_t indent = 2, std::size_t used = 0);
/// 1234567 -> "1,234,567"
std::string grouped(std::int64_t n);
/// 1572864 -> "1.50 MiB"
std::string human_bytes(std::int64_t n);
/// Seconds as microseconds, "-" where the value is not a number.
std::string microseconds(const nlohmann::ordered_json& seconds, int digits = 2);
/// Seconds as "12.3 us", "4.56 ms" or "7.89 s"; "-" where the value is not a number.
std::string seconds(const nlohmann::ordered_json& value);
/// Strings bare, whole numbers grouped, reals with four digits, lists joined, null as "-".
std::string cell(const nlohmann::ordered_json& value);
/// The value, or null where the document has none (a refusal's lacks most keys); and its cell.
const nlohmann::ordered_json& get(const nlohmann::ordered_json& j, const char* key);
std::string text(const nlohmann::ordered_json& j, const char* key);
/// {"m":64,"l":32} -> "m=64 l=32"
std::string pairs(const nlohmann::ordered_json& object);
/// ["sum", "norm"] -> "sum norm"
std::string joined(const nlohmann::ordered_json& names);
/// A number of bytes, from 1 KiB on in a larger unit, too; "-" where the value is none.
std::string bytes(const nlohmann::ordered_json& value);
/// 0.123 -> "12.30 %", and with so many digits; "-" where the value is not a number.
std::string percent(const nlohmann::ordered_json& value);
std::string fixed(const nlohmann::ordered_json& value, int digits);

/// "gemm-chain on h100 by exact", of a document that has its workload, machine and model: a line.
std::string heading(const nlohmann::ordered_json& j);

/// "name   value" lines, of values that are there.
class Lines {
 public:
  void add(const std::string& name, const std::string& value);
  const std::string& str() const { return out_; }

 private:
  std::string out_;
};

}  // namespace tilewright::shown
