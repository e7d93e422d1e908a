# Works on texts for ever, or so many rounds: hashes, formats, sorting, regular expressions, calls.
# Writes a line for each.
use strict;
$| = 1;
sub fib { my $x = shift; return $x < 2 ? $x : fib($x - 1) + fib($x - 2); }
my $n = 0;
my $left = shift // -1;
while ($left--) {
	my %h;
	for my $i (1 .. 2000) {
		my $k = "key" . ($i * 7 % 1000);
		$h{$k} .= sprintf("%d,", $i);
		$n += length $h{$k};
	}
	my $j = join("|", sort { $h{$a} cmp $h{$b} } keys %h);
	$j =~ s/key(\d+)/<$1>/g;
	$n += fib(12);
	print "\n";
}
