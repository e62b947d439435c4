"""What PyTorch has for its own devices, read from its tables, lists and headers: each has a row in docs/torch-hooks.md.

PyTorch has many places where its devices stand by name: keys of dispatch, virtual functions, lists in Python. One that
a new version adds is an error of a program, or a wrong number, until somebody decides what this device does there.
"""

import fnmatch
import functools
import pathlib
import re

import pytest
import torch

# The page is of one version; a later one is compared with it. An earlier one has other names.
VERSION = (pathlib.Path(__file__).parent / "torch-version").read_text()
_MINOR = [tuple(int(part) for part in version.split(".")[:2]) for version in (torch.__version__, VERSION)]
pytestmark = pytest.mark.skipif(_MINOR[0] < _MINOR[1], reason=f"the page is of PyTorch {VERSION.strip()}")

C = torch._C
ROOT = pathlib.Path(torch.__file__).parent
HERE = pathlib.Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "torch-hooks.md"
SHIM = HERE.parent / "python" / "device_torch" / "csrc"

# The devices of PyTorch's own, as their keys of dispatch have them.
DEVICES = ("CUDA", "XPU", "MPS", "MTIA", "HPU")
COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


@functools.cache
def sources():
    """PyTorch's Python, by file, without the modules of one device alone and its tests."""
    paths = ((path.relative_to(ROOT).as_posix(), path) for path in ROOT.rglob("*.py"))
    own = ("cuda", "xpu", "mps", "mtia", "testing", "test", "version.py")
    return {file: path.read_text(errors="replace") for file, path in paths if file.split("/")[0] not in own}


@functools.cache
def headers():
    """PyTorch's headers, by file, without those of one device alone."""
    found = {}
    for folder in ("ATen", "c10", "torch"):
        for path in (ROOT / "include" / folder).rglob("*.h"):
            file = path.relative_to(ROOT / "include").as_posix()
            if not re.search(r"/(cuda|hip|xpu|mps|mtia)/|ATen/ops/", file):
                found[file] = path.read_text(errors="replace")
    return found


@functools.cache
def code(file):
    """A header without comments."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", headers()[file], flags=re.S)


def rows():
    """What the tables of the page name in their first column: names, or patterns of names."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return {name for line in lines for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])}


def assert_rows(found, what):
    """Fails at each name that no row of the page has."""
    patterns = rows()
    exact = patterns - {pattern for pattern in patterns if "*" in pattern}
    missing = sorted(
        name for name in set(found) - exact if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    )
    assert not missing, "\n".join(
        [f"PyTorch {torch.__version__} has {what}, and docs/torch-hooks.md has no row for:", *missing]
    )


@functools.cache
def registered(key):
    """The operators that PyTorch, or this package, registers for a key; none for a key without a name in Python."""
    try:
        return frozenset(C._dispatch_get_registrations_for_dispatch_key(key))
    except RuntimeError:
        return frozenset()


@functools.cache
def declared():
    """The operators of PyTorch's list of its own ones, by the keys of dispatch that it gives them.

    The list is of all devices, also of those that this build of PyTorch has not.
    """
    path = ROOT.parent / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
    found, name, is_dispatch = {}, "", False
    for line in path.read_text().splitlines():
        if match := re.match(r"- func: ([\w.]+)\(", line):
            name, is_dispatch = f"aten::{match[1]}", False
        elif re.match(r"  \w", line):
            is_dispatch = line.startswith("  dispatch:")
        elif is_dispatch and (match := re.match(r"    ([\w, ]+):", line)):
            for key in match[1].split(","):
                found.setdefault(key.strip(), set()).add(name)
    return found


def operators(key):
    return registered(key) | declared().get(key, set())


def has(name, key):
    return C._dispatch_has_kernel_for_dispatch_key(name, key)


def short(name):
    return name.removeprefix("aten::")


# --- The tables of dispatch ---


def test_each_operator_of_another_device_is_computed_here_or_has_a_row():
    def is_computed(name):
        if has(name, "PrivateUse1") or any(has(name, key) for key in COMPOSITES):
            return True
        # The fallback: the CPU computes it, but makes no views of a device's memory.
        schema = C._get_schema(*name.split(".") if "." in name else (name, ""))
        is_view = any(result.alias_info and not result.alias_info.is_write for result in schema.returns)
        return has(name, "CPU") and not is_view

    known = set(C._dispatch_get_all_op_names())
    found = set().union(*(operators(device) for device in DEVICES)) & known
    assert len(found) > 1000, f"{len(found)} operators: is this PyTorch's list?"
    assert C._dispatch_has_backend_fallback(C.DispatchKey.PrivateUse1)
    assert_rows(
        {short(name) for name in found if not is_computed(name)},
        "operators of another device that neither it, nor a kernel, nor the CPU computes for this one",
    )


def test_each_operator_that_draws_random_numbers_takes_a_generator_or_has_a_row():
    """The fallback gives the CPU the generator of the device. Without such an argument the CPU draws from its own."""

    def is_of_the_cpus_generator(name):
        if has(name, "PrivateUse1") or any(has(name, key) for key in COMPOSITES) or not has(name, "CPU"):
            return False
        packet, _, overload = short(name).partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        takes_one = any("Generator" in str(argument.type) for argument in operator._schema.arguments)
        return torch.Tag.nondeterministic_seeded in operator.tags and not takes_one

    names = {name for name in C._dispatch_get_all_op_names() if name.startswith("aten::")}
    assert torch.Tag.nondeterministic_seeded in torch.ops.aten.bernoulli_.float.tags
    found = {f"Generator:{short(name)}" for name in names if is_of_the_cpus_generator(name)}
    assert_rows(found, "operators that draw without a generator")


def test_each_question_that_pytorch_asks_of_a_tensor_has_a_row():
    """A question may have a list of PyTorch's devices behind it: so `Module.to` came to make other parameters."""

    def is_question(name):
        schema = C._get_schema(*name.split(".") if "." in name else (name, ""))
        of_tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
        return of_tensors and schema.returns and all(str(result.type) in ("bool", "int") for result in schema.returns)

    names = {name for name in C._dispatch_get_all_op_names() if name.startswith("aten::")}
    names = {name for name in names if C._dispatch_has_kernel(name)}
    found = {short(name) for name in names if is_question(name)}
    assert {"_has_compatible_shallow_copy_type", "_fused_sdp_choice"} <= found, found
    assert_rows(found, "operators that return a truth value or a number")


def test_each_kind_of_key_has_a_row():
    kinds = {key.removesuffix("CUDA") for key in C.DispatchKey.__members__ if key.endswith("CUDA")}
    assert {"", "Autograd", "Sparse"} <= kinds, kinds
    assert_rows({f"{kind}PrivateUse1" for kind in kinds | {"Autocast"}}, "keys of dispatch")


def test_each_fallback_of_a_key_is_registered_for_this_device():
    """Without its own, a key that is on in a context makes an error of each operator: so it was with autocast."""
    found = set()
    for key in C.DispatchKey.__members__:
        for device in DEVICES:
            ours = getattr(C.DispatchKey, key.removesuffix(device) + "PrivateUse1", None)
            if key.endswith(device) and ours and C._dispatch_has_backend_fallback(getattr(C.DispatchKey, key)):
                found |= {key} if not C._dispatch_has_backend_fallback(ours) else set()
    assert not found, f"PyTorch has a fallback for {sorted(found)}, and this device has none"


@pytest.mark.parametrize("kind", ["Autocast", "Autograd"])
def test_each_rule_of_a_context_is_here_or_has_a_row(kind):
    others = set().union(*(operators(kind + device) for device in DEVICES))
    ours = {name for name in others if has(name, f"{kind}PrivateUse1")}
    assert kind == "Autograd" or len(ours) > 100, ours
    assert_rows({f"{kind}:{short(name)}" for name in others - ours}, f"rules of {kind} for another device")


def test_each_kind_of_tensor_is_computed_or_is_an_error_that_says_so():
    kinds = [key.removesuffix("CUDA") for key in C.DispatchKey.__members__ if re.fullmatch(r"\w+[a-z]CUDA", key)]
    for kind in set(kinds) - {"Autograd", "Autocast"}:
        ours = getattr(C.DispatchKey, f"{kind}PrivateUse1")
        if registered(f"{kind}CUDA") and not C._dispatch_has_backend_fallback(ours):
            raise AssertionError(f"PyTorch computes with {kind} tensors, and this device does not refuse them")


# --- Interfaces of C++ ---

# By header and class, the class that a structure of the shim derives from; none for those that it does not have.
INTERFACES = {
    ("ATen/detail/AcceleratorHooksInterface.h", "AcceleratorHooksInterface"): "PrivateUse1HooksInterface",
    ("ATen/detail/PrivateUse1HooksInterface.h", "PrivateUse1HooksInterface"): "PrivateUse1HooksInterface",
    ("c10/core/impl/DeviceGuardImplInterface.h", "DeviceGuardImplInterface"): "DeviceGuardImplInterface",
    ("c10/core/Allocator.h", "Allocator"): "DeviceAllocator",
    ("c10/core/CachingDeviceAllocator.h", "DeviceAllocator"): "DeviceAllocator",
    ("ATen/core/CachingHostAllocator.h", "HostAllocator"): "HostAllocator",
    ("c10/core/GeneratorImpl.h", "GeneratorImpl"): "GeneratorImpl",
    ("ATen/core/GraphImplInterface.h", "GraphImplInterface"): None,
    ("torch/csrc/profiler/stubs/base.h", "ProfilerStubs"): "ProfilerStubs",
}


def virtual_functions(header, name):
    """The virtual functions of a class, but for its destructor."""
    assert header in headers(), f"PyTorch has no {header} where it was"
    start = rf"^(?:struct|class)(?: [A-Z_0-9]+)* {name}\b[^;{{]*"
    body = re.search(start + r"\{(.*?)^\};", code(header), re.M | re.S)
    assert body, f"PyTorch's headers have no class {name} where it was"
    functions = {match[1] for match in re.finditer(r"\bvirtual\b[^~;{(]*?\b(\w+)\s*\(", body[1])}
    assert functions, f"{name} has no virtual functions: is it read as it is written?"
    return functions


def functions_of_the_shim(base):
    """The functions of the shim's structures that derive from a class."""
    text = "\n".join(path.read_text() for path in sorted(SHIM.glob("*.cpp")))
    start = rf"^(?:struct|class) \w+ (?:final )?: (?:public )?(?:\w+::)*{base} "
    bodies = re.findall(start + r"\{(.*?)^\};", text, re.M | re.S)
    assert bodies, f"no structure of the shim derives from {base}"
    # Some depend on the version, and are not marked as overrides.
    return set(re.findall(r"^  [^\n;=]*?\b(\w+)\([^;{}]*?\)[^;{}()]*\{", "\n".join(bodies), re.M))


def test_each_virtual_function_is_overridden_or_has_a_row():
    found = set()
    for (header, name), base in INTERFACES.items():
        ours = functions_of_the_shim(base) if base else set()
        found |= {f"{name}::{function}" for function in virtual_functions(header, name) - ours}
    assert_rows(found, "virtual functions that the shim does not override")


def test_each_interface_that_a_device_may_implement_is_read():
    name = r"(\w*(?:PrivateUse1|Accelerator|Impl)\w*Interface)"
    pattern = re.compile(rf"^(?:struct|class)(?: [A-Z_0-9]+)* {name}\b[^;]*\{{", re.M)
    files = [file for file, text in headers().items() if not file.startswith("torch/") and "Interface" in text]
    found = {name for file in files for name in pattern.findall(code(file))}
    assert {"DeviceGuardImplInterface", "PrivateUse1HooksInterface"} <= found
    assert_rows(found - {name for _, name in INTERFACES}, "interfaces")


def test_each_list_of_devices_in_headers_has_a_row():
    """Those of statements that name two devices and not this one."""
    devices = re.compile(r"(?<!define )\b\w*?(CUDA|XPU|MPS|HPU|MTIA)\b|is_(cuda|xpu|mps|hpu|mtia)\(\)")
    found = set()
    for file, text in headers().items():
        if sum(name in text or f"is_{name.lower()}" in text for name in DEVICES) < 2:
            continue
        for statement in re.finditer(r"[^;{}]+|\{[^{}]*\bcase\b[^{}]*\}", code(file)):
            named = {(upper or lower).upper() for upper, lower in devices.findall(statement[0])}
            if len(named) > 1 and not re.search("private_?use", statement[0], re.I):
                found.add(file)
    assert found, "no list was found"
    assert_rows(found, "lists of devices in headers")


# --- Registrations ---


@functools.cache
def registrations():
    """What a backend may register: names in headers that say so, and functions in Python by their files."""
    ours, register = r"\w*privateuse(?:1|one)\w*", r"\w*regist(?:er|ry|ered)"
    names = re.compile(rf"\b({register}{ours}|{ours}regist\w*|\w+MetaRegistry)\b", re.I)
    found = {match for text in headers().values() if "rivate" in text.lower() for match in names.findall(text)}
    functions = re.compile(r"^def (register_\w*(?:device|backend)\w*)", re.M)
    for file, text in sources().items():
        if file.split("/")[0] not in ("ao", "onnx"):
            found |= {f"{file}:{function}" for function in functions.findall(text)}
    return found


def test_each_registration_that_pytorch_offers_has_a_row():
    assert "RegisterPrivateUse1HooksInterface" in registrations(), registrations()
    assert_rows(registrations(), "registrations for a device")


# --- Lists in Python ---

NAMES = ("cuda", "xpu", "mps", "hpu", "mtia")
# They have one row each for all of it.
PARTS = ("_inductor", "_dynamo", "distributed")


@functools.cache
def lists_of_devices():
    """The functions, by their files, that have a list with two devices, or a condition with two."""
    # A list without the calls in it, such as the one of the device's name.
    a_list = re.compile(r"[\[({](?:[^\[\](){}]|\(\))*[\])}]")
    a_condition = re.compile(r"\.is_(?:cuda|xpu|mps)\b[^\n]*\bor [^\n]*\.is_(?:cuda|xpu|mps)\b")
    found = set()
    for file, text in sources().items():
        if file.split("/")[0] in PARTS or not re.search(r"[\"'](?:xpu|mps|hpu|mtia)[\"']|\.is_(?:xpu|mps)\b", text):
            continue
        places = [match.start() for match in a_condition.finditer(text)] if ".is_" in text else []
        for match in a_list.finditer(text):
            names = set(re.findall(r"[\"'](\w+)[\"']\s*[,:\])}]", match[0]))
            # Sentences have such lists as well.
            is_list = len(names & {*NAMES, "cpu"}) > 1 and names & set(NAMES[1:])
            if is_list and not re.search(r"\betc|e\.g\.", match[0]):
                places.append(match.start())
        found |= {f"{file}:{function_at(text, place)}" for place in places}
    return found


def function_at(text, at):
    """The name of the function or class that a place is in."""
    line = text[text.rfind("\n", 0, at) + 1 : at + 1]
    depth = len(line) - len(line.lstrip(" "))
    for match in reversed(list(re.finditer(r"^( *)(?:async )?(?:def|class) (\w+)", text[:at], re.M))):
        if len(match[1]) < depth:
            return match[2]
    return ""


def test_each_list_of_devices_in_python_has_a_row():
    found = lists_of_devices()
    assert "utils/_foreach_utils.py:_get_fused_kernels_supported_devices" in found, found
    assert_rows(found, "lists of devices")


def test_each_function_that_pytorch_calls_of_a_devices_module_is_there_or_has_a_row(module):
    used = re.compile(r"(?<!get_)device_(?:module|mod|handle)(?:\.|,\s*\")(\w+)")
    found = set()
    for file, text in sources().items():
        if not file.startswith("_inductor"):
            found |= set(used.findall(text))
    assert {"get_rng_state", "is_available"} <= found, found
    found = {f"torch.<device>.{name}" for name in found if not hasattr(module, name)}
    assert_rows(found, "functions of a device's module")


# --- The page ---


@pytest.mark.skipif(not registered("CUDA"), reason="this build of PyTorch has no operators of CUDA")
def test_each_row_of_the_page_is_of_something_that_is_there(module):
    operators = {short(name) for name in C._dispatch_get_all_op_names()}
    rules = {f"{kind}:{name}" for kind in ("Autocast", "Autograd", "Generator") for name in operators}
    functions = {f"{name}::{function}" for header, name in INTERFACES for function in virtual_functions(header, name)}
    keys = {*C.DispatchKey.__members__, "AutocastPrivateUse1"}
    there = {*operators, *rules, *functions, *keys, *lists_of_devices(), *headers(), *PARTS, *registrations()}
    stale = {row for row in rows() if not row.startswith("torch.") and not fnmatch.filter(there, row)}
    assert not stale, f"docs/torch-hooks.md has rows for what {torch.__version__} does not have: {sorted(stale)}"
    absent = {row.removeprefix("torch.<device>.") for row in rows() if row.startswith("torch.<device>.")}
    assert not (found := {name for name in absent if hasattr(module, name)}), f"the module has {sorted(found)}"


def test_each_test_that_the_page_names_is_there():
    text = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    assert named
    assert not (missing := {name for name in named if f"def {name}(" not in text}), missing
