#!/bin/sh
# Tries many damaged plugins on what checks them; a few thousand of them are part of every test run.
set -eu
cd "$(dirname "$0")/.."
REFIT_CASES="${REFIT_CASES:-200000}" \
    cargo test --quiet --release -p example-store-host --test hostile -- no_damage "$@"
