"""One operator or module on one sample: plain, distributed, and how they compare."""
import collections
import copy
import zlib

import torch
from torch.utils._pytree import tree_flatten, tree_map

from placing import value_of

# libtorch leaves `out` as it is where these transform one dim: what the function gives is right.
UNWRITTEN = {"fft.ihfft2", "fft.ihfftn"}
# What they return was never written to: only shape and element type count.
UNSET = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
         "resize_", "resize_as_"}


class Wrong(Exception):
    pass


def tensors_of(tree):
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def members_of(tree):
    """The parameters and buffers of the modules in it, each once."""
    modules = [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.nn.Module)]
    return [t for module in modules for t in (*module.parameters(), *module.buffers())]


def converted_module(module, convert):
    """A copy of it, with each parameter and buffer as `convert` makes it."""
    made = copy.deepcopy(module)
    for mine, original in zip(members_of(made), members_of(module), strict=True):
        mine.data = convert(original).detach()
    return made


# The forms of an operator: functions of a sample's arguments. `place` places an output.


def in_place(op):
    return lambda first, *rest, **named: op.inplace_variant(first.clone(), *rest, **named)


def with_out(op, place):
    @torch.no_grad()
    def call(first, *rest, **named):
        result = op(first, *rest, **named)
        out = tree_map(lambda t: place(torch.zeros(t.shape, dtype=t.dtype)), result)
        return op(first, *rest, out=out, **named)

    return call


def has_form(op, form, sample):
    if form == "inplace":
        return op.inplace_variant is not None and not sample.broadcasts_input and isinstance(sample.input, torch.Tensor)
    return form == "function" or op.supports_out


# One run of an operator


class Run:
    """The operator or module called once: its outputs, its inputs and their gradients, or what it threw."""

    def __init__(self, call, sample, convert):
        converted = {}  # a tensor that appears twice stays one

        def convert_once(leaf):
            if isinstance(leaf, torch.nn.Module):
                made = converted_module(leaf, convert)
                self.members += members_of(made)
                return made
            if not isinstance(leaf, torch.Tensor):
                return leaf
            if id(leaf) not in converted:
                converted[id(leaf)] = convert(leaf)
            return converted[id(leaf)]

        self.outputs = self.error = self.gradient_error = None
        self.gradients, self.members = [], []  # members: of modules among the arguments
        try:
            arguments = tree_map(convert_once, (sample.input, sample.args, sample.kwargs))
            self.inputs = [*converted.values(), *self.members]
            versions = [t._version for t in self.inputs]
            first, rest, named = arguments
            self.result = call(first, *rest, **named)
            self.outputs = tree_flatten(self.result)[0]
            self.written = [t._version != v for t, v in zip(self.inputs, versions)]
        except Exception as error:  # noqa: BLE001 whatever an operator throws is an outcome
            self.error = error

    def differentiate(self, sample, cotangent_of):
        """The gradients of the inputs that want one."""
        wanting = [t for t in self.inputs if t.requires_grad and t.is_leaf]
        try:
            result = sample.output_process_fn_grad(self.result)
            outputs = [t for t in tensors_of(result) if t.requires_grad]
            if wanting and outputs:
                cotangents = [cotangent_of(i, t) for i, t in enumerate(outputs)]
                self.gradients = self.gradients_of(outputs, wanting, cotangents)
        except Exception as error:  # noqa: BLE001
            self.gradient_error = error

    def gradients_of(self, outputs, wanting, cotangents):
        if not self.members:
            return torch.autograd.grad(outputs, wanting, cotangents, allow_unused=True)
        torch.autograd.backward(outputs, cotangents)  # parameters are trained by what comes to .grad
        return [t.grad for t in wanting]

    def results(self):
        """{what: tensor}, as a Comparison calls them."""
        found = {f"output {i}": t for i, t in enumerate(self.outputs or [])}
        found |= {f"input {i}, written to": t for i, t in enumerate(self.inputs)}
        found |= {f"gradient {i}": t for i, t in enumerate(self.gradients)}
        return {what: t for what, t in found.items() if isinstance(t, torch.Tensor)}


def draws(call, sample, choices):
    """Whether the plain operator draws from torch's generator."""
    before = torch.manual_seed(1).get_state()
    Run(call, sample, lambda t: clone_of(t, choices))
    return not torch.equal(torch.get_rng_state(), before)


def bytes_of(tensor):
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return b""
    wider = {torch.bfloat16: torch.float32, torch.complex32: torch.complex64}  # numpy has neither
    return tensor.detach().to(wider.get(tensor.dtype, tensor.dtype)).numpy(force=True).tobytes()


def clone_of(tensor, choices):
    return value_of(tensor.detach().clone(), choices[id(tensor)]).requires_grad_(tensor.requires_grad)


def double_of(tensor, choices):
    wider = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    made = clone_of(tensor, choices).detach()
    return made.to(wider.get(made.dtype, made.dtype)).requires_grad_(tensor.requires_grad)


# Comparing


# So much farther from the result in double precision than the plain one may a result be, beside the tolerance.
TIMES_THE_NOISE = 4

def tolerance_for(expected, precision=None):
    """(relative, absolute): parts that are summed are rounded by the size of the greatest.

    precision: the element type of the work, if it is another one than the result's.
    """
    if not (expected.is_floating_point() or expected.is_complex()) or expected.numel() == 0:
        return None, None
    relative, absolute = {4: (1.3e-6, 1e-4), 8: (1e-7, 1e-7), 16: (1e-7, 1e-7)}.get(expected.element_size(), (1.6e-2, 1e-5))
    if expected.dtype == torch.complex64:
        relative, absolute = 1.3e-6, 1e-4
    if precision == torch.bfloat16:
        relative, absolute = 1.6e-2, 1e-3
    sizes = expected.detach().abs().to(torch.float64)
    greatest = sizes[sizes.isfinite()].max().item() if sizes.isfinite().any() else 0
    return relative, absolute * max(1.0, greatest)


def compare_tensors(what, actual, expected, values=True, precision=None, noise=0.0):
    if tuple(actual.shape) != tuple(expected.shape):
        raise Wrong(f"{what}: shape {list(actual.shape)} instead of {list(expected.shape)}")
    if actual.dtype != expected.dtype:
        raise Wrong(f"{what}: {actual.dtype} instead of {expected.dtype}")
    if values:
        try:
            rtol, atol = tolerance_for(expected, precision)
            if atol is not None:
                atol += TIMES_THE_NOISE * noise
            torch.testing.assert_close(actual.detach(), expected.detach(), rtol=rtol, atol=atol, equal_nan=True,
                                       check_stride=False)
        except AssertionError as error:
            raise Wrong(f"{what}: {' '.join(str(error).split())}") from None


def compare_values(what, actual, expected):
    if type(actual) is not type(expected):
        raise Wrong(f"{what}: {type(actual).__name__} instead of {type(expected).__name__}")
    if isinstance(expected, (float, complex)):
        compare_tensors(what, torch.tensor(actual), torch.tensor(expected))
    elif actual != expected:
        raise Wrong(f"{what}: {actual} instead of {expected}")


class Comparison:
    """Of a distributed run with the plain one; counts the bytes of what it sees."""

    def __init__(self, tensors, values, precision, run_in_doubles):
        self.tensors = tensors
        self.values = values
        self.precision = precision
        self.run_in_doubles = run_in_doubles
        self.fingerprint = 0

    def outputs(self, actual, expected):
        if len(actual) != len(expected):
            raise Wrong(f"{len(actual)} outputs instead of {len(expected)}")
        for i, (mine, plain) in enumerate(zip(actual, expected)):
            what = f"output {i}"
            if isinstance(plain, torch.Tensor) and isinstance(mine, torch.Tensor):
                self.one(what, mine, plain)
            elif self.values or isinstance(plain, torch.Tensor) != isinstance(mine, torch.Tensor):
                compare_values(what, mine, plain)

    def one(self, what, mine, plain):
        whole = self.tensors.whole(mine)
        try:
            compare_tensors(what, whole, plain, self.values, self.precision)
        except Wrong:
            compare_tensors(what, whole, plain, self.values, self.precision, self.noise(what, plain))
        self.fingerprint = zlib.crc32(bytes_of(whole), self.fingerprint)

    def noise(self, what, plain):
        """How far the plain result is from the one in double precision, at most."""
        exact = self.run_in_doubles().results().get(what)
        if exact is None or exact.shape != plain.shape or not plain.is_floating_point():
            return 0.0
        difference = (plain.detach() - exact.detach()).abs().nan_to_num(0.0, 0.0, 0.0)
        return difference.max().item() if difference.numel() else 0.0

    def written(self, actual, expected):
        for i, (mine, plain, changed) in enumerate(zip(actual.inputs, expected.inputs, expected.written)):
            if changed:
                self.one(f"input {i}, written to", mine, plain)

    def gradients(self, actual, expected):
        for i, (mine, plain) in enumerate(zip(actual, expected)):
            what = f"gradient {i}"
            if mine is None or plain is None:  # None means zeros
                one = plain if mine is None else self.tensors.whole(mine)
                if one is not None and self.values and bool((one != 0).any()):
                    raise Wrong(f"{what}: zeros on one side only")
                continue
            if not self.tensors.is_placed(mine):
                raise Wrong(f"{what}: a plain tensor")
            self.one(what, mine, plain)


# One sample


Outcome = collections.namedtuple("Outcome", "kind message fingerprint", defaults=("", 0))


class Trial:
    """One operator or module on one sample, plain and distributed."""

    def __init__(self, op, form, sample, tensors, chooser, own_draws):
        self.op, self.form, self.sample = op, form, sample
        self.tensors, self.chooser, self.own_draws = tensors, chooser, own_draws
        arguments = (sample.input, sample.args, sample.kwargs)
        self.inputs = [*tensors_of(arguments), *members_of(arguments)]
        self.choices = {id(t): chooser.choose(t) for t in self.inputs}
        self.cotangents = {}
        self.keeps_cut = False  # whether a result is cut

    def __str__(self):
        return ", ".join(f"{list(t.shape)} {self.choices[id(t)]}" for t in self.inputs[:6])

    def cut(self):
        """"kept" or "lost", what became of the operands' cuts; "" if there was none."""
        was_cut = any(choice.is_cut() for choice in self.choices.values())
        return ("kept" if self.keeps_cut else "lost") if was_cut else ""

    def cotangent(self, i, output):
        if i not in self.cotangents:
            generator = torch.Generator().manual_seed(i)
            value = torch.randn(output.shape, dtype=output.dtype, generator=generator)
            self.cotangents[i] = (value, self.chooser.choose(value))
        return self.cotangents[i]

    def plain_cotangent(self, i, output):
        value, choice = self.cotangent(i, output)
        return value_of(value, choice).to(output.dtype)

    def placed_cotangent(self, i, output):
        return self.tensors.place(*self.cotangent(i, output))

    def call(self, place):
        if self.form == "inplace":
            return in_place(self.op)
        return with_out(self.op, place) if self.form == "out" else self.op

    def place_anywhere(self, tensor):
        return self.tensors.place(tensor, self.chooser.choose(tensor))

    def run_plain(self, convert):
        torch.manual_seed(0)
        is_unwritten = self.form == "out" and self.op.name in UNWRITTEN
        call = torch.no_grad()(self.op) if is_unwritten else self.call(place=lambda t: t)
        plain = Run(call, self.sample, lambda t: convert(t, self.choices))
        if not plain.error:
            plain.differentiate(self.sample, self.plain_cotangent)
        return plain

    def run(self):
        random = "unset" if self.op.name in UNSET else ""
        if draws(self.call(place=lambda t: t), self.sample, self.choices):
            random = "drawn"
        plain = self.run_plain(clone_of)
        torch.manual_seed(0)
        torch.rand(self.own_draws)  # by which ranks differ
        placed = Run(self.call(self.place_anywhere), self.sample, lambda t: self.tensors.place(t, self.choices[id(t)]))
        return self.compare(placed, plain, random)

    def compare(self, placed, plain, random):
        comparison = Comparison(self.tensors, values=not random, precision=getattr(self.op, "precision", None),
                                run_in_doubles=lambda: self.run_plain(double_of))
        try:
            if plain.error:
                return self.judge_error(placed.error, plain.error) if placed.error else Outcome("right", "plain throws")
            if placed.error:
                return self.judge_error(placed.error, None)
            self.keeps_cut = any(self.tensors.is_cut(t) for t in tensors_of(placed.outputs))
            comparison.outputs(placed.outputs, plain.outputs)
            comparison.written(placed, plain)
            if plain.gradient_error or plain.gradients:
                placed.differentiate(self.sample, self.placed_cotangent)
                if placed.gradient_error:
                    return self.judge_error(placed.gradient_error, plain.gradient_error, "backward: ")
                if plain.gradients:
                    comparison.gradients(placed.gradients, plain.gradients)
        except Wrong as difference:
            return Outcome("wrong", str(difference))
        except Exception as error:  # noqa: BLE001
            return self.judge_error(error, None, "reading the result: ")
        return Outcome("right", random, comparison.fingerprint if random == "drawn" else 0)

    def judge_error(self, error, plain_error, where=""):
        if plain_error is not None and type(error) is type(plain_error):
            return Outcome("right", "plain throws")
        lines = str(error).strip().splitlines() or [""]
        message = f"{where}{type(error).__name__}: " + " | ".join(" ".join(line.split()) for line in lines[:5])
        if self.tensors.is_comm_error(error):
            return Outcome("out of step", message)
        return Outcome("refused" if self.tensors.is_refusal(error) else "error", message)


def agree(outcomes):
    """What came of a sample, from what each rank says."""
    kinds = {o.kind for o in outcomes}
    if kinds <= {"right", "wrong"}:
        if kinds == {"right"} and len({o.fingerprint for o in outcomes}) > 1:
            return Outcome("wrong", "ranks see different numbers")
        return next((o for o in outcomes if o.kind == "wrong"), outcomes[0])
    if len(kinds) > 1:
        return Outcome("out of step", "; ".join(f"rank {i} {o.kind} {o.message[:300]}" for i, o in enumerate(outcomes)))
    return outcomes[0]
