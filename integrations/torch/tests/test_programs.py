"""The programs of the folder `programs`: what their comparison accepts, and what makes a row fail."""

import pathlib
import sys

import pytest
import torch

FOLDER = str(pathlib.Path(__file__).parents[1] / "programs")
sys.path.insert(0, FOLDER)

from compare import compare

LARGE = torch.tensor([1.0, -4.0])


@pytest.mark.parametrize(
    "here, there",
    [
        ({"a": LARGE}, {"a": LARGE + 3e-5}),
        ({"a": [1.0, {"b": 7}], "c": "text", "d": True}, {"a": [1.000005, {"b": 7}], "c": "text", "d": True}),
        ({"a": torch.tensor([3, 4])}, {"a": torch.tensor([3, 4])}),
        ({"a": torch.empty(0)}, {"a": torch.empty(0)}),
        # A gradient that is rounding alone, beside one that is not.
        ({"g": {"a": LARGE, "b": torch.tensor(1e-9)}}, {"g": {"a": LARGE, "b": torch.tensor(-1e-8)}}),
    ],
)
def test_what_differs_by_rounding_is_equal(here, there):
    worst, problems = compare(here, there, 1e-5)
    assert not problems
    assert worst <= 1e-5


@pytest.mark.parametrize(
    "here, there, problem",
    [
        ({}, {}, "nothing"),
        ({"a": 1.0}, {}, "a: not on the device"),
        ({"b": 1.0}, {"a": 1.0, "b": 1.0}, "a: on the device alone"),
        ({"a": LARGE}, {"a": LARGE + 1e-4}, "a: 0.0001 apart"),
        ({"a": LARGE}, {"a": torch.tensor([1.0, float("nan")])}, "a: nan apart"),
        ({"a": torch.tensor([1.0, float("nan")])}, {"a": torch.tensor([1.0, float("nan")])}, "a: not finite"),
        ({"a": LARGE}, {"a": LARGE.double()}, "a: float64 of [2], and on the CPU float32 of [2]"),
        ({"a": LARGE}, {"a": LARGE[:1]}, "a: float32 of [1]"),
        ({"a": torch.tensor([3, 4])}, {"a": torch.tensor([3, 5])}, "a: 1 of 2 elements differ"),
        ({"a": [1, 2]}, {"a": [1, 3]}, "a.1: 3, and on the CPU 2"),
        ({"a": 1}, {"a": True}, "a: a bool, and on the CPU a int"),
        ({"a": torch.zeros(2)}, {"a": torch.full((2,), 1e-9)}, "a: 1e-09 apart"),
        # Small beside another group, and not beside its own.
        ({"a": LARGE, "b": torch.tensor(1e-9)}, {"a": LARGE, "b": torch.tensor(-1e-8)}, "b: 1.1e-08 apart"),
    ],
)
def test_what_differs_by_more_is_a_problem(here, there, problem):
    _, problems = compare(here, there, 1e-5)
    assert len(problems) == 1 and problem in problems[0], problems


def test_a_program_that_fails_is_a_row_and_not_the_end(program):
    printed = program(
        f"""
        import os, signal, sys, time
        sys.path.insert(0, {FOLDER!r})
        import run, torch
        from program import PROGRAMS, program

        PROGRAMS.clear()

        @program()
        def right(device):
            return {{"sum": torch.ones(3, device=device).sum()}}

        @program()
        def other_number(device):
            return {{"sum": torch.ones(3 if device == "cpu" else 4, device=device).sum()}}

        @program()
        def on_the_cpu_alone(device):
            return {{"sum": torch.ones(3).sum()}}

        @program()
        def error(device):
            torch.ones(3, device=device) + torch.ones(4, device=device)

        @program()
        def crash(device):
            os.kill(os.getpid(), signal.SIGSEGV)

        @program(limit=2)
        def hang(device):
            time.sleep(60)

        @program(pending="not yet")
        def fails_and_is_pending(device):
            raise ValueError

        @program(pending="not yet")
        def passes_and_is_pending(device):
            return right(device)

        begun = time.monotonic()
        found = run.run(list(PROGRAMS.values()), ["openreg", "openreg/cpu"], 2)
        assert time.monotonic() - begun < 50
        for (name, backend), outcome in sorted(found.items()):
            print("row", name, backend, outcome.status, outcome.text)
            assert name != "right" or outcome.kernels == (backend == "openreg"), outcome
        """,
        DEVICE_TORCH="openreg",
    )
    rows = [line.removeprefix("row ") for line in printed.splitlines() if line.startswith("row ")]
    expected = {
        "right": "ok ",
        "other_number": "fails sum: 1 apart, and the largest is 3",
        "on_the_cpu_alone": "fails the device has computed nothing",
        "error": "fails status 1: on cpu: RuntimeError: The size of tensor a (3)",
        "crash": "fails status -11",
        "hang": "fails no end after 2 s",
        "fails_and_is_pending": "pending status 1: on cpu: ValueError",
        "passes_and_is_pending": "fails passes, and is pending: not yet",
    }
    assert len(rows) == 2 * len(expected)
    for row in rows:
        name, _, rest = row.split(" ", 2)
        assert rest.startswith(expected[name]), row
