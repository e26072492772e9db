# What every folder of the build shares: dependencies, warnings, and one way to declare a library.
include(GNUInstallDirs)

# ccache takes files that use precompiled headers only when it is told that their macros do not matter.
find_program(TILEWRIGHT_CCACHE ccache)
if(TILEWRIGHT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
    ${TILEWRIGHT_CCACHE})
endif()

# Failed checks name files from the top of the sources, so that objects are alike wherever the tree lies, and ccache
# gives one checkout what another has compiled.
add_compile_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)

# GCC collects garbage from 128 MiB on, which takes an eighth of a test's unit: each begins with the precompiled headers.
# From 512 MiB on few units do, and the largest takes half as much memory more, some 1.3 GiB.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=524288>)

# Eight sources at a time are compiled as one: parsing the same headers for each took two thirds of a build.
# Names in anonymous namespaces are therefore shared with neighbours. -DCMAKE_UNITY_BUILD=OFF compiles each alone.
if(NOT DEFINED CMAKE_UNITY_BUILD)
  set(CMAKE_UNITY_BUILD ON)
endif()

include(Dependencies)
find_package(CLI11 REQUIRED)

# GCC 12 reports std::string operations as overlapping copies (its bug 105651) and, from precompiled
# headers, as copies out of bounds.
set(TILEWRIGHT_WARNINGS -Wall -Wextra -Wpedantic -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow> $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overread>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)

# What runs once an invocation (parsers, printers, emitters, tables) and tests: compiling it takes a third
# less time at -O1, and running it is no slower that anyone could see. (Tests take as long to compile at -O0.)
set(TILEWRIGHT_COLD $<$<CONFIG:Release>:-O1>)
function(tilewright_cold name)
  target_compile_options(${name} PRIVATE ${TILEWRIGHT_COLD})
endfunction()

# tilewright_library(NAME [INTERNAL] sources... [LINK libraries...]): target tilewright_NAME, alias
# tilewright::NAME, included as "folder/file.h" from the top of the source tree. Installed and
# exported unless INTERNAL.
function(tilewright_library name)
  cmake_parse_arguments(ARG "INTERNAL" "" "LINK" ${ARGN})
  add_library(tilewright_${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  add_library(tilewright::${name} ALIAS tilewright_${name})
  target_include_directories(tilewright_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/tilewright>)
  target_link_libraries(tilewright_${name} PUBLIC ${ARG_LINK})
  target_compile_features(tilewright_${name} PUBLIC cxx_std_20)
  target_compile_options(tilewright_${name} PRIVATE ${TILEWRIGHT_WARNINGS})
  if(NOT ARG_INTERNAL)
    set_target_properties(tilewright_${name} PROPERTIES EXPORT_NAME ${name})
    install(TARGETS tilewright_${name} EXPORT tilewright ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endfunction()

# tilewright_test(NAME LABEL sources... [TOGETHER] [LINK libraries...]): one GoogleTest program; ctest lists its
# cases, with the label "unit", "golden" or "numeric". What tests include is parsed once for all of them.
# TOGETHER: its cases share what takes long to make, and are one process and one test of ctest.
include(GoogleTest)
set(TILEWRIGHT_TEST_HEADERS <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory> <optional> <set>
  <span> <string> <string_view> <utility> <vector> <nlohmann/json.hpp> <gtest/gtest.h> <gmock/gmock.h>)
set(TILEWRIGHT_PRECOMPILE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
function(tilewright_test name label)
  if(NOT TARGET tilewright_test_headers)
    # An executable, because its headers have to be compiled as those of executables are.
    file(WRITE ${CMAKE_BINARY_DIR}/precompiled.cpp "")
    add_executable(tilewright_test_headers EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled.cpp)
    target_link_libraries(tilewright_test_headers PRIVATE
      GTest::gtest GTest::gmock GTest::gtest_main nlohmann_json::nlohmann_json)
    target_precompile_headers(tilewright_test_headers PRIVATE ${TILEWRIGHT_TEST_HEADERS})
    target_compile_options(tilewright_test_headers PRIVATE ${TILEWRIGHT_WARNINGS} ${TILEWRIGHT_COLD}
      ${TILEWRIGHT_PRECOMPILE})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/places.cpp CONTENT "#include \"tests/support/places.h\"
const char tilewright::test::kSourceFolder[] = \"${PROJECT_SOURCE_DIR}\";
const char tilewright::test::kBuildFolder[] = \"${PROJECT_BINARY_DIR}\";
")
    add_library(tilewright_test_places STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/places.cpp)
    target_include_directories(tilewright_test_places PRIVATE ${PROJECT_SOURCE_DIR})
  endif()
  cmake_parse_arguments(ARG "TOGETHER" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} tilewright_test_places
    GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${TILEWRIGHT_WARNINGS} ${TILEWRIGHT_COLD}
    ${TILEWRIGHT_PRECOMPILE})
  target_precompile_headers(${name} REUSE_FROM tilewright_test_headers)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  # Those that compile kernels take longest, and begin first: the cores end together.
  set(cost 0)
  if(NOT label STREQUAL unit)
    set(cost 1)
  endif()
  if(ARG_TOGETHER)
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES LABELS ${label} COST ${cost})
    return()
  endif()
  gtest_discover_tests(${name} PROPERTIES LABELS ${label} COST ${cost} DISCOVERY_TIMEOUT 60
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
endfunction()
