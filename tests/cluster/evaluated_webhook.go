package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// An AdmissionWatcher is a validating webhook that allows everything and notes what it is shown: the same objects as policies.
type AdmissionWatcher struct {
	mutex   sync.Mutex
	reviews []map[string]any // requests of AdmissionReviews
}

// WatchAdmission starts one for all writes to a server, and waits until it is asked.
func (c *Cluster) WatchAdmission(ctx context.Context, server *Apiserver) (*AdmissionWatcher, error) {
	pair, err := c.PKI.newServer("admission-watcher", nil)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(c.PKI.CA.Cert)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	watcher := &AdmissionWatcher{}
	go func() {
		serving := http.Server{Handler: watcher, ReadHeaderTimeout: time.Minute}
		_ = serving.ServeTLS(listener, pair.Cert, pair.Key)
	}()
	target, err := NewTarget(server.Name, c.Config(server.Endpoint, c.admin))
	if err != nil {
		return nil, err
	}
	configuration := fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"admission-watcher"},"webhooks":[{"name":"watcher.example.com",`+
		`"admissionReviewVersions":["v1"],"sideEffects":"None","failurePolicy":"Ignore","matchPolicy":"Exact","clientConfig":{"url":"https://%s/","caBundle":"%s"},`+
		`"rules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["CREATE","UPDATE"],"resources":["*/*"]}]}]}`, listener.Addr(), base64.StdEncoding.EncodeToString(authority))
	create := Request{Method: "POST", Path: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", Headers: map[string]string{contentHeader: jsonType}, Body: configuration}
	if response, err := target.send(ctx, create, newNormaliser(false, false)); err != nil || response.Code != http.StatusCreated {
		return nil, fmt.Errorf("the webhook was answered %d %v: %w", response.Code, response.Body, err)
	}
	probe := Request{Method: "POST", Path: stepsPath, Query: "dryRun=All", Headers: map[string]string{contentHeader: jsonType}, Body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"admission-watcher"}}`}
	return watcher, poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
		_, err := target.send(ctx, probe, newNormaliser(false, false))
		return watcher.first(stepsPath) != nil, err
	})
}

func (w *AdmissionWatcher) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	var review struct {
		Request map[string]any `json:"request"`
	}
	decoder := json.NewDecoder(request.Body)
	decoder.UseNumber()
	if err := decoder.Decode(&review); err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	w.mutex.Lock()
	w.reviews = append(w.reviews, review.Request)
	w.mutex.Unlock()
	writer.Header().Set(contentHeader, jsonType)
	fmt.Fprintf(writer, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, text(review.Request, "uid"))
}

func (w *AdmissionWatcher) forget() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.reviews = nil
}

// first is the first request since [AdmissionWatcher.forget] about the resource or subresource of a path, if there was any. Those
// that the server's own controllers make are left out.
func (w *AdmissionWatcher) first(path string) map[string]any {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, review := range w.reviews {
		resource, subresource := text(review, "resource", "resource"), text(review, "subResource")
		isOwn := text(review, "userInfo", "username") == "system:apiserver"
		if _, after, found := strings.Cut(path, "/"+resource); found && strings.HasSuffix(after, subresource) && !isOwn {
			return review
		}
	}
	return nil
}
