// What a verb answers: one JSON document, and whether it is a negative result.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace tilewright::harness {

/// `refused` is an outcome that is data: infeasible, illegal, not available, below what was asked.
/// Bad input is no outcome; it is thrown as an InputError.
enum class Status : std::uint8_t { done, refused };

/// The document always has "schema": 1; a refused one has "reason" (one line) as well.
struct Answer {
  nlohmann::ordered_json json;
  Status status = Status::done;
  bool ok() const { return status == Status::done; }
};

/// A document to fill.
inline nlohmann::ordered_json document() { return {{"schema", 1}}; }

/// Every entry of `from`, over what is there.
inline void merge(nlohmann::ordered_json& into, const nlohmann::ordered_json& from) {
  for (const auto& [key, value] : from.items()) into[key] = value;
}

/// The document with "reason" set, as a refusal.
inline Answer refuse(nlohmann::ordered_json json, std::string_view reason) {
  json["reason"] = std::string(reason);
  return {std::move(json), Status::refused};
}

/// What a key stands for: found in a file of what was finished before, or computed by the function and
/// kept there. Called from several threads.
using Once = std::function<nlohmann::ordered_json(
    const std::string& key, const std::function<nlohmann::ordered_json()>& compute)>;

/// Told now and then what a long verb is doing: what, and the fraction done in [0, 1]. May be called
/// from several threads, one at a time.
using Progress = std::function<void(std::string_view what, double done)>;

}  // namespace tilewright::harness
