#!/bin/sh
# A million swaps under as many busy threads as there are processors, and a tenth of that under one thread more: then each swap
# waits for a thread that is not running. Every call is accounted for. Takes some minutes; REFIT_SOAK_SWAPS says how many.
set -eu
cd "$(dirname "$0")/.."
swaps=${REFIT_SOAK_SWAPS:-1000000}
processors=$(nproc)
soak() {
	echo "$1 swaps under $2 threads"
	REFIT_SOAK_SWAPS=$1 REFIT_SOAK_THREADS=$2 \
		cargo test --locked --release -p refit-objects --test soak -- --nocapture
}
soak "$swaps" "$processors"
soak $((swaps / 10)) $((processors + 1))
