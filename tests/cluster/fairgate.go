package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"text/template"
	"time"
)

// Modes are the ways in which fairgate tells the upstream who the client is.
var Modes = []string{"impersonate", "requestHeader"}

// FairgateOptions is what the tests vary.
type FairgateOptions struct {
	Mode     string // one of Modes
	Listen   string // address to listen on; 127.0.0.1 when empty
	Port     int    // port to listen on; a free one when zero
	Policies string // directory of policy files; none when empty
	Seats    int    // server concurrency limit; fairgate's default when zero
	Off      bool   // no flow control, fairgate only passes on
}

// configuration is fairgate's configuration file for each identity mode: the one place in the test bed
// that knows its keys. Anything not said here is fairgate's default.
var configuration = template.Must(template.New("fairgate").Parse(`apiVersion: fairgate.dev/v1alpha1
kind: Configuration
listen:
  address: {{ .Address }}
  tls:
    certFile: {{ .Serving.Cert }}
    keyFile: {{ .Serving.Key }}
upstream:
  url: {{ .Upstream }}
  caFile: {{ .UpstreamCA }}
  clientCertificate:
{{- if eq .Mode "impersonate" }}
    certFile: {{ .Impersonator.Cert }}
    keyFile: {{ .Impersonator.Key }}
{{- else }}
    certFile: {{ .FrontProxy.Cert }}
    keyFile: {{ .FrontProxy.Key }}
{{- end }}
  identity:
    mode: {{ .Mode }}
    gatewayUser: {{ .GatewayUser }}
authentication:
  clientCertificate:
    caFile: {{ .ClientCA }}
  requestHeader:
    caFile: {{ .RequestHeaderCA }}
    allowedNames: [front-proxy-client]
  tokenFile: {{ .TokenFile }}
  tokenReview:
    enabled: true
  anonymous:
    enabled: true
    paths: ["*"] # as the apiserver, which authorizes them
flowControl:
  enforcement: {{ if .Off }}"off"{{ else }}enforce{{ end }}
{{- if .Seats }}
  totalSeats: {{ .Seats }}
{{- end }}
{{- if .Policies }}
  policies:
    directory: {{ .Policies }}
{{- end }}
admin:
  address: {{ .Admin }}
drain:
  delay: 0s # nobody balances load over the tests' fairgates
  grace: 10s
`))

// fairgateFields is all that a configuration may need. The token reviews of mode requestHeader are made
// with the front-proxy certificate, in the name of GatewayUser.
type fairgateFields struct {
	Mode            string
	Address         string // host:port
	Admin           string // host:port
	Serving         KeyPair
	ClientCA        string
	RequestHeaderCA string
	TokenFile       string
	Upstream        string // URL
	UpstreamCA      string
	Impersonator    KeyPair // CN fairgate, of the cluster's CA, with the rights of fairgateRole
	FrontProxy      KeyPair // CN front-proxy-client, of the front-proxy CA
	GatewayUser     string
	Policies        string
	Seats           int
	Off             bool
}

// FairgateUser is the user that fairgate itself is to the upstream.
const FairgateUser = "fairgate"

// fairgateRole is all that fairgate may do upstream: be others, in mode impersonate; in both ask who the
// bearer of a token is, and read the object counts. It says what config/kubernetes tells operators.
const fairgateRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: fairgate
rules:
- apiGroups: [""]
  resources: [users, groups, serviceaccounts]
  verbs: [impersonate]
- apiGroups: [authentication.k8s.io]
  resources:
  - uids
  - userextras/authentication.kubernetes.io/credential-id
  - userextras/authentication.kubernetes.io/node-name
  - userextras/authentication.kubernetes.io/node-uid
  - userextras/authentication.kubernetes.io/pod-name
  - userextras/authentication.kubernetes.io/pod-uid
  verbs: [impersonate]
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- nonResourceURLs: [/metrics]
  verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: fairgate
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: fairgate
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: ` + FairgateUser + `
`

// A Fairgate is a running fairgate in front of the cluster.
type Fairgate struct {
	Endpoint
	process *process
}

// FairgateProgram is the binary under test: the environment variable FAIRGATE_BIN.
func FairgateProgram() (string, error) {
	program := os.Getenv("FAIRGATE_BIN")
	if program == "" {
		return "", errors.New("FAIRGATE_BIN is not set: name the fairgate binary to test, or use the script run, which builds it")
	}
	return filepath.Abs(program)
}

// StartFairgate writes a configuration, starts fairgate with it and waits until it is ready.
func (c *Cluster) StartFairgate(options FairgateOptions) (*Fairgate, error) {
	program, err := FairgateProgram()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(c.Dir, "fairgate-")
	if err != nil {
		return nil, err
	}
	if options.Listen == "" {
		options.Listen = "127.0.0.1"
	}
	if options.Port == 0 {
		if options.Port, err = freePort(options.Listen); err != nil {
			return nil, err
		}
	}
	adminPort, err := freePort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(options.Listen, strconv.Itoa(options.Port))
	admin := net.JoinHostPort("127.0.0.1", strconv.Itoa(adminPort))

	var text bytes.Buffer
	err = configuration.Execute(&text, fairgateFields{
		Mode: options.Mode, Address: address, Admin: admin, Serving: c.PKI.Fairgate,
		ClientCA: c.PKI.CA.Cert, RequestHeaderCA: c.PKI.FrontProxyCA.Cert, TokenFile: c.TokenFile,
		Upstream: c.Direct.URL, UpstreamCA: c.PKI.CA.Cert,
		Impersonator: c.PKI.FairgateClient, FrontProxy: c.PKI.FrontProxyClient, GatewayUser: FairgateUser,
		Policies: options.Policies, Seats: options.Seats, Off: options.Off,
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "fairgate.yaml")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		return nil, err
	}
	process, err := startProcess(dir, "fairgate", program, "serve", "--config", file)
	if err != nil {
		return nil, err
	}
	fairgate := &Fairgate{
		Endpoint: Endpoint{Name: options.Mode, URL: "https://" + address},
		process:  process,
	}
	client := &http.Client{Timeout: 5 * time.Second}
	err = process.untilReady(readyLimit, func() error { return healthy(client, "http://"+admin+"/readyz") })
	if err != nil {
		err = fmt.Errorf("%w\n%s\n%s", err, text.String(), process.tail(40))
		_ = process.stop(0)
		return nil, err
	}
	return fairgate, nil
}

// Stop asks fairgate to drain and fails when it does not end well.
func (f *Fairgate) Stop() error {
	return f.process.stop(stopGrace)
}

// Log returns the last lines that fairgate wrote.
func (f *Fairgate) Log(lines int) string {
	return f.process.tail(lines)
}
