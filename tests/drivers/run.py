"""Runs the suite of device-conformance on drivers that a machine rarely has, and compares with the list of known failures.

    python3 tests/drivers/run.py FOLDER --devices target/debug/devices
    python3 tests/drivers/run.py FOLDER --devices target/debug/devices --only intel --tests suite
    python3 tests/drivers/run.py FOLDER --devices target/debug/devices --operators FILE --markdown docs/hardware.md

FOLDER is where the drivers are installed, or were by an earlier run: none of them is on for other programs. It needs
Debian 12, as root, and 3 GB. Each driver is for the processor. Those of Debian 13 run in a system of their own.

FILE is the tests of the kernels for OpenCL, which `cargo test -p device-opencl-kernels --test operators --no-run` builds.

A check that fails and is not in `known.txt` is an error, and so is one of the list that passes.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent

# Tests of one driver that take longer, in seconds, hang: those of kernels have no limit of their own.
LIMIT = 1800

# The suite, the suite with injected faults, and the tests of the kernels.
TESTS = ["suite", "faults", "kernels"]


class Driver:
    """How a driver is installed, and what the environment of a program is that uses it."""

    def __init__(self, name, title, device, install, root=None, of_kernels=None):
        self.name = name
        self.title = title
        self.device = device
        self.install = install
        self.root = root
        # What the tests of the kernels have in their environment besides.
        self.of_kernels = of_kernels or {}


def run(*command, **options):
    print("+", " ".join(map(str, command)), flush=True)
    subprocess.run([str(word) for word in command], check=True, **options)


def packages(*names):
    """Installs packages that a driver needs, and that are no drivers themselves."""
    run("sh", HERE.parent / "install-packages.sh", *names)


def unpacked(folder, *names):
    """The files of packages, in a folder of their own: an installed driver would be on for all programs."""
    to = folder / "files"
    if not to.exists():
        downloads = folder / "packages"
        downloads.mkdir(parents=True, exist_ok=True)
        # Lists that are old name old versions.
        run("apt-get", "update", "--quiet=2")
        # Its own user may not write to a folder of root.
        run("apt-get", "download", "-o", "APT::Sandbox::User=root", "--quiet=2", *names, cwd=downloads)
        for package in sorted(downloads.glob("*.deb")):
            run("dpkg", "--extract", package, to)
    return to


def vendors(folder, library):
    """A folder for the loader of OpenCL that lists one library."""
    listed = folder / "vendors"
    listed.mkdir(parents=True, exist_ok=True)
    (listed / "driver.icd").write_text(f"{library}\n")
    return {"OCL_ICD_VENDORS": str(listed)}


def intel(folder):
    environment = folder / "environment"
    library = environment / "lib" / "libintelocl.so"
    if not library.exists():
        run(sys.executable, "-m", "venv", environment)
        pip = [environment / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
        # The first does not depend on the second, whose libraries it needs.
        run(*pip, "intel-opencl-rt==2026.2.0", "intel-cmplr-lib-rt==2026.2.0")
    return vendors(folder, library)


def rusticl(folder):
    packages("libclang-cpp15", "libllvmspirvlib15", "libclc-15")
    libraries = unpacked(folder, "mesa-opencl-icd") / "usr/lib/x86_64-linux-gnu"
    paths = {"LD_LIBRARY_PATH": str(libraries), "RUSTICL_ENABLE": "llvmpipe"}
    return paths | vendors(folder, libraries / "libRusticlOpenCL.so.1")


def swiftshader(folder):
    manifest = unpacked(folder, "chromium-common") / "usr/lib/chromium/vk_swiftshader_icd.json"
    return {"VK_DRIVER_FILES": str(manifest), "VK_ICD_FILENAMES": str(manifest), "NODEVICE_SELECT": "1"}


def debian_13(folder):
    """A system with newer drivers, beside the folder of the driver: several of them are of it."""
    root = folder.parent / "debian-13"
    if not (root / "usr/lib/x86_64-linux-gnu/libRusticlOpenCL.so.1").exists():
        packages("mmdebstrap")
        drivers = "pocl-opencl-icd,mesa-opencl-icd,mesa-vulkan-drivers,ocl-icd-libopencl1,libvulkan1"
        run("mmdebstrap", "--mode=root", "--variant=minbase", f"--include={drivers}", "trixie", root)
    return root


def pocl_13(folder):
    debian_13(folder)
    return {"OCL_ICD_VENDORS": "/etc/OpenCL/vendors/pocl.icd"}


def rusticl_13(folder):
    debian_13(folder)
    return {"OCL_ICD_VENDORS": "/etc/OpenCL/vendors/rusticl.icd", "RUSTICL_ENABLE": "llvmpipe"}


def lavapipe_13(folder):
    debian_13(folder)
    return {"NODEVICE_SELECT": "1"}


DRIVERS = [
    Driver("intel", "Intel's runtime 2026.2.0, a Python package", "opencl:0", intel),
    Driver("rusticl-22", "Rusticl of Mesa 22.3, Debian 12", "opencl:0", rusticl),
    Driver("swiftshader", "SwiftShader of Chromium, Debian 12", "wgpu:0", swiftshader),
    Driver("pocl-6", "PoCL 6.0, Debian 13", "opencl:0", pocl_13, debian_13),
    # On the other Rusticl the kernels are without doubles.
    Driver(
        "rusticl-25", "Rusticl of Mesa 25.0, Debian 13", "opencl:0", rusticl_13, debian_13, {"RUSTICL_FEATURES": "fp64"}
    ),
    Driver("lavapipe-25", "llvmpipe of Mesa 25.0, Debian 13", "wgpu:0", lavapipe_13, debian_13),
]


class Outcome:
    """What the tests printed."""

    def __init__(self, status, printed):
        found = re.findall(r"^test (?:\S+?:\d+|operators)::(\S+)\s+\.\.\. (ok|FAILED|ignored)", printed, re.MULTILINE)
        self.checks = dict(found)
        self.failed = {check for check, outcome in found if outcome == "FAILED"}
        self.passed = sum(outcome == "ok" for outcome in self.checks.values())
        self.ignored = sum(outcome == "ignored" for outcome in self.checks.values())
        # All tests end with their counts. Those that crash have none, or the status of a signal.
        self.ended = re.search(r"^test result: ", printed, re.MULTILINE) is not None and 0 <= status < 128


def tested(driver, environment, command, folder, log):
    """Runs tests on a driver, and returns what they printed."""
    # Drivers of the processor compile and compute on the cores that the checks need too.
    environment = {"DEVICE_CONFORMANCE_TIME_LIMIT": "120"} | environment
    program, *rest = command
    if driver.root:
        root = driver.root(folder)
        run("cp", program, root / program.name)
        # The mounts end with the process.
        mounts = " && ".join(f"mount --rbind /{name} {root}/{name}" for name in ("proc", "sys", "dev"))
        inside = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec chroot {root} "$@"', "sh"]
        command = [*inside, f"/{program.name}", *rest]
    else:
        command = [str(program.resolve()), *rest]
    try:
        ran = subprocess.run(
            command, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT
        )
        status, printed = ran.returncode, ran.stdout
    except subprocess.TimeoutExpired as expired:
        status, printed = -1, expired.stdout or b""
    printed = printed.decode(errors="replace")
    (folder / log).write_text(printed)
    return Outcome(status, printed)


def outcomes(driver, environment, arguments, folder):
    """Runs those tests that are asked for and that the driver can have, and returns what each printed."""
    backend = driver.device.partition(":")[0]
    suite = [arguments.devices, "test", driver.device]
    if "suite" in arguments.tests:
        yield "suite", tested(driver, environment, suite, folder, "suite.log")
    if "faults" in arguments.tests:
        faults = environment | {"DEVICE_BACKEND_OPTIONS": f"{backend}.faults=1"}
        yield "faults", tested(driver, faults, suite, folder, "suite-faults.log")
    if "kernels" in arguments.tests and arguments.operators and backend == "opencl":
        # Without a device these tests pass, unless it is required.
        kernels = environment | {"DEVICE_CONFORMANCE_REQUIRE": backend} | driver.of_kernels
        # With one thread, what a driver prints comes between the name of a test and its result.
        command = [arguments.operators, "operators::", "--test-threads=2"]
        yield "kernels", tested(driver, kernels, command, folder, "kernels.log")


def known():
    """The checks that fail on a driver, by its name and which tests they are of: those that always do, and those that
    sometimes do."""
    always, sometimes = {}, {}
    for line in (HERE / "known.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        found = re.fullmatch(r"(\S+) (suite|faults|kernels) (always|sometimes) (\S+): .+", line)
        if not found:
            raise SystemExit(f"known.txt: expected `DRIVER suite|faults|kernels always|sometimes CHECK: REASON`, found `{line}`")
        name, tests, how, check = found.groups()
        lists = always if how == "always" else sometimes
        lists.setdefault((name, tests), set()).add(check)
    return always, sometimes


def errors_of(driver, tests, outcome, always, sometimes):
    """What the list does not say."""
    key = driver.name, tests
    expected, allowed = always.get(key, set()), sometimes.get(key, set())
    if not outcome.ended:
        yield "the tests did not end"
    for check in sorted(outcome.failed - expected - allowed):
        yield f"{check} fails, and is not in known.txt"
    for check in sorted(expected - outcome.failed):
        yield f"{check} does not fail, and known.txt says that it does"
    for check in sorted(allowed - set(outcome.checks)):
        yield f"{check} of known.txt is no check"


def write_table(page, rows):
    text = page.read_text()
    heads = ["driver", "passed", "failed", "unsupported", "with faults: passed", "failed", "unsupported"]
    heads += ["kernels: passed", "failed"]
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    table += [f"| {' | '.join(map(str, row))} |" for row in rows]
    begin, end = "<!-- tests/drivers -->\n", "<!-- end of tests/drivers -->"
    if begin not in text or end not in text:
        raise SystemExit(f"{page} has no place for the table: `{begin.strip()}` and `{end}`")
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    page.write_text(before + begin + "\n".join(table) + "\n" + end + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--devices", type=pathlib.Path, required=True, metavar="FILE", help="the command `devices`")
    parser.add_argument("--operators", type=pathlib.Path, metavar="FILE", help="the tests of the kernels for OpenCL")
    parser.add_argument("--tests", nargs="+", choices=TESTS, default=TESTS, metavar="NAME", help=", ".join(TESTS))
    parser.add_argument("--only", nargs="+", choices=[driver.name for driver in DRIVERS], metavar="NAME")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="write the table into this page")
    arguments = parser.parse_args()
    always, sometimes = known()
    rows, errors, passed = [], [], 0
    for driver in DRIVERS:
        if arguments.only and driver.name not in arguments.only:
            continue
        folder = arguments.folder.resolve() / driver.name
        folder.mkdir(parents=True, exist_ok=True)
        environment = driver.install(folder)
        row = dict.fromkeys(TESTS, ("", "", ""))
        for tests, outcome in outcomes(driver, environment, arguments, folder):
            counts = row[tests] = outcome.passed, len(outcome.failed), outcome.ignored
            passed += outcome.passed
            errors += [f"{driver.name}, {tests}: {error}" for error in errors_of(driver, tests, outcome, always, sometimes)]
            print(f"{driver.name:12} {tests:8} {counts[0]} passed, {counts[1]} failed, {counts[2]} ignored", flush=True)
        # Those of kernels skip within a test what a device has not.
        rows.append([driver.title, *row["suite"], *row["faults"], *row["kernels"][:2]])
    if arguments.markdown:
        write_table(arguments.markdown, rows)
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    print(f"{passed} passed, {len(errors)} failed")
    return int(bool(errors))


if __name__ == "__main__":
    sys.exit(main())
