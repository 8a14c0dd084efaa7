"""Models of Hugging Face's transformers, by the plans that they bring along.

    import tegula as tg, tegula.hf

    model = AutoModelForCausalLM.from_config(config)         # the same on all ranks
    report = tegula.hf.parallelize(model, mesh["tp"])
    print(report)                                            # styles, placements, bytes per rank
    model(input_ids, labels=labels).loss.backward()          # plain in, plain out
    model.generate(input_ids)

All of the model becomes distributed; the plan says which parameters are cut, propagation does the rest. What a plan
says of activations (gathering, splitting, reducing) needs no saying here.

Every rank runs the same program on the same batches: accelerate and the Trainer work where they see one process, as
they do under `tegula run`. Of a model with adapters of peft, call parallelize on the whole (get_peft_model first).
"""

import copy
import fnmatch
import functools

import torch

from . import _modules, _tegula, _tensors
from ._tegula import Replicate, Shard, Style, UsageError, implicit_replication, is_dtensor

__all__ = ["Report", "parallelize", "plan_of", "styles", "take_plain_tensors"]


def _packed(dim_from_end):
    """Two layers in one, side by side along a dim: gate and up."""

    def place(parameter):
        dim = 0 if parameter.tensor.ndim == 1 else parameter.tensor.ndim - dim_from_end
        return Shard(dim, blocks=2)

    return place


def _experts(parameter):
    """Whole experts on each rank, where all of them are one tensor."""
    return Shard(0) if parameter.tensor.ndim > 1 else Replicate()


def _along_columns(parameter):
    """Output features: of one layer, or of each expert where they are one tensor."""
    if parameter.is_embedding:
        return Shard(1)
    return Shard(max(parameter.tensor.ndim - 2, 0)) if parameter.tensor.ndim else Replicate()


def styles():
    """The styles of plans, by every name that transformers has had for them."""
    colwise, rowwise = Style("colwise", _along_columns), _modules.Rowwise()
    rows_of_experts = Style("rowwise", lambda p: Shard(p.tensor.ndim - 1) if p.tensor.ndim > 2 else rowwise.place(p))
    replicated, sequence = _modules.Replicated(), _modules.Sequence()
    return {
        "colwise": colwise, "colwise_rep": colwise, "colwise_gather_output": colwise, "local_colwise": colwise,
        "embedding_colwise": colwise,
        "rowwise": rows_of_experts, "rowwise_rep": rows_of_experts, "rowwise_split_input": rows_of_experts,
        "local_rowwise": rows_of_experts,
        "packed_colwise": Style("packed colwise", _packed(2)), "local_packed_colwise": Style("packed colwise", _packed(2)),
        "packed_rowwise": Style("packed rowwise", _packed(1)), "local_packed_rowwise": Style("packed rowwise", _packed(1)),
        "embedding_rowwise": _modules.VocabularyCut(),
        "grouped_gemm": Style("experts", _experts),
        "sequence_parallel": sequence,
        "replicate": replicated, "replicated": replicated, "replicated_with_grad_allreduce": replicated,
        "local": replicated, "local_params": replicated, "gather": replicated, "all_reduce": replicated,
        "moe_tp_experts": replicated, "moe_identity_expert": replicated, "ep_router": replicated,
        "ep_dispatch_experts": replicated, "mla_kv_a_proj": replicated,
    }


_ABOUT_ACTIVATIONS = {"gather", "all_reduce", "moe_tp_experts", "moe_identity_expert", "ep_router", "ep_dispatch_experts",
                      "mla_kv_a_proj", "local", "local_params"}


def _without_adapters(model):
    """The model of transformers, which one of peft has in it."""
    return model.get_base_model() if hasattr(model, "peft_config") and hasattr(model, "get_base_model") else model


def plan_of(model):
    """The plan that a model brings along: {pattern: name of a style}. UsageError if there is none."""
    base = _without_adapters(model)
    if base is not model:
        place = next(name for name, module in model.named_modules() if module is base)
        return {f"{place}.{pattern}": style for pattern, style in plan_of(base).items()}
    plan = dict(getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None) or {})
    if not plan:
        base = getattr(model.config, "base_model_tp_plan", None) or {}
        prefix = getattr(model, "base_model_prefix", "")
        prefix = f"{prefix}." if prefix and hasattr(model, prefix) else ""
        plan = {prefix + pattern: style for pattern, style in base.items()}
    if not plan:
        raise UsageError("tegula: the model brings no plan along\n"
                         f"  model   {type(model).__name__}\n"
                         "  hint    pass plan={pattern: style}, or use tegula.parallelize_module")
    return plan


class Report:
    """What parallelize did: the patterns that nothing matched, and a table of parameters."""

    def __init__(self, unmatched, table):
        self.unmatched, self.table = unmatched, table

    def __str__(self):
        lost = f"\nmatch nothing: {', '.join(self.unmatched)}" if self.unmatched else ""
        return self.table + lost


def _as_styles(plan):
    known = styles()
    unknown = sorted({style for style in plan.values() if isinstance(style, str) and style not in known})
    if unknown:
        raise UsageError(f"tegula: a plan has styles that are not known\n  styles  {', '.join(unknown)}\n"
                         f"  hint    these are: {', '.join(sorted(known))}")
    # Those that only speak of activations come first: of the patterns that match a parameter the last one counts.
    ordered = sorted(plan.items(), key=lambda item: item[1] not in _ABOUT_ACTIVATIONS)
    pairs = [(pattern, known[style] if isinstance(style, str) else style) for pattern, style in ordered]
    return pairs + [(f"{pattern}.{_INNER_SIDE[style.name]}", _modules.Replicated()) for pattern, style in pairs
                    if style.name in _INNER_SIDE]


# LoRA's two factors stand where their layer stood: the one that meets its cut side is cut as the layer is.
_INNER_SIDE = {"colwise": "lora_A", "rowwise": "lora_B"}


def _stands_for(pattern, name):
    """Whether a pattern names the parameter or a module that it is in; ** stands for any number of parts."""
    parts, own = pattern.split("."), name.split(".")

    def fits(part, place):
        if part == len(parts):
            return True
        if parts[part] == "**":
            return any(fits(part + 1, later) for later in range(place, len(own) + 1))
        return place < len(own) and fnmatch.fnmatchcase(own[place], parts[part]) and fits(part + 1, place + 1)

    return fits(0, 0)


def _usable(pairs, model):
    """The pairs that decide about a parameter, and the patterns that match none.

    Plans list layers that a model may lack, or ties to another: tegula.parallelize_module would refuse these.
    """
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    deciding, matching = set(), set()
    for known_as in names.values():
        places = [k for k, (pattern, _) in enumerate(pairs) if any(_stands_for(pattern, name) for name in known_as)]
        matching.update(places)
        deciding.update(places[-1:])
    return ([pair for k, pair in enumerate(pairs) if k in deciding],
            [pattern for k, (pattern, _) in enumerate(pairs)
             if k not in matching and not pattern.endswith(tuple(_INNER_SIDE.values()))])


def _plain(value):
    return _tensors.full_tensor(value) if isinstance(value, torch.Tensor) and is_dtensor(value) else value


def _outputs(outputs):
    """What a model gives, with plain tensors; what it keeps for itself (a cache) stays."""
    if isinstance(outputs, torch.Tensor):
        return _plain(outputs)
    if isinstance(outputs, dict):
        for name, value in list(outputs.items()):
            if isinstance(value, torch.Tensor):
                outputs[name] = _plain(value)
        return outputs
    return type(outputs)(map(_plain, outputs)) if type(outputs) in (tuple, list) else outputs


class _OnPlainTensors:
    """The forward of a distributed model, on plain tensors. A copy of the model gets one of its own."""

    def __init__(self, model):
        functools.update_wrapper(self, model.forward)
        self.model, self.forward = model, model.forward

    def __call__(self, *args, **kwargs):
        if torch.is_grad_enabled():
            _adopt_new_parameters(self.model)
        with implicit_replication():
            return _outputs(self.forward(*args, **kwargs))


def take_plain_tensors(model):
    """From now on the distributed model takes plain tensors, the same on all ranks, and gives plain tensors."""
    model = _without_adapters(model)
    model.forward = _OnPlainTensors(model)


def _adopt_new_parameters(model):
    """What has been added since and learns (adapters) becomes distributed, too: replicated."""
    if any(p.requires_grad and not is_dtensor(p) for p in model.parameters()):
        _modules.distribute_module(model, _mesh_of(model), src_data_rank=None)


def _mesh_of(model):
    return _tensors.mesh(next(p for p in model.parameters() if is_dtensor(p))).root


def _reduced(axis, module, args, output):
    """A hook: what a layer owes along the axis is paid at once, not by each of those who use it."""
    return _modules.placed(output, axis, Replicate()) if isinstance(output, torch.Tensor) and is_dtensor(output) else output


def _reduced_gradient(axis, module, args):
    """A hook: the same of the gradient that layers side by side owe to what they are all given."""
    x = args[0] if args else None
    if isinstance(x, torch.Tensor) and x.requires_grad and is_dtensor(x) and not hasattr(x, "_reduces_its_gradient"):
        x._reduces_its_gradient = True
        x.register_hook(lambda gradient: _modules.placed(gradient, axis, Replicate()) if is_dtensor(gradient) else gradient)


def _reduce_early(model, mesh):
    """Layers with cut inputs (linear ones, embeddings with a cut vocabulary), and those with cut outputs."""
    axis, root = mesh.names[0], mesh.root
    for module in model.modules():
        if not isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            continue
        along = _tensors.placements(module.weight)[root.names.index(axis)]
        if along == Shard(1 if isinstance(module, torch.nn.Linear) else 0):
            module.register_forward_hook(functools.partial(_reduced, axis))
        elif along == Shard(0):
            module.register_forward_pre_hook(functools.partial(_reduced_gradient, axis))


class _SavedByOneRank:
    """The save_pretrained of a distributed model: all ranks call it, parameters are gathered, one rank writes."""

    def __init__(self, model):
        functools.update_wrapper(self, model.save_pretrained)
        self.model, self.save = model, model.save_pretrained

    def __call__(self, save_directory, *, state_dict=None, is_main_process=True, **options):
        mesh = _mesh_of(self.model)
        world, ranks = _tegula.world_of_mesh(mesh), list(mesh.ranks)
        values = _gathered(self.model.state_dict(keep_vars=True) if state_dict is None else state_dict,
                           keep=world.rank == ranks[0])
        error = None
        try:
            if world.rank == ranks[0] and is_main_process:
                self.save(save_directory, state_dict=values, is_main_process=True, **options)
        except Exception as met:
            error = met
        failed = world.group(ranks, "").all_reduce(torch.tensor([error is not None], dtype=torch.int32), "max").item()
        if error is not None:
            raise error
        if failed:
            raise UsageError("tegula: the model could not be saved\n"
                             f"  folder  {save_directory}\n  hint    rank {ranks[0]} says why")


@torch.no_grad()
def _gathered(state, keep):
    """The values, plain, one by one; ranks that do not keep them let each go. Tied ones stay one."""
    found = {}
    for name, value in state.items():
        if id(value) not in found:
            plain = _plain(value)
            found[id(value)] = plain if keep else None
    return {name: found[id(value)] for name, value in state.items()}


def parallelize(model, mesh, plan=None, prove=None):
    """Distributes a model over the one axis of the mesh by its own plan, or by the one given.

    Afterwards it takes plain tensors, the same on all ranks, and gives plain tensors; save_pretrained, which all ranks
    call, writes one set of files. prove: keyword arguments of one call; the model is run with them before and after,
    forward and backward, and a UsageError says what differs. Returns a Report. All ranks call it with the same model.
    """
    pairs, unmatched = _usable(_as_styles(plan_of(model) if plan is None else plan), model)
    table = _modules.explain(pairs, model, mesh)
    expected = None if prove is None else _one_run(copy.deepcopy(model), prove)
    _modules.parallelize_module(model, mesh, pairs, src_data_rank=None)
    _reduce_early(model, mesh)
    take_plain_tensors(model)
    for one in {model, _without_adapters(model)}:
        if hasattr(one, "save_pretrained"):
            one.save_pretrained = _SavedByOneRank(one)
    if prove is not None:
        _compare(_one_run(model, prove), expected)
        model.zero_grad()
    return Report(unmatched, table)


def _one_run(model, inputs):
    outputs = model(**inputs)
    values = {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}
    loss = values.get("loss")
    (sum(value.float().square().mean() for value in values.values() if value.requires_grad) if loss is None else loss).backward()
    gradients = {f"gradient of {name}": _plain(p.grad) for name, p in model.named_parameters() if p.grad is not None}
    return {name: value.detach() for name, value in {**values, **gradients}.items()}


def _compare(found, expected):
    wrong = [name for name, value in expected.items()
             if name not in found or not torch.allclose(found[name].float(), value.float(), rtol=1e-3, atol=1e-4)]
    if wrong:
        raise UsageError("tegula: the model gives other numbers than on one rank\n"
                         f"  differ  {', '.join(wrong[:5])}{' ...' if len(wrong) > 5 else ''}\n"
                         "  hint    the plan, or an operator of the model, is wrong: please report it")
