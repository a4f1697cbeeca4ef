// Package cluster is the test bed that puts fairgate in front of the real thing: etcd, kube-apiserver
// and kubectl built from pinned Go modules, a PKI as an operator would lay it out, and clients that are
// not ours. What it proves is that real clients notice nothing, that fairgate classifies every request
// as the original does, that it follows the original's objects, and that it can host them in its place.
//
// Everything runs in a network namespace of its own, where the machine allows that, so nothing beyond
// loopback is reachable and no port is shared with other processes. All children die with the test process.
//
// Not here: how the programs are built (the script build), behaviour that a fake upstream can show
// (tests/it), figures for the closing note other than the mouse behind a real server.
package cluster
