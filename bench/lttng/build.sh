#!/bin/sh
# Builds the LTTng-UST contender into the directory given and prints its path.
set -eu
here=$(dirname "$0")
mkdir -p "$1"
cc -O2 -I"$here" "$here/main.c" -o "$1/lttng-event" -llttng-ust -ldl
printf '%s\n' "$1/lttng-event"
