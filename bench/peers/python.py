"""The group "python": what a Python program pays, with Tegula, with PyTorch's DTensor and with plain tensors.

    python.py --who tegula     what `tegula bench python` measures; else its peers, under the same case names

Single ops on 8x8 tensors of f32 on one rank, placed so that nothing is sent, in turns with the same op on plain
tensors; steps of optimizers over 50 small parameters; the time of `import tegula` after `import torch`; and, where
transformers is installed, a Llama of 8 layers on 2 ranks, tensor parallel: by tegula.hf.parallelize, and by
transformers' own tp_plan="auto". Ranks are started by torchrun on both sides, one thread each.
"""
import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SIZE, PARAMETERS = 8, 50
TURNS, SECONDS = 201, 0.002
IMPORTS = 7
RANKS, STEPS = 2, 7
LLAMA = {"vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8,
         "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 256, "pad_token_id": 0,
         "bos_token_id": 1, "eos_token_id": None}
BATCH, TOKENS, PROMPT, NEW_TOKENS = 4, 64, 16, 32


def record(case, who, value, unit="us"):
    print(json.dumps({"group": "python", "case": case, "who": who, "value": value, "unit": unit}), flush=True)


# One rank: ops and optimizers. `wrap` makes a distributed tensor of a tile that is cut by rows, or whole.


def wrap_by_tegula():
    import tegula as tg

    tg.init()
    mesh = tg.init_device_mesh("cpu", (1,))
    return lambda tile, is_cut: tg.distribute_tensor(tile, mesh, [tg.Shard(0) if is_cut else tg.Replicate()])


def wrap_by_torch():
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    return lambda tile, is_cut: DTensor.from_local(tile, mesh, [Shard(0) if is_cut else Replicate()], run_check=False)


def ops(wrap):
    import torch

    x, y = wrap(torch.rand(SIZE, SIZE), True), wrap(torch.rand(SIZE, SIZE), True)
    weight, bias = wrap(torch.rand(SIZE, SIZE), False), wrap(torch.rand(SIZE), False)
    linear, layer_norm = torch.nn.functional.linear, torch.nn.functional.layer_norm
    return {
        "add": lambda: torch.add(x, y),
        "mul": lambda: torch.mul(x, y),
        "mm": lambda: torch.mm(x, weight),
        "relu": lambda: torch.relu(x),
        "sum": lambda: torch.sum(x, 1),
        "softmax": lambda: torch.softmax(x, 1),
        "view": lambda: x.view(SIZE, 2, SIZE // 2),
        "transpose": lambda: torch.transpose(x, 0, 1),
        "layer_norm": lambda: layer_norm(x, (SIZE,), bias, bias),
        "linear": lambda: linear(x, weight, bias),
    }


def optimizers(wrap):
    import torch

    def step(kind, **options):
        parameters = [torch.nn.Parameter(wrap(torch.rand(SIZE, SIZE) + 1, True)) for _ in range(PARAMETERS)]
        for parameter in parameters:
            parameter.grad = wrap(torch.rand(SIZE, SIZE), True)
        return kind(parameters, lr=1e-6, **options).step

    adamw, sgd = torch.optim.AdamW, torch.optim.SGD
    return {f"{name} step 50 params{' foreach' if foreach else ''}": step(kind, foreach=foreach, **options)
            for name, kind, options in (("adamw", adamw, {}), ("sgd", sgd, {"momentum": 0.9}))
            for foreach in (False, True)}


def calls_within(body, seconds):
    count = 1
    while True:
        begin = time.perf_counter()
        for _ in range(count):
            body()
        passed = time.perf_counter() - begin
        if passed > seconds / 4:
            return max(1, int(count * seconds / passed))
        count *= 2


def take_turns(bodies):
    """{who: microseconds per call}: medians of short runs that take turns."""
    counts = {who: calls_within(body, SECONDS) for who, body in bodies.items()}
    times = {who: [] for who in bodies}
    for _ in range(TURNS):
        for who, body in bodies.items():
            begin = time.perf_counter()
            for _ in range(counts[who]):
                body()
            times[who].append((time.perf_counter() - begin) / counts[who] * 1e6)
    return {who: statistics.median(values) for who, values in times.items()}


def one_rank(who):
    import torch

    torch.set_num_threads(1)
    wrap = wrap_by_tegula() if who == "tegula" else wrap_by_torch()
    plain = "plain" if who == "tegula" else "torch-plain"
    for group in ops, optimizers:
        distributed, alone = group(wrap), group(lambda tile, _: tile)
        for case, body in distributed.items():
            for name, value in take_turns({who: body, plain: alone[case]}).items():
                record(f"{case} in python", name, value)


# Imports


def import_time(who):
    """Of what comes after `import torch`, in milliseconds."""
    code = ("import time, torch; begin = time.perf_counter()\n"
            f"import {'tegula' if who == 'tegula' else 'torch.distributed.tensor'}\n"
            "print((time.perf_counter() - begin) * 1e3)")
    times = [float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
             for _ in range(IMPORTS)]
    record("import after torch", who, statistics.median(times), "ms")


# A Llama on two ranks


def parallel_llama(who, folder):
    import torch
    import transformers

    kind = transformers.AutoModelForCausalLM
    if who == "tegula":
        import tegula as tg
        import tegula.hf

        tg.init()
        model = kind.from_pretrained(folder, dtype=torch.float32)
        tegula.hf.parallelize(model, tg.init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",)))
        return model, tg.rank()
    model = kind.from_pretrained(folder, dtype=torch.float32, tp_plan="auto")
    return model, torch.distributed.get_rank()


def llama(who, folder):
    import torch

    torch.set_num_threads(1)
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[int(os.environ["RANK"]) % len(processors)]})
    model, rank = parallel_llama(who, folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    words = torch.randint(3, LLAMA["vocab_size"], (BATCH, TOKENS), generator=torch.Generator().manual_seed(1))

    def train():
        optimizer.zero_grad()
        loss = model(input_ids=words, labels=words).loss
        loss.backward()
        optimizer.step()
        return loss

    def generate():
        with torch.no_grad():
            return model.generate(words[:1, :PROMPT], max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False)

    for case, body in (("llama greedy generation", generate), ("llama training step", train)):
        times = []
        for number in range(STEPS + 2):
            begin = time.perf_counter()
            result = body()
            if number > 1:  # the first ones warm up
                times.append((time.perf_counter() - begin) * 1e3)
        if rank == 0:
            record(f"{case} 2 ranks", who, statistics.median(times), "ms")
            print(f"{case} {who}: {result.float().sum().item()}", file=sys.stderr)
    sys.stdout.flush()
    if who != "tegula":
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def run_llamas(who):
    import torch
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)).save_pretrained(folder)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
        subprocess.run([*command, __file__, "--who", who, "--llama", folder], check=True,
                       env={**os.environ, "OMP_NUM_THREADS": "1"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--who", choices=("tegula", "torch-dtensor"), default="torch-dtensor")
    parser.add_argument("--part", choices=("ops", "import", "llama"), help="only this one")
    parser.add_argument("--llama", metavar="FOLDER", help="as a rank, with the model that lies there")
    options = parser.parse_args()
    if options.llama:
        return llama(options.who, options.llama)
    if options.part in (None, "ops"):
        one_rank(options.who)
    if options.part in (None, "import"):
        import_time(options.who)
    if options.part in (None, "llama") and importlib.util.find_spec("transformers"):
        run_llamas(options.who)


if __name__ == "__main__":
    main()
