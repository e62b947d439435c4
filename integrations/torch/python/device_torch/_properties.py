"""What is known of a device, as an object like those of `torch.cuda.get_device_properties`."""

import types


class DeviceProperties(types.SimpleNamespace):
    """The properties of a device. What its backend does not know is None.

    `name`, `total_memory`, `multi_processor_count`, `major` and `minor`, which are the compute capability, and the
    numbers of the PCI address are as in PyTorch's own. `attributes` has facts by name that differ from backend to
    backend.
    """

    @classmethod
    def of(cls, lines):
        """From the lines of the library."""
        known = dict.fromkeys(_NAMES)
        attributes = {}
        for line in lines.splitlines():
            name, kind, value = line.split("\t")
            value = _KINDS[kind](value)
            attribute = name.removeprefix("attributes.")
            (attributes if attribute != name else known)[attribute] = value
        if known["native_dtypes"] is not None:
            known["native_dtypes"] = tuple(known["native_dtypes"].split())
        count = attributes.get("multiprocessors", attributes.get("compute_units"))
        # As in `0000:3b:00.0`. PyTorch binds processes to the processors near it.
        address = (known["pci"] or "").replace(".", ":").split(":")
        domain, bus, device, _ = [int(part, 16) for part in address] if known["pci"] else [None] * 4
        return cls(
            **known,
            multi_processor_count=count,
            pci_domain_id=domain,
            pci_bus_id=bus,
            pci_device_id=device,
            attributes=attributes,
        )


# What a backend may leave out.
_NAMES = (
    "name", "vendor", "kind", "driver", "driver_version", "api", "uuid", "pci", "native_dtypes", "major", "minor",
    "total_memory", "largest_allocation", "concurrent_streams", "timed_events", "pinned_memory",
)  # fmt: skip
_KINDS = {"s": str, "i": int, "b": lambda value: value == "1"}
