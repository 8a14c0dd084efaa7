"""Checkpoints: the state of a program in a folder, for any number of ranks. Weights of Hugging Face models."""

import collections

from . import _tegula
from ._state import Listing, PerRank, RandomState, persistent_members
from ._world import this_world

LoadReport = collections.namedtuple("LoadReport", ["step", "missing", "extra"])
LoadReport.__doc__ = "What load has done: the step, and, where it was not strict, the names that one side lacks."


def save(folder, state, step=0, *, keep=0, most_file_bytes=5 << 30, chunk_bytes=1 << 20):
    """Writes the checkpoint folder/step-N: safetensors files of whole tensors, and a manifest (docs/files.md).

        state = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "random": tg.RandomState(),
                 "data": {"epoch": 2, "seen": 1000}}
        tg.save("run", state, step=100, keep=3)

    state: by name, modules, optimizers, tensors, numbers, texts, dicts and lists of those, what has state_dict and
    load_state_dict (schedules), RandomState(), and PerRank(value, mesh) for what differs by rank. The parameters of an
    optimizer are those of modules in the state, and kept by name. All ranks call it, with the same state but for
    PerRank; plain tensors are the same on all ranks, which is checked.

    When it returns, the checkpoint outlasts a loss of power; a kill at any point leaves it whole or not there at all,
    and the earlier ones as they were. Its bytes do not depend on the number of ranks. keep: how many checkpoints stay,
    this one included; 0: all. A file takes most_file_bytes, a checksum stands for chunk_bytes.
    """
    listing = Listing(state)
    _tegula.save(this_world(), str(folder), listing, listing.random, step, keep, most_file_bytes, chunk_bytes)


def load(folder, state, step=None, *, strict=True, only=(), renames=(), cast=False, verify=True):
    """Fills the state from the checkpoint folder/step-N, the newest that is whole if no step is given.

        if tg.latest("run") is not None:
            report = tg.load("run", state)          # on any number of ranks; report.step

    In place: tensors keep their placements, and numbers and texts take their places in the dicts and lists of `state`.
    What does not fit (missing, extra, shapes, dtypes) is one UsageError on all ranks, before anything has changed.

    strict=False passes over what one side lacks. only: patterns of names, the rest of the state stays as it is.
    renames: {"name in the checkpoint": "name in the state"}; * is any characters up to a dot, ** any. cast: converts
    elements of another type. verify: compares the checksums of what is read. Returns a LoadReport.
    """
    listing = Listing(state)
    pairs = list(renames.items() if hasattr(renames, "items") else renames)
    return LoadReport(*_tegula.load(this_world(), str(folder), listing, listing.random, step, strict, list(only), pairs,
                                    cast, verify))


def latest(folder):
    """The newest step of the folder that is whole; None if there is none. Any rank may call it alone."""
    return _tegula.latest(str(folder))


class AsyncSaver:
    """Saves while the program goes on. One for a world, kept as long as there is something to save.

        with tg.AsyncSaver() as saver:
            for step in range(1, steps + 1):
                train(step)
                if step % 100 == 0:
                    saver.save("run", state, step)   # copies, then returns

    All ranks make the same calls. What a save meets in the background, all ranks get from the next save or wait, once.
    most_copied: bytes that are copied on each rank, to memory that is kept for the next save; what is more is written
    before save returns.
    """

    def __init__(self, most_copied=4 << 30):
        self._saver = _tegula.AsyncSaver(most_copied)

    def save(self, folder, state, step=0, *, keep=0, most_file_bytes=5 << 30, chunk_bytes=1 << 20):
        """As tegula.save; waits for the save before it, copies the state and returns."""
        listing = Listing(state)
        self._saver.save(this_world(), str(folder), listing, listing.random, step, keep, most_file_bytes, chunk_bytes)

    def wait(self):
        """Until the last save is on the disk."""
        self._saver.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.wait()


# Weights of others


def _members(module):
    """(tensor, names) of each parameter and persistent buffer."""
    members = {}
    for name, tensor in persistent_members(module):
        members.setdefault(id(tensor), (tensor, []))[1].append(name)
    return list(members.values())


def _names(names):
    """As C++ takes them: [(ours, theirs)], each a list of patterns."""
    def listed(patterns):
        return [patterns] if isinstance(patterns, str) else list(patterns)

    pairs = names.items() if hasattr(names, "items") else names
    return [(listed(ours), listed(theirs)) for ours, theirs in pairs]


def load_hf(module, folder, *, names=(), without=(), ignored=()):
    """Fills the module from the safetensors files of a Hugging Face folder, straight into its tiles.

        tg.load_hf(model, "Llama-3.2-1B", names={
            "layers.*.qkv.weight": ["model.layers.*.self_attn.q_proj.weight", "model.layers.*.self_attn.k_proj.weight",
                                    "model.layers.*.self_attn.v_proj.weight"],   # one of ours is three of theirs
            "**": "model.**"})

    names: what weights are called in the files, by patterns of ours; several, as a tuple or list, are joined by rows.
    The first that matches counts; one that none matches is the same in the files. without: patterns of what the files
    need not have, ignored: of what the module need not have. Of tied weights, any of the names will do.
    Floating-point elements are converted. What does not fit is one UsageError on all ranks, before anything has changed.
    """
    _tegula.load_hf(this_world(), _members(module), str(folder), _names(names), list(without), list(ignored))


def export_hf(module, folder, *, names=(), without=(), most_file_bytes=5 << 30):
    """Writes the module to a new folder, as load_hf and transformers read it: one file, or several and an index.

        tg.export_hf(model, "tuned")
        transformers.AutoModelForCausalLM.from_pretrained("tuned")

    Where the module has a config that can be saved, as those of transformers have, it is written beside. What the
    files hold does not depend on the ranks. names, without: as for load_hf.
    """
    world = this_world()
    _tegula.export_hf(world, _members(module), str(folder), _names(names), list(without), most_file_bytes)
    if world.rank == 0:
        for part in ("config", "generation_config"):
            config = getattr(module, part, None)
            if hasattr(config, "save_pretrained"):
                config.save_pretrained(str(folder))
    world.group().barrier()
