<?php
// Works on texts for ever, or so many rounds: arrays, formats, sorting, regular expressions, calls.
// Writes a line for each.
function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
$n = 0;
$left = (int) ($argv[1] ?? -1);
while ($left--) {
	$h = [];
	for ($i = 1; $i <= 2000; $i++) {
		$k = "key" . ($i * 7 % 1000);
		$h[$k] = ($h[$k] ?? "") . sprintf("%d,", $i);
		$n += strlen($h[$k]);
	}
	uasort($h, fn($a, $b) => strcmp($a, $b));
	$j = preg_replace('/key(\d+)/', '<$1>', implode("|", array_keys($h)));
	$n += fib(12) + strlen($j);
	echo "\n";
}
