"""Weights of other formats as safetensors files, which load_hf and Python's safetensors read.

    python -m tegula.import_weights model.pt out             a file of torch.save
    python -m tegula.import_weights checkpoint/ out          a folder of torch.distributed.checkpoint (DCP)

Pickles stay in Python, and only those of weights are opened: torch.load with weights_only. DCP's own list of contents
is a pickle, too: import folders that you trust. Tensors in nested dicts get names with dots. What is no tensor is
passed over and named. Of a DCP folder one file's worth of tensors is in memory at a time.
"""
import argparse
import json
import os
import struct
import sys

import torch

# The names that the format has for element types.
NAMES = {torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.uint16: "U16",
         torch.int32: "I32", torch.uint32: "U32", torch.int64: "I64", torch.uint64: "U64", torch.float16: "F16",
         torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.complex64: "C64",
         torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
         torch.float8_e4m3fnuz: "F8_E4M3FNUZ"}
FILE_BYTES = 5 << 30


def flattened(value, prefix=""):
    """(name, leaf) of nested dicts and lists."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        yield prefix, value
        return
    for key, one in items:
        yield from flattened(one, f"{prefix}.{key}" if prefix else str(key))


def write_file(path, tensors):
    """A safetensors file of a dict of tensors, under its name when it is on the disk."""
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    for name, tensor in ordered:
        if tensor.dtype not in NAMES:
            raise SystemExit(f"import_weights: safetensors files have no element type {tensor.dtype}: {name}")
        end = begin + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 8)
    with open(path + ".tmp", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in ordered:
            dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
            if dense.numel():
                file.write(memoryview(dense.view(torch.uint8).numpy()))
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def groups_of(sizes, most):
    """Names in groups of up to `most` bytes; one that is larger is alone."""
    groups, filled = [], 0
    for name in sorted(sizes):
        if not groups or (filled and filled + sizes[name] > most):
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += sizes[name]
    return groups


def write_folder(folder, sizes, tensors_of, most=FILE_BYTES):
    """Files and an index, from the bytes of each tensor and a function that gives some of them."""
    os.makedirs(folder, exist_ok=True)
    groups = groups_of(sizes, most)
    weight_map = {}
    for index, names in enumerate(groups):
        several = f"model-{index + 1:05}-of-{len(groups):05}.safetensors"
        file = several if len(groups) > 1 else "model.safetensors"
        write_file(os.path.join(folder, file), tensors_of(names))
        weight_map.update(dict.fromkeys(names, file))
    if len(groups) > 1:
        with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
            json.dump({"metadata": {"total_size": sum(sizes.values())}, "weight_map": weight_map}, out, indent=2)
    return len(groups)


def import_torch_file(path, folder, most=FILE_BYTES):
    tensors, others = {}, []
    for name, value in flattened(torch.load(path, map_location="cpu", weights_only=True, mmap=True)):
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        else:
            others.append(name)
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in tensors.items()}
    files = write_folder(folder, sizes, lambda names: {name: tensors[name] for name in names}, most)
    return len(tensors), files, others


def import_dcp_folder(path, folder, most=FILE_BYTES):
    import torch.distributed.checkpoint as dcp
    entries = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    known = {name: entry for name, entry in entries.items() if hasattr(entry, "size")}
    others = [name for name in entries if name not in known]

    def empty(name):
        return torch.empty(known[name].size, dtype=known[name].properties.dtype)

    def tensors_of(names):
        tensors = {name: empty(name) for name in names}
        dcp.load(tensors, storage_reader=dcp.FileSystemReader(path), no_dist=True)
        return tensors

    sizes = {name: entry.size.numel() * entry.properties.dtype.itemsize for name, entry in known.items()}
    return len(known), write_folder(folder, sizes, tensors_of, most), others


def main():
    parser = argparse.ArgumentParser(description="Weights of other formats as safetensors files")
    parser.add_argument("source", help="a file of torch.save, or a folder of torch.distributed.checkpoint")
    parser.add_argument("folder", help="where the files go")
    parser.add_argument("--file-bytes", type=int, default=FILE_BYTES, help="the most that a file holds (%(default)s)")
    call = parser.parse_args()
    convert = import_dcp_folder if os.path.isdir(call.source) else import_torch_file
    tensors, files, others = convert(call.source, call.folder, call.file_bytes)
    print(f"{tensors} tensors in {files} {'file' if files == 1 else 'files'}")
    if others:
        print(f"passed over, no tensors: {', '.join(sorted(others))}")


if __name__ == "__main__":
    sys.exit(main())
