# SPDX-License-Identifier: Apache-2.0
# Imported targets for an unpacked LibTorch: sluice::libtorch (torch_cpu and c10; with SLUICE_CUDA also torch_cuda and
# c10_cuda).
# This module exists because LibTorch's own CMake files require the whole CUDA toolkit, and with LibTorch's root on
# CMAKE_PREFIX_PATH FindProtobuf would find the old protobuf headers bundled with it.
# Reads LIBTORCH_ROOT (cache or environment). In a build of Sluice, the default is the copy that scripts/setup.sh unpacks
# into .deps/. An installed Sluice has this module too, for sluice_add_torch.

if(NOT LIBTORCH_ROOT)
  if(DEFINED ENV{LIBTORCH_ROOT})
    set(LIBTORCH_ROOT $ENV{LIBTORCH_ROOT})
  else()
    set(LIBTORCH_ROOT ${SLUICE_DEFAULT_LIBTORCH_ROOT})
  endif()
endif()
# With SLUICE_STATIC, CMake looks for static libraries, but LibTorch has none.
set(saved_suffixes ${CMAKE_FIND_LIBRARY_SUFFIXES})
set(CMAKE_FIND_LIBRARY_SUFFIXES .so)
find_path(LIBTORCH_INCLUDE torch/torch.h
  PATHS ${LIBTORCH_ROOT}/include/torch/csrc/api/include NO_DEFAULT_PATH)
find_library(LIBTORCH_CPU torch_cpu PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
find_library(LIBTORCH_C10 c10 PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
set(libraries LIBTORCH_CPU LIBTORCH_C10)
set(remedy "set LIBTORCH_ROOT to an unpacked LibTorch")
if(SLUICE_DEFAULT_LIBTORCH_ROOT)
  set(remedy "run scripts/setup.sh, or set LIBTORCH_ROOT, or build with -DSLUICE_TORCH=OFF")
endif()
if(SLUICE_CUDA)
  find_library(LIBTORCH_CUDA torch_cuda PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
  find_library(LIBTORCH_C10_CUDA c10_cuda PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
  list(APPEND libraries LIBTORCH_CUDA LIBTORCH_C10_CUDA)
  set(remedy "run scripts/setup.sh --cuda, or set LIBTORCH_ROOT, or build with -DSLUICE_TORCH=OFF")
endif()
set(CMAKE_FIND_LIBRARY_SUFFIXES ${saved_suffixes})
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LIBTORCH_INCLUDE ${libraries}
  REASON_FAILURE_MESSAGE "not all of LibTorch is below '${LIBTORCH_ROOT}': ${remedy}")

if(LibTorch_FOUND AND NOT TARGET sluice::libtorch)
  add_library(sluice_libtorch INTERFACE)
  add_library(sluice::libtorch ALIAS sluice_libtorch)
  target_include_directories(sluice_libtorch SYSTEM INTERFACE
    ${LIBTORCH_ROOT}/include ${LIBTORCH_INCLUDE})
  target_link_libraries(sluice_libtorch INTERFACE ${LIBTORCH_CPU} ${LIBTORCH_C10} Threads::Threads)
  if(SLUICE_CUDA)
    # Our code uses none of their symbols. LibTorch finds its GPU backend because they are loaded.
    target_link_libraries(sluice_libtorch INTERFACE
      -Wl,--push-state,--no-as-needed ${LIBTORCH_CUDA} ${LIBTORCH_C10_CUDA} -Wl,--pop-state)
  endif()
  # torch_cpu finds cudart and cupti beside itself at run time. They are not needed at link time.
  target_link_options(sluice_libtorch INTERFACE -Wl,--allow-shlib-undefined)
endif()
