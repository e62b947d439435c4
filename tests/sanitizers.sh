#!/usr/bin/env bash
# Runs tests under the address sanitizer, the thread sanitizer and Miri. A tool that is not installed is skipped, with a
# line that says why. README.md beside this file says what is run, and what is left out.
#
#     bash tests/sanitizers.sh [address] [thread] [miri]
set -euo pipefail
cd "$(dirname "$0")/.."

readonly target=x86_64-unknown-linux-gnu
readonly sources=lib/rustlib/src/rust/library/Cargo.lock

export CARGO_INCREMENTAL=0
# Checks take several times as long.
export DEVICE_CONFORMANCE_TIME_LIMIT=${DEVICE_CONFORMANCE_TIME_LIMIT:-120}

step() { printf '\n--- %s (after %s s)\n' "$*" "$SECONDS"; }
skipped() { printf 'skipped: %s: %s\n' "$1" "$2"; }

# Prints the file of a sanitizer's runtime, if the nightly toolchain has it.
runtime() {
    local folder
    folder=$(rustup run nightly rustc --print target-libdir --target "$target" 2>/dev/null) || return
    ls "$folder/librustc-nightly_rt.$1.a" 2>/dev/null
}

# Runs the unit tests of the core, its tests of races, and those on a fake driver. The arguments go to the tests.
core() {
    cargo "${cargo_args[@]}" test "${build_args[@]}" -p device-registry --lib --test races \
        --test fake_driver -- "$@"
}

# Runs the conformance suite on the backends in C, which alone are instrumented, by gcc: `c_backend SANITIZER LIBRARY`. It
# needs no nightly toolchain.
c_backend() {
    local -x CFLAGS="-g -fsanitize=$1" DEVICE_PLUGIN_TESTS_PRELOAD
    DEVICE_PLUGIN_TESTS_PRELOAD=$(cc -print-file-name="$2")
    # The name comes back as it is if there is no such file.
    if [ ! -f "$DEVICE_PLUGIN_TESTS_PRELOAD" ]; then
        skipped "$1 sanitizer in C" "cc has no $2"
        return
    fi
    step "$1 sanitizer: the backends in C"
    cargo test --quiet -p device-plugin-tests --test c_backend -- --quiet :1::
}

# Runs the tests of all backends on cpu, openreg and opencl. The arguments go to the conformance suite. The second of
# openreg's devices, which are equal, is left out there.
backends() {
    local run=(cargo "${cargo_args[@]}" run "${build_args[@]}" -p device-registry-sanitizers)
    "${run[@]}" --bin conformance -- --quiet --skip openreg:1:: "$@"
    "${run[@]}" --bin across_backends -- --quiet
}

address() {
    # Tests allocate more memory than there is, and expect an error. What the program leaks on purpose is not the backend's.
    ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0:quarantine_size_mb=16 c_backend address libasan.so
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 c_backend undefined libubsan.so
    if ! runtime asan >/dev/null; then
        skipped 'address sanitizer' 'no nightly toolchain: `rustup toolchain install nightly`'
        return
    fi
    # With `--target`, the flags leave out build scripts and macros.
    local cargo_args=(+nightly) build_args=(--quiet --target "$target")
    local -x CARGO_TARGET_DIR=target/sanitizers/address RUSTFLAGS=-Zsanitizer=address
    # Tests allocate more memory than there is, and expect an error.
    local -x ASAN_OPTIONS=allocator_may_return_null=1
    # The compiler of PoCL sets a signal stack of its own on the threads that it runs on, which the sanitizer would unmap.
    ASAN_OPTIONS+=:use_sigaltstack=0
    # Freed memory is kept for a while. With the default of 256 MiB, checks of growing memory measure that.
    ASAN_OPTIONS+=:quarantine_size_mb=16

    step 'address sanitizer: the core'
    # Unit tests leak values on purpose, to have them for `'static`.
    ASAN_OPTIONS+=:detect_leaks=0 core
    step 'address and leak sanitizer: cpu, openreg, opencl'
    local -x LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0
    backends
    step 'address and leak sanitizer: the loader, with the backends in C'
    cargo "${cargo_args[@]}" run "${build_args[@]}" -p device-registry-sanitizers --bin c_backend -- --quiet :1::
    step 'address sanitizer: hostile backends and kernels in safe code'
    # Devices that they open and drop are never destroyed.
    ASAN_OPTIONS+=:detect_leaks=0 cargo "${cargo_args[@]}" test "${build_args[@]}" \
        --manifest-path kernels/Cargo.toml -p device-kernels-hostile --test hostile -- --quiet
}

thread() {
    # The sanitizer does not see the locks of the program, but those of the backends order all of their accesses.
    TSAN_OPTIONS=allocator_may_return_null=1:ignore_noninstrumented_modules=1 c_backend thread libtsan.so
    local library cargo_args=() build_args=(--quiet --target "$target" -Zbuild-std)
    local -x CARGO_TARGET_DIR=target/sanitizers/thread RUSTFLAGS=-Zsanitizer=thread
    if ! library=$(runtime tsan); then
        skipped 'thread sanitizer' 'no nightly toolchain: `rustup toolchain install nightly`'
        return
    fi
    # Builds the standard library with the sanitizer too. With rustup's, the sanitizer does not see mutexes that a thread
    # waits for, and reports hundreds of false races.
    if [ -f "$(rustup run nightly rustc --print sysroot)/$sources" ]; then
        cargo_args=(+nightly)
    elif [ -x /usr/bin/rustc ] && [ -f "/usr/$sources" ]; then
        # Debian's Rust has the sources and no runtime. rustup's is linked first, before the C library.
        local -x RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1
        RUSTFLAGS+=" -Zexternal-clangrt -Zpre-link-args=-Wl,--whole-archive -Zpre-link-args=$library"
        RUSTFLAGS+=" -Zpre-link-args=-Wl,--no-whole-archive"
    else
        skipped 'thread sanitizer' "no sources of the standard library: run tests/install-platforms.sh, or \
\`rustup component add --toolchain nightly rust-src\`"
        return
    fi
    local -x TSAN_OPTIONS=allocator_may_return_null=1
    # A random program takes seconds.
    local -x DEVICE_CONFORMANCE_CASES=${DEVICE_CONFORMANCE_CASES:-16}

    step 'thread sanitizer: the core'
    # The first maps 128 TiB, piece by piece, which takes minutes. The second takes as long as all others, and its programs
    # have one thread of their own.
    core --skip memory_that_is_dropped_is_free --skip random_programs_agree_with_a_plain_model
    step 'thread sanitizer: cpu, openreg, opencl'
    # Left out: checks of one thread that go through many bytes, and on OpenCL three checks whose streams race for bytes of
    # the device. Any order of their copies is right, and with PoCL the race is one of threads of this process.
    backends --skip ::memory:: --skip ::copies:: --skip ::fill:: --skip ::foreign:: --skip ::streams::large \
        --skip opencl:0::threads::copies_in_a_ring --skip opencl:0::threads::copies_in_opposite_directions \
        --skip opencl:0::threads::races_leave_one_or_the_other
}

miri() {
    if ! rustup run nightly cargo miri --version >/dev/null 2>&1; then
        skipped 'Miri' 'not installed: `rustup toolchain install nightly --component miri,rust-src`'
        return
    fi
    local -x CARGO_TARGET_DIR=target/sanitizers/miri
    # Tests look at the clock.
    local -x MIRIFLAGS=-Zmiri-disable-isolation
    step 'Miri: what the core does with memory'
    cargo +nightly miri test --quiet -p device-registry --lib \
        -- zeroed_bytes:: host_memory:: host_windows:: fill_pattern:: memory_cache:: pending:: queue::
    cargo +nightly miri test --quiet -p device-registry --test host_memory
}

[ $# -gt 0 ] || set -- address thread miri
for job; do
    case $job in
    address | thread | miri) "$job" ;;
    *) printf 'unknown job `%s`: expected address, thread or miri\n' "$job" >&2 && exit 2 ;;
    esac
done
step 'done'
