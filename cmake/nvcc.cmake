# SPDX-License-Identifier: Apache-2.0
# CUDA programs, with SLUICE_CUDA. sluice_cuda_program(NAME SOURCE main.cu) builds ${build}/bin/NAME from one source
# and its headers. sluice_cuda_object(OUT SOURCE file.cu) builds an object file and sets OUT to its path.
# sluice_cuda_check(NAME SOURCE file.cu SCRIPT file.py) is a target that runs a script on the source's PTX code. nvcc runs as
# a custom command, because CMake 3.25's CUDA support does not know that CUDA 13 supports C++20. Reads CUDA_ROOT
# (cache or environment). The default is the copy that scripts/setup.sh --nvcc unpacks into .deps/.

set(SLUICE_CUDA_ARCHITECTURES 90 CACHE STRING "GPUs to compile for, by compute capability: 80;90;100 are all that is tried")
if(NOT CUDA_ROOT)
  if(DEFINED ENV{CUDA_ROOT})
    set(CUDA_ROOT $ENV{CUDA_ROOT})
  else()
    set(CUDA_ROOT ${PROJECT_SOURCE_DIR}/.deps/cuda)
  endif()
endif()
find_program(SLUICE_NVCC nvcc PATHS ${CUDA_ROOT}/bin NO_DEFAULT_PATH)
if(NOT SLUICE_NVCC)
  message(FATAL_ERROR "no nvcc in ${CUDA_ROOT}/bin: run scripts/setup.sh --nvcc, or set CUDA_ROOT to a CUDA toolkit")
endif()

# Bytes must equal the processor's, so multiplications and additions are not fused (scripts/test-gpu.sh has the same
# list).
set(SLUICE_NVCC_FLAGS -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr)
if(SLUICE_WERROR)
  list(APPEND SLUICE_NVCC_FLAGS -Werror all-warnings -Xcompiler=-Wall,-Wextra,-Werror)
  # Kernels keep everything in registers. For 10.0, CUDA 13's assembler spills a few bytes in three kernels that are
  # not hot.
  if(NOT 100 IN_LIST SLUICE_CUDA_ARCHITECTURES)
    list(APPEND SLUICE_NVCC_FLAGS -Xptxas=--warn-on-local-memory-usage,--warn-on-spills,-Werror)
  endif()
endif()
foreach(architecture ${SLUICE_CUDA_ARCHITECTURES})
  list(APPEND SLUICE_NVCC_FLAGS -gencode=arch=compute_${architecture},code=sm_${architecture})
endforeach()

function(sluice_cuda_program name)
  cmake_parse_arguments(ARG "" "SOURCE" "" ${ARGN})
  set(program ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${name})
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SOURCE})
  file(MAKE_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  add_custom_command(OUTPUT ${program}
    COMMAND ${SLUICE_NVCC} ${SLUICE_NVCC_FLAGS} -I ${PROJECT_SOURCE_DIR} -L ${CUDA_ROOT}/lib -L ${CUDA_ROOT}/lib64
      -MD -MF ${CMAKE_CURRENT_BINARY_DIR}/${name}.d -o ${program} ${source}
    MAIN_DEPENDENCY ${source}
    DEPFILE ${CMAKE_CURRENT_BINARY_DIR}/${name}.d
    COMMENT "Building CUDA program ${name}"
    VERBATIM)
  add_custom_target(${name} ALL DEPENDS ${program})
endfunction()

function(sluice_cuda_object out)
  cmake_parse_arguments(ARG "" "SOURCE" "" ${ARGN})
  get_filename_component(name ${ARG_SOURCE} NAME_WE)
  set(source ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SOURCE})
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${SLUICE_NVCC} ${SLUICE_NVCC_FLAGS} -I ${PROJECT_SOURCE_DIR} -MD -MF ${object}.d -Xcompiler=-fPIC -c -o ${object} ${source}
    MAIN_DEPENDENCY ${source}
    DEPFILE ${object}.d
    COMMENT "Building CUDA object ${name}"
    VERBATIM)
  set(${out} ${object} PARENT_SCOPE)
endfunction()

function(sluice_cuda_check name)
  cmake_parse_arguments(ARG "" "SOURCE;SCRIPT" "" ${ARGN})
  set(ptx ${CMAKE_CURRENT_BINARY_DIR}/${name}.ptx)
  list(GET SLUICE_CUDA_ARCHITECTURES 0 architecture)
  add_custom_target(${name}
    COMMAND ${SLUICE_NVCC} -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -arch=compute_${architecture} -I ${PROJECT_SOURCE_DIR}
      -ptx -o ${ptx} ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SOURCE}
    COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SCRIPT} ${ptx}
    COMMENT "Checking device code"
    VERBATIM)
endfunction()
