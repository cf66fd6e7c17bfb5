# SPDX-License-Identifier: Apache-2.0
# sluice_add_torch(TARGET): lets a program train a LibTorch model with DataParallel ("worker/torch/data_parallel.h") through
# a client ("worker/rpc/remote_client.h") of a job ("job/file/job_file.h"). examples/own_loop.cc shows how.
# Compiles Sluice's sources for LibTorch once for all targets, with the LibTorch that find_package(Torch) has found, or else
# with the one in LIBTORCH_ROOT (cache or environment), which needs no CUDA toolkit.
get_filename_component(SLUICE_TORCH_SOURCES ${CMAKE_CURRENT_LIST_DIR}/../../../share/sluice/source ABSOLUTE)
set(SLUICE_TORCH_MODULES ${CMAKE_CURRENT_LIST_DIR})

function(sluice_add_torch target)
  if(NOT TARGET sluice_torch)
    if(TARGET torch)
      set(libtorch ${TORCH_LIBRARIES})
    else()
      list(PREPEND CMAKE_MODULE_PATH ${SLUICE_TORCH_MODULES})
      find_package(LibTorch REQUIRED MODULE)
      set(libtorch sluice::libtorch)
    endif()
    file(GLOB sources CONFIGURE_DEPENDS ${SLUICE_TORCH_SOURCES}/worker/torch/*.cc)
    add_library(sluice_torch STATIC ${sources})
    # Reading LibTorch's headers takes most of the time, so they are read once.
    set_target_properties(sluice_torch PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    target_include_directories(sluice_torch PUBLIC ${SLUICE_TORCH_SOURCES})
    target_link_libraries(sluice_torch PUBLIC Sluice::worker_rpc Sluice::job_file ${libtorch} PRIVATE OpenSSL::Crypto)
  endif()
  target_link_libraries(${target} PRIVATE sluice_torch)
endfunction()
