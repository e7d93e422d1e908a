#!/bin/sh
# Measures refit beside its peers, in one run on one machine, and writes bench/RESULTS.md. Never part of the
# tests: figures of a busy machine fail nobody.
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
need_packages postmark:postmark fio:fio
die "nothing is measured yet"
