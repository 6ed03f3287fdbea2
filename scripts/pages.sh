#!/usr/bin/env bash
# Draws every kind of page in a headless Chromium and Firefox, on a desk and on a phone, and leaves pictures in build/pages.
# With root and apt both are installed the first time; where there is none, its tests are skipped and say why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
install() { # a package, and the programs of which one is enough
    if ! command -v "${@:2}" > /dev/null && [[ $EUID = 0 ]] && command -v apt-get > /dev/null; then
        apt-get install -qq -y --no-install-recommends "$1" fonts-dejavu-core > /dev/null || true
    fi
}
install chromium chromium chromium-browser google-chrome
install firefox-esr firefox-esr firefox
export MPIFL_BROWSER_TESTS=1
exec bash scripts/test.sh tests/browser -n 0 -rs "$@"
