#!/usr/bin/env bash
# Runs tests on other processors, which QEMU emulates: `install` first, as root on Debian 12. docs/platforms.md says what was
# run. Without parts, those run that have passed there.
#
#     bash tests/processors.sh install
#     bash tests/processors.sh [s390x] [aarch64] [riscv64] [i686] [-- [core] [tensor] [plugin] [openreg] [suite] [c]]
#
# A program of 32 bits runs without QEMU, as processors of x86_64 can do that. Under qemu-i386 7.2 the tests of threads hang.
set -euo pipefail
cd "$(dirname "$0")/.."

export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
export CARGO_TARGET_DIR=${DEVICE_REGISTRY_PROCESSORS_DIR:-target/processors}
# Debian's Rust has the sources of the standard library, which is built for each target.
export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc RUSTC_BOOTSTRAP=1
# An emulator takes ten times as long, and random programs take that many times.
export PROPTEST_CASES=${PROPTEST_CASES:-8} DEVICE_CONFORMANCE_CASES=${DEVICE_CONFORMANCE_CASES:-4}
export DEVICE_CONFORMANCE_TIME_LIMIT=${DEVICE_CONFORMANCE_TIME_LIMIT:-120}

step() { printf '\n--- %s (after %s s)\n' "$*" "$SECONDS"; }

install_tools() {
    sh tests/install-platforms.sh
    sh tests/install-packages.sh libc6-dev \
        gcc-s390x-linux-gnu libc6-dev-s390x-cross gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
        gcc-riscv64-linux-gnu libc6-dev-riscv64-cross gcc-i686-linux-gnu libc6-dev-i386-cross \
        qemu-user qemu-user-binfmt binfmt-support
    # Tests start themselves once more, so the kernel has to know the emulators.
    if [ ! -e /proc/sys/fs/binfmt_misc/register ] && ! mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc; then
        echo 'binfmt_misc cannot be mounted: a container has to be privileged for it' >&2
        return 1
    fi
    update-binfmts --import
    cargo fetch --quiet --locked
    cargo fetch --quiet --locked -Zbuild-std=std,panic_abort --target s390x-unknown-linux-gnu \
        --target aarch64-unknown-linux-gnu --target riscv64gc-unknown-linux-gnu --target i686-unknown-linux-gnu
}

# Sets `target`, `skipped_checks` of the conformance suite, and the environment for programs of a processor.
select_processor() {
    local gnu=$1-linux-gnu flags= variable
    target=$1-unknown-linux-gnu
    [ "$1" != riscv64 ] || target=riscv64gc-unknown-linux-gnu
    if ! command -v "$gnu-gcc" >/dev/null; then
        printf 'there is no %s-gcc: run `bash tests/processors.sh install` as root\n' "$gnu" >&2
        return 1
    fi
    # Where emulators look for the system's libraries.
    export QEMU_LD_PREFIX=/usr/$gnu CC=$gnu-gcc
    skipped_checks=(--skip :1::)
    if [ "$1" = i686 ]; then
        flags="-Clink-arg=-Wl,--dynamic-linker=/usr/$gnu/lib/ld-linux.so.2 -Clink-arg=-Wl,-rpath,/usr/$gnu/lib"
    else
        # They measure the process. QEMU 7.2 keeps memory for each thread that ended, and its madvise(MADV_REMOVE) frees
        # nothing.
        skipped_checks+=(--skip a_close_leaves_nothing_behind --skip a_reset_leaves_nothing_behind)
    fi
    variable=CARGO_TARGET_$(printf %s "$target" | tr a-z- A-Z_)
    export "${variable}_LINKER=$gnu-gcc" "${variable}_RUSTFLAGS=$flags"
}

run_tests() { cargo test --quiet --locked -Zbuild-std=std,panic_abort --target "$target" "$@"; }
run_program() { cargo run --quiet --locked -Zbuild-std=std,panic_abort --target "$target" "$@"; }

part() {
    case $1 in
    core)
        # One test maps 128 TiB, piece by piece, which takes an emulator minutes.
        run_tests -p entry-points -p device-registry --lib -- --skip memory_that_is_dropped_is_free
        ;;
    tensor) run_tests -p device-tensor ;;
    # The C++ compilers for other processors are packages of their own.
    plugin) run_tests -p device-plugin --lib -- abi:: --skip valid_cpp ;;
    openreg)
        # Not those of memory, as QEMU 7.2 does not return freed pages.
        run_tests -p device-openreg --lib --test devices --test events --test streams
        ;;
    # The conformance suite on the cpu and on the first device of openreg.
    suite)
        # With 32 bits, three devices of the default 1 GiB take all addresses. A lost device keeps its own while a buffer lives.
        local -x OPENREG_MEMORY=64MiB
        run_program -p device-registry-sanitizers --bin conformance -- --quiet "${skipped_checks[@]}"
        ;;
    # The same on the backends in C, from files.
    c) run_program -p device-registry-sanitizers --bin c_backend -- --quiet "${skipped_checks[@]}" ;;
    *) printf 'unknown part `%s`\n' "$1" >&2 && exit 2 ;;
    esac
}

if [ "${1-}" = install ]; then
    install_tools
    exit
fi

processors=() parts=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    processors+=("$1")
    shift
done
[ $# -eq 0 ] || shift
parts=("$@")
[ ${#processors[@]} -gt 0 ] || processors=(s390x i686 aarch64 riscv64)
for processor in "${processors[@]}"; do
    case $processor in
    s390x | i686 | aarch64 | riscv64) ;;
    *) printf 'unknown processor `%s`\n' "$processor" >&2 && exit 2 ;;
    esac
    select_processor "$processor"
    case $processor in
    s390x) all=(core tensor plugin openreg c) ;;
    riscv64) all=(core tensor plugin openreg suite) ;;
    *) all=(core tensor plugin openreg suite c) ;;
    esac
    [ ${#parts[@]} -eq 0 ] || all=("${parts[@]}")
    for part in "${all[@]}"; do
        step "$processor: $part"
        part "$part"
    done
done
step 'done'
