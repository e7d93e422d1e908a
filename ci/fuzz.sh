#!/bin/sh
# Feeds the reader of traces and the analysis of code with anything, each for REFIT_FUZZ_SECONDS (300); says so where there is
# no cargo-fuzz.
set -eu
cd "$(dirname "$0")/.."
if ! rustup run nightly cargo fuzz --version >/dev/null 2>&1; then
	echo "not run: there is no cargo-fuzz; \`cargo install cargo-fuzz\` and a nightly toolchain get it"
	exit 0
fi
for target in read_trace analyse_code; do
	cargo +nightly fuzz run "$target" -- -max_total_time="${REFIT_FUZZ_SECONDS:-300}" "$@"
done
