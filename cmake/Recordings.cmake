# TILEWRIGHT_RECORDINGS: the recordings that experiments read, which an installation takes along.
# Those that only pages, tests and prices refer to stay in the repository.
file(GLOB experiments CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/experiments/*/*.yaml)
set(TILEWRIGHT_RECORDINGS)
foreach(experiment ${experiments})
  file(STRINGS ${experiment} lines REGEX "\\.json")
  string(REGEX MATCHALL "[a-z0-9-]+\\.json" names "${lines}")
  foreach(name ${names})
    if(EXISTS ${PROJECT_SOURCE_DIR}/experiments/results/${name})
      list(APPEND TILEWRIGHT_RECORDINGS ${PROJECT_SOURCE_DIR}/experiments/results/${name})
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES TILEWRIGHT_RECORDINGS)
