// Command compare plays random traces through kube-apiserver's queue set and fairgate's, and reports where they
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
	shrink := flag.Bool("shrink", true, "leave out of a trace that differs what it does not need for that")
	flag.Parse()
	same, err := compare(*program, *seed, *first, *traces, *shrink)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(2)
	}
	if !same {
		os.Exit(1)
	}
}

func compare(program string, seed, first, traces uint64, shrink bool) (bool, error) {
	summary, err := queueset.Run(context.Background(), program, seed, first, traces)
	if err != nil {
		return false, err
	}
	shortest := summary.Shortest
	if shortest != nil && shrink {
		if shortest, err = queueset.Shrink(program, shortest); err != nil {
			return false, err
		}
	}
	if shortest != nil {
		fmt.Print(shortest)
	}
	fmt.Println(summary)
	return summary.Different == 0, nil
}
