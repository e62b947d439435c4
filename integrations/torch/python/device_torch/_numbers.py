"""Numbers of a graph: tensors of no dimensions on the CPU, of which a step of an optimizer has many."""

import operator

import torch

aten = torch.ops.aten

# What is computed of one number, and as well of several at once.
_OF_ONE = {
    aten.add.Tensor, aten.sub.Tensor, aten.rsub.Scalar, aten.mul.Tensor, aten.div.Tensor, aten.neg.default,
    aten.reciprocal.default, aten.sqrt.default, aten.rsqrt.default, aten.exp.default, aten.log.default,
    aten.pow.Scalar, aten.pow.Tensor_Scalar,
}  # fmt: skip

# From so many numbers on, computing them at once takes less time than one by one.
_FEWEST = 4


def _is_number(node):
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() == 0


def fold(graph):
    """Computes what is made of numbers alone, which is on the CPU: a step of an optimizer has much of it."""
    folded = {}
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.op != "call_function" or not _is_number(node):
            continue
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        if node.target._schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags:
            continue
        if any(operand not in folded for operand in node.all_input_nodes):
            continue
        arguments, options = torch.fx.map_arg((node.args, node.kwargs), folded.__getitem__)
        folded[node] = node.target(*arguments, **options)
        if node.target is aten.full.default or folded[node].is_complex():
            continue
        with graph.inserting_before(node):
            number = graph.call_function(aten.full.default, ([], folded[node].item()), {"dtype": value.dtype})
        number.kwargs = {**number.kwargs, "device": torch.device("cpu")}
        number.meta = node.meta
        node.replace_all_uses_with(number)
        folded[number] = folded[node]
    graph.eliminate_dead_code()


def batch(graph):
    """Computes at once what the program computes alike of several numbers, such as the corrections of Adam for
    each parameter. Returns how many operators that saves."""
    # The numbers that are computed of each input, by the operators on the way to them.
    chains = {node: {(): node} for node in graph.find_nodes(op="placeholder") if _is_number(node)}
    place_of = {root: (root, ()) for root in chains}
    for node in graph.nodes:
        operands = node.all_input_nodes
        if node.target not in _OF_ONE or len(operands) != 1 or operands[0] not in place_of:
            continue
        root, path = place_of[operands[0]]
        # As a text: 1 and 1.0 are equal, and give numbers of other types.
        arguments = repr(torch.fx.map_arg((node.args, node.kwargs), lambda _: None))
        path = (*path, (node.target, arguments))
        if path not in chains[root]:
            chains[root][path] = node
            place_of[node] = root, path
    alike = {}
    for root, chain in chains.items():
        # What the program returns has memory of its own.
        is_returned = any(user.op == "output" for node in chain.values() for user in node.users)
        if len(chain) > 1 and not is_returned:
            alike.setdefault((root.meta["val"].dtype, frozenset(chain)), []).append(chain)
    alike = [chains for chains in alike.values() if len(chains) >= _FEWEST]
    for chains in alike:
        _compute_at_once(graph, chains)
    return sum((len(chains[0]) - 1) * (len(chains) - 1) for chains in alike)


def _compute_at_once(graph, chains):
    first = next(node for node in graph.nodes if node.op != "placeholder")
    replaced = {node for chain in chains for path, node in chain.items() if path}
    roots = [chain[()] for chain in chains]
    with graph.inserting_before(first):
        several = {(): graph.call_function(aten.stack.default, (roots,))}
        for path, node in chains[0].items():
            if path:
                of = several[path[:-1]]
                arguments, options = torch.fx.map_arg((node.args, node.kwargs), lambda _, of=of: of)
                several[path] = graph.call_function(node.target, arguments, options)
        for path, numbers in several.items():
            nodes = [chain[path] for chain in chains]
            numbers.meta["val"] = nodes[0].meta["val"].unsqueeze(0).expand(len(nodes))
            users = {user for node in nodes for user in node.users}
            if not path or users <= replaced:
                continue
            parts = graph.call_function(aten.unbind.int, (numbers,))
            parts.meta["val"] = [node.meta["val"] for node in nodes]
            for place, node in enumerate(nodes):
                part = graph.call_function(operator.getitem, (parts, place))
                part.meta = node.meta
                node.replace_all_uses_with(part)
    _write_at_once(graph, roots)
    graph.eliminate_dead_code()


def _write_at_once(graph, roots):
    """Writes the new numbers of the inputs `roots` by one operator."""
    roots = set(roots)
    copies = [
        copy
        for copy in graph.find_nodes(op="call_function", target=aten.copy_.default)
        if copy.args[0] in roots and _is_number(copy.args[1]) and not copy.users and len(copy.args) == 2
    ]
    if len(copies) > 1:
        targets, sources = zip(*(copy.args for copy in copies))
        with graph.inserting_after(copies[-1]):
            graph.call_function(aten._foreach_copy_.default, (list(targets), list(sources)))
        for copy in copies:
            graph.erase_node(copy)
