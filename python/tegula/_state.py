"""What a state in Python consists of, as tensors and values by name: what C++ saves and loads (tegula/io/state_part.h)."""

import collections
import json
import numbers

import torch

from . import _tegula


class Refused(Exception):
    """Becomes a UsageError on all ranks."""

    def __init__(self, sentence, *facts, hint=""):
        super().__init__(sentence)
        self.sentence, self.facts, self.hint = sentence, list(facts), hint


class RandomState:
    """In a state: where random numbers stand, those of distributed tensors and those of torch's default generator."""


class PerRank:
    """In a state: a value of this rank's own, kept under its place in the mesh, as `position@dp=0,tp=1`.

        state = {"model": model, "data": tg.PerRank({"position": 0}, mesh)}
        state["data"].value["position"]

    value: what a state may hold. A load on a mesh without that place reports it as missing.
    """

    def __init__(self, value, mesh):
        self.value, self.mesh = value, mesh


class Wants:
    """What a load fills, or is told."""

    def __init__(self):
        self.tensors, self.values, self.known, self.problems, self.finish = [], [], [], [], []

    def under(self, place):
        """The same for the rank at this place."""
        wants = Wants()
        wants.tensors = [(name + place, tensor) for name, tensor in self.tensors]
        wants.values = [(name + place, like, tell) for name, like, tell in self.values]
        wants.known = [name + place for name in self.known]
        wants.problems = self.problems
        wants.finish = [(name + place, run) for name, run in self.finish]
        return wants


class Present:
    """What a checkpoint has: (shape, dtype) of tensors, and values, by name."""

    def __init__(self, tensors, values):
        self.tensors, self.values = tensors, values

    def under(self, place):
        def here(items):
            return {name[:len(name) - len(place)]: one for name, one in items.items() if name.endswith(place)}

        return Present(here(self.tensors), here(self.values)) if place else self


def joined(prefix, name):
    return f"{prefix}.{name}" if prefix else str(name)


# Slots: where something stands, so that what is loaded can take its place


class Slot:
    def __init__(self, container, key):
        self.container, self.key = container, key

    def get(self):
        return self.container[self.key]

    def set(self, value):
        self.container[self.key] = value


class TupleSlot:
    def __init__(self, slot, index):
        self.slot, self.index = slot, index

    def get(self):
        return self.slot.get()[self.index]

    def set(self, value):
        whole = self.slot.get()
        parts = [*whole[:self.index], value, *whole[self.index + 1:]]
        self.slot.set(type(whole)(*parts) if hasattr(whole, "_fields") else tuple(parts))


class AttributeSlot:
    def __init__(self, thing):
        self.thing = thing

    def get(self):
        return self.thing.value

    def set(self, value):
        self.thing.value = value


# Parts: each lists what is saved of it (tensors, values), and what it wants of a checkpoint


class TensorPart:
    def __init__(self, name, tensor):
        self.tensors = [(name, tensor)]

    def saved(self):
        return self.tensors, []

    def wanted(self, present):
        wants = Wants()
        wants.tensors = self.tensors
        return wants


def persistent_members(module):
    """(name, tensor) of every parameter, and of the buffers that a state dict has; tied ones several times."""
    for path, part in module.named_modules(remove_duplicate=False):
        for name, parameter in part._parameters.items():
            if parameter is not None:
                yield joined(path, name), parameter
        for name, buffer in part._buffers.items():
            if buffer is not None and name not in part._non_persistent_buffers_set:
                yield joined(path, name), buffer


class ModulePart:
    """Parameters and buffers, each under the first of its names."""

    def __init__(self, name, module):
        self.name, self.module = name, module

    def _tensors(self):
        seen, tensors = set(), []
        for name, tensor in persistent_members(self.module):
            if torch.nn.parameter.is_lazy(tensor):
                raise Refused("a parameter has no shape yet", ("parameter", name), hint="run the lazy module once first")
            if id(tensor) not in seen:
                seen.add(id(tensor))
                tensors.append((joined(self.name, name), tensor))
        return tensors

    def _extras(self):
        """What modules of their own kind keep beside tensors."""
        ours = torch.nn.Module.get_extra_state
        return [ObjectPart(joined(self.name, joined(path, "_extra_state")), part.get_extra_state, part.set_extra_state)
                for path, part in self.module.named_modules() if type(part).get_extra_state is not ours]

    def saved(self):
        tensors, values = self._tensors(), []
        for extra in self._extras():
            more, texts = extra.saved()
            tensors += more
            values += texts
        return tensors, values

    def wanted(self, present):
        wants = Wants()
        wants.tensors = self._tensors()
        for extra in self._extras():
            more = extra.wanted(present)
            wants.tensors += more.tensors
            wants.values += more.values
        return wants


def as_value(name, value):
    """An int, a float or a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, numbers.Integral):  # also a bool
        if not -2**63 <= int(value) < 2**63:
            raise Refused("an integer in a state does not fit in 64 bits", ("name", f'"{name}"'), ("value", str(value)))
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise Refused("a state holds something that no file holds", ("name", f'"{name}"'), ("type", type(value).__name__),
                  hint="tensors, numbers, texts, dicts and lists of those, modules, optimizers, and what has state_dict "
                       "and load_state_dict")


def like(present, name, value):
    """What the value in the checkpoint should be like: of the same kind, but any number for a number."""
    there = present.values.get(name)
    both = not isinstance(value, str) and there is not None and not isinstance(there, str)
    return there if both else value


class ValuePart:
    def __init__(self, name, slot):
        self.name, self.slot = name, slot

    def saved(self):
        return [], [(self.name, as_value(self.name, self.slot.get()))]

    def wanted(self, present):
        is_bool = isinstance(self.slot.get(), bool)
        wants = Wants()
        wants.values = [(self.name, like(present, self.name, as_value(self.name, self.slot.get())),
                         lambda value: self.slot.set(bool(value) if is_bool else value))]
        return wants


class ObjectPart:
    """A thing that gives a state and takes it: kept as JSON, its tensors beside it."""

    def __init__(self, name, get, set):
        self.name, self.get, self.set = name, get, set

    def saved(self):
        tensors = {}
        text = json.dumps(self._encoded(self.get(), self.name, tensors))
        return list(tensors.items()), [(self.name, text)]

    def wanted(self, present):
        here, loaded = {}, {}
        self._encoded(self.get(), self.name, here)
        prefix = self.name + "."
        for name, (shape, dtype) in present.tensors.items():
            if name.startswith(prefix):
                mine = here.get(name)
                is_alike = mine is not None and mine.shape == torch.Size(shape)
                loaded[name] = torch.zeros_like(mine.detach()) if is_alike else torch.zeros(shape, dtype=dtype)
        wants = Wants()
        wants.tensors = list(loaded.items())
        wants.values = [(self.name, "", lambda text: self.set(self._decoded(json.loads(text), loaded)))]
        return wants

    def _encoded(self, value, name, tensors):
        def inner(part, key):
            return self._encoded(part, f"{name}.{key}", tensors)

        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, torch.Tensor):
            tensors[name] = value
            return {"!tensor": name}
        if isinstance(value, (list, tuple)):
            parts = [inner(part, k) for k, part in enumerate(value)]
            return parts if isinstance(value, list) else {"!tuple": parts}
        if isinstance(value, dict):
            if type(value) is dict and all(isinstance(key, str) and not key.startswith("!") for key in value):
                return {key: inner(part, key) for key, part in value.items()}
            kind = "!counter" if isinstance(value, collections.Counter) else "!dict"
            return {kind: [[key, inner(part, key)] for key, part in value.items()]}
        return as_value(name, value)

    def _decoded(self, value, tensors):
        if isinstance(value, list):
            return [self._decoded(part, tensors) for part in value]
        if not isinstance(value, dict):
            return value
        if "!tensor" in value:
            return tensors[value["!tensor"]]
        if "!tuple" in value:
            return tuple(self._decoded(value["!tuple"], tensors))
        for kind, made in (("!counter", collections.Counter), ("!dict", dict)):
            if kind in value:
                return made({key: self._decoded(part, tensors) for key, part in value[kind]})
        return {key: self._decoded(part, tensors) for key, part in value.items()}


class Listing:
    """All parts of a state, with the places of those that are a rank's own."""

    def __init__(self, state):
        if not isinstance(state, dict):
            raise _tegula.UsageError(f"tegula: a state is a dict of things by name\n  is      {type(state).__name__}")
        self.parts, self.random = [], []
        self.modules = {}  # by name
        self.optimizers = []
        for key in state:
            self._add(key, Slot(state, key), "")

    def _add(self, name, slot, place):
        thing = slot.get()
        if not isinstance(name, str):
            raise _tegula.UsageError(f"tegula: names in a state are texts\n  name    {name!r}")
        if isinstance(thing, torch.nn.Module):
            self.modules[name] = thing
            self.parts.append((ModulePart(name, thing), place))
        elif isinstance(thing, torch.optim.Optimizer):
            from ._optimizer_state import OptimizerPart

            self.parts.append((OptimizerPart(name, thing, self.modules), place))
        elif isinstance(thing, PerRank):
            from ._world import this_world

            self._add(name, AttributeSlot(thing), "@" + _tegula.place_of(this_world(), thing.mesh))
        elif isinstance(thing, RandomState):
            self.random.append(name)
        elif isinstance(thing, torch.Tensor):
            self.parts.append((TensorPart(name, thing), place))
        elif isinstance(thing, dict):
            for key in thing:
                self._add(joined(name, key) if isinstance(key, str) else key, Slot(thing, key), place)
        elif isinstance(thing, (list, tuple)):
            for k in range(len(thing)):
                self._add(joined(name, k), Slot(thing, k) if isinstance(thing, list) else TupleSlot(slot, k), place)
        elif hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
            self.parts.append((ObjectPart(name, thing.state_dict, thing.load_state_dict), place))
        elif thing is not None:
            self.parts.append((ValuePart(name, slot), place))

    def saved(self):
        tensors, values, own = [], [], []
        for part, place in self.parts:
            more, texts = part.saved()
            tensors += [(name + place, tensor) for name, tensor in more]
            (own if place else values).extend((name + place, value) for name, value in texts)
        return tensors, values, own

    def wanted(self, tensors, values):
        all = Wants()
        for part, place in self.parts:
            wants = part.wanted(Present(tensors, values).under(place)).under(place)
            for field in vars(all):
                getattr(all, field).extend(getattr(wants, field))
        return all.tensors, all.values, all.known, all.problems, all.finish
