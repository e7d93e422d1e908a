// A library that is unloaded while it is watched.
long lent(long x) {
	__asm__ volatile("nop\nnop\nnop\nnop\nnop" : "+r"(x)::"memory");
	return 3 * x + 1;
}
