package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of the random cases")
	count := flag.Int("count", 900, "number of random cases")
	flag.Parse()
	err := fmt.Errorf("usage: oracle [-seed N] [-count N] cases FILE, or: oracle timings <QUESTION")
	switch {
	case flag.NArg() == 2 && flag.Arg(0) == "cases":
		err = writeCases(flag.Arg(1), *seed, *count)
	case flag.NArg() == 1 && flag.Arg(0) == "timings":
		err = writeTimings(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}
