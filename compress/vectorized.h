// SLUICE_VECTORIZED: marks a hot free function that is compiled for several x86-64 levels and
// picked at load time. The project's only macro: an attribute cannot be named in any other way. It
// is empty where the compiler or a sanitizer cannot do it; results are the same bits either way.
#pragma once

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SLUICE_VECTORIZED [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define SLUICE_VECTORIZED
#endif
