// Emitted text held against a file of the repository, line by line.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/places.h"

namespace tilewright::testing {

/// The kept text of tests/codegen/golden/NAME; TILEWRIGHT_REGENERATE=1 keeps the new one instead.
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = test::in_sources("tests/codegen/golden/" + name);
  if (std::getenv("TILEWRIGHT_REGENERATE") != nullptr) std::ofstream(path) << text;
  std::stringstream kept;
  kept << std::ifstream(path).rdbuf();
  std::istringstream now(text);
  std::string line, golden;
  for (int number = 1; std::getline(now, line); ++number)
    ASSERT_TRUE(std::getline(kept, golden) && line == golden)
        << "line " << number << " is\n  " << line << "\nand was\n  " << golden
        << "\nrun with TILEWRIGHT_REGENERATE=1 to accept the new text";
  EXPECT_FALSE(std::getline(kept, golden)) << "the text ends before\n  " << golden;
}

}  // namespace tilewright::testing
