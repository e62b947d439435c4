"""The backend of `torch.compile` for the device: `torch.compile(model, backend="device_torch")`.

It computes operators on elements and reductions, together, as expressions: one launch has what would be
several, and what is between them does not go through memory. Everything else is called as it is without a
compiler, on the device or where its tensors are. What cannot be an expression stays as it was.

`TORCH_LOGS="+device_torch._compile_backend"` shows each expression, and why nodes are in none.
`torch._dynamo.utils.counters["device_torch"]` counts what was compiled, and what was not.
"""

import logging
import operator

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._functorch.partitioners import min_cut_rematerialization_partition

from device_torch import _decompositions, _groups, _numbers
from device_torch._groups import Expression, Partition, TooLarge, Unsupported, memory_order, sizes

log = logging.getLogger(__name__)
aten = torch.ops.aten

_DEVICE = torch._C._get_privateuse1_backend_name()

# Views, which have the elements of their first argument.
_VIEWS = _groups.VIEWS | {
    aten.permute.default, aten.slice.Tensor, aten.select.int, aten.t.default, aten.transpose.int,
    aten.as_strided.default, aten.diagonal.default, aten.unfold.default, aten.split.Tensor, aten.view.dtype,
    aten.split_with_sizes.default, aten.unbind.int, operator.getitem,
}  # fmt: skip


def _count(what, number=1):
    counters["device_torch"][what] += number


def _is_ours(value):
    return value.device.type == _DEVICE


def compile_graph(module, _inputs):
    """Compiles a graph of ATen's operators, without gradients. It is called with a list of its inputs, and
    clears the list."""
    _count("graphs")
    try:
        made = _fused(module)
    except Exception as error:  # noqa: BLE001 # A mistake here costs speed, and no program.
        _count("graphs that are not fused")
        log.warning(
            "a graph is not fused: %s: %s",
            type(error).__name__,
            error,
            exc_info=log.isEnabledFor(logging.DEBUG),
        )
        made = _boxed(module, module.graph)
    return made


def _boxed(module, graph):
    """The graph as code that takes a list of its inputs and drops each with its last use."""
    graph.set_codegen(torch.fx.graph._BoxedCodeGen())
    made = torch.fx.GraphModule(module, graph)
    made.recompile()
    call = made.forward

    def run(arguments):
        return call(arguments)

    run._boxed_call = True
    return run


def _fused(module):
    graph = module.graph
    if not _has_kernels(graph):
        return _boxed(module, graph)
    _numbers.fold(graph)
    _count("batched numbers", _numbers.batch(graph))
    partition = Partition(graph, _is_ours)
    for node, reason in partition.reasons.items():
        log.debug("%s is in no expression: %s", node.target, reason)
    expressions = _expressions_of(partition)
    in_place = _written_in_place(graph, partition, expressions)
    ordered = partition.order(graph)

    made, values = torch.fx.Graph(), {}
    for unit in ordered:
        if isinstance(unit, torch.fx.Node):
            if unit not in in_place.copies:
                values[unit] = made.node_copy(unit, values.__getitem__)
            else:
                values[unit] = values[unit.args[0]]
        else:
            _add_call(made, values, module, expressions[unit], in_place)
        # Views within a group that others use too.
        if not isinstance(unit, torch.fx.Node):
            for node in unit.nodes:
                if node.target in _groups.VIEWS and any(user not in unit.frames for user in node.users):
                    _add_view(made, values, node)
    made.eliminate_dead_code(lambda node: node.is_impure() or _writes_to_inputs(node))
    return _boxed(module, made)


def _has_kernels(graph):
    values = [node.meta.get("val") for node in graph.nodes]
    devices = {
        value.device.index or 0 for value in values if isinstance(value, torch.Tensor) and _is_ours(value)
    }
    return any(torch.ops.device_torch.has_kernels(device) for device in devices)


def _writes_to_inputs(node):
    return node.op == "call_function" and getattr(node.target, "writes", False)


def _add_view(made, values, node):
    source = node.args[0]
    if source not in values:
        _add_view(made, values, source)
    values[node] = made.node_copy(node, values.__getitem__)


def _expressions_of(partition):
    """The expressions of the groups. A group that is one operator, or that has no expression, is taken
    apart."""
    found, waiting = {}, partition.groups()
    while waiting:
        group = waiting.pop()
        try:
            expression = Expression(group)
            if expression.operators < 2:
                raise _Single
            found[group] = expression
        except TooLarge:
            waiting += partition.split(group)
        except _Single:
            partition.dissolve(group)
        except Unsupported as reason:
            partition.dissolve(group)
            _count("groups that are not fused")
            log.info("a group is not fused: %s: %s", [node.name for node in group.nodes], reason)
    for expression in found.values():
        log.debug("fused: %s", expression.text)
    _count("expressions", len(found))
    _count("fused operators", sum(expression.operators for expression in found.values()))
    return found


class _Single(Exception):
    """A group that is one operator, which is called as it is."""


# --- Results that are written to inputs ---


class _InPlace:
    """Which results are written to the memory of inputs, in the place of a copy at the end of the graph."""

    def __init__(self):
        self.targets, self.copies = {}, set()


def _written_in_place(graph, partition, expressions):
    """Finds results of expressions that the graph copies to an input at its end, as each step of an
    optimizer does, where nothing needs the input's old elements after the expression."""
    found = _InPlace()
    returned = set(graph.output_node().all_input_nodes)
    position = {}
    for place, unit in enumerate(partition.order(graph)):
        for node in [unit] if isinstance(unit, torch.fx.Node) else unit.nodes:
            position[node] = place
    for copy in graph.find_nodes(op="call_function", target=aten.copy_.default):
        target, source = copy.args[:2]
        group = partition.group_of.get(source)
        if (
            group is None
            or target.op != "placeholder"
            or source in found.targets
            or target in found.targets.values()
        ):
            continue
        if source in expressions[group].outputs and _may_overwrite(copy, group, position, returned):
            found.targets[source] = target
            found.copies.add(copy)
    for group in {partition.group_of[source] for source in found.targets}:
        first = [node for node in expressions[group].outputs if node in found.targets]
        expressions[group] = Expression(group, first)
    return found


def _may_overwrite(copy, group, position, returned):
    target, source = copy.args[:2]
    old, new = target.meta["val"], source.meta["val"]
    if old.dtype != new.dtype or sizes(old) != sizes(new) or group.frames[source] != _groups.FULL:
        return False
    if not _is_ours(old) or memory_order(old) != memory_order(new):
        return False
    # What the program returns has memory of its own.
    if any(alias in returned for alias in _aliases(source)):
        return False
    for alias in _aliases(target):
        if alias is not target and alias in returned:
            return False
        for user in alias.users:
            if user is copy or user.target in _VIEWS and user not in group.frames:
                continue
            is_read_alike = user in group.frames and alias is target
            if not is_read_alike and position[user] >= position[source]:
                return False
    return True


def _aliases(node):
    """The node, and views of it."""
    found, waiting = {node}, [node]
    while waiting:
        for user in waiting.pop().users:
            if user.target in _VIEWS and user not in found:
                found.add(user)
                waiting.append(user)
    return found


# --- Calls ---


class Fused:
    """An expression of a compiled graph, as a function of its tensors, its numbers, and the tensors that it
    writes to. What no kernel computes, the operators do that it is made of."""

    def __init__(self, text, operators, eager):
        self.text, self.operators, self._eager = text, operators, eager
        self._has_warned = False

    def __call__(self, tensors, numbers, out=(), sizes=()):
        try:
            if out:
                return torch.ops.device_torch.expression_.default(self.text, tensors, numbers, out)
            return torch.ops.device_torch.expression.default(self.text, tensors, numbers)
        except NotImplementedError as reason:
            _count("calls that are not fused")
            if not self._has_warned:
                self._has_warned = True
                log.warning("%s; its %d operators are called one by one", reason, self.operators)
        results = self._eager(*tensors, *numbers, *sizes)
        for target, result in zip(out, results):
            target.copy_(result)
        return results[len(out) :]


def _function(fused, number, is_single):
    """A function with a name for the code that FX writes."""

    def single(*arguments):
        return fused(*arguments)[0]

    def several(*arguments):
        return fused(*arguments)

    function = single if is_single else several
    function.__name__ = function.__qualname__ = f"fused_{number}"
    return function


def _add_call(made, values, module, expression, in_place):
    """Adds the call of an expression to a graph."""
    tensors, numbers = [], []
    for read in expression.inputs:
        if not read.is_tensor:
            numbers.append(values[read.node])
            continue
        value = values[read.node]
        for dim in expression.group.dims if read.is_squeezed else ():
            value = made.call_function(aten.unsqueeze.default, (value, dim))
        tensors.append(value)
    written = [node for node in expression.outputs if node in in_place.targets]
    results = expression.outputs[len(written) :]
    out = [values[in_place.targets[node]] for node in written]
    eager, needed = _eager(module, expression)
    fused = Fused(expression.text, expression.operators, eager)
    function = _function(fused, len(made.nodes), len(results) == 1)
    function.writes = bool(out)
    arguments = [tensors, numbers, out, [values[node] for node in needed]]
    while not arguments[-1] and len(arguments) > 2:
        arguments.pop()
    call = made.call_function(function, tuple(arguments))
    for node, tensor in zip(written, out):
        values[node] = tensor
    if len(results) == 1:
        values[results[0]] = call
        return
    for place, node in enumerate(results):
        values[node] = made.call_function(operator.getitem, (call, place))


def _eager(module, expression):
    """The operators of an expression as a graph of their own, which takes what the expression takes; and the
    sizes that it takes behind that."""
    graph, values = torch.fx.Graph(), {}
    for read in expression.inputs:
        value = graph.placeholder(f"input_{len(values)}_{read.node.name}")
        for dim in reversed(expression.group.dims) if read.is_squeezed else ():
            value = graph.call_function(aten.squeeze.dim, (value, dim))
        values.setdefault(read.node, value)
    order = {node: place for place, node in enumerate(module.graph.nodes)}
    nodes = [
        node
        for node in sorted([*expression.absorbed, *expression.group.nodes], key=order.get)
        if node not in values
    ]
    needed = {operand: None for node in nodes for operand in node.all_input_nodes}
    needed = [node for node in needed if node not in values and node not in nodes]
    for node in needed:
        values[node] = graph.placeholder(f"size_{len(values)}_{node.name}")
    for node in nodes:
        values[node] = graph.node_copy(node, values.__getitem__)
    graph.output(tuple(values[node] for node in expression.outputs))
    return torch.fx.GraphModule(module, graph), needed


backend = aot_autograd(
    fw_compiler=compile_graph,
    partition_fn=min_cut_rematerialization_partition,
    decompositions=_decompositions.table,
    keep_inference_input_mutations=True,
)
