// Calls main.leaf at some depth in a goroutine whose stack grows meanwhile. "down N" is answered with
// the number of calls, and the return addresses that Go's runtime finds.
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"runtime"
)

var found []uintptr

//go:noinline
func leaf(n int) int {
	all := make([]uintptr, 1000)
	// Without runtime.Callers and this function.
	found = all[:runtime.Callers(2, all)]
	return n + len(found)
}

//go:noinline
func down(n int, room [20]int) int {
	if n == 0 {
		return leaf(room[3])
	}
	room[n%20]++
	return down(n-1, room) + 1
}

func main() {
	fmt.Printf("work %x\n", reflect.ValueOf(leaf).Pointer())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var depth int
		fmt.Sscanf(in.Text(), "down %d", &depth)
		done := make(chan int)
		go func() { done <- down(depth, [20]int{}) }()
		<-done
		fmt.Print(1)
		for _, address := range found {
			fmt.Printf(" %x", address)
		}
		fmt.Println()
	}
}
