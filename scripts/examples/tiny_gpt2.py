"""Make a small GPT-2 of Shakespeare's plays, and four silos' texts that it has not read, without a download.

    pip install 'mpifl[hf]'
    python scripts/examples/tiny_gpt2.py --text data/tinyshakespeare/input.txt --out data/lora

OUT/gpt2 is a folder as Hugging Face's libraries write it: weights, configuration, tokenizer. OUT/roles.jsonl
has the speeches of the four roles that speak most, for `data_prep partition jsonl`, in capitals: so there is
something that adapters can learn. All other roles' speeches, as they are, made the tokenizer and trained the
model: plain PyTorch, no silos, about a minute.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

END = "<|endoftext|>"
LENGTH = 64
BATCH = 16


def speeches_of(text: str) -> list[tuple[str, str]]:
    """Return (role, speech), in their order: a speech is a line "ROLE:" and those below it."""
    parts = (part.partition(":\n") for part in text.split("\n\n"))
    return [(role.strip(), speech.strip()) for role, colon, speech in parts if colon and speech.strip()]


def tokenizer_of(texts: list[str], size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of GPT-2's kind, made of these texts."""
    made = ByteLevelBPETokenizer()
    made.train_from_iterator(texts, vocab_size=size, special_tokens=[END], show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=made._tokenizer, eos_token=END, pad_token=END)


def pretrain(model: GPT2LMHeadModel, tokens: torch.Tensor, steps: int) -> None:
    """Train the model on windows of the tokens, shape [N], with a learning rate that falls to 0."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps, pct_start=0.1)
    windows = tokens.unfold(0, LENGTH, 1)
    for step in range(1, steps + 1):
        x = windows[torch.randint(len(windows), (BATCH,))]
        logits = model(input_ids=x, attention_mask=torch.ones_like(x)).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} of {steps}: loss {loss.item():.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="Tiny Shakespeare's input.txt")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--silos", type=int, default=4, help="so many roles are silos")
    parser.add_argument("--steps", type=int, default=1000, help="of the pretraining")
    parser.add_argument("--vocabulary", type=int, default=512, help="so many tokens")
    parser.add_argument("--width", type=int, default=64)
    given = parser.parse_args()

    speeches = speeches_of(given.text.read_text())
    words = Counter[str]()
    for role, speech in speeches:
        words[role] += len(speech.split())
    silos = [role for role, _ in words.most_common(given.silos)]
    others = [speech for role, speech in speeches if role not in silos]
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "roles.jsonl").open("w") as file:
        for role, speech in speeches:
            if role in silos:
                file.write(json.dumps({"role": role, "text": speech.upper()}) + "\n")

    torch.manual_seed(0)
    torch.set_num_threads(1)  # for so small a model a second one is no help
    tokenizer = tokenizer_of(others, given.vocabulary)
    end = tokenizer.eos_token_id
    shape = {"n_positions": LENGTH, "n_embd": given.width, "n_layer": 2, "n_head": 4}
    ends = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **shape, **ends))
    tokens = torch.tensor([token for text in others for token in [*tokenizer(text)["input_ids"], end]])
    pretrain(model, tokens, given.steps)
    disable_progress_bar()
    model.save_pretrained(given.out / "gpt2")
    tokenizer.save_pretrained(given.out / "gpt2")
    size = sum(p.numel() for p in model.parameters())
    print(f"{given.out / 'gpt2'}: {size:,} parameters, {len(tokenizer)} tokens, trained on {len(tokens):,}")
    print(f"{given.out / 'roles.jsonl'}: {', '.join(silos)}")


if __name__ == "__main__":
    main()
