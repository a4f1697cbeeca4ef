package cluster

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"time"
)

// StartReference starts a second kube-apiserver, with a store of its own, on which sessions can be played.
// It runs without a garbage collector, since fairgate has none. Unless conditions are asked for, it also
// runs without priority and fairness, whose controller writes one into every FlowSchema: then nothing but
// requests changes the objects of the group, and a session always ends alike. The program is a
// kube-apiserver, "" being the cluster's own; gates are of its features.
func (c *Cluster) StartReference(program, gates string, conditions bool) (*Target, error) {
	if program == "" {
		program = filepath.Join(c.bin, "kube-apiserver")
	}
	port, err := freePort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	c.reference, err = startProcess(c.Dir, "reference", program,
		"--etcd-servers="+c.etcd.URL, "--etcd-prefix=/reference",
		"--bind-address=127.0.0.1", "--advertise-address="+c.Advertise, "--secure-port="+strconv.Itoa(port),
		"--tls-cert-file="+c.PKI.Apiserver.Cert, "--tls-private-key-file="+c.PKI.Apiserver.Key,
		"--client-ca-file="+c.PKI.CA.Cert,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+c.PKI.ServiceAccount.Cert,
		"--service-account-signing-key-file="+c.PKI.ServiceAccount.Key,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=RBAC",
		"--enable-priority-and-fairness="+strconv.FormatBool(conditions),
		"--enable-garbage-collector=false",
		"--feature-gates="+gates)
	if err != nil {
		return nil, err
	}
	at := Endpoint{Name: "reference", URL: fmt.Sprintf("https://127.0.0.1:%d", port)}
	probe := &http.Client{Transport: c.Transport(c.admin, true), Timeout: 5 * time.Second}
	if err := c.reference.untilReady(readyLimit, func() error { return healthy(probe, at.URL+"/readyz") }); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, c.reference.tail(40))
	}
	return NewTarget(at.Name, c.Config(at, c.admin))
}
