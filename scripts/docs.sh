#!/usr/bin/env bash
# Builds the documents and the API as a site in build/docs, warnings being errors; every internal link is checked by that.
#
#   bash scripts/docs.sh          wants Python 3.11 or newer
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh dev docs
.venv/bin/python -m pytest -p no:xdist tests/test_docs.py tests/test_english.py
.venv/bin/python -m sphinx -W --keep-going -q -j auto -c docs . build/docs
echo "The site: build/docs/docs/index.html"
