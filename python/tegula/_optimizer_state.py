"""Optimizers of torch.optim in checkpoints, in the form that C++ has for its own (tegula/io/optimizer_part.cpp).

What belongs to a parameter is kept by the parameter's name, what belongs to a group with the names of its parameters.
"""

import torch

from . import _tegula
from ._state import Refused, Wants, as_value, joined, like

# Options that say how a step is computed and not what it gives.
_HOW = {"params", "param_names", "foreach", "fused", "capturable", "differentiable"}
# Numbers that may be written as integers; C++ has them as doubles.
_REAL = {"lr", "momentum", "dampening", "weight_decay", "eps", "alpha", "lr_decay", "initial_accumulator_value",
         "beta1", "beta2", "tolerance_grad", "tolerance_change"}
_LISTS = ("old_dirs", "old_stps", "ro")  # of LBFGS


class OptimizerPart:
    def __init__(self, name, optimizer, modules):
        self.name, self.optimizer, self.modules = name, optimizer, modules
        self.kind = type(optimizer).__name__
        self.state = LbfgsState(self) if self.kind == "LBFGS" else ParameterStates(self)

    def saved(self):
        names = self.parameter_names()
        values = [(joined(self.name, "kind"), self.kind)]
        for k, group in enumerate(self.optimizer.param_groups):
            prefix = joined(self.name, f"groups.{k}")
            values.append((f"{prefix}.parameters", "\n".join(names[id(one)] for one in group["params"])))
            values += [(f"{prefix}.{field}", value) for field, value in self._options(group).items()]
        tensors, more = self.state.saved(names)
        return tensors, values + more

    def wanted(self, present):
        names = self.parameter_names()
        wants = Wants()
        wants.values = [(joined(self.name, "kind"), "", lambda kind: None)]
        options, group_of = self._saved_groups(present, wants)
        kind = present.values.get(joined(self.name, "kind"), self.kind)
        if kind != self.kind:
            wants.problems.append(f'"{self.name}" was the state of "{kind}", here is "{self.kind}"')
            return wants
        for group in self.optimizer.param_groups:
            self._want_options(group, [names[id(one)] for one in group["params"]], options, group_of, wants)
        self.state.want(names, set(group_of), present, wants)
        return wants

    def parameter_names(self):
        """By identity: what the module has, with the module's name in front if there are several modules."""
        found = {}
        for module_name, module in self.modules.items():
            for name, parameter in module.named_parameters():
                found.setdefault(id(parameter), (module_name, name))
        used = {}
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in found:
                    raise Refused("an optimizer has a parameter that no module of the state has",
                                  ("optimizer", f'"{self.name}"'), hint="add the module whose parameters it was given")
                used[id(parameter)] = found[id(parameter)]
        is_one = len({module_name for module_name, _ in used.values()}) <= 1
        return {key: name if is_one else joined(module_name, name) for key, (module_name, name) in used.items()}

    # Groups

    def _options(self, group):
        """A group's options, one value each."""
        options = {}
        for key, value in group.items():
            if key in _HOW or value is None or (key == "decoupled_weight_decay" and self.kind == "AdamW"):
                continue
            parts = value if isinstance(value, (tuple, list)) else [value]
            for k, part in enumerate(parts):
                if part is None:
                    continue
                field = self._field(key, k) if isinstance(value, (tuple, list)) else key
                number = part.item() if isinstance(part, torch.Tensor) else part
                number = as_value(joined(self.name, field), number)
                options[field] = float(number) if field in _REAL else number
        return options

    @staticmethod
    def _field(key, index):
        return f"beta{index + 1}" if key == "betas" else f"{key}.{index}"

    def _saved_groups(self, present, wants):
        """({group: {field: value}}, {parameter: group}) of the checkpoint."""
        prefix = joined(self.name, "groups.")
        options, group_of = {}, {}
        for name, value in present.values.items():
            if not name.startswith(prefix):
                continue
            wants.known.append(name)
            number, _, field = name[len(prefix):].partition(".")
            if field == "parameters":
                group_of.update(dict.fromkeys(value.split("\n"), number))
            else:
                options.setdefault(number, {})[field] = value
        return options, group_of

    def _want_options(self, group, parameters, options, group_of, wants):
        """A group takes the options that its parameters had, if they had the same ones."""
        agreed = {}
        for parameter in parameters:
            for field, value in options.get(group_of.get(parameter), {}).items():
                if agreed.setdefault(field, value) != value:
                    wants.problems.append(f'parameters of one group of "{self.name}" had different {field}: {agreed[field]} '
                                          f'and, of "{parameter}", {value}')
                    return
        if agreed:
            wants.finish.append((joined(self.name, "groups"), lambda: self._set_options(group, agreed)))

    def _set_options(self, group, options):
        for key, value in list(group.items()):
            if isinstance(value, (tuple, list)) and key not in _HOW:
                parts = [options.get(self._field(key, k), part) for k, part in enumerate(value)]
                group[key] = type(value)(parts)
        pairs = {self._field(key, k) for key, value in group.items() if isinstance(value, (tuple, list))
                 for k in range(len(value))}
        for field, value in options.items():
            here = group.get(field)
            if field in pairs or field == "steps":
                continue
            if isinstance(here, torch.Tensor):
                here.fill_(value)
            else:
                group[field] = bool(value) if isinstance(here, bool) else value


class ParameterStates:
    """What an optimizer has gathered for each of its parameters: tensors and numbers."""

    def __init__(self, part):
        self.part = part

    def _states(self, names):
        for group in self.part.optimizer.param_groups:
            for parameter in group["params"]:
                yield names[id(parameter)], parameter, self.part.optimizer.state.get(parameter, {})

    def saved(self, names):
        tensors, values = [], []
        for name, _, state in self._states(names):
            prefix = joined(self.part.name, name)
            for field, value in state.items():
                if value is None:
                    continue
                if isinstance(value, torch.Tensor) and not self._is_count(field, value):
                    tensors.append((f"{prefix}.{field}", value))
                elif isinstance(value, torch.Tensor):
                    values.append((f"{prefix}.{field}", int(value.item())))
                else:
                    values.append((f"{prefix}.{field}", as_value(f"{prefix}.{field}", value)))
        if any(isinstance(state.get("step"), int) for _, _, state in self._states(names)):
            values.append((joined(self.part.name, "groups.0.steps"), "numbers"))
        return tensors, values

    @staticmethod
    def _is_count(field, value):
        return field == "step" and value.dim() == 0 and float(value.item()).is_integer()

    def want(self, names, saved_names, present, wants):
        fields = self._saved_fields(set(names.values()) | saved_names, present)
        is_number = present.values.get(joined(self.part.name, "groups.0.steps")) == "numbers"
        for name, parameter, state in self._states(names):
            prefix = joined(self.part.name, name)
            for field in dict.fromkeys([*fields.get(name, ()), *state]):
                full, here = f"{prefix}.{field}", state.get(field)
                if full in present.tensors or (full not in present.values and isinstance(here, torch.Tensor)
                                               and not self._is_count(field, here)):
                    self._want_tensor(full, field, parameter, here, present, wants)
                elif full in present.values or here is not None:
                    self._want_number(full, field, parameter, here, is_number, present, wants)

    def _saved_fields(self, names, present):
        """{parameter: its fields} of the checkpoint; the longest name of a parameter counts."""
        prefix, fields = self.part.name + ".", {}
        for full in [*present.tensors, *present.values]:
            name, dot, field = full[len(prefix):].rpartition(".") if full.startswith(prefix) else ("", "", "")
            if dot and name in names:
                fields.setdefault(name, []).append(field)
        return fields

    def _want_tensor(self, full, field, parameter, here, present, wants):
        shape, dtype = present.tensors.get(full, (None, None))
        is_there = isinstance(here, torch.Tensor)
        if is_there and (shape is None or here.shape == torch.Size(shape)):
            wants.tensors.append((full, here))
            return
        if torch.Size(shape) == parameter.shape:
            fresh = torch.zeros_like(parameter.detach())
        elif len(shape) == 0:
            fresh = torch.zeros((), dtype=dtype)  # a number of the optimizer's, the same on all ranks
        else:
            fresh = _tegula.fresh_state(parameter, shape, dtype)
        wants.tensors.append((full, fresh))
        wants.finish.append((full, lambda: self._put(parameter, field, fresh)))

    def _want_number(self, full, field, parameter, here, is_number, present, wants):
        def tell(value):
            if isinstance(here, torch.Tensor):
                here.fill_(value)
            elif field == "step" and here is None and not is_number:
                self._put(parameter, field, torch.tensor(float(value), dtype=_step_dtype()))
            else:
                self._put(parameter, field, bool(value) if isinstance(here, bool) else value)

        expected = int(here.item()) if isinstance(here, torch.Tensor) else 0 if here is None else as_value(full, here)
        wants.values.append((full, like(present, full, expected), tell))

    def _put(self, parameter, field, value):
        self.part.optimizer.state.setdefault(parameter, {})[field] = value


def _step_dtype():
    return torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32


class LbfgsState:
    """Vectors of the elements of all parameters at once: they fit the same list of parameters only."""

    def __init__(self, part):
        self.part = part

    def _first(self):
        return self.part.optimizer.param_groups[0]["params"][0]

    def saved(self, names):
        tensors, values = [], []
        prefix = joined(self.part.name, "state")
        for field, value in self.part.optimizer.state.get(self._first(), {}).items():
            if field == "al" or value is None:  # written before it is read in each step
                continue
            if isinstance(value, torch.Tensor):
                tensors.append((f"{prefix}.{field}", value))
            elif isinstance(value, list):
                tensors += [(f"{prefix}.{field}.{k}", one) for k, one in enumerate(value)]
            else:
                values.append((f"{prefix}.{field}", as_value(field, value)))
        return tensors, values

    def want(self, names, saved_names, present, wants):
        mine = "\n".join(names[id(one)] for one in self.part.optimizer.param_groups[0]["params"])
        if present.values.get(joined(self.part.name, "groups.0.parameters"), mine) != mine:
            wants.problems.append(f'"{self.part.name}" had another list of parameters, of which LBFGS keeps vectors, when it '
                                  "was saved")
            return
        prefix, state = joined(self.part.name, "state."), {}

        def setter(field):
            return lambda value: state.__setitem__(field, value)

        for name, value in present.values.items():
            if name.startswith(prefix):
                wants.values.append((name, value, setter(name[len(prefix):])))
        tensors = {name[len(prefix):]: one for name, one in present.tensors.items() if name.startswith(prefix)}
        for field, (shape, dtype) in tensors.items():
            fresh = _tegula.fresh_state(self._first(), shape, dtype)
            wants.tensors.append((prefix + field, fresh))
            list_name, dot, _ = field.rpartition(".")
            if dot and list_name in _LISTS:
                state.setdefault(list_name, []).append(fresh)
            else:
                state[field] = fresh
        for list_name in _LISTS:  # in the order of their numbers
            count = len(state.get(list_name, []))
            by_name = dict(wants.tensors)
            state[list_name] = [by_name[f"{prefix}{list_name}.{k}"] for k in range(count)]
        if any(name.startswith(prefix) for name in present.values):
            wants.finish.append((joined(self.part.name, "state"), lambda: self._install(state)))

    def _install(self, state):
        self.part.optimizer.state[self._first()] = state
