#!/bin/sh
# A million swaps under load, every call accounted for. Takes some minutes; REFIT_SOAK_SWAPS says how many.
set -eu
cd "$(dirname "$0")/.."
REFIT_SOAK_SWAPS="${REFIT_SOAK_SWAPS:-1000000}" \
    cargo test --locked --release -p refit-objects --test soak -- --nocapture "$@"
