// Command oracle writes the corpora that the crate fairgate-cel is tested with: the results of the originals.
//
//	go run . conformance FILE             the conformance cases of cel-spec as JSON lines
//	go run . [flags] differential FILE    expressions with the results of Kubernetes
//	go run . [flags] patterns FILE        regular expressions and texts with the results of Go's package regexp
//	go run . unicode FILE                 what Go's package unicode says of each code point
//	go run . [flags] answer <CASES        the results of Kubernetes for the cases on standard input
//
// The conformance cases come from the text protocol buffers in the module cel.dev/expr. Each one is first run by
// cel-go and in the environment of Kubernetes. Cases that pass there must pass in the crate, too. The other cases
// have the reason why they are left out.
//
// The differential cases are the hand-written expressions in the directory curated, and expressions drawn at
// random from the grammar in grammar.txt: some are ill-typed, some have syntax errors. Kubernetes' compiler and
// evaluator of admission policies, in the version that go.mod pins, give value, error and cost. The same -seed and
// -count give the same cases.
//
// The patterns are drawn, too, with texts that they match or nearly match. Many have large counts and classes of
// Unicode. A quarter of -count are drawn.
//
// values.go documents how a CEL value is written as JSON.
package main
