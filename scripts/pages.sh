#!/usr/bin/env bash
# Draws every kind of page in a headless Chromium, on a desk and on a phone, and leaves a picture of each in build/pages.
# With root and apt Chromium is installed the first time; where there is none, the tests are skipped and say why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! command -v chromium chromium-browser google-chrome > /dev/null && [[ $EUID = 0 ]] && command -v apt-get > /dev/null; then
    apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core > /dev/null || true
fi
export MPIFL_BROWSER_TESTS=1
exec bash scripts/test.sh tests/browser -n 0 -rs "$@"
