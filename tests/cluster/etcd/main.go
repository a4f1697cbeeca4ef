// Command etcd is the store behind the test cluster's kube-apiserver.
//
// etcd publishes its main package in a module with dependencies of its own; this one line of a main
// has only those of the server, in a module apart, so that they need not agree with Kubernetes'.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
