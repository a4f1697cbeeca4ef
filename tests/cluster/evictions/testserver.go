// Package testing stands in for k8s.io/kubernetes/cmd/kube-apiserver/app/testing where Kubernetes' own integration tests of
// evictions are built (see ../build). The original starts a kube-apiserver in the process of the test. This one asks
// the test bed for a fairgate in front of a new kube-apiserver (see ../kubernetes_evictions_test.go).
//
// It has what these tests use, and no more.
package testing

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"testing"

	"k8s.io/apiserver/pkg/storage/storagebackend"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ServersVariable names the environment variable with the URL of the test bed's servers: a POST of the flags of a
// kube-apiserver, as JSON, starts one and is answered by a [NewServer]; a DELETE of its URL ends it.
const ServersVariable = "FAIRGATE_TEST_SERVERS"

// TearDownFunc ends a server.
type TearDownFunc func()

// TestServerInstanceOptions are not available: the tests pass none.
type TestServerInstanceOptions struct{}

// A TestServer is a fairgate in front of a kube-apiserver of its own.
type TestServer struct {
	ClientConfig *restclient.Config // of an administrator
	TearDownFn   TearDownFunc
}

// A NewServer is what the test bed says of a server that it has started.
type NewServer struct {
	URL        string // of the server among the test bed's servers
	Kubeconfig string // of an administrator
}

// StartTestServerOrDie has a server started with these flags. Where it keeps its objects is chosen by the test bed.
func StartTestServerOrDie(t testing.TB, options *TestServerInstanceOptions, flags []string, _ *storagebackend.Config) *TestServer {
	t.Helper()
	if options != nil {
		t.Fatal("a server with options is not available")
	}
	body, err := json.Marshal(flags)
	if err != nil {
		t.Fatal(err)
	}
	var made NewServer
	reply, err := order(http.MethodPost, os.Getenv(ServersVariable), body)
	if err == nil {
		err = json.Unmarshal(reply, &made)
	}
	if err != nil {
		t.Fatalf("no server: %v", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", made.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	// As the original's.
	config.QPS, config.Burst = 1000, 10000
	return &TestServer{ClientConfig: config, TearDownFn: func() {
		if _, err := order(http.MethodDelete, made.URL, nil); err != nil {
			t.Errorf("the server did not end well: %v", err)
		}
	}}
}

// order sends a request to the test bed. It leaves no connection open, which would pass for a leak of the test.
func order(method, url string, body []byte) ([]byte, error) {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status + ": " + string(reply))
	}
	return reply, err
}
