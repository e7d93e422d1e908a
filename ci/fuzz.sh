#!/bin/sh
# Feeds every reader of foreign bytes with anything, each for REFIT_FUZZ_SECONDS (300); names of targets choose some. Time and
# memory for each input are bounded: what takes longer, or more, counts as broken. What breaks a reader is in fuzz/artifacts.
#
# libFuzzer is linked by the `libfuzzer-sys` crate, and what the compiler has to do for it, it does on the stable toolchain too:
# a nightly would add an address sanitizer, of which code without `unsafe` has little use.
set -eu
top=$(dirname "$0")/..
. "$top/ci/setup.sh"
need_packages c++:g++ objcopy:binutils
host=x86_64-unknown-linux-gnu
# With a target, build scripts and macros are compiled without these.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks"
build=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
CARGO_TARGET_DIR=$build cargo build --locked --release --target $host -p refit-fuzz --features libfuzzer
unset RUSTFLAGS
fuzz=$build/$host/release/fuzz

# Small programs of every kind: what is read of them has more shapes than a fuzzer would come upon.
seeds=$build/seeds
rm -rf "$seeds"
mkdir -p "$seeds/programs" "$seeds/parts" "$seeds/traces" "$seeds/none"
cat >"$seeds/one.c" <<'END'
__attribute__((noinline)) static int pick(int n) {
	switch (n) { case 0: return 7; case 1: return n * 3; case 2: return 9; case 3: return n - 4; case 5: return 1; }
	return n;
}
__attribute__((used)) int many(int n) { int s = 0; for (int i = 0; i < n; i++) s += pick(i); return s; }
void _start(void) { many(4); for (;;) __asm__("syscall" :: "a"(60), "D"(0)); }
END
cat >"$seeds/two.cc" <<'END'
extern "C" void hold(void *), fail();
struct Held { ~Held() { hold(this); } };
extern "C" int guarded(int n) { Held held; try { if (n) fail(); } catch (int k) { return k; } return n; }
namespace ns { struct inner : Held { short x, y; }; }
struct list { list *next; unsigned a : 3; int b : 9; char name[4][2]; union { int i; long l; }; ns::inner in; };
extern "C" int of(list *list, Held from, int n) {
	__asm__ volatile("1: nop\n.pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 8, 3f - 2f, 3\n.asciz \"stapsdt\"\n"
		"2: .8byte 1b, 0, 0\n.asciz \"a\", \"b\", \"-4@%0 8@8(%%rsp,%%rcx,4) 1@$3\"\n3: .balign 4\n.popsection" ::"r"(n));
	return list->in.y + n;
}
END
( cd "$seeds"
	small="-Os -nostdlib -fno-stack-protector -fcf-protection -Wl,-z,noseparate-code"
	cc $small -static one.c -o programs/static
	cc $small -pie -fPIE -g one.c -o programs/pie
	cc $small -pie -fPIE -s one.c -o programs/stripped
	cc $small -shared -fPIC -g -gdwarf-4 -gz=zlib one.c -o programs/library
	c++ $small -O1 -shared -fPIC -g two.cc -o programs/exceptions
	c++ $small -O0 -shared -fPIC -gdwarf-5 -fdebug-types-section two.cc -o programs/types
	for version in 4 5; do
		c++ $small -O1 -fPIC -g -gdwarf-$version -gsplit-dwarf -fdebug-types-section -c two.cc -o part.o
		c++ $small -shared part.o -o split
		perl -e 'print pack("L<", -s "split")' | cat - split part.dwo >parts/$version
		rm part.dwo
	done
	cc -Os one.c -nostartfiles -o programs/libc
	# Go's function table: two functions.
	perl -e 'print pack("L<C4Q<8", 0xfffffff1, 0, 0, 1, 8, 2, 0, 0x1000, 72, 0, 0, 0, 96),
		"main.main\0main.help\0\0..", pack("L<10", 0, 24, 0x40, 32, 0x80, 0, 0, 0, 0x40, 10)' >go
	objcopy --add-section .gopclntab=go programs/stripped programs/go
)
cargo build --locked -q -p refit --bin refit
"${CARGO_TARGET_DIR:-target}/debug/refit" record --no-switches -o "$seeds/traces/one" -- true >/dev/null

status=0
[ $# -gt 0 ] || set -- analyse_code read_lines read_types read_split_types remember_analysis read_probe read_patch_area read_trace read_message \
	read_composition read_peer read_rings inspect_plugin
mkdir -p fuzz/artifacts
for target; do
	case $target in
	analyse_code | read_lines | read_types | inspect_plugin) from=$seeds/programs ;;
	read_split_types) from=$seeds/parts ;;
	read_trace) from=$seeds/traces ;;
	*) from=fuzz/seeds/$target ;;
	esac
	[ -d "$from" ] || from=$seeds/none
	mkdir -p "fuzz/corpus/$target"
	echo "== $target"
	REFIT_FUZZ_TARGET=$target REFIT_CODE_CACHE=off "$fuzz" -max_total_time="${REFIT_FUZZ_SECONDS:-300}" -rss_limit_mb=2048 -timeout=20 \
		-max_len=65536 -artifact_prefix="fuzz/artifacts/$target-" -print_final_stats=1 -verbosity=0 \
		"fuzz/corpus/$target" "$from" "fuzz/regressions" >"$build/$target.log" 2>&1 ||
		{ status=1; echo "broken: see fuzz/artifacts and $build/$target.log"; }
	grep -E 'stat::(number_of_executed_units|peak_rss_mb|slowest_unit_time_sec)' "$build/$target.log" || true
done
exit $status
