# SPDX-License-Identifier: Apache-2.0
# Functions that make Sluice's targets: one library per layer, one test program per tested layer.

set(CMAKE_THREAD_PREFER_PTHREAD ON)
find_package(Threads REQUIRED)

# Flags for our own code only. Generated code and third-party headers do not get our warnings.
add_library(sluice_flags INTERFACE)
target_compile_options(sluice_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
  $<$<BOOL:${SLUICE_WERROR}>:-Werror>
  # Results must not depend on whether the compiler fuses multiplications and additions.
  -ffp-contract=off)
target_compile_options(sluice_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
# In a unity build, GCC treats an included source as a header.
if(SLUICE_UNITY)
  target_compile_options(sluice_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
if(SLUICE_SANITIZE)
  add_compile_options(-fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
  # GCC 12 warns about uninitialized values in instrumented std::variant and std::optional without cause.
  target_compile_options(sluice_flags INTERFACE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
# Makes a memory error of a shipped program harder to exploit. tests/packaging/hardening.py checks the programs.
if(SLUICE_HARDEN AND NOT SLUICE_SANITIZE AND CMAKE_BUILD_TYPE STREQUAL "Release")
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  add_compile_options(-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    add_compile_options(-fcf-protection=full)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    add_compile_options(-mbranch-protection=standard)
  endif()
  add_link_options(LINKER:-z,relro,-z,now,-z,noexecstack)
  include(CheckPIESupported)
  check_pie_supported(LANGUAGES CXX)
endif()
if(SLUICE_FUZZ)
  # Instruments all of our code for the fuzzer's coverage, not only the fuzzer's own files.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Most of a build is reading headers. SLUICE_UNITY compiles several sources of a target together: that halves a build
# from nothing but makes a rebuild after a change slower.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 6)
function(sluice_unity target)
  if(SLUICE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
  endif()
endfunction()

# Marks sources without LibTorch in a layer that has it: they do not use its precompiled headers and are not compiled
# together with the other sources.
function(sluice_sources_without_libtorch)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# sluice_library(NAME HEADERS a.h SOURCES a.cc PUBLIC deps PRIVATE deps)
# PUBLIC: dependencies of our headers. PRIVATE: dependencies of the .cc files only.
function(sluice_library name)
  cmake_parse_arguments(ARG "" "" "HEADERS;SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(sluice_${name} STATIC)
  add_library(sluice::${name} ALIAS sluice_${name})
  target_sources(sluice_${name}
    PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS}
    PRIVATE ${ARG_SOURCES})
  target_include_directories(sluice_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  # Other projects that link an installed library have flags of their own.
  target_link_libraries(sluice_${name} PUBLIC ${ARG_PUBLIC} PRIVATE $<BUILD_INTERFACE:sluice_flags> ${ARG_PRIVATE})
  sluice_unity(sluice_${name})
endfunction()

# sluice_program(NAME SOURCES main.cc LINK deps [WITH_LIBTORCH]): a program in ${build}/bin.
function(sluice_program name)
  cmake_parse_arguments(ARG "WITH_LIBTORCH" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags ${ARG_LINK})
  # A shared library exchanges strings and exceptions with its program, so LibTorch and its program share one libstdc++.
  if(SLUICE_STATIC AND NOT ARG_WITH_LIBTORCH)
    # libgcc stays shared: the static one needs glibc 2.35, and every system has the other.
    target_link_options(${name} PRIVATE -static-libstdc++)
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/base/arc4random.cc)
  endif()
endfunction()

# Under a sanitizer, averages and long runs find nothing more. Tests with many of them take this as a definition
# (tests/compress/short_runs.h).
if(SLUICE_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(SLUICE_SHORT_RUNS true)
else()
  set(SLUICE_SHORT_RUNS false)
endif()

# Headers that nearly every test includes, compiled once (tests/CMakeLists.txt). Tests are barely optimized, because
# most of their time is compile time. -pthread also defines a macro, and precompiled headers require equal macros.
set(SLUICE_TEST_OPTIONS $<$<CONFIG:Release>:-O1> -pthread)
# Bugs are in the libraries, and instrumenting GoogleTest's expectations quadruples compile time. The thread sanitizer
# is an exception: it must see both sides.
if(SLUICE_SANITIZE MATCHES "address")
  list(APPEND SLUICE_TEST_OPTIONS -O0 -fno-sanitize=all)
endif()

# sluice_test_headers_library(SOURCE): the target sluice_test_headers with those headers.
function(sluice_test_headers_library source)
  add_library(sluice_test_headers OBJECT ${source})
  target_link_libraries(sluice_test_headers PRIVATE sluice_flags GTest::gmock GTest::gtest absl::statusor absl::strings)
  target_compile_options(sluice_test_headers PRIVATE ${SLUICE_TEST_OPTIONS})
  target_precompile_headers(sluice_test_headers PRIVATE
    <gmock/gmock.h> <gtest/gtest.h> <absl/status/statusor.h> <absl/strings/str_cat.h>)
endfunction()

# ctest runs one test per core, and LibTorch would start one thread per core in each. Two tests that share cores would
# then mostly wait for each other's threads. Programs without LibTorch do not read this variable.
set(SLUICE_TEST_ENVIRONMENT OMP_NUM_THREADS=1)

# For tests that do less under a sanitizer. The compilers' own macros do not serve, because tests are not always
# instrumented when the code under test is.
set(SLUICE_SANITIZER_DEFINES)
if(SLUICE_SANITIZE)
  list(APPEND SLUICE_SANITIZER_DEFINES SLUICE_SANITIZED)
endif()
if(SLUICE_SANITIZE MATCHES "thread")
  list(APPEND SLUICE_SANITIZER_DEFINES SLUICE_THREAD_SANITIZED)
endif()

# Lets a program reuse the precompiled headers of a library: both need the same kind of position-independent code.
# CMake gives -fPIC to libraries and -fPIE to programs.
function(sluice_use_library_code_model target)
  if(CMAKE_POSITION_INDEPENDENT_CODE)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

# sluice_test(NAME SOURCES a_test.cc LINK deps [DEFINES NAME=value...] [LABELS l] [TIMEOUT s] [SHARDS n] [PRECOMPILED
# t] [OPTIMIZED] [SINGLE_THREADED]): one GoogleTest program and one ctest entry, or `n` entries with a part of the
# tests each.
# PRECOMPILED: the target whose precompiled headers it uses. OPTIMIZED: optimized like the libraries, for tests that
# compute much themselves. SINGLE_THREADED: neither the test nor the tested code has threads, so the thread
# sanitizer's build leaves it out.
function(sluice_test name)
  cmake_parse_arguments(ARG "OPTIMIZED;SINGLE_THREADED" "TIMEOUT;SHARDS;PRECOMPILED" "SOURCES;LINK;DEFINES;LABELS" ${ARGN})
  if(ARG_SINGLE_THREADED AND SLUICE_SANITIZE MATCHES "thread")
    message(STATUS "Test ${name}: left out, it has no threads to look at")
    return()
  endif()
  # The timeout ends hanging tests, on a machine that also does other things. It does not measure anything.
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(SLUICE_SANITIZE AND ARG_TIMEOUT LESS 900)
    set(ARG_TIMEOUT 900)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sluice_flags ${ARG_LINK} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE ${ARG_DEFINES} ${SLUICE_SANITIZER_DEFINES})
  sluice_unity(${name})
  sluice_use_library_code_model(${name})
  # Precompiled headers fit only targets with the same optimization.
  if(ARG_PRECOMPILED)
    target_precompile_headers(${name} REUSE_FROM ${ARG_PRECOMPILED})
  elseif(NOT ARG_OPTIMIZED)
    target_compile_options(${name} PRIVATE ${SLUICE_TEST_OPTIONS})
    target_precompile_headers(${name} REUSE_FROM sluice_test_headers)
  endif()
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(entry ${name})
    if(ARG_SHARDS GREATER 1)
      set(entry ${name}_${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${entry} COMMAND ${name})
    set_tests_properties(${entry} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
      ENVIRONMENT "${SLUICE_TEST_ENVIRONMENT};GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

# sluice_debian_python_test(NAME MODULE torch PACKAGE python3-torch COMMAND script args [TIMEOUT s]): a test run by
# Debian's Python and not by the first one in PATH, which may belong to a virtual environment. Left out, with a
# message, if that Python lacks the module.
function(sluice_debian_python_test name)
  cmake_parse_arguments(ARG "" "MODULE;PACKAGE;TIMEOUT" "COMMAND" ${ARGN})
  execute_process(COMMAND /usr/bin/python3 -c "import ${ARG_MODULE}; print(${ARG_MODULE}.__version__)"
    RESULT_VARIABLE missing OUTPUT_VARIABLE version ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT missing STREQUAL "0")
    message(STATUS "Test ${name}: left out, /usr/bin/python3 cannot import ${ARG_MODULE} (Debian: ${ARG_PACKAGE})")
    return()
  endif()
  message(STATUS "Test ${name}: with ${ARG_MODULE} ${version} of /usr/bin/python3")
  add_test(NAME ${name} COMMAND /usr/bin/python3 ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT "${SLUICE_TEST_ENVIRONMENT}")
endfunction()
