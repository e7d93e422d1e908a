# Reads what `cargo test -- --show-output` prints and says: passed failed skipped, and under CI a line per skip
# that is not allowed.
#
# A test that cannot run on this host passes with a line that begins with "skipped: ". A continuous-integration
# host that skips a test proves less than it seems to, so there (-v ci=true) a skip is a failure, unless its
# reason begins with a text that the file -v allowed=FILE lists.
BEGIN {
	while (ci == "true" && (getline line <allowed) > 0) {
		if (line ~ /^#/ || line == "") continue
		sub(/ *\|.*/, "", line)
		fine[line] = 1
	}
}
/^test result:/ { passed += $4; failed += $6; skipped += $8 }
/^---- .* stdout ----$/ { test = $2; seen = 0 }
/^skipped: / {
	# One test may say it more than once.
	if (test != "" && seen++) next
	passed--
	skipped++
	if (ci != "true" || permitted(substr($0, 10))) next
	skipped--
	failed++
	print "skipped where nothing may be skipped: " (test == "" ? "" : test ": ") substr($0, 10) >"/dev/stderr"
}
/^test result:/ { test = "" }
/^failed: / { broken = 1 }
END {
	# A build that failed, or a process that was killed, counts no test as failed.
	if (broken && !failed) failed = 1
	print passed + 0, failed + 0, skipped + 0
}
function permitted(why,   text) {
	for (text in fine) if (index(why, text) == 1) return 1
	return 0
}
