// Command compare plays random traces through kube-apiserver's queue set and fairgate's, and tells where they
// differ. See the script run beside this directory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"fairgate.dev/tests/cluster/queueset"
)

func main() {
	program := flag.String("program", "", "fairgate's example queue_traces")
	seed := flag.Uint64("seed", 1, "seed of the traces")
	first := flag.Uint64("first", 0, "number of the first trace")
	traces := flag.Uint64("traces", 10_000, "how many traces")
	flag.Parse()
	same, err := compare(*program, *seed, *first, *traces)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(2)
	}
	if !same {
		os.Exit(1)
	}
}

func compare(program string, seed, first, traces uint64) (bool, error) {
	summary, err := queueset.Run(context.Background(), program, seed, first, traces)
	if err != nil {
		return false, err
	}
	if summary.Shortest != nil {
		shortest, err := queueset.Shrink(program, summary.Shortest)
		if err != nil {
			return false, err
		}
		fmt.Print(shortest)
	}
	fmt.Println(summary)
	return summary.Different == 0, nil
}
