#!/bin/sh
# Programs that do fixed work while all of their functions, libraries included, are counted, then timed at every exit, then
# poisoned, then followed to their returns: each that is installed of ffmpeg, povray, php, clang, ripgrep and node. What they
# make has to be the same as without probes.
#   ci/work.sh                  all of them
#   ci/work.sh ffmpeg php …     only these
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
. "$top/ci/setup.sh"
[ $# -gt 0 ] || set -- ffmpeg povray php clang rg node
need_refit
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
cd "$folder"

# The command of each program, as positional parameters; it writes `made`, or prints.
command_of() {
	case $1 in
	ffmpeg)
		set -- ffmpeg -v error -nostdin -y -f lavfi -i testsrc2=d=1:s=160x120:r=10 -f lavfi -i sine=d=1 -threads 2 \
			-c:v mpeg4 -c:a aac -bitexact -f matroska made
		;;
	povray)
		echo 'camera { location <0, 2, -5> look_at 0 } light_source { <5, 9, -9> rgb 1 } plane { y, -1 pigment { checker } }
		blob { threshold 0.6 sphere { 0, 2, 1 } sphere { x, 1, 1 } pigment { marble } finish { reflection 0.3 } }' >scene.pov
		set -- povray +Iscene.pov +Omade +FP +W64 +H48 +A +WT2 -D -GA
		;;
	php)
		cat >script.php <<-'END'
			<?php mt_srand(7); $words = [];
			for ($i = 0; $i < 20000; $i++) { $words[] = md5((string) mt_rand()); }
			usort($words, fn($a, $b) => strcmp(strrev($a), strrev($b)));
			$out = preg_replace_callback('/[0-9]+/', fn($m) => strlen($m[0]), implode("\n", $words));
			try { throw new Exception(crc32($out)); } catch (Exception $e) { $out .= $e->getMessage(); }
			file_put_contents('made', gzcompress(json_encode(str_split($out, 77))));
		END
		set -- php script.php
		;;
	clang)
		printf '#include <stdio.h>\n#include <math.h>\ndouble f(double *p, int n) { double s = 0; for (int i = 0; i < n; i++)
			s += sin(p[i]) * i; return s; }\nint main(void) { double a[64] = { 1, 2 }; printf("%%g", f(a, 64)); }\n' >source.c
		set -- clang -O2 -S -o made source.c
		;;
	rg) set -- rg --threads 2 --sort path -c 'static (inline )?int [a-z_]+\(' /usr/include ;;
	node)
		echo 'const words = []; for (let i = 0; i < 9e4; i++) words.push((i * 7919 % 10007).toString(36));
			console.log(require("crypto").createHash("sha256").update(words.sort().join()).digest("hex"));
			new Promise((f) => setTimeout(f, 20, 7)).then(console.log);' >script.js
		set -- node script.js
		;;
	*) die "there is no program $1" ;;
	esac
	printf '%s\n' "$@"
}

# Runs a command, which may be refit's; prints what the program has printed and made, without refit's own lines.
result() {
	rm -f made
	timeout 300 "$@" >printed 2>said || { cat said >&2; die "failed: $*"; }
	grep -v '^{"' printed | md5sum
	[ ! -e made ] || md5sum <made
}

for name; do
	command -v "$name" >/dev/null || { echo "left out: there is no $name"; continue; }
	command_of "$name" >words
	set --
	while IFS= read -r word; do set -- "$@" "$word"; done <words
	plain=$(result "$@")
	for probe in 'uprobe:*:* { count }' 'uprobe:*:* { count, latency }' 'uprobe:*:* { latency, poison }' \
		'uprobe:*:* { exits } uretprobe:*:* { @ = count() }'; do
		case $name:$probe in
		# V8 passes values in registers of its own choice (docs/guide/probe.md#limits).
		node:*poison*) continue ;;
		# With LLVM there are more functions than timers.
		ffmpeg:*latency* | clang:*latency*) continue ;;
		esac
		found=$(result "$refit" --json probe -e "$probe" -- "$@")
		[ "$found" = "$plain" ] || die "$name: $probe: $found instead of $plain"
		echo "$name: $probe: $(grep watching said)"
	done
done
