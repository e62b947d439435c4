"""What kernels and the CPU have computed, as a table."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Count:
    """The calls of an operator with elements of one type."""

    operator: str
    """Its name and overload, such as `add.out`."""
    native: bool
    """Whether the device's kernels computed it; else it was the CPU."""
    operators: int
    """How many operators one call computes: more than one are fused, as `torch.compile` does."""
    dtype: "torch.dtype | None"
    """The type of its first tensor; `None` without one."""
    calls: int
    seconds: float
    """How long it took: to enqueue kernels, or to compute on the CPU, with its copies."""
    bytes: int
    """What was copied from and to the device for the CPU."""


class Counts(list):
    """Counts, as a list, that prints as a table: what took the CPU longest is first."""

    @classmethod
    def of(cls, lines):
        """From the lines of the library."""
        rows = (line.split("\t") for line in lines.splitlines())
        counts = cls(
            Count(
                name.removeprefix("aten::"), who != "cpu", int(operators), _dtype(int(dtype)), int(calls),
                int(took) / 1e9, int(moved),
            )
            for name, who, dtype, calls, took, moved, operators in rows
        )  # fmt: skip
        counts.sort(key=lambda count: (count.native, -count.seconds))
        return counts

    @property
    def native(self):
        """How many calls kernels computed."""
        return sum(count.calls for count in self if count.native)

    @property
    def fused(self):
        """How many of the kernels' calls computed several operators each."""
        return sum(count.calls for count in self if count.operators > 1)

    @property
    def fallback(self):
        """How many calls the CPU computed."""
        return sum(count.calls for count in self if not count.native)

    def __str__(self):
        rows = [("operator", "by", "type", "calls", "ms", "MB")]
        for count in self:
            dtype = str(count.dtype).removeprefix("torch.") if count.dtype else ""
            moved = f"{count.bytes / 1e6:.1f}" if not count.native else ""
            by = "cpu" if not count.native else "kernel" if count.operators == 1 else f"fused {count.operators}"
            rows.append((count.operator, by, dtype, str(count.calls), f"{count.seconds * 1e3:.1f}", moved))
        widths = [max(len(row[column]) for row in rows) for column in range(6)]
        lines = []
        for row in rows:
            texts = [text.ljust(width) for text, width in zip(row[:3], widths)]
            numbers = [text.rjust(width) for text, width in zip(row[3:], widths[3:])]
            lines.append("  ".join(texts + numbers).rstrip())
        return "\n".join(lines)


# The numbers come from `c10/core/ScalarType.h`.
_TYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16,
    6: torch.float32, 7: torch.float64, 8: torch.complex32, 9: torch.complex64, 10: torch.complex128,
    11: torch.bool, 15: torch.bfloat16, 27: torch.uint16, 28: torch.uint32, 29: torch.uint64,
}  # fmt: skip


def _dtype(number):
    return _TYPES.get(number)
