"""Groups of nodes of a traced graph, each of which is computed by one expression.

A group has one *shape*, and the dimensions of its reductions, which are the same for all of them. Its nodes
have that shape, or are what is left of it behind a reduction, and what is computed of that. No path leads
from a group through another node back to it.
"""

import itertools
import operator

import torch

from device_torch import _expressions
from device_torch._expressions import (
    MOST_INPUTS,
    MOST_NODES,
    MOST_OUTPUTS,
    RULES,
    Emitter,
    Text,
    Unsupported,
    is_tensor,
)

aten, prims = torch.ops.aten, torch.ops.prims

# What a node of a group is: of the group's shape, or with the reduced dimensions as 1, or without them.
FULL, KEPT, SQUEEZED = "full", "reduced", "squeezed"

# Views that keep the order of elements. Between the forms of what is reduced, they are the value itself.
VIEWS = {
    aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unsqueeze.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.expand.default, aten.alias.default,
    aten.detach.default, prims.broadcast_in_dim.default,
}  # fmt: skip


def sizes(value):
    """The shape of a traced tensor, with symbols in the place of sizes that are not known: none is
    guarded."""
    return tuple(size if isinstance(size, int) else size.node.expr for size in value.shape)


def strides(value):
    return tuple(stride if isinstance(stride, int) else stride.node.expr for stride in value.stride())


def operands(node):
    """The nodes that a node is computed from, each once."""
    return node.all_input_nodes


class Group:
    """Nodes in the order of the graph, with what each is: see [`framed`]."""

    def __init__(self, nodes, frames, shape, dims):
        self.nodes, self.frames, self.shape, self.dims = nodes, frames, shape, dims


def framed(nodes):
    """The group of nodes, which are in the order of the graph; `None` if they have no one shape."""
    reduced = [
        (node, _expressions.reduced_dims(node)) for node in nodes if node.target in _expressions.REDUCTIONS
    ]
    if reduced:
        shape, dims = sizes(reduced[0][0].args[0].meta["val"]), reduced[0][1][0]
    else:
        shape, dims = sizes(nodes[0].meta["val"]), ()
    frames = {}
    for node in nodes:
        frame = _frame(node, frames, shape, dims)
        if frame is None:
            return None
        frames[node] = frame
    return Group(nodes, frames, shape, dims)


def kept(shape, dims):
    return tuple(1 if dim in dims else size for dim, size in enumerate(shape))


def squeezed(shape, dims):
    return tuple(size for dim, size in enumerate(shape) if dim not in dims)


def is_leading(dims):
    """Whether a shape without the dimensions is broadcast as one with them is."""
    return dims == tuple(range(len(dims)))


def _frame(node, frames, shape, dims):
    own = sizes(node.meta["val"])
    forms = {FULL: shape, KEPT: kept(shape, dims), SQUEEZED: squeezed(shape, dims)}
    if node.target in VIEWS:
        before = frames.get(node.args[0])
        if before is None:
            return None
        if before == FULL:
            return FULL if own == shape else None
        if node.target in (aten.expand.default, prims.broadcast_in_dim.default) and own == shape:
            return FULL if before == KEPT or is_leading(dims) else None
        return next((form for form in (before, KEPT, SQUEEZED) if own == forms[form]), None)
    if node.target in _expressions.REDUCTIONS:
        of, keeps = _expressions.reduced_dims(node)
        operand = node.args[0]
        fits = of == dims and frames.get(operand, FULL) == FULL and sizes(operand.meta["val"]) == shape
        return (KEPT if keeps else SQUEEZED) if fits else None
    inside = {frames[operand] for operand in operands(node) if operand in frames}
    if SQUEEZED in inside and is_leading(dims):
        inside = inside - {SQUEEZED} | {KEPT}
        forms[SQUEEZED] = None
        if own == squeezed(shape, dims) and FULL not in inside:
            return SQUEEZED if _are_squeezed(node, frames, len(own)) else None
    if FULL in inside or not inside:
        if own == shape and SQUEEZED not in inside:
            return FULL
        return KEPT if dims and not inside and own == forms[KEPT] else None
    if inside == {KEPT}:
        return next((form for form in (KEPT, FULL) if own == forms[form]), None)
    if inside == {SQUEEZED} and own == forms[SQUEEZED] and _are_squeezed(node, frames, len(own)):
        return SQUEEZED
    return None


def _are_squeezed(node, frames, rank):
    """Whether all operands have no reduced dimension: the group's, and others of the same rank or
    none."""
    for operand in operands(node):
        if operand in frames:
            if frames[operand] != SQUEEZED:
                return False
        elif is_tensor(operand) and operand.meta["val"].dim() not in (0, rank):
            return False
    return True


def _draws_numbers(node):
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded in node.target.tags
    )


def _writes(node):
    """Whether a node writes to memory that others may read: no group is on both sides of it."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


class Partition:
    """The groups of a graph. `is_ours` says whether a tensor is one of the device."""

    def __init__(self, graph, is_ours):
        self._places = {node: place for place, node in enumerate(graph.nodes)}
        self._is_ours = is_ours
        self._costs, self.reasons = {}, {}
        self._needs, self._segments = {}, {}
        segment, random = 0, None
        for node in graph.nodes:
            self._needs[node] = operands(node)
            if node.op == "call_function":
                self._costs[node] = self._cost(node)
                if _draws_numbers(node):
                    # Random numbers are drawn in the order of the program.
                    self._needs[node] = [*operands(node), *([random] if random else [])]
                    random = node
                segment += _writes(node)
            self._segments[node] = segment
        self.group_of = {}

    def _cost(self, node):
        """How many steps of an expression a node takes at most; `None` if it cannot be in one."""
        value = node.meta.get("val")
        if node.target not in RULES or not isinstance(value, torch.Tensor) or not self._is_ours(value):
            return None
        text = Text()
        try:
            for operand in operands(node):
                self.check_operand(operand)
            if value.dtype not in _expressions.TYPES:
                raise Unsupported("no kernel has its type")
            inputs = {}

            def resolve(argument, dtype):
                if argument not in inputs:
                    of = argument.meta["val"].dtype if is_tensor(argument) else dtype
                    inputs[argument] = text.input(of)
                return inputs[argument]

            Emitter(text, resolve).emit(node)
        except Unsupported as reason:
            self.reasons[node] = str(reason)
            return None
        return len(text.steps) - len(inputs)

    def check_operand(self, node):
        value = node.meta.get("val")
        if isinstance(value, (int, float, torch.SymInt, torch.SymFloat)):
            return
        if not isinstance(value, torch.Tensor):
            raise Unsupported("an operand is no tensor and no number")
        if value.dtype not in _expressions.TYPES or value.layout != torch.strided:
            raise Unsupported("no kernel has the type of an operand")
        if not self._is_ours(value) and not (value.device.type == "cpu" and value.dim() == 0):
            raise Unsupported("an operand is on another device")

    def groups(self):
        """All groups, in the order of their last nodes."""
        self._grow(self._places)
        found = self._unique()
        self._join(found)
        return self._unique()

    def _unique(self):
        groups = {id(group): group for group in self.group_of.values()}.values()
        return sorted(groups, key=lambda group: self._places[group.nodes[-1]])

    def split(self, group):
        """Groups nodes anew, in two halves, as all of them are too many for one expression."""
        for node in group.nodes:
            self.group_of.pop(node, None)
        half = len(group.nodes) // 2
        parts = []
        for nodes in (group.nodes[:half], group.nodes[half:]):
            self._grow(nodes)
            parts += {id(self.group_of[n]): self.group_of[n] for n in nodes if n in self.group_of}.values()
        return parts

    def dissolve(self, group):
        for node in group.nodes:
            self.group_of.pop(node, None)

    def _grow(self, nodes):
        allowed = set(nodes)
        for node in nodes:
            is_view = node.op == "call_function" and node.target in VIEWS
            if self._costs.get(node) is None and not is_view:
                continue
            near = {
                id(g): g
                for g in (self.group_of.get(o) for o in operands(node) if o in allowed)
                if g is not None
            }
            near = sorted(near.values(), key=lambda group: -self._places[group.nodes[-1]])
            trials = [near] if len(near) > 1 else []
            trials += [[group] for group in near]
            made = next(filter(None, (self._joined(groups, [node]) for groups in trials)), None)
            if made is None and not is_view:
                made = framed([node])
            for member in made.nodes if made else ():
                self.group_of[member] = made

    def _joined(self, groups, more=()):
        """The group of all nodes; `None` if they cannot be one."""
        nodes = sorted(itertools.chain(more, *(group.nodes for group in groups)), key=self._places.get)
        if self._segments[nodes[0]] != self._segments[nodes[-1]]:
            return None
        cost = sum(self._costs.get(node) or 0 for node in nodes)
        if cost + self._inputs(nodes) > MOST_NODES or self._inputs(nodes) > MOST_INPUTS:
            return None
        made = framed(nodes)
        if made is None or self._escaping(nodes) > MOST_OUTPUTS or self._has_cycle(nodes, groups):
            return None
        return made

    def _inputs(self, nodes):
        inside = set(nodes)
        return len({operand for node in nodes for operand in operands(node)} - inside)

    def _escaping(self, nodes):
        """How many nodes are outputs for sure: a user of each is in no group, or in another one."""
        inside = set(nodes)

        def escapes(user):
            if user in inside:
                return False
            return user in self.group_of or (self._costs.get(user) is None and user.target not in VIEWS)

        return sum(any(escapes(user) for user in node.users) for node in nodes if node.target not in VIEWS)

    def _has_cycle(self, nodes, groups):
        """Whether a path leads from the nodes, which become one group, through others back to them."""
        inside = set(nodes)
        first = self._places[nodes[0]]
        seen = set()
        waiting = [operand for node in nodes for operand in self._needs[node] if operand not in inside]
        while waiting:
            node = waiting.pop()
            group = self.group_of.get(node)
            key = id(group) if group else node
            if key in seen:
                continue
            seen.add(key)
            unit = group.nodes if group else (node,)
            if self._places[unit[-1]] < first:
                continue
            for operand in (operand for member in unit for operand in self._needs[member]):
                if operand in inside:
                    return True
                waiting.append(operand)
        return False

    def _join(self, groups):
        """Joins groups of one shape that need nothing of each other: reductions of what they share, and what
        an optimizer computes of each parameter."""
        open_groups = {}
        for group in groups:
            if len(group.nodes) < 2:
                continue
            key = group.shape, group.dims
            known = open_groups.get(key)
            joined = (
                self._joined([known, group])
                if known is not None and (not group.dims or _share(known, group))
                else None
            )
            if joined is not None and len(outputs_of(joined)) > MOST_OUTPUTS:
                joined = None
            for node in joined.nodes if joined else ():
                self.group_of[node] = joined
            open_groups[key] = joined or group

    def order(self, graph):
        """The nodes of a graph that are in no group, and the groups, so that each is behind what it needs."""
        units, unit_of = {}, {}
        for node in graph.nodes:
            unit = self.group_of.get(node) or node
            unit_of[node] = unit
            units.setdefault(unit, []).append(node)
        last = {unit: self._places[nodes[-1]] for unit, nodes in units.items()}
        ordered, state = [], {}
        for start in sorted(units, key=last.get):
            waiting = [(start, None)]
            while waiting:
                unit, needed = waiting.pop()
                if needed is None:
                    if unit in state:
                        if state[unit] == "open":
                            raise Unsupported("its groups need each other")
                        continue
                    state[unit] = "open"
                    needed = {unit_of[o]: None for node in units[unit] for o in self._needs[node]}
                    needed.pop(unit, None)
                    waiting.append((unit, sorted(needed, key=last.get)))
                    waiting += [
                        (other, None)
                        for other in sorted(needed, key=last.get, reverse=True)
                        if other not in state
                    ]
                elif state[unit] == "open":
                    state[unit] = "done"
                    ordered.append(unit)
        return ordered


def _share(a, b):
    """Whether two groups read the same."""
    return not {o for node in a.nodes for o in operands(node)}.isdisjoint(
        o for node in b.nodes for o in operands(node)
    )


def outputs_of(group):
    """The nodes of a group that others use, also by views of them."""
    outputs = []
    for node in group.nodes:
        if node.target in VIEWS:
            continue
        waiting, seen = list(node.users), set()
        while waiting:
            user = waiting.pop()
            if user not in group.frames:
                outputs.append(node)
                break
            if user.target in VIEWS and user not in seen:
                seen.add(user)
                waiting += user.users
    return outputs


class Input:
    """What an expression reads: a node, as it is or with the reduced dimensions put in, or a number."""

    def __init__(self, node, dtype, is_squeezed):
        self.node, self.dtype, self.is_squeezed = node, dtype, is_squeezed
        value = node.meta["val"]
        self.is_tensor = isinstance(value, torch.Tensor)
        self.is_array = is_tensor(node)

    @property
    def key(self):
        return self.node, self.dtype, self.is_squeezed


class Expression:
    """The expression of a group: its text, what it reads, and the nodes that it writes, `first`
    before others."""

    def __init__(self, group, first=()):
        self.group = group
        self.absorbed = []
        outputs = outputs_of(group)
        self.outputs = [node for node in first if node in outputs] + [
            node for node in outputs if node not in first
        ]
        try:
            self._write(absorbs=True)
        except Unsupported:
            self._write(absorbs=False)
        if (
            len(self.inputs) > MOST_INPUTS
            or len(self.outputs) > MOST_OUTPUTS
            or len(self.text_steps) > MOST_NODES
        ):
            raise TooLarge("an expression has fewer inputs, outputs or nodes")

    def _write(self, absorbs):
        self.absorbed = []
        inputs = {}
        self._emit(Text(), inputs, absorbs)
        # Tensors are first, and then numbers.
        self.inputs = sorted(inputs.values(), key=lambda read: not read.is_tensor)
        if not any(read.is_array for read in self.inputs):
            raise Unsupported("it reads no tensor")
        text = Text()
        declared = {read.key: read for read in self.inputs}
        values = self._emit(text, declared, absorbs, [text.input(read.dtype) for read in self.inputs])
        self._check_span()
        self.operators, self.text_steps = text.operators, text.steps
        forms = [self._form(node) for node in self.outputs]
        self.text = "; ".join([text.finished([values[node] for node in self.outputs]), *forms])

    def _emit(self, text, inputs, absorbs, places=None):
        group, values = self.group, {}
        known = dict(zip(inputs, places or ()))
        for node in group.nodes:
            if node.target in VIEWS:
                values[node] = values[node.args[0]]
                continue
            in_squeezed = group.frames[node] == SQUEEZED and not is_leading(group.dims)
            reduces = node.target in _expressions.REDUCTIONS

            def resolve(argument, dtype, in_squeezed=in_squeezed and not reduces):
                if argument in values:
                    return values[argument]
                if absorbs:
                    number = self._absorbed_number(argument)
                    if number is not None:
                        return text.literal(argument.meta["val"].dtype, number)
                    argument = self._absorbed_expand(argument) if not in_squeezed else argument
                    if argument in values:
                        return values[argument]
                is_array = is_tensor(argument)
                is_squeezed = in_squeezed and is_array and argument.meta["val"].dim() > 0
                read = Input(argument, argument.meta["val"].dtype if is_array else dtype, is_squeezed)
                if read.key not in known:
                    inputs[read.key] = read
                    known[read.key] = text.input(read.dtype)
                return known[read.key]

            values[node] = Emitter(text, resolve).emit(node)
        return values

    def _absorbed_number(self, node):
        """The number that a tensor consists of."""
        if node.target is not aten.full.default or not isinstance(node.args[1], (bool, int, float)):
            return None
        number, dtype = node.args[1], node.meta["val"].dtype
        if dtype == torch.bool:
            number = bool(number)
        if not _expressions.fits(float(number) if dtype.is_floating_point else number, dtype):
            return None
        if node not in self.absorbed:
            self.absorbed.append(node)
        return number

    def _absorbed_expand(self, node):
        """What a tensor is an expansion of: a kernel broadcasts it."""
        while node.target is aten.expand.default and is_tensor(node.args[0]):
            if node not in self.absorbed:
                self.absorbed.append(node)
            node = node.args[0]
        return node

    def _check_span(self):
        """A call has the shape of its arrays together."""
        group = self.group
        spanned = [size == 1 for size in group.shape]
        for read in self.inputs:
            if not read.is_array:
                continue
            own = list(sizes(read.node.meta["val"]))
            if read.is_squeezed:
                for dim in group.dims:
                    own.insert(dim, 1)
            start = len(group.shape) - len(own)
            for dim, size in enumerate(own):
                spanned[start + dim] = spanned[start + dim] or size == group.shape[start + dim]
        if not all(spanned):
            raise Unsupported("what it reads has another shape")

    def _form(self, node):
        value = node.meta["val"]
        frame = self.group.frames[node]
        order = memory_order(value)
        if frame == FULL:
            return " ".join(["full", *map(str, order)])
        if order:
            raise Unsupported("what is reduced is not contiguous")
        return frame


class TooLarge(Unsupported):
    """A group that is too large for one expression."""


def memory_order(value):
    """The dimensions of a dense tensor from the outermost to the innermost one; nothing if it is
    contiguous."""
    shape, found = sizes(value), strides(value)
    rank = len(shape)
    usual = [tuple(range(rank))]
    if rank in (4, 5):
        usual.append((0, *range(2, rank), 1))
    for order in itertools.chain(usual, itertools.permutations(range(rank)) if rank <= 5 else ()):
        expected = 1
        for dim in reversed(order):
            if shape[dim] != 1 and found[dim] != expected:
                break
            expected = operator.mul(expected, shape[dim])
        else:
            return () if order == tuple(range(rank)) else order
    raise Unsupported("its memory has gaps")
