"""Sixteen kinds of models of Hugging Face's transformers, beside themselves on one rank: loss, logits, gradients.

    tegula run -n 4 python small_models_test.py [--mesh 2x2] [--only llama,vit] [--placements plan,random] [--seed 0]

Parameters and buffers are placed by a plan (the model's own, or the one that stands here), or at random; inputs are
plain. Ends with code 77 where transformers is not installed.
"""
import argparse
import copy
import random
import sys
import unittest
import warnings
import zlib

try:
    import transformers
except ImportError:
    sys.exit(77)
import torch

import small_models
import tegula as tg
import tegula.hf

transformers.logging.set_verbosity_error()
warnings.simplefilter("ignore")

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0])
PARSER.add_argument("--mesh", help="for example 2x2; else one axis of all ranks")
PARSER.add_argument("--only", type=lambda text: text.split(","), default=list(small_models.MODELS))
PARSER.add_argument("--placements", type=lambda text: text.split(","), default=["plan", "random"])
PARSER.add_argument("--seed", type=int, default=0)
OPTIONS, REST = PARSER.parse_known_args()

tg.init(timeout=120)
SHAPE = tuple(int(size) for size in OPTIONS.mesh.split("x")) if OPTIONS.mesh else (tg.size(),)
MESH = tg.init_device_mesh("cpu", SHAPE, mesh_dim_names=("dp", "tp")[-len(SHAPE):])

# Of models that bring none.
BERT = {"**.query": "colwise", "**.key": "colwise", "**.value": "colwise", "**.attention.output.dense": "rowwise",
        "**.intermediate.dense": "colwise", "**.layer.*.output.dense": "rowwise", "**.word_embeddings": "embedding_rowwise"}
HEADS = {"**.q_proj": "colwise", "**.k_proj": "colwise", "**.v_proj": "colwise", "**.out_proj": "rowwise",
         "**.fc1": "colwise", "**.fc2": "rowwise"}
PLANS = {
    "gpt2": {"transformer.wte": "embedding_rowwise", "**.c_attn": tg.Style("columns of a Conv1D", lambda p: tg.Shard(p.tensor.ndim - 1)),
             "**.c_fc": tg.Style("columns of a Conv1D", lambda p: tg.Shard(p.tensor.ndim - 1)),
             "**.mlp.c_proj": tg.Style("rows of a Conv1D", lambda p: tg.Shard(0) if p.tensor.ndim > 1 else tg.Replicate())},
    "opt": HEADS, "clip": HEADS, "whisper": HEADS,
    "bert": BERT, "roberta": BERT,
    "distilbert": {"**.q_lin": "colwise", "**.k_lin": "colwise", "**.v_lin": "colwise", "**.out_lin": "rowwise",
                   "**.lin1": "colwise", "**.lin2": "rowwise"},
    "t5": {"shared": "embedding_rowwise", "**.q": "colwise", "**.k": "colwise", "**.v": "colwise", "**.o": "rowwise",
           "**.wi": "colwise", "**.wo": "rowwise"},
    "vit": {"**.query": "colwise", "**.key": "colwise", "**.value": "colwise", "**.q_proj": "colwise", "**.k_proj": "colwise",
            "**.v_proj": "colwise", "**.fc1": "colwise", "**.fc2": "rowwise"},
    "mamba": {"**.in_proj": "colwise", "**.out_proj": "rowwise"},
    "resnet": {"**.convolution": "colwise", "classifier.1": "rowwise"},
}


def random_placements(name, tensor):
    """Of this parameter, the same on all ranks: each axis cuts a dim or has replicas."""
    draw = random.Random(zlib.crc32(f"{name} {OPTIONS.seed}".encode()))
    return [tg.Shard(draw.randrange(tensor.ndim)) if tensor.ndim and draw.random() < 0.8 else tg.Replicate() for _ in SHAPE]


def distribute(model, name, placements):
    if placements == "random":
        tg.distribute_module(model, MESH, random_placements, src_data_rank=None)
        tegula.hf.take_plain_tensors(model)
        return
    tegula.hf.parallelize(model, MESH["tp"], PLANS.get(name))


def one_pass(model, inputs):
    """{name: plain tensor}: loss, logits, gradients."""
    outputs = model(**inputs)
    outputs.loss.backward()
    found = {name: outputs[name].detach() for name in ("loss", "logits", "logits_per_image") if name in outputs}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"gradient of {name}"] = tg.full_tensor(parameter.grad) if tg.is_dtensor(parameter.grad) else parameter.grad
    return found


class SmallModels(unittest.TestCase):
    def test_each_gives_what_it_gives_on_one_rank(self):
        for name in OPTIONS.only:
            for placements in OPTIONS.placements:
                with self.subTest(model=name, placements=placements, ranks=SHAPE):
                    model, inputs = small_models.make(name)
                    expected = one_pass(copy.deepcopy(model), inputs)
                    distribute(model, name, placements)
                    self.assertTrue(all(tg.is_dtensor(p) for p in model.parameters()))
                    found = one_pass(model, inputs)
                    self.assertEqual(found.keys(), expected.keys())
                    for what, value in expected.items():
                        torch.testing.assert_close(found[what], value, rtol=1e-3, atol=1e-5, msg=lambda m, w=what: f"{w}: {m}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + REST)
