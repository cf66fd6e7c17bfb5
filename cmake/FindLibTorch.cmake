# Imported targets for an unpacked LibTorch: sluice::libtorch (torch_cpu and c10; with SLUICE_CUDA also torch_cuda and
# c10_cuda).
# This module exists because LibTorch's own CMake files require the whole CUDA toolkit, and with LibTorch's root on
# CMAKE_PREFIX_PATH FindProtobuf would find the old protobuf headers bundled with it.
# Reads LIBTORCH_ROOT (cache or environment). The default is the copy that scripts/setup.sh unpacks into .deps/.

if(NOT LIBTORCH_ROOT)
  if(DEFINED ENV{LIBTORCH_ROOT})
    set(LIBTORCH_ROOT $ENV{LIBTORCH_ROOT})
  else()
    set(LIBTORCH_ROOT ${PROJECT_SOURCE_DIR}/.deps/libtorch)
  endif()
endif()
find_path(LIBTORCH_INCLUDE torch/torch.h
  PATHS ${LIBTORCH_ROOT}/include/torch/csrc/api/include NO_DEFAULT_PATH)
find_library(LIBTORCH_CPU torch_cpu PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
find_library(LIBTORCH_C10 c10 PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
set(libraries LIBTORCH_CPU LIBTORCH_C10)
set(setup "scripts/setup.sh")
if(SLUICE_CUDA)
  find_library(LIBTORCH_CUDA torch_cuda PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
  find_library(LIBTORCH_C10_CUDA c10_cuda PATHS ${LIBTORCH_ROOT}/lib NO_DEFAULT_PATH)
  list(APPEND libraries LIBTORCH_CUDA LIBTORCH_C10_CUDA)
  set(setup "scripts/setup.sh --cuda")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LIBTORCH_INCLUDE ${libraries}
  REASON_FAILURE_MESSAGE "not all of LibTorch is below ${LIBTORCH_ROOT}: run ${setup}, or set LIBTORCH_ROOT, or build with -DSLUICE_TORCH=OFF")

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
