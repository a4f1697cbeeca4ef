package boards

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// leases are the Lease and Secret objects of an API server: optimistic concurrency, and lists by label.
type leases struct {
	mutex   sync.Mutex
	version int
	byPath  map[string]object
	// readOnly are the paths of objects that nobody may update.
	readOnly map[string]bool
}

func newLeases() *leases { return &leases{byPath: map[string]object{}, readOnly: map[string]bool{}} }

// serve answers a request that is about these objects, and says whether it is.
func (l *leases) serve(w http.ResponseWriter, r *http.Request) bool {
	isCollection := strings.HasSuffix(r.URL.Path, "/leases") || strings.HasSuffix(r.URL.Path, "/secrets")
	if !isCollection && !strings.Contains(r.URL.Path, "/leases/") && !strings.Contains(r.URL.Path, "/secrets/") {
		return false
	}
	var sent object
	if r.Method != "GET" && json.NewDecoder(r.Body).Decode(&sent) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return true
	}
	code, answer := l.call(r.Method, r.URL.Path, r.URL.Query().Get("labelSelector"), isCollection, sent)
	if answer == nil {
		answer = object{"kind": "Status", "code": code, "message": http.StatusText(code)}
	}
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(answer)
	return true
}

// call returns a status, and an object unless the request is refused.
func (l *leases) call(method, path, selector string, isCollection bool, sent object) (int, object) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	stored, exists := l.byPath[path]
	switch {
	case method == "GET" && isCollection:
		return http.StatusOK, object{"metadata": object{}, "items": l.list(path, selector)}
	case method == "POST":
		path += "/" + metadata(sent)["name"].(string)
		if _, exists := l.byPath[path]; exists {
			return http.StatusConflict, nil
		}
		return http.StatusCreated, l.store(path, sent)
	case !exists:
		return http.StatusNotFound, nil
	case method == "GET":
		return http.StatusOK, stored
	case l.readOnly[path]:
		return http.StatusForbidden, nil
	case metadata(stored)["resourceVersion"] != metadata(sent)["resourceVersion"]:
		return http.StatusConflict, nil
	}
	return http.StatusOK, l.store(path, sent)
}

func metadata(of object) object { return of["metadata"].(object) }

func (l *leases) store(path string, sent object) object {
	l.version++
	metadata(sent)["resourceVersion"] = strconv.Itoa(l.version)
	if texts, has := sent["stringData"].(object); has {
		data := object{}
		for key, text := range texts {
			data[key] = base64.StdEncoding.EncodeToString([]byte(text.(string)))
		}
		sent["data"] = data
		delete(sent, "stringData")
	}
	l.byPath[path] = sent
	return sent
}

func (l *leases) list(path, selector string) []object {
	found := []object{}
	for at, one := range l.byPath {
		labels, _ := metadata(one)["labels"].(object)
		isWanted := func(requirement string) bool {
			key, value, _ := strings.Cut(requirement, "=")
			return labels[key] == value
		}
		if strings.HasPrefix(at, path+"/") && !slices.ContainsFunc(strings.Split(selector, ","), func(r string) bool { return !isWanted(r) }) {
			found = append(found, one)
		}
	}
	return found
}

// leasePath is where a Lease of a fleet is.
func leasePath(fleet, name string) string {
	return fmt.Sprintf("/apis/coordination.k8s.io/v1/namespaces/fairgate/leases/%s-%s", fleet, name)
}

// remove deletes a lease, which has to exist.
func (l *leases) remove(t *testing.T, path string) {
	t.Helper()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if _, exists := l.byPath[path]; !exists {
		t.Fatalf("there is no %s", path)
	}
	delete(l.byPath, path)
}

// overwrite has a lease contain this record from now on, as if another program had written it.
func (l *leases) overwrite(t *testing.T, path, record string) {
	t.Helper()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	stored, exists := l.byPath[path]
	if !exists {
		t.Fatalf("there is no %s", path)
	}
	// Others may be reading the one that was stored.
	var changed object
	if json.Unmarshal([]byte(encode(t, stored)), &changed) != nil {
		t.Fatal("a lease is no object")
	}
	metadata(changed)["annotations"].(object)["fairgate.dev/record"] = record
	l.store(path, changed)
}

// protect refuses all updates of a lease from now on.
func (l *leases) protect(path string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.readOnly[path] = true
}
