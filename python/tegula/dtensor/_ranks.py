"""The world of the ranks that torch.distributed has."""

import os
import socket
import tempfile
import threading
import uuid
from typing import NamedTuple

import torch

from .. import _world
from .._tegula import UsageError

_RENDEZVOUS = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


class _Member(NamedTuple):
    """What a rank of torch.distributed says of itself to the others."""

    host: str
    process: str
    job: str


_IMPORT = uuid.uuid4().hex  # tells processes of different containers apart, whose numbers may be the same


class _Origin:
    """The process group that this thread's world, or the process's, was made of; None: another way."""

    def __init__(self):
        self._of_process, self._of_thread = None, threading.local()

    def get(self):
        return getattr(self._of_thread, "group", self._of_process)

    def set(self, group, *, of_thread):
        if of_thread:
            self._of_thread.group = group
        else:
            self._of_process = group


_origin = _Origin()


def ensure_world():
    """Makes the world of the ranks that torch.distributed has, or that the launcher started.

    PyTorch's meshes set torch.distributed up where a launcher has said how; so does this, for programs that ask it
    for their rank. A process group that was made anew makes the world anew.
    """
    if not torch.distributed.is_available():
        return _world.is_initialized() or _world.init()
    group = torch.distributed.group.WORLD
    if _world.is_initialized() and (group is None or _origin.get() in (None, group)):
        return
    if group is None and _RENDEZVOUS <= set(os.environ):
        torch.distributed.init_process_group("gloo")
        group = torch.distributed.group.WORLD
    if group is not None and torch.distributed.get_backend() == "fake":
        _world.imagine(torch.distributed.get_world_size(), torch.distributed.get_rank())
        _origin.set(group, of_thread=False)
    elif group is None or _launched(torch.distributed.get_world_size()):
        _world.init()
        _origin.set(group, of_thread=False)
    else:
        _join(group)


def ensure_process_group():
    """Sets torch.distributed up, which PyTorch's meshes ask for: of the ranks that `tegula run` started, or of this one.

    Where another launcher has said how, PyTorch does it itself.
    """
    if torch.distributed.is_initialized() or _RENDEZVOUS <= set(os.environ):
        return
    if "TEGULA_RANK" not in os.environ:
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        return
    if os.environ["TEGULA_WORLD_SIZE"] != os.environ.get("TEGULA_LOCAL_WORLD_SIZE"):
        raise UsageError("tegula: PyTorch's meshes need torch.distributed, which finds ranks on several hosts by "
                         "MASTER_ADDR\n  hint    call torch.distributed.init_process_group first, or use torchrun")
    meeting = os.path.join(tempfile.gettempdir(), f"tegula-{os.environ['TEGULA_JOB']}-torch")
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(os.environ["TEGULA_RANK"]),
                                         world_size=int(os.environ["TEGULA_WORLD_SIZE"]))


def _launched(ranks):
    """Whether a launcher has said the places of these ranks in a way that a world can be made of at once."""
    size = ("TEGULA_RANK" in os.environ and os.environ.get("TEGULA_WORLD_SIZE") or
            "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE"))
    return size == str(ranks)


def _join(group):
    ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    members = [None] * ranks
    torch.distributed.all_gather_object(members, _Member(socket.gethostname(), f"{os.getpid()} {_IMPORT}", uuid.uuid4().hex))
    members = [_Member(*member) for member in members]
    processes = {(member.host, member.process) for member in members}
    if len(processes) == 1 and ranks > 1:
        _world.join_threads(members[0].job, ranks, rank)
    elif len(processes) < ranks:
        raise UsageError("tegula: some ranks of torch.distributed are threads of one process, and some are not\n"
                         f"  ranks   {ranks} in {len(processes)} processes\n"
                         "  hint    one process per rank, or all of them threads of one process")
    else:
        with _place_in_environment(members, rank):
            _world.init()
    _origin.set(group, of_thread=len(processes) == 1 and ranks > 1)


class _place_in_environment:
    """The environment that a launcher would have made for the ranks of torch.distributed's world."""

    def __init__(self, members, rank):
        of_host = [r for r, member in enumerate(members) if member.host == members[rank].host]
        self.place = {"TEGULA_RANK": rank, "TEGULA_WORLD_SIZE": len(members), "TEGULA_LOCAL_RANK": of_host.index(rank),
                      "TEGULA_LOCAL_WORLD_SIZE": len(of_host), "TEGULA_JOB": members[0].job}

    def __enter__(self):
        self.before = {name: os.environ.get(name) for name in self.place}
        os.environ.update({name: str(value) for name, value in self.place.items()})

    def __exit__(self, *_):
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
