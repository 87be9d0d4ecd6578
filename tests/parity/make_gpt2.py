#!/usr/bin/env python3
"""Makes tests/parity/gpt2_*.safetensors with Hugging Face's transformers: one small random GPT-2 in three files.

    python3 tests/parity/make_gpt2.py                    # needs torch, safetensors and transformers

gpt2_lm is what GPT2LMHeadModel.save_pretrained writes, gpt2_bare what GPT2Model's does, gpt2_older what older
versions wrote: the causal masks, too. gpt2_answers has a batch of tokens, and the logits and the loss of that model.
tests/parity/test_gpt2_files.c loads them. The embedding of 8 makes attn.c_proj.weight square, as every GPT-2's is.
"""

import pathlib
import shutil
import tempfile

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

HERE = pathlib.Path(__file__).resolve().parent


def save_pretrained(model, name):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        shutil.copyfile(f"{folder}/model.safetensors", HERE / f"{name}.safetensors")


torch.manual_seed(0)
config = GPT2Config(vocab_size=13, n_positions=10, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config).eval()
with torch.no_grad():  # larger weights, because small ones give all tokens equal attention, and nonzero biases
    for p in model.parameters():
        p.mul_(20) if p.dim() > 1 else p.add_(0.3 * torch.randn_like(p))
save_pretrained(model, "gpt2_lm")
save_pretrained(model.transformer, "gpt2_bare")
state = {name: tensor.clone() for name, tensor in model.transformer.state_dict().items()}
for block in range(config.n_layer):
    mask = torch.tril(torch.ones(config.n_positions, config.n_positions))
    state[f"h.{block}.attn.bias"] = mask.view(1, 1, config.n_positions, config.n_positions)
    state[f"h.{block}.attn.masked_bias"] = torch.tensor(-1e4)
save_file(state, HERE / "gpt2_older.safetensors")

tokens = torch.randint(config.vocab_size, (3, 9))
with torch.no_grad():
    answer = model(tokens, labels=tokens)
save_file({"tokens": tokens, "logits": answer.logits.flatten(0, 1).contiguous(), "loss": answer.loss},
          HERE / "gpt2_answers.safetensors")
print(f"loss {answer.loss.item():.6f}, logits up to {answer.logits.abs().max().item():.3f}")
