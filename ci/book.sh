#!/bin/sh
# Builds the book from what `cargo xtask book` has laid out; installs mdBook if it is missing.
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
need_tool mdbook 0.5.4 mdbook
exec mdbook build
