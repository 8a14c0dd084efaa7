"""Modules and their gradients: where parameters go, by placements or by plans; when gradients are reduced."""

import functools

import torch

from . import _tegula
from ._tegula import Style, StyledParameter, UsageError


def set_gradient_policy(target, policy):
    """When the reductions that gradients owe are done, for one leaf or for a module's parameters.

    policy: "now" before the gradient is stored (the default), "async" by the end of the backward pass,
    "hold" not before reduce_gradients; or per mesh axis, "hold over dp, else now". What was said for a
    module outranks what was said for a leaf, and the guard gradient_policy(policy) outranks both. All
    ranks say the same. A plain parameter is a UsageError, as is an axis that a parameter's mesh lacks.
    """
    if isinstance(target, torch.nn.Module):
        for parameter in target.parameters():
            _tegula.set_gradient_policy(parameter, policy, True)
    else:
        _tegula.set_gradient_policy(target, policy, False)


def reduce_gradients(parameters):
    """Pays what the gradients of these leaves owe, in one call per group. All ranks, the same leaves."""
    _tegula.reduce_gradients(list(parameters))


def grad_norm(parameters, order=2.0, among=None):
    """The norm of all gradients as one vector, the same number on all ranks.

    Gradients may be on different meshes, cut in any way, or plain: each element counts once. One collective of
    one number. among: the group of the ranks that have gradients; None: those of the parameters' meshes.
    """
    return _tegula.grad_norm(_listed(parameters), order, among)


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, among=None):
    """Scales all gradients, in place, so that their norm is at most max_norm. Returns the norm as it was."""
    return _tegula.clip_grad_norm_(_listed(parameters), max_norm, norm_type, among)


def clip_grad_value_(parameters, clip_value):
    """Brings every element of the gradients into [-clip_value, clip_value], in place."""
    _tegula.clip_grad_value_(_listed(parameters), clip_value)


def _listed(parameters):
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)


# Placements by names


def _members(module):
    """(tensor, names, is a parameter) of each parameter and buffer, once each."""
    members = {}
    for is_parameter, named in ((True, module.named_parameters(remove_duplicate=False)),
                                (False, module.named_buffers(remove_duplicate=False))):
        for name, tensor in named:
            _refuse_lazy(name, tensor)
            members.setdefault(id(tensor), (tensor, [], is_parameter))[1].append(name)
    return list(members.values())


def _refuse_lazy(name, tensor):
    if torch.nn.parameter.is_lazy(tensor):
        raise UsageError(f"tegula: parameter {name} has no shape yet\n"
                         "  hint    run the lazy module once, then distribute it")


def _asked(module, partition):
    """(tensor, names, placements) of each member; None as placements where nothing is said of it."""
    members = _members(module)
    if partition is None:
        said = [None] * len(members)
    elif callable(partition):
        said = [partition(names[0], tensor) if is_parameter else None for tensor, names, is_parameter in members]
    else:
        patterns = list(partition.items() if hasattr(partition, "items") else partition)
        last = _tegula.last_matches([pattern for pattern, _ in patterns], [names for _, names, _ in members])
        said = [None if index is None else patterns[index][1] for index in last]
    return [(tensor, names, placements) for (tensor, names, _), placements in zip(members, said)]


def distribute_module(module, mesh, partition=None, src_data_rank=0):
    """Makes the parameters, their gradients and the buffers of a module distributed, in place.

    partition: placements by patterns of names, {"layers.*.up.weight": [Shard(0)], ...}. In a pattern *
    stands for any characters up to a dot, ** for any number of parts; the last pattern that matches a
    name counts. A pattern that matches nothing is a UsageError with the nearest names. Or a function
    (name, parameter) -> placements or None. What nothing is said of is replicated.
    src_data_rank: whose data counts, as for distribute_tensor.

    Tied parameters are converted once. What is distributed already stays if nothing is said of it, and
    is a UsageError if it is placed otherwise than asked: use redistribute_module. Returns the module.
    """
    _tegula.distribute_members(_asked(module, partition), mesh, src_data_rank)
    return module


def redistribute_module(module, mesh, partition=None):
    """Moves a distributed module, in place, to where distribute_module would have put it.

    The mesh may be another one of the same world. What nothing is said of becomes replicated; for what is
    there already nothing is sent. Returns the module.
    """
    _tegula.redistribute_members(_asked(module, partition), mesh)
    return module


def distribute_optimizer_state(optimizer):
    """Brings the state of an optimizer (momenta and the like) to where its parameters are now."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                state[name] = _tegula.like_parameter(value, parameter)


# Plans


def Colwise():
    """Each rank computes some of the output features: parameters are cut along dim 0, an embedding's along dim 1."""
    return _tegula.style_named("colwise")


def _parts(parts):
    return parts if isinstance(parts, int) else list(parts)


def PackedColwise(parts):
    """The same for several layers in one, side by side: 3 for equal ones (query, key and value); [8, 2, 2] for unequal
    ones, in units of equal length: heads, which stay whole, or rows."""
    return _tegula.style_named(f"packed colwise {_parts(parts)}")


def Rowwise():
    """Each rank has some of the input features: matrices are cut along dim 1, biases replicated, an embedding's rows cut."""
    return _tegula.style_named("rowwise")


def PackedRowwise(parts):
    """The same where the input is parts side by side, as a PackedColwise layer of these parts leaves it."""
    return _tegula.style_named(f"packed rowwise {_parts(parts)}")


def Refused():
    """A mistake of the plan: ("**", Refused()) first means that the plan has to name every parameter."""
    return _tegula.style_named("refused")


def VocabularyCut():
    """The rows of an embedding are cut: each rank looks up what it has."""
    return _tegula.style_named("vocabulary")


def Sequence():
    """Parameters are replicated; their gradients add up where activations are cut along the sequence."""
    return _tegula.style_named("sequence")


def Replicated():
    return _tegula.style_named("replicated")


def style_named(name):
    """The style that prints as this name: "colwise", "packed colwise 3", ..."""
    return _tegula.style_named(name)


def _standing(module):
    """(module, name, tensor, kind) of every parameter and buffer where it stands, tied ones several times."""
    standing = []
    for path, part in module.named_modules(remove_duplicate=False):
        kind = "table" if isinstance(part, torch.nn.Embedding) else "parameter"
        for name, tensor in part.named_parameters(recurse=False, remove_duplicate=False):
            _refuse_lazy(f"{path}.{name}" if path else name, tensor)
            standing.append((path, name, tensor, kind))
        for name, tensor in part.named_buffers(recurse=False, remove_duplicate=False):
            standing.append((path, name, tensor, "buffer"))
    return standing


def _plan(plan):
    """As C++ takes it: [(pattern, style)]; styles may be given by name."""
    if isinstance(plan, str):
        return _tegula.parse_plan(plan)
    pairs = plan.items() if hasattr(plan, "items") else plan
    return [(pattern, style_named(style) if isinstance(style, str) else style) for pattern, style in pairs]


def parallelize_module(module, mesh, plan, src_data_rank=0):
    """Places every parameter of the module along the one axis of the mesh as the plan says, in place.

        tg.parallelize_module(model, mesh["tp"], {"blocks.*.up": tg.Colwise(), "blocks.*.down": tg.Rowwise()})

    plan: styles, or their names, by patterns of modules' or parameters' names; the last pattern that matches
    counts. What the plan does not name, and buffers, are replicated; what follows for activations is sharding
    propagation's work. Parameters lie on the mesh that `mesh` is a slice of, and stay as they are along its
    other axes. UsageError, one with all that is wrong, before anything is changed. Returns the module.
    """
    _tegula.parallelize_members(_standing(module), mesh, _plan(plan), src_data_rank)
    return module


def explain(plan, module, mesh, step=None):
    """What parallelize_module would do, as a table of parameters, placements and bytes; nothing is changed or sent.

    step(imagined): a training step on a mesh of imagined ranks, for its shapes alone; below the table stands what it
    communicates, by kind and axis. Meanwhile the module's parameters are on that mesh.
    """
    return _tegula.explain_members(_plan(plan), _standing(module), mesh, step)


def placed(tensor, axis, placement):
    """A distributed tensor placed so along one axis of its mesh; a plain one as it is. Differentiable."""
    return _tegula.placed(tensor, axis, placement)


def replicate(module, mesh, reduction="async", *, wire=None, bucket_bytes=_tegula.BUCKET_BYTES, hook=None):
    """Data parallel over the one axis of the mesh: replicates what is plain, gradients are reduced as said.

    Every rank has the same values already, which is checked. reduction: "now", "async", "hold". wire: the dtype
    that gradients travel in. Async ones go together, in calls of up to bucket_bytes; 0: one call for each.

    hook(bucket) is called for each of these GradientBuckets instead of an all-reduce, on all ranks in the same order.
    It brings bucket.flat, in place, to the sum over bucket.group, or to what is to stand for it; or it starts that and
    returns a function that ends it. What it raises ends the pass on all ranks. Compressed to bfloat16:

        def as_bf16(bucket):
            total = bucket.group.all_reduce_async(bucket.flat.to(torch.bfloat16))
            return lambda: bucket.flat.copy_(total.wait())
    """
    _tegula.replicate_members(_standing(module), mesh, reduction, wire, bucket_bytes, hook)
    return module


def _zero_roles(level):
    """Placements of parameters in use, gradients, and optimizer state, along one axis."""
    whole, cut = _tegula.Replicate(), _tegula.Shard(0)
    levels = {1: (whole, whole, cut), 2: (whole, cut, cut), 3: (cut, cut, cut)}
    if level not in levels:
        raise _tegula.UsageError(f"tegula: there is no such level of sharding\n  level   {level}\n  hint    1, 2 or 3")
    return levels[level]


def fully_shard(module, mesh, level=3, *, roles=None, layout="even", multiple=1, most_bytes=64 << 20, reduction="async",
                wire=None, prefetch=False):
    """Cuts parameters, gradients and optimizer state over the axes of the mesh; a parameter is whole while it is used.

        tg.fully_shard(model, mesh["dp"])                    # ZeRO-3; level=1 or 2 keeps parameters whole
        model(tg.shard_batch(batch, mesh)).mean().backward()

    Over two axes the first has replicas. roles: placements of parameters in use, gradients and state, each a list
    with one per axis, instead of a level. layout: "even", or "owned": each parameter by one rank. multiple: of rows.
    most_bytes: of gathered parameters that are kept for another use. wire: the dtype that gradients travel in.
    Every rank has the same values already, which is checked. Returns the module.
    """
    if roles is None:
        roles = [[_tegula.Replicate()] * (mesh.ndim - 1) + [role] for role in _zero_roles(level)]
    if layout not in ("even", "owned"):
        raise _tegula.UsageError(f"tegula: there is no such layout of shards\n  layout  {layout}\n  hint    even or owned")
    _tegula.fully_shard_members(_standing(module), mesh, [list(role) for role in roles], layout, multiple, most_bytes,
                                reduction, wire, prefetch)
    return module


def no_sync(mesh):
    """A context in which backward passes leave gradients owed over the axes of the mesh; the next pass pays."""
    return _tegula.no_sync(mesh)


# PyTorch's replicas flatten what they copy and reduce: they would take each rank's tile for the whole.
_plain_replicas = torch.nn.parallel.DistributedDataParallel.__init__


@functools.wraps(_plain_replicas)
def _replicas(self, module, *args, **kwargs):
    name = next((name for name, p in module.named_parameters() if _tegula.is_dtensor(p)), None)
    if name is not None:
        raise UsageError("tegula: DistributedDataParallel cannot replicate a distributed parameter\n"
                         f"  name    {name}\n  spec    {_tegula.spec(module.get_parameter(name))}\n"
                         "  hint    tegula.replicate(module, mesh[\"dp\"]); with accelerate or the Trainer, which wrap "
                         "models where they see several processes, start the program by `tegula run`")
    _plain_replicas(self, module, *args, **kwargs)


torch.nn.parallel.DistributedDataParallel.__init__ = _replicas  # type: ignore[method-assign]
