"""Libraries around Hugging Face's models on a distributed one: generation, peft, accelerate, the Trainer; beside the
plain model on one rank. Any number of ranks. Ends with code 77 where they are not installed.
"""
import copy
import os
import sys
import tempfile
import unittest
import warnings

try:
    import accelerate
    import peft
    import transformers
except ImportError:
    sys.exit(77)
import torch

import small_models
import tegula as tg
import tegula.hf

transformers.logging.set_verbosity_error()
warnings.simplefilter("ignore")
tg.init(timeout=120)
MESH = tg.init_device_mesh("cpu", (tg.size(),), mesh_dim_names=("tp",))


def both(name="llama"):
    """The plain model, and the same distributed."""
    plain, _ = small_models.make(name)
    model = copy.deepcopy(plain)
    tegula.hf.parallelize(model, MESH)
    return plain, model


def whole(tensor):
    return tg.full_tensor(tensor.detach()) if tg.is_dtensor(tensor) else tensor.detach()


def shared_folder(test):
    """The same on all ranks, gone when the test is over."""
    made = tempfile.TemporaryDirectory() if tg.rank() == 0 else None
    text = (made.name if made else "").encode().ljust(200)
    path = bytes(tg.group().broadcast(torch.tensor(list(text), dtype=torch.uint8), 0).tolist()).decode().strip()

    def leave():
        tg.group().barrier()
        if made:
            made.cleanup()

    test.addCleanup(leave)
    return path


class Same(unittest.TestCase):
    def same_parameters(self, model, plain, **tolerances):
        for (name, p), (other, q) in zip(model.named_parameters(), plain.named_parameters(), strict=True):
            self.assertEqual(name, other)
            torch.testing.assert_close(whole(p), whole(q), **tolerances, msg=lambda m, n=name: f"{n}: {m}")

    def same_gradients(self, model, plain):
        count = 0
        for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
            self.assertEqual(p.grad is None, q.grad is None, name)
            if p.grad is not None:
                count += 1
                torch.testing.assert_close(whole(p.grad), q.grad, rtol=1e-3, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
        return count


class Generation(Same):
    def check(self, name="llama", **options):
        plain, model = both(name)
        tokens = []
        for one in (plain, model):
            torch.manual_seed(5)
            with torch.no_grad():
                tokens.append(one.generate(small_models.words(), max_new_tokens=6, **options).tolist())
        self.assertEqual(*tokens)

    def test_greedy_with_a_cache_and_without(self):
        for use_cache in (True, False):
            self.check(do_sample=False, use_cache=use_cache)

    def test_sampling(self):
        self.check(do_sample=True, temperature=0.7, top_k=20, top_p=0.9)

    def test_beams(self):
        self.check(num_beams=3, do_sample=False)

    def test_a_sliding_window(self):
        self.check("mistral", do_sample=False)

    def test_rows_of_unequal_length(self):
        plain, model = both()
        mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1] * 7])
        tokens = [one.generate(small_models.words(), attention_mask=mask, max_new_tokens=4, do_sample=False).tolist()
                  for one in (plain, model)]
        self.assertEqual(*tokens)


class Copies(Same):
    def test_a_copy_of_a_distributed_model_has_parameters_of_its_own(self):
        _, model = both()
        twin = copy.deepcopy(model)
        with torch.no_grad():
            expected = model(small_models.words()).logits
            for p in model.parameters():
                p.zero_()
            torch.testing.assert_close(twin(small_models.words()).logits, expected)
            self.assertEqual(model(small_models.words()).logits.abs().max().item(), 0)

    def test_a_saved_model_is_the_plain_one(self):
        plain, model = both("gemma2")  # with tied embeddings
        folder = shared_folder(self)
        model.save_pretrained(folder)
        self.same_parameters(transformers.AutoModelForCausalLM.from_pretrained(folder), plain)

    def test_a_folder_that_cannot_be_written_is_an_error_on_all_ranks(self):
        _, model = both()
        with tempfile.NamedTemporaryFile() as file:
            with self.assertRaises(Exception):
                model.save_pretrained(os.path.join(file.name, "model"))


class Adapters(Same):
    def config(self):
        return peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"],
                               init_lora_weights=False, task_type="CAUSAL_LM")

    def adapted(self, model):
        torch.manual_seed(7)
        return peft.get_peft_model(model, self.config())

    def models(self, adapted_first):
        plain = self.adapted(small_models.make("llama")[0])
        model = small_models.make("llama")[0]
        if adapted_first:
            model = self.adapted(model)
            report = tegula.hf.parallelize(model, MESH)
            self.assertEqual(report.unmatched, [])
            return plain, model
        tegula.hf.parallelize(model, MESH)
        return plain, self.adapted(model)

    def test_adapters_learn_what_they_learn_on_one_rank(self):
        for adapted_first in (True, False):
            plain, model = self.models(adapted_first)
            for one in (plain, model):
                optimizer = torch.optim.AdamW([p for p in one.parameters() if p.requires_grad], 1e-2)
                for _ in range(2):
                    optimizer.zero_grad()
                    loss = one(**small_models.text()).loss
                    loss.backward()
                    optimizer.step()
            self.assertEqual(self.same_gradients(model, plain), 20)
            self.same_parameters(model, plain, rtol=1e-3, atol=1e-4)

    def test_adapters_are_cut_as_their_layers_are(self):
        _, model = self.models(adapted_first=True)
        layer = model.base_model.model.model.layers[0]
        self.assertEqual([tg.placements(p) for p in (layer.self_attn.q_proj.lora_A.default.weight,
                                                     layer.self_attn.q_proj.lora_B.default.weight,
                                                     layer.mlp.down_proj.lora_A.default.weight,
                                                     layer.mlp.down_proj.lora_B.default.weight)],
                         [(tg.Replicate(),), (tg.Shard(0),), (tg.Shard(1),), (tg.Replicate(),)])

    def test_adapted_models_generate(self):
        plain, model = self.models(adapted_first=True)
        tokens = [one.generate(input_ids=small_models.words(), max_new_tokens=4, do_sample=False).tolist()
                  for one in (plain, model)]
        self.assertEqual(*tokens)

    def test_adapters_are_saved_and_loaded(self):
        plain, model = self.models(adapted_first=True)
        folder = shared_folder(self)
        model.save_pretrained(folder)
        loaded = peft.PeftModel.from_pretrained(small_models.make("llama")[0], folder)
        self.same_parameters(loaded, plain)

    def test_adapters_are_merged(self):
        plain, model = self.models(adapted_first=True)
        merged = [one.merge_and_unload() for one in (plain, model)]
        self.same_parameters(merged[1], merged[0])
        logits = [one(small_models.words()).logits for one in merged]
        torch.testing.assert_close(whole(logits[1]), whole(logits[0]), rtol=1e-4, atol=1e-5)


class Data(torch.utils.data.Dataset):
    def __init__(self, count=12):
        self.rows = small_models.words(seed=3, rows=count)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class Accelerate(Same):
    def trained(self, model, **options):
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2, **options)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        loader = torch.utils.data.DataLoader(Data(), batch_size=2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        return accelerator.unwrap_model(model)

    def test_a_loop_trains_as_on_one_rank(self):
        plain, model = both()
        self.same_parameters(self.trained(model), self.trained(plain), rtol=1e-3, atol=1e-4)

    def test_mixed_precision(self):
        plain, model = both()
        accelerate.state.AcceleratorState._reset_state(True)
        self.addCleanup(accelerate.state.AcceleratorState._reset_state, True)
        self.same_parameters(self.trained(model, mixed_precision="bf16"), self.trained(plain, mixed_precision="bf16"),
                             rtol=0.1, atol=0.05)


class Trainer(Same):
    def arguments(self, folder, **options):
        settings = {"output_dir": folder, "use_cpu": True, "max_steps": 3, "per_device_train_batch_size": 2,
                    "learning_rate": 1e-2, "report_to": [], "save_strategy": "no", "logging_steps": 1, "disable_tqdm": True}
        return transformers.TrainingArguments(**{**settings, **options})

    def trained(self, model, folder, **options):
        trainer = transformers.Trainer(model, self.arguments(folder, **options), train_dataset=Data(),
                                       eval_dataset=Data(4))
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return trainer, losses, trainer.evaluate()["eval_loss"]

    def test_it_trains_and_evaluates_as_on_one_rank(self):
        plain, model = both()
        folder = shared_folder(self)
        _, losses, of_eval = self.trained(plain, folder)
        trainer, found, of_ours = self.trained(model, folder)
        self.assertEqual(len(losses), 3)
        for one, other in zip([*found, of_ours], [*losses, of_eval]):
            self.assertAlmostEqual(one, other, places=3)
        self.same_parameters(model, plain, rtol=1e-2, atol=1e-3)
        trainer.save_model(os.path.join(folder, "model"))
        self.same_parameters(transformers.AutoModelForCausalLM.from_pretrained(os.path.join(folder, "model")), model)

    def test_recomputation_and_accumulation(self):
        plain, model = both()
        folder = shared_folder(self)
        options = {"gradient_checkpointing": True, "gradient_accumulation_steps": 2, "max_grad_norm": 0.5}
        _, losses, _ = self.trained(plain, folder, **options)
        _, found, _ = self.trained(model, folder, **options)
        for one, other in zip(found, losses, strict=True):
            self.assertAlmostEqual(one, other, places=3)

    def test_checkpoints_of_the_model_are_written_those_of_its_optimizer_are_refused(self):
        _, model = both()
        folder = shared_folder(self)
        self.trained(model, folder, save_strategy="steps", save_steps=2, save_only_model=True)
        saved = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(folder, "checkpoint-3"))
        self.same_parameters(saved, model)
        with self.assertRaisesRegex(tg.UsageError, "cannot be pickled or saved"):
            self.trained(model, folder, save_strategy="steps", save_steps=1)


if __name__ == "__main__":
    unittest.main()
