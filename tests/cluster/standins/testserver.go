// Package testing stands in for k8s.io/kubernetes/cmd/kube-apiserver/app/testing where Kubernetes' own integration tests
// are built (see ../build). The original starts a kube-apiserver in the process of the test. This one asks the test bed
// for a fairgate in front of a new kube-apiserver (see ../kubernetes_servers.go).
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
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ServersVariable names the environment variable with the URL of the test bed's servers: a POST of an [Order] starts one and
// is answered by a [NewServer]; a DELETE of its URL ends it.
const ServersVariable = "FAIRGATE_TEST_SERVERS"

// An Order is what a test wants of a new server.
type Order struct {
	Flags  []string // of its kube-apiserver
	Prefix string   // of its objects in etcd; a test that starts two servers on one prefix restarts a server
}

// A NewServer is what the test bed says of a server that it has started.
type NewServer struct {
	URL        string // of the server among the test bed's servers
	Kubeconfig string // of an administrator, or of a front proxy
	FrontProxy bool   // whether the server does not impersonate, but trusts a front proxy
}

// Who sends the requests of a [TestServer.ClientConfig] that impersonate nobody: as in the original, a user with a UID.
const (
	Administrator    = "system:apiserver"
	AdministratorUID = "d5e2f9a4-5f0c-4a55-8f5e-0f4b7b1c1d5e"
)

// TearDownFunc ends a server.
type TearDownFunc func()

// TestServerInstanceOptions are not available: the tests pass none, or empty ones.
type TestServerInstanceOptions struct{}

// A TestServer is a fairgate in front of a kube-apiserver of its own.
type TestServer struct {
	ClientConfig *restclient.Config // of an administrator
	TearDownFn   TearDownFunc
}

// StartTestServerOrDie is [StartTestServer] for tests that need the server.
func StartTestServerOrDie(t testing.TB, options *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) *TestServer {
	t.Helper()
	made, err := StartTestServer(t, options, flags, storage)
	if err != nil {
		t.Fatalf("no server: %v", err)
	}
	return &made
}

// StartTestServer has a server started with these flags.
func StartTestServer(t testing.TB, _ *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) (TestServer, error) {
	t.Helper()
	// A server does so, and a test asks whether it did.
	environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	body, err := json.Marshal(Order{Flags: append(emulation(), flags...), Prefix: storage.Prefix})
	if err != nil {
		return TestServer{}, err
	}
	var made NewServer
	reply, err := send(http.MethodPost, os.Getenv(ServersVariable), body)
	if err == nil {
		err = json.Unmarshal(reply, &made)
	}
	if err != nil {
		return TestServer{}, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", made.Kubeconfig)
	if err != nil {
		return TestServer{}, err
	}
	// As the original's.
	config.QPS, config.Burst = 1000, 10000
	if made.FrontProxy {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return frontProxy{next} })
	}
	// Files would be followed to the end of the process, which would pass for a leak.
	if err := restclient.LoadTLSFiles(config); err != nil {
		return TestServer{}, err
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	return TestServer{ClientConfig: config, TearDownFn: func() {
		if _, err := send(http.MethodDelete, made.URL, nil); err != nil {
			t.Errorf("the server did not end well: %v", err)
		}
	}}, nil
}

// GetEtcdClients is not available: no test looks behind its server.
func GetEtcdClients(storagebackend.TransportConfig) (*clientv3.Client, clientv3.KV, error) {
	return nil, nil, errors.New("the etcd of the test bed is not the tests'")
}

// emulation is what a test has said by the feature gate of its process: the original starts its servers there.
func emulation() []string {
	emulated := utilfeature.DefaultMutableFeatureGate.EmulationVersion()
	if emulated.EqualTo(compatibility.DefaultKubeEffectiveVersionForTest().BinaryVersion()) {
		return nil
	}
	return []string{"--emulated-version=" + emulated.String(), "--runtime-config-emulation-forward-compatible"}
}

// A frontProxy says who sends a request. fairgate refuses to impersonate for its clients, but believes a front proxy, so this
// one takes the users from the headers that client-go sends where a test impersonates somebody.
type frontProxy struct{ next http.RoundTripper }

const (
	impersonate = "Impersonate-"
	remote      = "X-Remote-"
)

func (p frontProxy) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	header := request.Header
	header.Set(remote+"User", Administrator)
	header.Set(remote+"Group", "system:masters")
	header.Set(remote+"Uid", AdministratorUID)
	if user := header.Get(impersonate + "User"); user != "" {
		header.Set(remote+"User", user)
		header.Del(remote + "Uid")
		header[remote+"Group"] = groupsOf(user, header.Values(impersonate+"Group"))
		for name, values := range header {
			if rest, found := strings.CutPrefix(name, impersonate); found && rest != "User" && rest != "Group" {
				header[remote+rest] = values
			}
			if strings.HasPrefix(name, impersonate) {
				delete(header, name)
			}
		}
	}
	return p.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport below, whose idle connections it closes.
func (p frontProxy) WrappedRoundTripper() http.RoundTripper { return p.next }

// groupsOf are the groups that a server gives a user whom somebody impersonates with these groups.
func groupsOf(user string, groups []string) []string {
	namespace, _, err := serviceaccount.SplitUsername(user)
	if len(groups) == 0 && err == nil {
		return serviceaccount.MakeGroupNames(namespace)
	}
	return slices.Clone(groups)
}

// send sends a request to the test bed. It leaves no connection open, which would pass for a leak of the test.
func send(method, address string, body []byte) ([]byte, error) {
	request, err := http.NewRequest(method, address, bytes.NewReader(body))
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
