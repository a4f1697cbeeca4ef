// A reverse proxy behind Kubernetes' own API Priority and Fairness: what somebody would write in Go over the
// libraries of kube-apiserver. loadtest/peers/run measures it beside fairgate.
//
// Like kube-apiserver it authenticates bearer tokens of a file, parses requests, classifies them by FlowSchemas and
// gives them seats. It lacks everything else that kube-apiserver does for a request: audit, authorization, metrics
// of requests, timeouts of its own.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	endpoints "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
)

// The bounds of kube-apiserver's flags --request-timeout, and a quarter of it for waiting.
const (
	requestTimeout = time.Minute
	waitLimit      = requestTimeout / 4
)

// What the filter logs when it refuses requests would be most of the work.
func init() { log.SetOutput(io.Discard) }

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "the `address` to listen at")
	upstream := flag.String("upstream", "", "the `URL` of the server")
	seats := flag.Int("seats", 600, "the server's concurrency limit")
	policies := flag.String("policies", "", "the `directory` with FlowSchemas and PriorityLevelConfigurations")
	tokens := flag.String("tokens", "", "the token `file`")
	http2 := flag.Bool("http2", false, "whether clients and the server speak HTTP/2, and nothing else")
	certificate := flag.String("certificate", "", "the `file` with the certificate, for TLS; it verifies the server, too")
	key := flag.String("key", "", "the `file` with the certificate's key")
	flag.Parse()
	var protocols http.Protocols
	protocols.SetHTTP1(!*http2)
	protocols.SetHTTP2(*http2)
	protocols.SetUnencryptedHTTP2(*http2 && *certificate == "")
	if err := serve(*listen, *upstream, *policies, *tokens, *certificate, *key, *seats, &protocols); err != nil {
		os.Stderr.WriteString("apf: " + err.Error() + "\n")
		os.Exit(1)
	}
}

func serve(listen, upstream, policies, tokens, certificate, key string, seats int, protocols *http.Protocols) error {
	target, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	control, err := flowControl(policies, seats)
	if err != nil {
		return err
	}
	users, err := tokenfile.NewCSV(tokens)
	if err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true, Protocols: protocols}
	if certificate != "" {
		pem, err := os.ReadFile(certificate)
		if err != nil {
			return err
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return errors.New(certificate + " has no certificate")
		}
	}
	proxy.Transport = transport

	longRunning := filters.BasicLongRunningRequestCheck(sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))
	estimator := flowcontrolrequest.NewWorkEstimator(
		func(string) (storage.Stats, error) { return storage.Stats{}, nil },
		control.GetInterestedWatchCount, flowcontrolrequest.DefaultWorkEstimatorConfig(), control.GetMaxSeats)
	authenticator := group.NewAuthenticatedGroupAdder(bearertoken.New(users))
	refused := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

	// From the inside out.
	handler := filters.WithPriorityAndFairness(proxy, longRunning, control, estimator, waitLimit)
	handler = endpoints.WithAuthentication(handler, authenticator, refused, nil, nil)
	handler = endpoints.WithRequestInfo(handler, resolver)
	handler = endpoints.WithRequestReceivedTimestamp(handler)
	server := http.Server{Addr: listen, Handler: handler, Protocols: protocols}
	if certificate != "" {
		return server.ListenAndServeTLS(certificate, key)
	}
	return server.ListenAndServe()
}

// flowControl runs Kubernetes' controller over the objects of a directory.
func flowControl(directory string, seats int) (flowcontrol.Interface, error) {
	objects, err := read(directory)
	if err != nil {
		return nil, err
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	control := flowcontrol.New(factory, client.FlowcontrolV1(), seats)
	never := make(chan struct{})
	factory.Start(never)
	factory.WaitForCacheSync(never)
	go func() {
		os.Stderr.WriteString("apf: flow control ended: " + errors.Join(control.Run(never)).Error() + "\n")
		os.Exit(1)
	}()
	return control, nil
}

// read decodes the objects of all YAML files of a directory.
func read(directory string) ([]runtime.Object, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var objects []runtime.Object
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, err
			}
			object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
			if err != nil {
				return nil, err
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}
