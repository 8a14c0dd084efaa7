"""The llama runs on a folder that this writes: the same ids on any number of ranks; wrong calls are named.

Usage: llama.py <folder of programs>
"""
import array
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

CONFIG = {"model_type": "qwen3", "vocab_size": 29, "hidden_size": 10, "intermediate_size": 13, "num_hidden_layers": 2,
          "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4, "max_position_embeddings": 40,
          "eos_token_id": 28, "dtype": "float32"}


def shapes():
    """Of the weights that fit."""
    width, hidden, size = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["head_dim"]
    queries, keys = CONFIG["num_attention_heads"] * size, CONFIG["num_key_value_heads"] * size
    layer = {"self_attn.q_proj": (queries, width), "self_attn.k_proj": (keys, width), "self_attn.v_proj": (keys, width),
             "self_attn.o_proj": (width, queries), "self_attn.q_norm": (size,), "self_attn.k_norm": (size,),
             "mlp.gate_proj": (hidden, width), "mlp.up_proj": (hidden, width), "mlp.down_proj": (width, hidden),
             "input_layernorm": (width,), "post_attention_layernorm": (width,)}
    found = {"lm_head.weight": (CONFIG["vocab_size"], width), "model.embed_tokens.weight": (CONFIG["vocab_size"], width),
             "model.norm.weight": (width,)}
    for number in range(CONFIG["num_hidden_layers"]):
        found.update({f"model.layers.{number}.{name}.weight": shape for name, shape in layer.items()})
    return found


def write_folder(folder, without=""):
    """Random weights, all but one."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    numbers, header, data = random.Random(7), {}, b""
    for name, shape in shapes().items():
        if name == without:
            continue
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array.array("f", (numbers.gauss(1 if len(shape) == 1 else 0, 0.5) for _ in range(count))).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(folder)


def main(programs):
    def run(ranks, *words):
        command = [f"{programs}/tegula", "run", "-n", str(ranks), f"{programs}/llama", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    def check(is_right, done):
        if not is_right:
            sys.exit(f"{' '.join(done.args)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")

    with tempfile.TemporaryDirectory() as scratch:
        folder = write_folder(pathlib.Path(scratch) / "model")
        torn = write_folder(pathlib.Path(scratch) / "torn", without="model.layers.1.mlp.up_proj.weight")
        ids = ["--ids", "1,2,3", "--ids", "4,5", "--max-new", "6"]
        alone = run(1, "--model", folder, *ids)
        lines = [line.split() for line in alone.stdout.replace("[0] ", "").splitlines()]
        check(alone.returncode == 0 and 6 <= sum(text == "0" for text, _ in lines) + (["0", "28"] in lines) * 6, alone)
        for ranks in (2, 3, 4):
            done = run(ranks, "--model", folder, *ids)
            check(done.returncode == 0 and done.stdout == alone.stdout, done)
        hot = ["--temperature", "3", "--top-k", "20", "--top-p", "0.9", "--seed", "5", "--no-stop"]
        drawn = [run(ranks, "--model", folder, *ids, *hot) for ranks in (1, 3)]
        check(drawn[0].stdout == drawn[1].stdout and len(drawn[0].stdout.splitlines()) == 12, drawn[1])

        for words, part in {
                ("--model", scratch + "/nowhere", *ids): "a model's configuration cannot be read",
                ("--model", torn, *ids): "missing layers.1.mlp.up_proj.weight",
                ("--model", folder, "--ids", "1,29"): "the vocabulary has no such id",
                ("--model", folder, "--ids", "1,two"): "a text of ids",
                ("--model", folder, "--ids", "1", "--max-new", "40"): "longer than the model can look back",
                ("--model", folder, "--ids", "1", "--dtype", "int8"): "float32, float64",
        }.items():
            done = run(2, *words)
            check(done.returncode == 1 and part in done.stderr and not done.stdout, done)
    print("the same ids on 1, 2, 3 and 4 ranks")


if __name__ == "__main__":
    main(sys.argv[1])
