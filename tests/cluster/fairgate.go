package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// Modes are the ways in which fairgate passes the client's identity to the upstream.
var Modes = []string{"impersonate", "requestHeader"}

// FairgateOptions has the settings that the tests vary.
type FairgateOptions struct {
	Mode     string   // one of Modes
	Source   string   // fairgate's own mode, which says where policy objects come from; files when empty
	Upstream string   // URL; the cluster's apiserver when empty
	Servers  []string // URLs of several apiservers, instead of Upstream
	Spread   string   // how requests are spread over Servers; fairgate's default when empty
	Token    string   // file with the token by which fairgate is User upstream, instead of a certificate
	Fleet    string   // its name in a fleet of three gateways; none when empty
	User     string   // whom fairgate is upstream; FairgateUser when empty
	Group    string   // which group that user has; none when empty
	Listen   string   // address to listen on; 127.0.0.1 when empty
	Port     int      // port to listen on; a free one when zero
	Policies string   // directory of policy files; none when empty
	Seats    int      // server concurrency limit; fairgate's default when zero
	Request  string   // how long a request may take, and four times what it may wait; fairgate's default when empty
	Off      bool     // no flow control, fairgate only passes on
	Eviction string   // who decides about evictions; relay when empty
	Counts   bool     // whether it runs the disruption controller
	Wait     string   // how long evictions of administrators wait for their budgets; not at all when empty
	Prefix   string   // of what it hosts in the cluster's etcd; a file of its own when empty
	Secure   bool     // whether it has a secure admin port
	Reviewed string   // for how long access reviews are remembered; fairgate's default when empty, with mode overlay 1s

	Admission       string // what becomes of admission policies on forwarded requests; off when empty
	AdmissionFiles  string // the file of their policies; the upstream's own objects when empty
	AdmissionHosted bool   // whether fairgate hosts these policies, instead
	AdmissionLog    string // the file of its audit log; none when empty
	Fidelity        string // how the objects that they evaluate are obtained; dryRun when empty
	Reads           string // how up to date namespaces and params are; cached when empty
	MaxStaleness    string // for how long policies are used that are not confirmed; any time when empty
	Guard           bool   // whether evaluated writes are conditional on the evaluated object
}

// configuration is fairgate's configuration file for each identity mode: the one place in the test bed
// that knows its keys. Anything not said here is fairgate's default.
var configuration = template.Must(template.New("fairgate").Parse(`apiVersion: fairgate.dev/v1alpha1
kind: Configuration
mode: {{ .Source }}
listen:
  address: {{ .Address }}
  tls:
    certFile: {{ .Serving.Cert }}
    keyFile: {{ .Serving.Key }}
upstream:
{{- if .Servers }}
  servers:
{{- range .Servers }}
  - url: {{ . }}
{{- end }}
{{- if .Spread }}
  spread: {{ .Spread }}
{{- end }}
{{- else }}
  url: {{ .Upstream }}
{{- end }}
  caFile: {{ .UpstreamCA }}
{{- if .Token }}
  tokenFile: {{ .Token }}
{{- else }}
  clientCertificate:
{{- if eq .Mode "impersonate" }}
    certFile: {{ .Impersonator.Cert }}
    keyFile: {{ .Impersonator.Key }}
{{- else }}
    certFile: {{ .FrontProxy.Cert }}
    keyFile: {{ .FrontProxy.Key }}
{{- end }}
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
{{- if .Fleet }}
fleet: # seats of a gateway that is gone come back soon
  engine: kubernetes
  gateway: {{ .Fleet }}
  maxGateways: 3
  reclaim: prompt
{{- end }}
{{- if .Request }}
timeouts:
  request: {{ .Request }}
{{- end }}
{{- if .Reviewed }}
hostedApi: # what is granted or taken back upstream is to be seen soon
  authorizedTTL: {{ .Reviewed }}
  unauthorizedTTL: {{ .Reviewed }}
{{- end }}
{{- if .Prefix }}
store:
  type: etcd
  etcd:
    endpoints: ["{{ .Etcd }}"]
    prefix: {{ .Prefix }}
{{- end }}
eviction:
  mode: {{ .Eviction }}
  controller: {{ if .Counts }}"on"{{ else }}"off"{{ end }}
{{- if .Wait }}
  wait:
    limit: {{ .Wait }}
    groups: ["system:masters"]
{{- end }}
{{- if .Admission }}
admission:
  mode: {{ .Admission }}
  fidelity: {{ .Fidelity }}
{{- if .Reads }}
  reads: {{ .Reads }}
{{- end }}
{{- if .Guard }}
  guard: true
{{- end }}
  policies:
{{- if .AdmissionFiles }}
    source: files
    files: [{{ .AdmissionFiles }}]
{{- else if .AdmissionHosted }}
    source: hosted
{{- else }}
    source: upstream
{{- end }}
{{- if .MaxStaleness }}
    maxStaleness: {{ .MaxStaleness }}
{{- end }}
{{- if .AdmissionLog }}
  audit:
    file: {{ .AdmissionLog }}
    maxSize: 64Gi # all of it is read
{{- end }}
{{- end }}
admin:
  address: {{ .Admin }}
{{- if .Secure }}
  secure: # with the certificate of listen.tls
    address: {{ .Secure }}
{{- end }}
drain:
  delay: 0s # nobody balances load over the tests' fairgates
  grace: 10s
`))

// fairgateFields is all that a configuration may need. The token reviews of mode requestHeader are made
// with the front-proxy certificate, in the name of GatewayUser.
type fairgateFields struct {
	Source          string
	Mode            string
	Address         string // host:port
	Admin           string // host:port
	Serving         KeyPair
	ClientCA        string
	RequestHeaderCA string
	TokenFile       string
	Upstream        string   // URL
	Servers         []string // URLs, instead of Upstream
	Spread          string
	Token           string
	Fleet           string
	UpstreamCA      string
	Impersonator    KeyPair // CN as GatewayUser, of the cluster's CA
	FrontProxy      KeyPair // CN front-proxy-client, of the front-proxy CA
	GatewayUser     string
	Policies        string
	Seats           int
	Request         string
	Off             bool
	Eviction        string
	Counts          bool
	Wait            string
	Etcd            string // URL
	Prefix          string
	Secure          string // host:port; no secure admin port when empty
	Reviewed        string
	Admission       string
	AdmissionFiles  string
	AdmissionHosted bool
	AdmissionLog    string
	Fidelity        string
	Reads           string
	MaxStaleness    string
	Guard           bool
}

// FairgateUser is whom fairgate itself is to the upstream where that does not matter. It has the rights that
// config/kubernetes ships for the mode impersonate, which are more than requestHeader needs.
const FairgateUser = "fairgate"

// A Fairgate is a fairgate with a configuration. It keeps its addresses from one start to the next.
type Fairgate struct {
	Endpoint
	Secure Endpoint // the secure admin port, if it has one

	admin   string // URL of the port for operators
	program string
	dir     string
	running *process
}

// FairgateProgram is the binary under test: the environment variable FAIRGATE_BIN.
func FairgateProgram() (string, error) {
	program := os.Getenv("FAIRGATE_BIN")
	if program == "" {
		return "", errors.New("FAIRGATE_BIN is not set: name the fairgate binary to test, or use the script run, which builds it")
	}
	return filepath.Abs(program)
}

// NewFairgate writes the configuration of a fairgate in front of the cluster. Nothing runs yet.
func (c *Cluster) NewFairgate(options FairgateOptions) (*Fairgate, error) {
	fields := fairgateFields{
		Source: cmp.Or(options.Source, "files"), Mode: options.Mode, Serving: c.PKI.Fairgate,
		ClientCA: c.PKI.CA.Cert, RequestHeaderCA: c.PKI.FrontProxyCA.Cert, TokenFile: c.TokenFile,
		Upstream: cmp.Or(options.Upstream, c.Direct.URL), Servers: options.Servers, Spread: options.Spread, Token: options.Token, Fleet: options.Fleet, UpstreamCA: c.PKI.CA.Cert,
		Impersonator: c.PKI.FairgateClient, FrontProxy: c.PKI.FrontProxyClient, GatewayUser: FairgateUser,
		Policies: options.Policies, Seats: options.Seats, Request: options.Request, Off: options.Off,
		Eviction: cmp.Or(options.Eviction, "relay"), Counts: options.Counts, Wait: options.Wait,
		Etcd: c.etcd.URL, Prefix: options.Prefix, Reviewed: options.Reviewed,
		Admission: options.Admission, AdmissionFiles: options.AdmissionFiles, AdmissionHosted: options.AdmissionHosted, AdmissionLog: options.AdmissionLog, Fidelity: cmp.Or(options.Fidelity, "dryRun"),
		Reads: options.Reads, MaxStaleness: options.MaxStaleness, Guard: options.Guard,
	}
	if options.Source == "overlay" {
		fields.Reviewed = cmp.Or(options.Reviewed, "1s")
	}
	if options.Token != "" {
		fields.GatewayUser = options.User
	} else if options.User != "" {
		self, err := c.NewUser(options.User, groups(options.Group)...)
		if err != nil {
			return nil, err
		}
		fields.Impersonator, fields.GatewayUser = self.Pair, self.Name
	}
	if options.Secure {
		port, err := freePort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		fields.Secure = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	fairgate, err := c.newFairgate(options.Mode, options.Listen, options.Port, func(address, admin string) (string, error) {
		fields.Address, fields.Admin = address, admin
		var text bytes.Buffer
		err := configuration.Execute(&text, fields)
		return text.String(), err
	})
	if err == nil && options.Secure {
		fairgate.Secure = Endpoint{Name: options.Mode + " for operators", URL: "https://" + fields.Secure}
	}
	return fairgate, err
}

// groups are a group, or none if it is empty.
func groups(group string) []string {
	if group == "" {
		return nil
	}
	return []string{group}
}

// newFairgate writes the configuration that configure makes for two addresses, host:port each: that for
// clients and that for operators. Without a host clients find it on 127.0.0.1, without a port on a free one.
func (c *Cluster) newFairgate(name, host string, port int, configure func(address, admin string) (string, error)) (*Fairgate, error) {
	program, err := FairgateProgram()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(c.Dir, "fairgate-")
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if port == 0 {
		if port, err = freePort(host); err != nil {
			return nil, err
		}
	}
	adminPort, err := freePort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(host, strconv.Itoa(port))
	admin := net.JoinHostPort("127.0.0.1", strconv.Itoa(adminPort))
	text, err := configure(address, admin)
	if err != nil {
		return nil, err
	}
	fairgate := &Fairgate{
		Endpoint: Endpoint{Name: name, URL: "https://" + address},
		admin:    "http://" + admin,
		program:  program,
		dir:      dir,
	}
	return fairgate, os.WriteFile(fairgate.configuration(), []byte(text), 0o600)
}

// Launch starts it and does not wait.
func (f *Fairgate) Launch() error {
	var err error
	f.running, err = startProcess(f.dir, "fairgate", f.program, "serve", "--config", f.configuration())
	return err
}

// Start starts it and waits until it is ready.
func (f *Fairgate) Start() error {
	if err := f.Launch(); err != nil {
		return err
	}
	return f.UntilReady()
}

// UntilReady waits until it is ready.
func (f *Fairgate) UntilReady() error {
	client := &http.Client{Timeout: 20 * time.Second}
	if err := f.running.untilReady(readyLimit, func() error { return healthy(client, f.admin+"/readyz") }); err != nil {
		return fmt.Errorf("%w\n%s", err, f.Log(40))
	}
	return nil
}

// Stop makes it drain, and fails if it exits with an error.
func (f *Fairgate) Stop() error {
	return f.running.stop(drainLimit)
}

// Kill ends it without a word.
func (f *Fairgate) Kill() {
	_ = f.running.stop(0)
}

// Restart stops it and starts it again.
func (f *Fairgate) Restart() error {
	if err := f.Stop(); err != nil {
		return err
	}
	return f.Start()
}

// Log returns the last lines that it wrote since it was started last.
func (f *Fairgate) Log(lines int) string {
	return f.running.tail(lines)
}

// Ask sends a GET to the admin port.
func (f *Fairgate) Ask(ctx context.Context, path string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.admin+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// Metric is the value of a metric without additional labels.
func (f *Fairgate) Metric(ctx context.Context, name string) (float64, error) {
	_, text, err := f.Ask(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, name); found && (strings.HasPrefix(rest, " ") || strings.HasPrefix(rest, "{")) {
			fields := strings.Fields(line)
			return strconv.ParseFloat(fields[len(fields)-1], 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// Sum adds up a metric over the label sets that have all of these labels, each written as name="value".
func (f *Fairgate) Sum(ctx context.Context, name string, labels ...string) (float64, error) {
	_, text, err := f.Ask(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	return sumOf(text, name, labels...)
}

// sumOf adds up a metric in the text of /metrics over the label sets that have all of these labels; 0 without any.
func sumOf(text, name string, labels ...string) (sum float64, err error) {
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, name)
		if !found || !strings.HasPrefix(rest, " ") && !strings.HasPrefix(rest, "{") {
			continue
		}
		if slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(rest, label) }) {
			continue
		}
		fields := strings.Fields(line)
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}

func (f *Fairgate) configuration() string {
	return filepath.Join(f.dir, "fairgate.yaml")
}
