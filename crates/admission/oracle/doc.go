// Command oracle writes what the crate fairgate-admission is tested with, from the original.
//
//	go run . [flags] cases FILE    policies, bindings and requests with what Kubernetes makes of them, as JSON lines
//	go run . timings <QUESTION     how long Kubernetes takes to judge; the bench admission asks
//
// The cases are those of the directory curated, and pairs of policy and request that are drawn at random. Kubernetes'
// own dispatcher, matcher, compiler and validator of admission policies judge them, in the version that go.mod pins.
// Same -seed and -count, same cases.
//
// world.yaml says what there is in the cluster: namespaces, params, kinds and equivalent resources; requests.yaml has
// the requests. Both are in the first lines of the file that is written.
package main
