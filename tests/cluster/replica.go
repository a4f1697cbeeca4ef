package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// replicaConfiguration is that of a fairgate that hosts the API itself, on an etcd.
var replicaConfiguration = template.Must(template.New("replica").Parse(`apiVersion: fairgate.dev/v1alpha1
kind: Configuration
mode: standalone
listen:
  address: {{ .Address }}
  tls:
    certFile: {{ .Serving.Cert }}
    keyFile: {{ .Serving.Key }}
authentication:
  clientCertificate:
    caFile: {{ .ClientCA }}
  tokenReview:
    enabled: false
hostedApi:
  readerGroups: [` + replicaReaders + `]
store:
  type: etcd
  etcd:
    endpoints: ["{{ .Etcd }}"]
    prefix: {{ .Prefix }}
admin:
  address: {{ .Admin }}
drain:
  delay: 0s
  grace: 2s
`))

// replicaReaders is the group that may read the objects.
const replicaReaders = "fairgate:readers"

// A Replica is a fairgate that hosts the API on an etcd, with others or alone. It keeps its addresses from
// one start to the next.
type Replica struct {
	Endpoint

	admin   string // URL of the port for operators
	program string
	dir     string
	running *process
}

// NewReplica writes the configuration of a fairgate on the etcd at a URL. Nothing runs yet.
func (c *Cluster) NewReplica(name, etcd, prefix string) (*Replica, error) {
	program, err := FairgateProgram()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(c.Dir, "replica-")
	if err != nil {
		return nil, err
	}
	var addresses [2]string
	for i := range addresses {
		port, err := freePort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		addresses[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	var text bytes.Buffer
	err = replicaConfiguration.Execute(&text, map[string]any{
		"Address": addresses[0], "Admin": addresses[1], "Serving": c.PKI.Fairgate, "ClientCA": c.PKI.CA.Cert, "Etcd": etcd, "Prefix": prefix,
	})
	if err != nil {
		return nil, err
	}
	replica := &Replica{
		Endpoint: Endpoint{Name: name, URL: "https://" + addresses[0]},
		admin:    "http://" + addresses[1],
		program:  program,
		dir:      dir,
	}
	return replica, os.WriteFile(replica.configuration(), text.Bytes(), 0o600)
}

// Launch starts it and does not wait.
func (r *Replica) Launch() error {
	var err error
	r.running, err = startProcess(r.dir, "fairgate", r.program, "serve", "--config", r.configuration())
	return err
}

// Start starts it and waits until it is ready.
func (r *Replica) Start() error {
	if err := r.Launch(); err != nil {
		return err
	}
	return r.UntilReady()
}

// UntilReady waits until it is ready.
func (r *Replica) UntilReady() error {
	client := &http.Client{Timeout: 5 * time.Second}
	if err := r.running.untilReady(readyLimit, func() error { return healthy(client, r.admin+"/readyz") }); err != nil {
		return fmt.Errorf("%w\n%s", err, r.Log(40))
	}
	return nil
}

// Stop asks it to drain and fails when it does not end well.
func (r *Replica) Stop() error {
	return r.running.stop(stopGrace)
}

// Restart stops it and starts it again.
func (r *Replica) Restart() error {
	if err := r.Stop(); err != nil {
		return err
	}
	return r.Start()
}

// Log returns the last lines that it wrote since it was started last.
func (r *Replica) Log(lines int) string {
	return r.running.tail(lines)
}

// Ask asks the port for operators.
func (r *Replica) Ask(ctx context.Context, path string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.admin+path, nil)
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

// Metric is the value of a metric without labels of its own.
func (r *Replica) Metric(ctx context.Context, name string) (float64, error) {
	_, text, err := r.Ask(ctx, "/metrics")
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

// Hosted is how tests see it that care for no more than what it hosts.
func (c *Cluster) Hosted(r *Replica) (*Hosted, error) {
	reader, err := c.NewUser("reader", replicaReaders)
	if err != nil {
		return nil, err
	}
	hosted := &Hosted{Restart: r.Restart, Stop: r.Stop}
	if hosted.Admin, err = c.Kubeconfig(r.Endpoint, c.admin); err != nil {
		return nil, err
	}
	hosted.User, err = c.Kubeconfig(r.Endpoint, reader)
	return hosted, err
}

func (r *Replica) configuration() string {
	return filepath.Join(r.dir, "fairgate.yaml")
}
