// What a command answers with --json.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/command.h"

namespace tilewright::test {

using Arguments = std::vector<std::string>;

/// A small chain of products.
inline constexpr const char* kChain = "gemm-chain:m=10,n=6,k=7,l=9";

/// The document of a command that ends with this status.
inline nlohmann::json document(Arguments arguments, int status = 0) {
  arguments.emplace_back("--json");
  const Outcome o = tilewright_command(arguments);
  std::string line;
  for (const std::string& a : arguments) line += a + " ";
  EXPECT_EQ(o.status, status) << line << "\n" << o.err;
  EXPECT_EQ(o.lines_of_err(), status == 0 ? 0 : 1) << o.err;
  nlohmann::json j = nlohmann::json::parse(o.out, nullptr, false);
  EXPECT_FALSE(j.is_discarded()) << line << "\n" << o.out;
  if (j.is_discarded()) return nlohmann::json::object();
  EXPECT_EQ(j.value("schema", 0), 1) << line;
  return j;
}

inline void expect_keys(const nlohmann::json& j, std::initializer_list<const char*> keys) {
  for (const char* key : keys) EXPECT_TRUE(j.contains(key)) << key << " in " << j.dump();
}

}  // namespace tilewright::test
