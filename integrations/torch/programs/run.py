"""Runs real programs on the CPU and on a device, and compares what they found: losses, gradients, outputs.

    pip install --no-deps -r programs/requirements.txt
    DEVICE_TORCH=openreg python programs/run.py
    python programs/run.py --on openreg openreg/cpu opencl --markdown ../../docs/torch.md
    python programs/run.py --on openreg --only gpt2 resnet
    python programs/run.py --list

`--on` names backends; with `/cpu` behind its name, one has no kernels, and the CPU computes in the device's place. Each
program runs in a process of its own, so that one that crashes or hangs is a failed row and not the end. The status is 1
if one fails. `program.py` says what a program is, and `compare.py` what equal is.
"""

import argparse
import collections
import contextlib
import importlib
import importlib.metadata
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
import traceback

if __name__ == "__main__":
    # This process uses no device: those that it forks load it, and have PyTorch, whose import takes seconds. Those that
    # a program spawns import this file by another name.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from compare import compare
from program import PROGRAMS

# Files of programs, in the order of the table.
FILES = [
    "weights", "examples", "precision", "checkpoints", "masks", "language", "architectures", "generation", "vision",
    "images", "libraries", "loaders", "processes",
]  # fmt: skip

Outcome = collections.namedtuple("Outcome", "status text worst compared seconds kernels")


def main():
    for file in FILES:
        importlib.import_module(file)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the programs and what each is about")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS), metavar="PROGRAM")
    parser.add_argument("--on", nargs="+", default=[""], metavar="BACKEND", help="backends in place of DEVICE_TORCH")
    parser.add_argument("--jobs", type=int, default=2, help="how many programs run at once, on a core each")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="write the table into this page")
    arguments = parser.parse_args()
    programs = [program for program in PROGRAMS.values() if program.name in arguments.only]
    if arguments.list:
        for program in programs:
            print(f"{program.name:22} {program.title}{' (pending)' if program.pending else ''}")
        return 0
    outcomes = run(programs, arguments.on, arguments.jobs)
    if arguments.markdown:
        write_table(arguments.markdown, programs, arguments.on, outcomes)
    return int(any(outcome.status == "fails" for outcome in outcomes.values()))


def run(programs, backends, jobs):
    """The outcomes of all programs on all backends, by both, which it prints as they come."""
    # Each optimizer imports it, which takes seconds too.
    importlib.import_module("torch._dynamo")
    waiting = [(program, backend) for program in programs for backend in backends]
    running, outcomes = [], {}
    print(f"{'program':22} {'on':12} {'difference':>10} {'CPU s':>6} {'s':>6} {'kernels':>7}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            while waiting and len(running) < jobs:
                program, backend = waiting.pop(0)
                running.append(Process(program, backend, pathlib.Path(folder)))
            time.sleep(0.02)
            for process in [process for process in running if process.has_ended()]:
                running.remove(process)
                outcome = outcomes[process.program.name, process.backend] = process.outcome()
                here, there = outcome.seconds
                row = f"{process.program.name:22} {process.backend:12} {outcome.worst:10.1e} {here:6.1f} {there:6.1f}"
                print(
                    f"{row} {outcome.kernels:7.0%}  {outcome.status}{outcome.text and ': ' + outcome.text}", flush=True
                )
    counts = collections.Counter(outcome.status for outcome in outcomes.values())
    print(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
    return outcomes


class Process:
    """A process that runs a program on a backend."""

    def __init__(self, program, backend, folder):
        self.program, self.backend = program, backend
        name = f"{program.name}.{backend.replace('/', '.')}"
        self.found, self.printed = folder / f"{name}.json", folder / f"{name}.txt"
        self.begun, self.is_late, self.status = time.monotonic(), False, None
        self.id = os.fork()
        if self.id == 0:
            status = 1
            try:
                # A group, to end it with the processes that it starts.
                os.setsid()
                file = os.open(self.printed, os.O_WRONLY | os.O_CREAT)
                os.dup2(file, 1)
                os.dup2(file, 2)
                status = run_here(program, backend, self.found)
            except BaseException:  # noqa: BLE001 # It is a failed row.
                traceback.print_exc()
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def has_ended(self):
        """Whether it has ended, which it does when its time is over."""
        if not self.is_late and time.monotonic() - self.begun > self.program.limit:
            self.is_late = True
            os.killpg(self.id, signal.SIGKILL)
        ended, status = os.waitpid(self.id, os.WNOHANG)
        if ended:
            self.status = os.waitstatus_to_exitcode(status)
        return bool(ended)

    def outcome(self):
        """What came of it."""
        found = {"worst": float("nan"), "compared": [], "seconds": [0, 0], "kernels": float("nan")}
        if self.status == 0:
            found = json.loads(self.found.read_text())
            problems = found.pop("problems")
        else:
            end = f"no end after {self.program.limit} s" if self.is_late else f"status {self.status}"
            lines = self.printed.read_text(errors="replace").split("\n")
            problems = [f"{end}: {' '.join([line for line in lines if line.strip()][-1:])[:300]}"]
        text = "; ".join(problems[:3]) + (f"; and {len(problems) - 3} more" if len(problems) > 3 else "")
        status = "fails" if problems else "ok"
        if self.program.pending:
            status = "pending" if problems else "fails"
            text = text if problems else f"passes, and is pending: {self.program.pending}"
        return Outcome(status, text, **found)


def run_here(program, backend, file):
    """Runs a program in this process on the CPU, then on the device, and writes what came of it to a file."""
    if backend:
        name, _, by = backend.partition("/")
        os.environ |= {"DEVICE_TORCH": name, "DEVICE_KERNELS_DISABLE": "*" if by == "cpu" else ""}
    # Those that it starts load the device as any program does.
    os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
    # Several programs run at once, and no sum depends on how many threads there are.
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    import device_torch

    device_torch._autoload()
    device = torch._C._get_privateuse1_backend_name()
    if not hasattr(torch, device):
        print("no device: a warning above says why")
        return 1
    found, seconds = [], []
    for place in ("cpu", device):
        torch.manual_seed(0)
        begun = time.perf_counter()
        try:
            found.append(program.function(place))
        except Exception as error:  # noqa: BLE001 # It is a failed row.
            traceback.print_exc()
            print(f"on {place}: {type(error).__name__}: {' '.join(str(error).split())}")
            return 1
        seconds.append(round(time.perf_counter() - begun, 2))
    worst, problems = compare(*found, program.tolerance)
    counts = getattr(torch, device).counts()
    if not counts:
        problems.append("the device has computed nothing")
    written = {
        "worst": worst,
        "problems": problems,
        "compared": list(found[0]),
        "seconds": seconds,
        "kernels": counts.native / max(1, counts.native + counts.fallback),
    }
    file.write_text(json.dumps(written))
    return 0


def write_table(page, programs, backends, outcomes):
    """Writes the table of the programs in place of the one that the page has."""
    rows = [["program", "with", "compared", *(f"`{backend}`" if backend else "difference" for backend in backends)]]
    rows.append(["---"] * len(rows[0]))
    for program in programs:
        of = [outcomes[program.name, backend] for backend in backends]
        versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in program.packages)
        rows.append([program.title, versions, ", ".join(max((outcome.compared for outcome in of), key=len))])
        rows[-1] += [cell(outcome) for outcome in of]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    text, found = re.subn(
        r"^\| program \|.*\n(\|.*\n)*", lambda _: table, page.read_text(), count=1, flags=re.MULTILINE
    )
    if not found:
        raise SystemExit(f"{page} has no table that begins with `| program |`")
    page.write_text(text)


def cell(outcome):
    """What the table has for an outcome: the largest difference."""
    if outcome.status != "ok":
        return outcome.status
    return f"{outcome.worst:.0e}".replace("e-0", "e-") if outcome.worst else "0"


if __name__ == "__main__":
    sys.exit(main())
