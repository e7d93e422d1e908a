// A server whose answers depend on the number that they are asked for, and on nothing else (ci/programs.sh).
package main

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"text/template"
)

type row struct {
	Name  string             `json:"name"`
	Parts []int              `json:"parts"`
	Table map[string]float64 `json:"table"`
}

var (
	digits = regexp.MustCompile(`[0-9]+([a-f])`)
	page   = template.Must(template.New("page").Parse("{{range .}}{{.Name | printf \"%9s\"}}: {{len .Parts}}\n{{end}}"))
)

func rows(n int) []row {
	var all []row
	for i := 0; i < n%40+3; i++ {
		sum := sha256.Sum256([]byte(strconv.Itoa(n * i)))
		one := row{Name: digits.ReplaceAllString(fmt.Sprintf("%x", sum[:8]), "<$1>"), Table: map[string]float64{}}
		for _, part := range sum[:i%9] {
			one.Parts = append(one.Parts, int(part))
			one.Table[strconv.Itoa(int(part))] = float64(part) / 7
		}
		all = append(all, one)
	}
	sort.Slice(all, func(a, b int) bool { return all[a].Name < all[b].Name })
	return all
}

// Adds numbers in several goroutines that wait for each other.
func added(n int) *big.Int {
	numbers, sum := make(chan *big.Int), big.NewInt(1)
	var all sync.WaitGroup
	for i := 1; i < 9; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			runtime.Gosched()
			numbers <- new(big.Int).Exp(big.NewInt(int64(n+i)), big.NewInt(int64(i*3)), nil)
		}()
	}
	go func() { all.Wait(); close(numbers) }()
	for number := range numbers {
		sum.Add(sum, number)
	}
	return sum
}

// Panics for some numbers, and recovers.
func checked(n int) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("recovered: %v", cause)
		}
	}()
	if n%3 == 0 {
		return errors.Join(io.EOF, strconv.ErrRange)
	}
	var none []int
	return fmt.Errorf("%d", none[n])
}

func answer(to http.ResponseWriter, from *http.Request) {
	n, err := strconv.Atoi(strings.TrimPrefix(from.URL.Path, "/"))
	if err != nil {
		http.Error(to, err.Error(), http.StatusBadRequest)
		return
	}
	packed := gzip.NewWriter(to)
	defer packed.Close()
	all := rows(n)
	if err := json.NewEncoder(packed).Encode(all); err != nil {
		panic(err)
	}
	if err := page.Execute(packed, all); err != nil {
		panic(err)
	}
	fmt.Fprintln(packed, added(n), checked(n))
	if n%50 == 0 {
		runtime.GC()
	}
}

func main() {
	// It may have been started with the signal ignored.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	go func() { <-stop; os.Exit(0) }()
	http.HandleFunc("/", answer)
	fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:18083", nil))
}
