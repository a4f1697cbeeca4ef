// Command oracle writes what the crate fairgate-cel is tested with, from the originals.
//
//	go run . conformance FILE             the conformance cases of cel-spec as JSON lines
//	go run . [flags] differential FILE    expressions with what Kubernetes makes of them
//	go run . [flags] answer <CASES        what Kubernetes makes of cases that somebody else wrote
//
// The conformance cases come from the text protocol buffers in the module cel.dev/expr. Each is run by cel-go
// and by the environment of Kubernetes first: a case that is to pass in the crate passes there, and a case that
// is not says why.
//
// The differential cases are the hand-written expressions in the directory curated and expressions drawn at
// random from the grammar in grammar.txt: some are ill-typed, some are not even syntax. Kubernetes' compiler and
// evaluator of admission policies, in the version that go.mod pins, give value, error and cost. Same -seed and
// -count, same cases.
//
// values.go says how a CEL value is written as JSON.
package main
