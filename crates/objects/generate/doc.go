// Command generate writes the tables of fields of all built-in Kubernetes kinds, in Rust, and a corpus of
// objects encoded by Kubernetes itself that the tables are tested with.
//
//	go run . tables DIR     a file for each package of API types, and mod.rs with the kinds
//	go run . corpus FILE    objects at random (see -seed and -count): protobuf and JSON of each
//
// Which fields there are, their order, JSON names, protobuf numbers, types, presence and patch strategies
// come from the Go types and their struct tags. What is required comes from the markers in the comments of
// the fields. How lists, maps and structs are owned, and defaults, come from the structural schema of
// client-go; for types that it lacks, such as subresources and reviews, from the markers it is made from.
//
// No text of a comment gets into the output.
package main
