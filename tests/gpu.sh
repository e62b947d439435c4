#!/bin/sh
# Everything that is tried on a machine with an NVIDIA GPU, which needs neither a network nor Rust there: programs that are
# built elsewhere, run in at most eight minutes, and a table of what came out.
#
#     sh tests/gpu.sh build FOLDER     # here: builds the programs, below 64 MiB when packed
#     sh FOLDER/gpu.sh run REPORT      # there: runs them, and writes REPORT, a page in Markdown
#
# The limits of all programs together are below eight minutes. A line whose program does not fit the machine says why it
# was skipped. `DEVICE_CUDA_NVRTC` and `DEVICE_CUDA_CUBLASLT` name NVIDIA's libraries if they are not found. On a machine without a GPU, the simulated driver takes its place: `sh tests/gpu.sh try FOLDER`.
set -eu

# The programs: a name, the folder of its workspace, and what cargo builds.
build() {
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
    cd "$(dirname "$0")/.."
    cp tests/gpu.sh tests/gpu.py integrations/torch/examples/digits.py "$folder"
    export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_INCREMENTAL=0
    for test in conformance native; do
        take "cuda-$test" . test -p device-cuda --test "$test" --no-run
    done
    take kernels-texts kernels test -p device-cuda-kernels --lib --no-run
    take kernels-conformance kernels test -p device-cuda-kernels --test conformance --no-run
    take devices kernels build --release -p devices-kernels --features cuda
    take burn-digits integrations/burn build --release -p digits --features cuda,opencl
    take burn-programs integrations/burn build --release -p programs --features cuda,hardware
    du -sh "$folder"
}

# Copies the one program that a command of cargo makes, without its symbols.
take() {
    name=$1 workspace=$2
    shift 2
    echo "building $name" >&2
    made=$(cd "$workspace" && cargo "$@" --locked --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    cp "$made" "$folder/$name"
    strip "$folder/$name"
}

# Runs a program for at most so many seconds, and writes a line of the table. The log stays beside the report.
try() {
    name=$1 limit=$2
    shift 2
    begun=$(date +%s) status=0
    timeout "$limit" "$@" >"$logs/$name.log" 2>&1 || status=$?
    took=$(($(date +%s) - begun))
    case $status in
    0) outcome=passed ;;
    77) outcome=skipped ;;
    124) outcome="**failed**: did not end in $limit s" ;;
    *) outcome="**failed**: $status" ;;
    esac
    # What a suite says last, or what a program prints as its result.
    said=$(grep -E '^test result:|^cuda: |^(nv|cpu|openreg)[^|]*knows|^skipped|^NVRTC' "$logs/$name.log" | tail -n 2 | tr '\n|' ' /')
    printf '| %s | %s | %s s | %s |\n' "$name" "$outcome" "$took" "$said" >>"$report"
}

# A library of NVIDIA's, by its name: the newest of the packages of Python and of toolkits.
find_library() {
    find / -xdev -name "$1.so.1[1-9]*" -not -name '*.alt.*' 2>/dev/null |
        sed 's,^\(.*\)/\(.*\)$,\2 \1/\2,' | sort -V | tail -n 1 | cut -d ' ' -f 2-
}

run() {
    report=$1
    programs=$(cd "$(dirname "$0")" && pwd)
    logs=$report.logs
    mkdir -p "$logs"
    export DEVICE_CUDA_NVRTC="${DEVICE_CUDA_NVRTC:-$(find_library libnvrtc)}"
    export DEVICE_CUDA_CUBLASLT="${DEVICE_CUDA_CUBLASLT:-$(find_library libcublasLt)}"
    gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader 2>/dev/null || true)
    export DEVICE_PROGRAM_CACHE="${DEVICE_PROGRAM_CACHE:-$(cd "$logs" && pwd)/programs}"
    {
        echo "# CUDA, on $(date -u +%Y-%m-%d)"
        echo
        echo "${gpu:-No GPU: the simulated driver.}"
        echo
        echo "NVRTC: ${DEVICE_CUDA_NVRTC:-none found}; cuBLASLt: ${DEVICE_CUDA_CUBLASLT:-none found}"
        echo
        echo '| program | outcome | took | said |'
        echo '|---|---|---|---|'
    } >"$report"
    export DEVICE_CONFORMANCE_REQUIRE=cuda
    try cuda-conformance 45 "$programs/cuda-conformance"
    # The simulated driver compiles no PTX, and its compiler is no NVRTC.
    if [ -n "$gpu" ]; then
        try cuda-native 20 "$programs/cuda-native"
        try kernels-texts 30 "$programs/kernels-texts" --nocapture
    else
        echo '| cuda-native, kernels-texts, devices-kernels, burn-programs | skipped | | no GPU |' >>"$report"
    fi
    DEVICE_CONFORMANCE_CASES=${DEVICE_CONFORMANCE_CASES:-2} try kernels-conformance 100 "$programs/kernels-conformance"
    DEVICE_CUDA_LIBRARIES=0 try kernels-generated 30 "$programs/kernels-conformance" matmul
    unset DEVICE_CONFORMANCE_REQUIRE
    DEVICE_BURN_FALLBACK=deny try burn-digits 45 "$programs/burn-digits" --device cuda
    try devices-bench 30 "$programs/devices" bench --largest 64M cuda:0
    if [ -n "$gpu" ]; then
        try devices-kernels 45 "$programs/devices" bench --kernels cuda:0
        DEVICE_CUDA_LIBRARIES=0 try devices-generated 30 "$programs/devices" bench --kernels cuda:0
        try burn-programs 45 "$programs/burn-programs" --rounds 5 --devices "$(opencl_too cuda:0)"
    fi
    try pytorch 40 python3 "$programs/gpu.py" "$programs/digits.py"
    for name in devices-bench devices-kernels devices-generated burn-programs pytorch; do
        [ -e "$logs/$name.log" ] || continue
        printf '\n## %s\n\n```\n' "$name"
        tail -n 60 "$logs/$name.log"
        printf '```\n'
    done >>"$report"
    cat "$report"
    ! grep -qF '**failed**' "$report"
}

# The devices, and the same card by OpenCL where it is there.
opencl_too() {
    if "$programs/devices" list 2>/dev/null | grep -q '^opencl:0'; then echo "$1,opencl:0"; else echo "$1"; fi
}

# Runs what was built on the simulated driver and compiler, which are no GPU and say nothing about speed.
try_simulated() {
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
    simulated=$(mktemp -d)
    (cd "$(dirname "$0")/../kernels" && cargo build --locked -p device-cuda-kernels --examples &&
        cd "${CARGO_TARGET_DIR:-target}"/debug/examples && cp libcuda.so libnvrtc.so libcublasLt.so "$simulated")
    export LD_LIBRARY_PATH="$simulated" DEVICE_PROGRAM_CACHE="$simulated/programs"
    export DEVICE_CUDA_NVRTC="$simulated/libnvrtc.so" DEVICE_CUDA_CUBLASLT="$simulated/libcublasLt.so"
    sh "$folder/gpu.sh" run "$folder/report.md"
}

case ${1-} in
build) build "$2" ;;
run) run "$2" ;;
try) try_simulated "$2" ;;
*)
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
