package boards

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const tokens = `root,root,1,system:masters
node,system:node:a,2,system:nodes
elephant,elephant,3,tenants
mouse,mouse,4,tenants
impatient,impatient,5,impatient
`

// A gateway is a process of fairgate.
type gateway struct {
	directory, url, admin string
	process               *exec.Cmd
	log                   chan string
	client                *http.Client
}

type object = map[string]any

// startGateway starts fairgate with this configuration, which names neither version nor addresses.
func startGateway(t *testing.T, directory string, config object, secure bool) *gateway {
	return startProgram(t, directory, config, secure, program(t, "FAIRGATE_BIN"), "serve", "--config", filepath.Join(directory, "fairgate.yaml"))
}

// startPanicking starts a gateway that hosts the policy objects, and panics at requests with the query panic.
func startPanicking(t *testing.T) *gateway {
	directory := t.TempDir()
	return startProgram(t, directory, object{"mode": "standalone", "dataCores": 1}, false, program(t, "FAIRGATE_PANICKING_BIN"), directory)
}

// program returns the path of a binary, which a variable of the environment names.
func program(t *testing.T, variable string) string {
	binary := os.Getenv(variable)
	if binary == "" {
		t.Fatalf("%s names no binary; start with tests/boards/run", variable)
	}
	return binary
}

// startProgram starts a gateway with this configuration, which names neither version nor addresses.
func startProgram(t *testing.T, directory string, config object, secure bool, command ...string) *gateway {
	listen := object{"address": "127.0.0.1:0"}
	scheme := "http://"
	if secure {
		listen["tls"] = object{"certFile": "tls.crt", "keyFile": "tls.key"}
		scheme = "https://"
	}
	config["apiVersion"], config["kind"] = "fairgate.dev/v1alpha1", "Configuration"
	config["listen"] = listen
	config["admin"] = object{"address": "127.0.0.1:0"}
	if config["authentication"] == nil {
		config["authentication"] = object{"tokenFile": "tokens"}
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, directory, "fairgate.yaml", string(text))
	write(t, directory, "tokens", tokens)
	process := exec.Command(command[0], command[1:]...)
	process.Dir = directory
	stderr, err := process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	g := &gateway{directory: directory, process: process}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(directory, "log"))
			t.Logf("the end of a gateway's log:\n%s", log[max(0, len(log)-3000):])
		}
	})
	t.Cleanup(g.kill)
	found := make(chan []string)
	go func() {
		addresses := regexp.MustCompile(`serving.* address=(\S+) admin=(\S+)`)
		file, _ := os.Create(filepath.Join(directory, "log"))
		defer file.Close()
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			file.WriteString(lines.Text() + "\n")
			if match := addresses.FindStringSubmatch(lines.Text()); match != nil {
				found <- match
			}
		}
		close(found)
	}()
	match, ok := <-found
	if !ok {
		log, _ := os.ReadFile(filepath.Join(directory, "log"))
		t.Fatalf("fairgate does not serve:\n%s", log)
	}
	g.url, g.admin = scheme+match[1], match[2]
	g.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true},
		MaxIdleConnsPerHost: 200,
	}}
	return g
}

// reload has it read this configuration.
func (g *gateway) reload(t *testing.T, text string) {
	write(t, g.directory, "fairgate.yaml", text)
	if err := g.process.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

func (g *gateway) kill() {
	g.process.Process.Kill()
	g.process.Wait()
}

// send sends one request, reads the response, and returns its status; 0 if there was none.
func (g *gateway) send(ctx context.Context, token, method, target string) int {
	request, err := http.NewRequestWithContext(ctx, method, g.url+target, nil)
	if err != nil {
		panic(err)
	}
	return g.do(request, token)
}

func (g *gateway) do(request *http.Request, token string) int {
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := g.client.Do(request)
	if err != nil {
		return 0
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	return response.StatusCode
}

// post sends an object, and returns the status of the response; 0 if there was none.
func (g *gateway) post(ctx context.Context, token, target, text string) int {
	request, err := http.NewRequestWithContext(ctx, "POST", g.url+target, strings.NewReader(text))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Content-Type", "application/json")
	return g.do(request, token)
}

// load keeps so many requests in progress until the context ends.
func (g *gateway) load(ctx context.Context, threads int, token, method, target string, pause time.Duration) {
	for range threads {
		go func() {
			for ctx.Err() == nil {
				g.send(ctx, token, method, target)
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
			}
		}()
	}
}

// stall asks for a long response, again and again, and reads none of it.
func (g *gateway) stall(ctx context.Context, token, target string) {
	address := g.url[len("https://"):]
	for ctx.Err() == nil {
		connection, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		io.WriteString(connection, "GET "+target+" HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "+token+"\r\n\r\n")
		select {
		case <-time.After(10 * time.Second):
		case <-ctx.Done():
		}
		connection.Close()
	}
}

// babble opens connections and sends what is no TLS.
func (g *gateway) babble(ctx context.Context) {
	for ctx.Err() == nil {
		if connection, err := net.Dial("tcp", g.url[len("https://"):]); err == nil {
			io.WriteString(connection, "good morning\r\n\r\n")
			io.ReadAll(connection)
			connection.Close()
		}
		time.Sleep(time.Second)
	}
}

func write(t *testing.T, directory, name, text string) {
	t.Helper()
	// Files are replaced as a whole, so that nobody reads half of one.
	path := filepath.Join(directory, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// certify writes a certificate that expires after this time, and its key.
func certify(t *testing.T, directory string, life time.Duration) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(life),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, directory, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
	write(t, directory, "tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}
