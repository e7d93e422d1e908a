# Takes lines of a log apart by regular expressions, for ever; writes a line each time.
use strict;
$| = 1;
my @methods = qw(GET POST PUT DELETE);
my @lines = map {
	sprintf('10.%d.%d.%d - user%d [10/Oct/2026:13:%02d:%02d +0000] "%s /a/b%d/c?x=%d HTTP/1.1" %d %d',
		$_ % 256, $_ * 7 % 256, $_ * 31 % 256, $_ % 17, $_ % 60, $_ * 3 % 60, $methods[$_ % 4], $_ % 100, $_,
		(200, 304, 404, 500)[$_ * 11 % 4], $_ * 97 % 10000)
} 1 .. 2000;
my ($bytes, $users) = (0, 0);
while (1) {
	for my $line (@lines) {
		next unless $line =~ /^(\S+) \S+ (\S+) \[([^\]]+)\] "(GET|POST|PUT) ([^ ?"]+)(?:\?(\S*))? [^"]*" (\d{3}) (\d+)$/;
		$bytes += $8;
		$users++ if $line =~ /user(?:1|3|5)\d?\s/i;
	}
	print "\n";
}
