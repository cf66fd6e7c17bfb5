# Imported targets for an unpacked LibTorch: sluice::libtorch (torch_cpu + c10).
# LibTorch's own CMake files want the whole CUDA toolkit, and putting its root on CMAKE_PREFIX_PATH would let
# FindProtobuf pick up the old protobuf headers bundled with it; hence this module.
# Reads LIBTORCH_ROOT (cache or environment); default: the copy that scripts/setup.sh unpacks into .deps/.

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
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LIBTORCH_INCLUDE LIBTORCH_CPU LIBTORCH_C10
  REASON_FAILURE_MESSAGE "no LibTorch below ${LIBTORCH_ROOT}: run scripts/setup.sh, or set LIBTORCH_ROOT, or build with -DSLUICE_TORCH=OFF")

if(LibTorch_FOUND AND NOT TARGET sluice::libtorch)
  add_library(sluice_libtorch INTERFACE)
  add_library(sluice::libtorch ALIAS sluice_libtorch)
  target_include_directories(sluice_libtorch SYSTEM INTERFACE
    ${LIBTORCH_ROOT}/include ${LIBTORCH_INCLUDE})
  target_link_libraries(sluice_libtorch INTERFACE ${LIBTORCH_CPU} ${LIBTORCH_C10} Threads::Threads)
  # cudart and cupti are looked up beside torch_cpu at run time, not by us at link time.
  target_link_options(sluice_libtorch INTERFACE
    -Wl,-rpath,${LIBTORCH_ROOT}/lib -Wl,--allow-shlib-undefined)
endif()
