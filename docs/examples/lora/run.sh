#!/usr/bin/env bash
# Letters of three wards adapt a frozen GPT-2. Words go to `mpifl train`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

python make_texts.py . "${STEPS:-400}"            # in its place: letters.jsonl, and gpt2/ as save_pretrained writes it
data-prep partition jsonl --data letters.jsonl --out shards --scheme natural --seed 1 --test 0.2 \
    --silo ward --length 64

mpifl train job.toml --out run "$@"
