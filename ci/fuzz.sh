#!/bin/sh
# Feeds the reader of traces with anything, for REFIT_FUZZ_SECONDS (300); says so where there is no cargo-fuzz.
set -eu
cd "$(dirname "$0")/.."
if ! rustup run nightly cargo fuzz --version >/dev/null 2>&1; then
	echo "not run: there is no cargo-fuzz; \`cargo install cargo-fuzz\` and a nightly toolchain get it"
	exit 0
fi
cargo +nightly fuzz run read_trace -- -max_total_time="${REFIT_FUZZ_SECONDS:-300}" "$@"
