"""Calls of aten operators as torch's own samples make them, backward included: what coverage.py replays."""
import collections
import copyreg
import io
import itertools
import os
import pickle
import random
import tempfile
import warnings
import zlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from aten_samples import all_samples

CALLS_KEPT = 4  # of one overload, each of another structure
SAMPLES_SEEN = 60  # of one operator
SAMPLES_RUN = 15  # of those, spread over them
MOST_ELEMENTS = 200_000  # of all tensors of a call
def memory_format_named(name):
    return getattr(torch, name.removeprefix("torch."))


copyreg.pickle(torch.memory_format, lambda form: (memory_format_named, (str(form),)))  # torch.save cannot

PLAIN_TYPES = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format,
               torch.Generator)

# Overloads that no sample reaches and whose arguments are those of another operator.
SAME_ARGUMENTS = {
    "clip": "clamp", "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift",
    "__iand__": "bitwise_and", "__ior__": "bitwise_or", "__ixor__": "bitwise_xor",
    "__ilshift__": "bitwise_left_shift", "__irshift__": "bitwise_right_shift",
}


def name_of(func):
    """aten.add.Tensor"""
    return str(func)


def overload_named(name):
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def all_overloads():
    for qualified in sorted(torch._C._dispatch_get_all_op_names()):
        if qualified.startswith("aten::"):
            packet, _, overload = qualified[len("aten::"):].partition(".")
            try:
                yield getattr(getattr(torch.ops.aten, packet), overload or "default")
            except AttributeError:  # a name without a schema
                continue


def tensors_of(tree):
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def copied(tree):
    def copy(leaf):
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone()
        return None if isinstance(leaf, torch.Generator) else leaf

    return tree_map(copy, tree)


def is_plain(leaf):
    if not isinstance(leaf, torch.Tensor):
        return leaf is None or isinstance(leaf, PLAIN_TYPES)
    return (type(leaf) in (torch.Tensor, torch.nn.Parameter) and leaf.layout == torch.strided
            and leaf.device.type == "cpu" and not leaf.is_quantized and not leaf.is_nested)


def is_of_use(leaves):
    tensors = tensors_of(leaves)
    return (all(map(is_plain, leaves)) and any(t.numel() > 1 for t in tensors)
            and sum(t.numel() for t in tensors) <= MOST_ELEMENTS)


def structure(tree):
    def kind(leaf):
        if isinstance(leaf, torch.Tensor):
            return (leaf.ndim, leaf.dtype, leaf.numel() > 1)
        return leaf if isinstance(leaf, (bool, str, torch.dtype)) else type(leaf)

    leaves, spec = tree_flatten(tree)
    return str(spec), tuple(map(kind, leaves))


class Calls:
    """By overload, the arguments of its calls."""

    def __init__(self):
        self.calls = collections.defaultdict(dict)  # name -> {structure: (args, kwargs)}

    def run(self, func, args, kwargs):
        """Runs it, and keeps it unless it throws."""
        kept = self.calls[name_of(func)]
        leaves = tree_flatten((args, kwargs))[0] if len(kept) < CALLS_KEPT else []
        if not is_of_use(leaves) or structure((args, kwargs)) in kept:
            return func(*args, **kwargs)
        before = structure((args, kwargs)), copied((args, kwargs))
        result = func(*args, **kwargs)
        kept.update([before])
        return result

    def of(self, name):
        return list(self.calls.get(name, {}).values())


class Recorder(TorchDispatchMode):
    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace != "aten":
            return func(*args, **(kwargs or {}))
        return self.calls.run(func, args, kwargs or {})


# What torch's samples call


def seed(name):
    torch.manual_seed(zlib.crc32(name.encode()))
    random.seed(zlib.crc32(name.encode()))


def spread(samples):
    found = list(itertools.islice(samples, SAMPLES_SEEN))
    count = min(len(found), SAMPLES_RUN)
    return [found[len(found) * k // count] for k in range(count)]


def run_backward(result):
    outputs = [t for t in tensors_of(result) if t.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.randn_like(t) for t in outputs])


def attempt(action, *arguments):
    """None if it throws: torch's samples may need what is not there, or be wrong on purpose."""
    try:
        return action(*arguments)
    except Exception:  # noqa: BLE001
        return None


def element_types(op):
    supported = op.supported_dtypes("cpu")
    found = [t for t in (torch.float32, torch.int64, torch.bool, torch.complex64) if t in supported]
    return found[:1] + [t for t in found[1:] if t == torch.complex64]


def names_in_aten(op):
    named = [op.aten_name, op.name, *(alias.name for alias in op.aliases)]
    return {name.replace("nn.functional.", "").replace(".", "_") for name in named if name}


def run_as_named(calls, op, sample):
    """The overload that takes the sample itself: libtorch may make it of others before a mode sees it."""
    for name in names_in_aten(op):
        packet = getattr(torch.ops.aten, name, None)
        if packet is not None:
            arguments = (sample.input, *sample.args)
            overload = torch._C._jit_resolve_packet(packet._qualified_op_name, *arguments, **sample.kwargs)
            calls.run(getattr(packet, overload or "default"), arguments, sample.kwargs)


def run_op(calls, op, dtype):
    seed(op.name)
    differentiable = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    samples = op.sample_inputs("cpu", dtype, requires_grad=differentiable)
    for sample in spread(samples):
        attempt(run_as_named, calls, op, sample)
        with Recorder(calls):
            attempt(lambda: run_backward(op(sample.input, *sample.args, **sample.kwargs)))
            if op.inplace_variant is not None and isinstance(sample.input, torch.Tensor):
                attempt(lambda: op.inplace_variant(sample.input.detach().clone(), *sample.args, **sample.kwargs))


def some_members(argument):
    return argument[:3] if isinstance(argument, (list, tuple)) else argument


def run_foreach(calls, op):
    seed(op.name)
    for sample in spread(op.sample_inputs("cpu", torch.float32, noncontiguous=False)):
        first, *rest = map(some_members, (sample.input, *sample.args))
        for form in (op.method_variant, op.inplace_variant):
            if form is not None:
                with Recorder(calls):
                    attempt(lambda: form(copied(first), *rest, **sample.kwargs))


def run_module(calls, info):
    seed(info.name)
    for training in (True, False):
        inputs = info.module_inputs_func(info, "cpu", torch.float32, requires_grad=True, training=training)
        for made in spread(inputs):
            constructor, forward = made.constructor_input, made.forward_input
            module = attempt(lambda: info.module_cls(*constructor.args, **constructor.kwargs).train(training))
            if module is not None and forward is not None:
                with Recorder(calls):
                    attempt(lambda: run_backward(module(*forward.args, **forward.kwargs)))


def run_optimizer(calls, info):
    seed(info.optim_cls.__name__)
    for made, form in itertools.product(info.optim_inputs_func("cpu"), ("for", "foreach", "fused")):
        parameters = [torch.nn.Parameter(torch.randn(5, 4)), torch.nn.Parameter(torch.randn(6))]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        named = {**made.kwargs, **({form: True} if form != "for" else {"foreach": False})}
        optimizer = attempt(lambda: info.optim_cls(parameters, **named))
        if optimizer is not None:
            with Recorder(calls):
                for _ in range(2):
                    attempt(lambda: optimizer.step(lambda: torch.ones(())))


def recorded():
    from torch.testing._internal import common_methods_invocations as operators
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db
    calls = Calls()
    for op in operators.op_db:
        for dtype in element_types(op):
            attempt(run_op, calls, op, dtype)
    for group in ("unary", "binary", "pointwise", "reduce", "other"):
        for op in getattr(operators, f"foreach_{group}_op_db"):
            attempt(run_foreach, calls, op)
    for info in module_db:
        attempt(run_module, calls, info)
    for info in optim_db:
        attempt(run_optimizer, calls, info)
    seed("more")
    for name, sample in all_samples().items():
        args, kwargs = copied(sample)  # what one of them writes, the others see as it was
        attempt(calls.run, overload_named(name), args, kwargs)
    return calls


# Calls of overloads that the samples do not reach


def is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def is_out(argument):
    return is_written(argument) and argument.kwarg_only


def by_name(func, args, kwargs):
    return {**{a.name: value for a, value in zip(func._schema.arguments, args)}, **kwargs}


def fitting(argument, value):
    """The value as the argument wants it: a number of a tensor, a tensor of a number."""
    wanted = str(argument.type)
    if wanted in ("number", "Scalar") and isinstance(value, torch.Tensor):
        return value.flatten()[0].item()
    if wanted == "Tensor" and isinstance(value, (bool, int, float)):
        return torch.tensor(value)
    return value


def arguments_from(func, source, args, kwargs):
    """The source's arguments as the overload's; outs like the source's results. None if some are missing."""
    given = by_name(source, args, kwargs)
    ours = {}
    outs = [a for a in func._schema.arguments if is_out(a)]
    for argument in func._schema.arguments:
        if argument in outs:
            continue
        if argument.name in given:
            ours[argument.name] = fitting(argument, given[argument.name])
        elif not argument.has_default_value():
            return None
    if outs:
        results = source(*copied(args), **copied(kwargs))
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        if len(outs) == 1 and str(outs[0].type).startswith("List"):
            results = [results]
        if len(results) != len(outs):
            return None
        ours.update({a.name: tree_map(torch.zeros_like, result) for a, result in zip(outs, results)})
    return (), ours


def forms_of(func):
    """Packets whose calls may serve the overload, the nearest first."""
    packet = func._schema.name.partition("::")[2]
    plain = packet if packet.startswith("__") else packet.removesuffix("_")
    return dict.fromkeys([packet, plain, plain + "_", plain.removeprefix("_"), SAME_ARGUMENTS.get(plain)])


def derived(func, calls, packets):
    made = {}
    for packet in forms_of(func):
        for source in packets.get(packet, ()):
            for args, kwargs in calls.of(name_of(source)):
                call = attempt(arguments_from, func, source, args, kwargs)
                call = call and attempt(with_outs_of_its_size, func, call)
                if call:
                    made.setdefault(structure(call), call)
                if len(made) == CALLS_KEPT:
                    return list(made.values())
    return list(made.values())


def with_outs_of_its_size(func, call):
    """The call with outs that need not be resized. Throws if the operator does not take it, or gives too much."""
    args, kwargs = copied(call)
    if sum(t.numel() for t in tensors_of(func(*args, **kwargs))) > MOST_ELEMENTS:
        raise ValueError("too large")
    outs = [a.name for a in func._schema.arguments if is_out(a) and a.name in kwargs]
    return call[0], {**call[1], **{name: tree_map(torch.zeros_like, kwargs[name]) for name in outs}}


# Larger operands: beside them, totals are small

GROWTH = {0: 1, 1: 64, 2: 8, 3: 4}
NOT_GROWN = ("unfold_backward", "glu_backward")  # they do not look whether sizes fit


def grown(call, dims):
    """The tensors repeated along their dims, or the first ones only; floats get different values."""
    tensors = tensors_of(call)
    most = max(t.ndim for t in tensors)
    times = GROWTH.get(most, 3) if dims == "all" else 32
    largest = max(tensors, key=torch.numel)
    generator = torch.Generator().manual_seed(0)

    def sizes(shape):
        if dims == "all":
            return [times * n if n > 1 else n for n in shape]
        return [times * shape[0] if shape[0] == largest.shape[0] else shape[0], *shape[1:]]

    def grow(leaf):
        if not isinstance(leaf, torch.Tensor) or leaf.ndim == 0:
            return leaf
        more = leaf.repeat([new // max(old, 1) for old, new in zip(leaf.shape, sizes(leaf.shape))])
        if more.is_floating_point() or more.is_complex():
            more = more * (1 + torch.rand(more.shape, generator=generator) / 16).to(more.dtype)
        return more

    shapes = {tuple(t.shape) for t in tensors if t.ndim}

    def grow_sizes(leaf):
        is_shape = isinstance(leaf, (list, tuple)) and leaf and all(isinstance(n, int) for n in leaf)
        return type(leaf)(sizes(leaf)) if is_shape and tuple(leaf) in shapes else leaf

    args, kwargs = call
    with_sizes = (tuple(map(grow_sizes, args)), {name: grow_sizes(value) for name, value in kwargs.items()})
    return tree_map(grow, with_sizes)


def larger(func, call):
    """None if the operator does not take it so."""
    if func._schema.name.partition("::")[2] in NOT_GROWN:
        return None
    for dims in ("all", "first"):
        made = attempt(grown, call, dims)
        if made is not None and sum(t.numel() for t in tensors_of(made)) <= MOST_ELEMENTS:
            made = attempt(with_outs_of_its_size, func, made)
            if made is not None:
                return made
    return None


class Maker:
    """Makes the calls of overloads from what was recorded."""

    def __init__(self):
        self.recorded = recorded()
        self.packets = collections.defaultdict(list)
        for name in self.recorded.calls:
            func = overload_named(name)
            if not any(map(is_out, func._schema.arguments)):
                self.packets[func._schema.name.partition("::")[2]].append(func)

    @torch.no_grad()
    def calls_of(self, name):
        """As bytes: [(call, larger call or None), ...]"""
        func = overload_named(name)
        found = self.recorded.of(name) or derived(func, self.recorded, self.packets)
        return as_bytes([(call, larger(func, call)) for call in found])

    def make(self, names, stream):
        """Writes the calls of each to the stream, in a process of its own. Says whether it came to the end."""
        child = os.fork()
        if child == 0:
            for name in names:
                pickle.dump((name, attempt(self.calls_of, name) or as_bytes([])), stream)
                stream.flush()
            os._exit(0)
        return os.waitpid(child, 0)[1] == 0


def as_bytes(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def from_bytes(value):
    return torch.load(io.BytesIO(value), weights_only=False)


def read_stream(path):
    with open(path, "rb") as stream:
        while True:
            try:
                yield pickle.load(stream)
            except EOFError:
                return


def make_calls(path, is_wanted):
    """Writes {name: calls, as bytes} of all overloads that are wanted. One that libtorch cannot bear with other
    arguments than its samples has only those."""
    warnings.simplefilter("ignore")
    maker = Maker()
    names = [name for name in map(name_of, all_overloads()) if is_wanted(name)]
    with tempfile.NamedTemporaryFile() as stream:
        made = {}
        while len(made) < len(names):
            rest = names[len(made):]
            is_done = maker.make(rest, stream)
            made = dict(read_stream(stream.name))
            if not is_done:
                crashed = names[len(made)]
                pickle.dump((crashed, as_bytes([(call, None) for call in maker.recorded.of(crashed)])), stream)
                stream.flush()
                made = dict(read_stream(stream.name))
    with open(path, "wb") as file:
        pickle.dump(made, file)
