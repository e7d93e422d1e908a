# Passes on what `cargo test -- --show-output` prints, without what tests that passed had to say, but for their skips:
# a panic that a test provoked on purpose reads like one that nobody wanted. What failed goes to -v failures=FILE as well.
/^(successes|failures):$/ { said = $1 == "failures:" }
/^(test result:|running [0-9]+ test)/ { hidden = said = 0 }
/^successes:$/ { hidden = 1 }
/^failures:$/ { hidden = 0 }
said && NF { print >>failures }
/^failed: |^error(\[E|: (could not compile|test failed|doctest failed|[0-9]+ target))/ && !said && !hidden { print >>failures }
!hidden || /^skipped: / { print; fflush() }
