package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	readyLimit = 10 * time.Minute // for a program to become ready; it takes seconds
	// changeLimit is how long a change may take to be noticed; it takes seconds. It only ends tests whose change is never
	// noticed: a server that compiles hundreds of policies beside other tests on two cores has needed more than a minute.
	changeLimit = 10 * time.Minute
	stopGrace   = 15 * time.Second // for a server to end before it is killed; nothing is decided by it
	drainLimit  = time.Minute      // for a fairgate to end by itself, which takes at most the grace of its drain
)

// StaticToken is known to the apiserver and to fairgate alike, by a static token file.
const StaticToken = "static-token-of-the-test-bed"

// StaticUser is whom [StaticToken] stands for; its groups are StaticGroups.
const StaticUser = "static-user"

// A Cluster is a running etcd and kube-apiserver.
type Cluster struct {
	Dir       string // everything the cluster has on disk
	PKI       *PKI
	Advertise string // the address published as endpoint of the kubernetes Service; nobody listens there yet
	Port      int    // of the apiserver on 127.0.0.1, and the one published
	TokenFile string
	Direct    Endpoint
	Admin     kubernetes.Interface // system:masters, straight to the apiserver, without client-side limits

	bin       string
	etcd      *Etcd
	apiserver *process
	admin     User

	mutex   sync.Mutex
	further []*Apiserver // see StartApiserver
	started int          // of these
}

// An Endpoint is where a client sends its requests.
type Endpoint struct {
	Name string // of the identity mode, or "direct"
	URL  string
}

// A User is a credential: a client certificate, a bearer token, or neither for the anonymous user.
type User struct {
	Name  string
	Pair  KeyPair
	Token string
}

// Anonymous presents no credential.
var Anonymous = User{Name: "anonymous"}

// Start makes a PKI in dir and starts etcd and kube-apiserver from bin. They are ready when it returns.
// The caller stops the returned cluster, which is not nil even with an error.
func Start(dir, bin string) (*Cluster, error) {
	c := &Cluster{Dir: dir, bin: bin}
	var err error
	if c.Advertise, err = hostAddress(); err != nil {
		return c, err
	}
	if c.PKI, err = NewPKI(filepath.Join(dir, "pki"), []string{c.Advertise, "10.96.0.1"}); err != nil {
		return c, err
	}
	pair, err := c.PKI.User("admin", "kubernetes-admin", "system:masters")
	if err != nil {
		return c, err
	}
	c.admin = User{Name: "admin", Pair: pair}
	c.TokenFile = filepath.Join(dir, "tokens.csv")
	line := fmt.Sprintf("%s,%s,static-uid,\"dev,ops\"\n", StaticToken, StaticUser)
	if err := os.WriteFile(c.TokenFile, []byte(line), 0o600); err != nil {
		return c, err
	}

	// A port may be taken between the moment it was found free and its use, though only outside of a
	// separate network namespace.
	for attempt := 1; ; attempt++ {
		err = c.startServers()
		taken := strings.Contains(c.Logs(100), "address already in use")
		if err == nil || !taken || attempt == 3 {
			return c, err
		}
		c.Stop()
	}
}

// Stop ends the servers. It may be called more than once.
func (c *Cluster) Stop() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, server := range c.further {
		_ = server.running.stop(stopGrace)
	}
	_ = c.apiserver.stop(stopGrace)
	_ = c.etcd.Stop()
}

// Logs returns the last lines of each server's log.
func (c *Cluster) Logs(lines int) string {
	return c.etcd.Log(lines) + c.apiserver.tail(lines)
}

func (c *Cluster) startServers() error {
	var err error
	if c.Port, err = freePort("127.0.0.1", c.Advertise); err != nil {
		return err
	}
	if c.etcd, err = NewEtcd(c.Dir, c.bin); err != nil {
		return err
	}
	if err := c.etcd.Start(); err != nil {
		return err
	}

	audit, err := c.auditFlags()
	if err != nil {
		return err
	}
	flags := append(c.apiserverFlags(c.Port), uidFlag, "--enable-priority-and-fairness=true", "--v=2")
	c.apiserver, err = startProcess(c.Dir, "kube-apiserver", filepath.Join(c.bin, "kube-apiserver"), append(flags, audit...)...)
	if err != nil {
		return err
	}
	c.Direct = Endpoint{Name: "direct", URL: fmt.Sprintf("https://127.0.0.1:%d", c.Port)}
	if c.Admin, err = c.adminOf(c.Direct); err != nil {
		return err
	}
	probe := &http.Client{Transport: c.Transport(c.admin, true), Timeout: 20 * time.Second}
	if err := c.apiserver.untilReady(readyLimit, func() error { return healthy(probe, c.Direct.URL+"/readyz") }); err != nil {
		return err
	}
	// The first namespaces are written after that, in the background.
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	err = c.apiserver.untilReady(readyLimit, func() error {
		for _, namespace := range []string{"default", "kube-system"} {
			if _, err := c.Admin.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return Grant(ctx, c.Admin, FairgateUser, ImpersonatorRole)
}

// adminOf is the administrator's client at an endpoint, without client-side limits.
func (c *Cluster) adminOf(at Endpoint) (kubernetes.Interface, error) {
	config := c.Config(at, c.admin)
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}

// NewUser makes a user with a client certificate.
func (c *Cluster) NewUser(name string, groups ...string) (User, error) {
	file := strings.NewReplacer(":", "-", "/", "-").Replace(name)
	pair, err := c.PKI.User(file, name, groups...)
	return User{Name: name, Pair: pair}, err
}

// NewServiceAccount makes a service account, and its namespace when there is none, and a token for it
// by a TokenRequest.
func (c *Cluster) NewServiceAccount(ctx context.Context, namespace, name string) (User, error) {
	if err := c.EnsureNamespace(ctx, namespace); err != nil {
		return User{}, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := c.Admin.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return User{}, err
	}
	token, err := c.Admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return User{}, err
	}
	return User{Name: "system:serviceaccount:" + namespace + ":" + name, Token: token.Status.Token}, nil
}

// EnsureNamespace makes a namespace unless it exists.
func (c *Cluster) EnsureNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := c.Admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Config is client-go's configuration for a user at an endpoint.
func (c *Cluster) Config(at Endpoint, user User) *rest.Config {
	return &rest.Config{
		Host:        at.URL,
		BearerToken: user.Token,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: c.PKI.CA.Cert, CertFile: user.Pair.Cert, KeyFile: user.Pair.Key,
		},
	}
}

// Transport is the plain HTTP transport of a user, for requests that client-go would not make. It does
// not add the token: see [Cluster.Do].
func (c *Cluster) Transport(user User, http2 bool) *http.Transport {
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if pem, err := os.ReadFile(c.PKI.CA.Cert); err == nil {
		config.RootCAs.AppendCertsFromPEM(pem)
	}
	if user.Pair.Cert != "" {
		if pair, err := tls.LoadX509KeyPair(user.Pair.Cert, user.Pair.Key); err == nil {
			config.Certificates = []tls.Certificate{pair}
		}
	}
	transport := &http.Transport{
		TLSClientConfig:     config,
		DialContext:         (&net.Dialer{Timeout: time.Minute}).DialContext,
		TLSHandshakeTimeout: time.Minute,
		MaxIdleConnsPerHost: 100,
		DisableCompression:  true,
		Protocols:           new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetHTTP2(http2)
	return transport
}

// Kubeconfig writes a kubeconfig file for a user at an endpoint and returns its path.
func (c *Cluster) Kubeconfig(at Endpoint, user User) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: at.URL, CertificateAuthority: c.PKI.CA.Cert}
	info := &clientcmdapi.AuthInfo{ClientCertificate: user.Pair.Cert, ClientKey: user.Pair.Key, Token: user.Token}
	if user == Anonymous {
		// Without any credential kubectl prompts for a name and a password. The server knows no passwords, so
		// these are not accepted as any user.
		info.Username, info.Password = "nobody", "none"
	}
	config.AuthInfos["test"] = info
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	file, err := os.CreateTemp(c.Dir, "kubeconfig-")
	if err != nil {
		return "", err
	}
	file.Close()
	return file.Name(), clientcmd.WriteToFile(*config, file.Name())
}

// Kubectl makes a command of the real kubectl. It does not use the configuration of the user who runs the tests.
func (c *Cluster) Kubectl(ctx context.Context, at Endpoint, user User, args ...string) (*exec.Cmd, error) {
	kubeconfig, err := c.Kubeconfig(at, user)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), args...)
	cmd.Env = []string{"HOME=" + filepath.Join(c.Dir, "home-"+at.Name), "KUBECONFIG=" + kubeconfig, "PATH=/usr/bin:/bin"}
	cmd.Dir = c.Dir
	return cmd, nil
}

// RunKubectl runs the real kubectl and returns what it printed; an error holds its standard error.
func (c *Cluster) RunKubectl(ctx context.Context, at Endpoint, user User, stdin string, args ...string) (string, error) {
	cmd, err := c.Kubectl(ctx, at, user, args...)
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Do sends one request as it is: neither path nor query are cleaned, no redirect is followed.
func (c *Cluster) Do(
	ctx context.Context, transport http.RoundTripper, at Endpoint, user User,
	method, target string, header http.Header, body string,
) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, at.URL, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	path, query, _ := strings.Cut(target, "?")
	request.URL.RawQuery = query
	if strings.HasPrefix(path, "//") {
		request.URL.Path = path // an opaque "//…" would be taken for an authority
	} else {
		request.URL.Opaque = path
	}
	if strings.HasSuffix(target, "?") {
		request.URL.ForceQuery = true
	}
	for name, values := range header {
		request.Header[name] = values
	}
	if body == "" {
		request.Body, request.ContentLength = http.NoBody, 0
	}
	if user.Token != "" {
		request.Header.Set("Authorization", "Bearer "+user.Token)
	}
	return transport.RoundTrip(request)
}

// healthy is nil when a GET of url is answered 200.
func healthy(client *http.Client, url string) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status + ": " + strings.TrimSpace(string(body)))
	}
	return nil
}
