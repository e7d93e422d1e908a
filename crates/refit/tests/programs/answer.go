// Answers line by line; goroutines, panics and collections of garbage have their part in it.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
)

func deep(number, depth int) (sum int) {
	defer func() {
		if thrown := recover(); thrown != nil {
			sum = thrown.(int) + depth
		}
	}()
	if depth == 0 {
		panic(number)
	}
	return deep(number, depth-1) + 1
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		number, _ := strconv.Atoi(strings.TrimSpace(lines.Text()))
		results := make(chan int, 8)
		for part := 0; part < 8; part++ {
			go func(part int) {
				seen := map[int]string{}
				for i := 0; i < 200; i++ {
					seen[i*part%37] += strconv.Itoa(i)
				}
				results <- len(seen) + part*number
			}(part)
		}
		var all []int
		for part := 0; part < 8; part++ {
			all = append(all, <-results)
		}
		sort.Ints(all)
		runtime.GC()
		fmt.Println(all, deep(number, 9))
	}
}
