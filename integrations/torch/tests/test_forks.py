"""Processes that ask for devices and are forked, before and after a device is used."""

import pytest

# Each alone, in a process of its own, before a fork.
QUESTIONS = [
    "torch.{name}.is_available()",
    "torch.{name}.device_count()",
    "torch.{name}.devices()",
    "torch.{name}.get_device_name(1)",
    "torch.{name}.set_device(1)",
    "torch.{name}.current_stream()",
    "torch.{name}.empty_cache()",
    "torch.{name}.synchronize()",
    "torch.{name}.memory_allocated(1)",
    "torch.{name}.memory_stats()",
    "torch.{name}.reset_peak_memory_stats()",
    "torch.{name}.manual_seed(3)",
    "torch.{name}.manual_seed_all(3)",
    "torch.{name}.seed_all()",
    "torch.{name}.initial_seed(1)",
    "torch.{name}.get_rng_state()",
    "torch.{name}.set_rng_state(torch.{name}.get_rng_state())",
    "torch.manual_seed(1)",
    "torch.accelerator.is_available()",
    "torch.accelerator.device_count()",
    "torch.accelerator.current_accelerator(check_available=True)",
    "torch.Generator('{name}')",
    "torch.Event('{name}')",
    "torch.{name}.counts()",
]

TEXT = """
    import os, torch
    for question in {questions!r}:
        eval(question)
    # A child of a child too.
    for process in range(2):
        child = os.fork()
        if child != 0:
            _, status = os.waitpid(child, 0)
            os._exit(status >> 8)
    try:
        there = torch.arange(4.0, device="{name}:1")
        print(torch.{name}._is_in_bad_fork(), (there @ there).item(), torch.{name}.device_count(), flush=True)
        os._exit(0)
    except Exception as error:
        print(error, flush=True)
        os._exit(1)
"""


def test_a_question_is_no_use(program):
    for question in QUESTIONS:
        text = TEXT.format(name="openreg", questions=[question.format(name="openreg")])
        assert program(text, DEVICE_TORCH="openreg").splitlines()[-1] == "False 14.0 2", question


def test_a_driver_that_was_asked_serves_a_child(program):
    questions = [question.format(name="opencl").replace("(1)", "()") for question in QUESTIONS[:3]]
    text = TEXT.format(name="opencl", questions=questions).replace("opencl:1", "opencl:0")
    printed = program(text, DEVICE_TORCH="opencl")
    if "has no device" in printed:
        pytest.skip("no driver")
    assert printed.startswith("False 14.0")


def test_a_child_after_a_use_says_how_to_start_it(program):
    text = """
        import os, torch
        torch.ones(1, device="openreg")
        if os.fork() == 0:
            for call in (
                lambda: torch.ones(1, device="openreg"), lambda: torch.openreg.synchronize(),
                lambda: torch.ones(1).pin_memory(), lambda: torch.openreg.memory_stats(0),
                lambda: torch.Stream("openreg"), lambda: torch.Event("openreg").record(), torch.openreg.empty_cache,
            ):
                try:
                    call()
                    print("no error")
                except RuntimeError as error:
                    print(str(error).splitlines()[0])
            # Questions of numbers have their answers.
            print(torch.openreg.device_count(), torch.openreg.is_available(), torch.openreg.devices(), flush=True)
            os._exit(0)
        os.wait()
    """
    *errors, answers = program(text, DEVICE_TORCH="openreg").splitlines()
    assert len(errors) == 7 and all("method `spawn`" in error for error in errors), errors
    assert answers == "2 True ['openreg:0', 'openreg:1']"


def test_a_driver_that_ends_the_process_that_asks_it_is_no_device(program):
    text = """
        import ctypes, torch
        # As a driver that crashes: each child of this process does.
        libc = ctypes.CDLL(None)
        libc.__register_atfork(None, None, libc.abort, None)
        print(torch.openreg.device_count())
        try:
            torch.openreg.set_device(1)
        except RuntimeError as error:
            print(error)
    """
    printed = program(text, DEVICE_TORCH="openreg")
    assert printed.startswith("0\n") and "ended the process that asked it, with signal 6" in printed
