# Sourced by ./run, ./test and ./bench: installs what is missing, and only that.
#
#   need_packages COMMAND:PACKAGE … | FILE:PACKAGE …   by apt, as root or with sudo
#   need_rust                                          the toolchain that rust-toolchain.toml names
#   need_tool CRATE VERSION COMMAND                    by cargo, into target/tools
#   need_refit                                         the command itself, optimised, unless REFIT names one
#
# When nothing is missing this takes a fraction of a second and prints nothing.

say() { printf '%s\n' "$*" >&2; }
die() { say "$0: $*"; exit 1; }

# The repository, wherever we were called from; scripts that are not at its root say where that is.
cd "${top:-$(dirname "$0")}" || exit 1
tools=$PWD/target/tools
PATH=$tools/bin:$PATH
[ ! -d "$HOME/.cargo/bin" ] || PATH=$HOME/.cargo/bin:$PATH
export PATH

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"
	elif command -v sudo >/dev/null 2>&1; then sudo -- "$@"
	else return 127
	fi
}

need_packages() {
	missing=
	for pair in "$@"; do
		thing=${pair%%:*}
		case $thing in
		/*) [ -e "$thing" ] && continue ;;
		*) command -v "$thing" >/dev/null 2>&1 && continue ;;
		esac
		case " $missing " in *" ${pair#*:} "*) ;; *) missing="$missing ${pair#*:}" ;; esac
	done
	[ -n "$missing" ] || return 0
	command -v apt-get >/dev/null 2>&1 ||
		die "this is no Debian; install what these Debian packages hold:$missing"
	say "installing:$missing"
	log=$(mktemp)
	# Lists may be too old for the versions that the mirror has now: read them first.
	if as_root env DEBIAN_FRONTEND=noninteractive sh -c '
		apt-get update -q && apt-get install -q -y --no-install-recommends "$@"
	' sh $missing >"$log" 2>&1; then
		rm -f "$log"
	else
		status=$?
		tail -n 5 "$log" >&2
		rm -f "$log"
		[ "$status" != 127 ] || die "needs root or sudo to install:$missing"
		die "could not install:$missing"
	fi
}

need_rust() {
	if ! command -v cargo >/dev/null 2>&1; then
		say "installing Rust with rustup"
		curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
			sh -s -- -y -q --profile minimal --default-toolchain none --no-modify-path >&2 ||
			die "could not install Rust; see https://rustup.rs"
		PATH=$HOME/.cargo/bin:$PATH
	fi
	# With rustup this installs the pinned toolchain if it is missing.
	cargo --version >/dev/null 2>&1 ||
		{ rustup toolchain install >&2 && cargo --version >/dev/null; } ||
		die "cargo does not run; see https://rustup.rs"
}

need_tool() {
	command -v "$3" >/dev/null 2>&1 && return 0
	say "installing $1 $2 with cargo (once)"
	# A target directory of its own: these are not part of the workspace. Unoptimised, since building them takes
	# longer than they ever run.
	cargo install -q --locked --debug --root "$tools" --target-dir "$tools/build" --version "=$2" "$1" ||
		die "could not install $1 $2"
	rm -rf "$tools/build"
}

# The command to try is in `refit`: the one that REFIT names, or else one that is built now.
need_refit() {
	refit=${REFIT:-}
	if [ -z "$refit" ]; then
		cargo build -q --locked --release -p refit
		refit=${CARGO_TARGET_DIR:-target}/release/refit
	fi
	case $refit in /*) ;; *) refit=$PWD/$refit ;; esac
}

# What building needs, and what mounting needs.
need_packages gcc:gcc /usr/include/stdio.h:libc6-dev curl:curl \
	/etc/ssl/certs/ca-certificates.crt:ca-certificates fusermount3:fuse3
need_rust
