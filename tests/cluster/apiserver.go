package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

// An Apiserver is a further kube-apiserver, with the cluster's etcd, keys and users and with objects of its
// own. It is not behind the kubernetes Service of the cluster.
type Apiserver struct {
	Endpoint
	Admin  kubernetes.Interface // system:masters, without client-side limits
	Prefix string               // of the keys of its objects in etcd

	running *process
	start   func() (*process, error)
	probe   *http.Client
}

// StartApiserver starts one and waits until it is ready. Its objects are kept below a prefix of its own. The
// program is a kube-apiserver, "" being the cluster's own. Flags of more replace those that all have. It ends with the cluster.
func (c *Cluster) StartApiserver(name, program string, more ...string) (*Apiserver, error) {
	if program == "" {
		program = filepath.Join(c.bin, "kube-apiserver")
	}
	port, err := freePort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	server := &Apiserver{Endpoint: Endpoint{Name: name, URL: fmt.Sprintf("https://127.0.0.1:%d", port)}}
	if server.Admin, err = c.adminOf(server.Endpoint); err != nil {
		return nil, err
	}
	c.mutex.Lock()
	c.started++
	// A prefix of its own: with go test -count, an earlier run has left its objects below that of the same name.
	server.Prefix = fmt.Sprintf("/%s-%d", name, c.started)
	c.mutex.Unlock()
	arguments := overridden(append(c.apiserverFlags(port), "--etcd-prefix="+server.Prefix), more)
	server.start = func() (*process, error) { return startProcess(c.Dir, name, program, arguments...) }
	server.probe = &http.Client{Transport: c.Transport(c.admin, true), Timeout: 20 * time.Second}
	c.mutex.Lock()
	c.further = append(c.further, server)
	c.mutex.Unlock()
	return server, server.Start()
}

// Start starts it, again after a Kill, and waits until it is ready.
func (a *Apiserver) Start() error {
	var err error
	if a.running, err = a.start(); err != nil {
		return err
	}
	if err := a.running.untilReady(readyLimit, func() error { return healthy(a.probe, a.URL+"/readyz") }); err != nil {
		return fmt.Errorf("%w\n%s", err, a.running.tail(40))
	}
	return nil
}

// overridden are flags, --name=value each, without those that more sets, and more.
func overridden(flags, more []string) []string {
	name := func(flag string) string {
		name, _, _ := strings.Cut(flag, "=")
		return name
	}
	set := map[string]bool{}
	for _, flag := range more {
		set[name(flag)] = true
	}
	kept := slices.DeleteFunc(flags, func(flag string) bool { return set[name(flag)] })
	return append(kept, more...)
}

// Kill ends it at once.
func (a *Apiserver) Kill() {
	_ = a.running.stop(0)
}

// uidFlag has an apiserver take uids from a front proxy. It has no default; without it they would be lost. The
// release with v1beta3 does not know it.
const uidFlag = "--requestheader-uid-headers=X-Remote-Uid"

// apiserverFlags are those that all kube-apiservers of the test bed have.
func (c *Cluster) apiserverFlags(port int) []string {
	return []string{
		"--etcd-servers=" + c.etcd.URL,
		// The published endpoint is the host's address, the socket is bound to loopback: fairgate takes
		// the published one, and no client can go around it.
		"--bind-address=127.0.0.1", "--advertise-address=" + c.Advertise, "--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + c.PKI.Apiserver.Cert, "--tls-private-key-file=" + c.PKI.Apiserver.Key,
		"--client-ca-file=" + c.PKI.CA.Cert,
		"--requestheader-client-ca-file=" + c.PKI.FrontProxyCA.Cert,
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--token-auth-file=" + c.TokenFile,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.PKI.ServiceAccount.Cert,
		"--service-account-signing-key-file=" + c.PKI.ServiceAccount.Key,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC",
	}
}

// Audited are the users whose requests the cluster's apiserver logs: fairgates in their own name and, where
// they impersonate, also in the names of others.
var Audited = []string{"audited-impersonate", "audited-requestHeader", "audited-renewing"}

// An Audit is an entry of the apiserver's audit log.
type Audit struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	URI   string `json:"requestURI"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	Impersonated *struct{} `json:"impersonatedUser"`
	Object       *struct {
		Resource string `json:"resource"`
		Group    string `json:"apiGroup"`
	} `json:"objectRef"`
	Status struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// AuditsOf are the requests of one of the [Audited] users so far that are not in the name of another.
func (c *Cluster) AuditsOf(user string) ([]Audit, error) {
	text, err := os.ReadFile(c.auditLog())
	if err != nil {
		return nil, err
	}
	var found []Audit
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var audit Audit
		if err := json.Unmarshal(lines.Bytes(), &audit); err != nil {
			return nil, err
		}
		if audit.User.Username == user && audit.Impersonated == nil {
			found = append(found, audit)
		}
	}
	return found, lines.Err()
}

// auditFlags make the apiserver log the requests of the [Audited] users.
func (c *Cluster) auditFlags() ([]string, error) {
	file := filepath.Join(c.Dir, "audit-policy.yaml")
	policy := fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [%s]
- level: None
`, strings.Join(Audited, ", "))
	return []string{"--audit-policy-file=" + file, "--audit-log-path=" + c.auditLog()}, os.WriteFile(file, []byte(policy), 0o600)
}

func (c *Cluster) auditLog() string {
	return filepath.Join(c.Dir, "audit.log")
}
