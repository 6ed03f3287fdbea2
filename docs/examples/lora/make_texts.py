"""Writes a small GPT-2 that knows letters of one kind, and three wards' letters of another.

    python make_texts.py FOLDER [STEPS]

The model reads bytes, so there is no tokenizer to make. In place of both take a folder as `save_pretrained`
writes it, and texts of your own.
"""

import json
import random
import sys
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils.logging import disable_progress_bar

END, LENGTH = 256, 64
"""The token that ends a text, as `data-prep partition jsonl` has it; how many tokens are read at a time."""
WHO = ["the patient", "she", "he", "the child", "the old man"]
WHAT = ["slept well", "was in pain", "ate little", "walked alone", "had a fever", "went home"]
WARDS = {"north": "Seen today:", "south": "Night report:", "east": "Handed over:"}


def letter(draw: random.Random, opening: str) -> str:
    said = ", and ".join(f"{draw.choice(WHO)} {draw.choice(WHAT)}" for _ in range(draw.randint(1, 3)))
    return f"{opening} {said}"


def main() -> None:
    folder, steps = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 400
    draw = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "letters.jsonl").open("w") as file:
        for _ in range(150):
            ward = draw.choice(list(WARDS))
            file.write(
                json.dumps({"ward": ward, "text": letter(draw, WARDS[ward]) + f" (ward {ward})"}) + "\n"
            )

    torch.manual_seed(0)
    torch.set_num_threads(1)
    ends = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": END}
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=257, n_positions=LENGTH, n_embd=64, n_layer=2, n_head=4, **ends)
    )
    read = torch.tensor(
        [token for _ in range(2000) for token in [*(letter(draw, "Dear colleague,") + ".").encode(), END]]
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        begin = torch.randint(len(read) - LENGTH, (16,))
        x = torch.stack([read[i : i + LENGTH] for i in begin])
        logits = model(input_ids=x, attention_mask=torch.ones_like(x)).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    disable_progress_bar()
    model.save_pretrained(folder / "gpt2")


if __name__ == "__main__":
    main()
