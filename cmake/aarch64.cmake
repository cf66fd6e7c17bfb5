# SPDX-License-Identifier: Apache-2.0
# Debian's cross compiler with the libraries of .deps/arm64 (scripts/arm64.sh), and QEMU to run tests.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
get_filename_component(sluice_deps ${CMAKE_CURRENT_LIST_DIR}/../.deps ABSOLUTE)
set(CMAKE_SYSROOT ${sluice_deps}/arm64 CACHE PATH "Debian's packages for ARM")  # tools/make_sbom.py reads it.
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# The libraries of the release come first. Those of Debian that have the same names are for programs alone: a module of theirs takes
# static thread-local memory, of which a process has too little.
set(CMAKE_FIND_ROOT_PATH ${sluice_deps}/grpc-aarch64 ${CMAKE_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static;-L;${CMAKE_SYSROOT})
