package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	seed := flag.Uint64("seed", 1, "what expressions and worlds are drawn from")
	count := flag.Int("count", 4000, "expressions that are drawn")
	flag.Parse()
	var err error
	switch {
	case flag.NArg() == 2 && flag.Arg(0) == "conformance":
		err = writeConformance(flag.Arg(1))
	case flag.NArg() == 2 && flag.Arg(0) == "differential":
		err = writeDifferential(flag.Arg(1), *seed, *count)
	case flag.NArg() == 2 && flag.Arg(0) == "patterns":
		err = writePatterns(flag.Arg(1), *seed, *count/4)
	case flag.NArg() == 2 && flag.Arg(0) == "unicode":
		err = writeUnicode(flag.Arg(1))
	case flag.NArg() == 1 && flag.Arg(0) == "answer":
		err = answerAll(os.Stdin, os.Stdout, *seed)
	case flag.NArg() == 2 && flag.Arg(0) == "time":
		err = writeTimings(flag.Arg(1), os.Stdout)
	default:
		err = fmt.Errorf("usage: oracle conformance FILE | oracle [-seed N] [-count N] differential FILE | oracle [-seed N] [-count N] patterns FILE | oracle unicode FILE | oracle [-seed N] answer | oracle time FILE")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}
