"""Runs programs in processes of their own, which get a PyTorch that has been imported: an import takes seconds.

As a script it is the process that imports PyTorch, without a device, and forks for each program. The child sets
the program's variables, and then looks for the device, as an import would have done.
"""

import json
import os
import subprocess
import sys
import traceback


class Programs:
    """The process that forks."""

    def __init__(self):
        # The variables of the tests themselves choose no device for the programs.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DEVICE_")}
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, text, variables):
        """The exit status of a program, negative after a signal, and what it printed."""
        self._process.stdin.write(json.dumps([text, variables]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def main():
    import torch  # noqa: F401

    for line in sys.stdin:
        text, variables = json.loads(line)
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(readable)
            os.dup2(writable, 1)
            os.dup2(writable, 2)
            os._exit(run(text, variables))
        os.close(writable)
        with os.fdopen(readable, errors="replace") as printed:
            output = printed.read()
        _, status = os.waitpid(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), output]), flush=True)


def run(text, variables):
    """Runs a program in this process, and returns its status."""
    sys.stdout = os.fdopen(1, "w", buffering=1)
    os.environ.update(variables)
    status = 0
    try:
        import device_torch

        device_torch._autoload()
        exec(compile(text, "program", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    return status


if __name__ == "__main__":
    main()
