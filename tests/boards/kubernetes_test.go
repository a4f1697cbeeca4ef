//go:build kubernetes

package boards

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// startKubeAPIServer starts etcd and a kube-apiserver of FAIRGATE_CLUSTER_BIN, and returns the address.
func startKubeAPIServer(t *testing.T) string {
	directory := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, directory, "sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	write(t, directory, "tokens", tokens)
	client, peer, secure := freeAddress(t), freeAddress(t), freeAddress(t)
	start(t, directory, "etcd", "--data-dir="+filepath.Join(directory, "etcd"),
		"--listen-client-urls=http://"+client, "--advertise-client-urls=http://"+client,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer)
	_, port, _ := net.SplitHostPort(secure)
	start(t, directory, "kube-apiserver", "--etcd-servers=http://"+client, "--bind-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+filepath.Join(directory, "certificates"), "--token-auth-file="+filepath.Join(directory, "tokens"),
		"--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/16", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+filepath.Join(directory, "sa.key"), "--service-account-signing-key-file="+filepath.Join(directory, "sa.key"))
	return secure
}

func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func start(t *testing.T, directory, name string, arguments ...string) {
	log, err := os.Create(filepath.Join(directory, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(filepath.Join(os.Getenv("FAIRGATE_CLUSTER_BIN"), name), arguments...)
	process.Stdout, process.Stderr = log, log
	if err := process.Start(); err != nil {
		t.Fatalf("%v; FAIRGATE_CLUSTER_BIN has to name the directory that tests/cluster/build prints", err)
	}
	t.Cleanup(func() {
		process.Process.Kill()
		process.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the end of the log of %s:\n%s", name, text[max(0, len(text)-3000):])
		}
	})
}

func TestBoardsShowAKubeAPIServerWhereTheyDoNotNeedFairgate(t *testing.T) {
	address := startKubeAPIServer(t)
	p := startPrometheusWith(t, object{
		"job_name": "fairgate", "scheme": "https", "authorization": object{"credentials": "root"},
		"tls_config":     object{"insecure_skip_verify": true},
		"static_configs": []object{{"targets": []string{address}}},
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	get := func(path string) int {
		request, err := http.NewRequest("GET", "https://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		// Groups beyond system:masters come with the tokens; these users are served by global-default.
		request.Header.Set("Authorization", "Bearer mouse")
		response, err := client.Do(request)
		if err != nil {
			return 0
		}
		defer response.Body.Close()
		io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	empty := map[string]string{}
	for title, expr := range expressionsOf(t, strings.NewReplacer(
		"$__rate_interval", "10s", "$cluster", "", "$fleet", ".*", "$job", "fairgate", "$instance", ".*", "$level", "global-default")) {
		if !strings.Contains(title, "(fairgate)") && !strings.HasSuffix(title, quiet) && !strings.HasPrefix(title, "rule ") {
			empty[title] = expr
		}
	}
	count := len(empty)
	w := &world{prometheus: p}
	w.wait(t, firesWithin, func() bool {
		get("/api/v1/namespaces")
		get("/api/v1/namespaces/default/pods/none")
		w.dropThoseWithData(t, empty)
		return len(empty) == 0
	})
	report(t, fmt.Sprintf("of a kube-apiserver (which answers %d)", get("/version")), empty, count)
	if len(empty) > 0 {
		t.Error("panels that a kube-apiserver has no data for")
	}
}
