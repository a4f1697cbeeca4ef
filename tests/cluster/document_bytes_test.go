package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// The documents that fairgate merges hold what the apiserver says about its own resources to the byte: each member
// and entry that is not fairgate's has the text of the server's and stands in its order. Discovery of the kinds that
// both have is the server's as a whole.
func TestMergedDocumentsKeepTheBytesOfTheApiserver(t *testing.T) {
	aboutFairgate(t)
	oneAtATime(t)
	server := must[*Apiserver](t)(evictionBed())
	ctx := inTime(t, 20*time.Minute)
	self := "keeps-bytes"
	succeeds(t, Grant(ctx, server.Admin, self, ImpersonatorRole, OverlayRole, PrecheckRole, EvictionRole))
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", Source: "overlay", User: self, Upstream: server.URL, Eviction: "authoritative"})
	succeeds(t, gateway.Start())
	untilMetric(t, gateway, "fairgate_bootstrap_ensured", 1)

	const curl, yaml = "curl/8", "application/yaml"
	compared, merged := 0, 0
	for _, form := range []struct{ accept, agent, query string }{
		{}, {accept: "application/json"}, {agent: curl}, {query: "?pretty=1"}, {accept: aggregatedType}, {accept: aggregatedType, agent: curl}, {accept: yaml},
		{accept: "application/vnd.kubernetes.protobuf"},
	} {
		for _, target := range []string{
			"/", "/api", "/api/v1", "/apis", "/apis/apps/v1", "/apis/policy", "/apis/policy/v1", "/version",
			"/apis/admissionregistration.k8s.io", "/apis/" + groupName, "/openapi/v2", "/openapi/v3",
		} {
			header := http.Header{"Accept": {form.accept}, "User-Agent": {form.agent}}
			if form.accept == "" {
				header.Del("Accept")
			}
			if form.agent == "" {
				header.Set("User-Agent", "test")
			}
			name := fmt.Sprintf("%s%s as %v", target, form.query, header)
			ours, theirs := textOf(t, gateway.Endpoint, target+form.query, header), textOf(t, server.Endpoint, target+form.query, header)
			compared++
			if bytes.Equal(ours, theirs) {
				continue
			}
			merged++
			if !json.Valid(theirs) {
				// These two list a version that only fairgate serves.
				if target != "/apis" && target != "/apis/"+groupName {
					at := 0
					for at < min(len(ours), len(theirs)) && ours[at] == theirs[at] {
						at++
					}
					from := max(at-60, 0)
					t.Errorf("%s has %.160q, the server %.160q", name, ours[from:], theirs[from:])
				}
				continue
			}
			for _, difference := range differencesBut(isFairgates, "", ours, theirs) {
				t.Errorf("%s: %s", name, difference)
			}
		}
	}
	for key, entry := range paths(t, documentOf(t, server.Endpoint, "/openapi/v3", "")) {
		target, _, _ := strings.Cut(entry.(map[string]any)["serverRelativeURL"].(string), "?")
		header := http.Header{"Accept": {"application/json"}}
		ours, theirs := textOf(t, gateway.Endpoint, target, header), textOf(t, server.Endpoint, target, header)
		compared++
		if bytes.Equal(ours, theirs) {
			continue
		}
		merged++
		for _, difference := range differencesBut(isFairgates, "", ours, theirs) {
			t.Errorf("/openapi/v3/%s: %s", key, difference)
		}
	}
	t.Logf("%d documents compared, %d of them differ where fairgate's resources are", compared, merged)
	if merged == 0 || compared < 120 {
		t.Errorf("%d documents compared, %d merged", compared, merged)
	}
}

// isFairgates tells whether what a path in a document leads to is about a resource that fairgate hosts, or names
// the version of the document that it made.
func isFairgates(path string) bool {
	for _, part := range []string{"flowcontrol", "FlowSchema", "PriorityLevel", "poddisruptionbudgets", "PodDisruptionBudget"} {
		if strings.Contains(path, part) {
			return true
		}
	}
	return path == "/paths/apis/policy/v1/serverRelativeURL"
}

func textOf(t *testing.T, at Endpoint, target string, header http.Header) []byte {
	t.Helper()
	transport := shared.Transport(shared.admin, true)
	defer transport.CloseIdleConnections()
	response := must[*http.Response](t)(shared.Do(inTime(t, time.Minute), transport, at, shared.admin, http.MethodGet, target, header, ""))
	defer response.Body.Close()
	return must[[]byte](t)(io.ReadAll(response.Body))
}

// tail is the white space at the end of a document.
func tail(text []byte) string { return string(text[len(bytes.TrimRight(text, " \n")):]) }

// A member is one of an object: its key and the text of its value.
type member struct {
	key  string
	text json.RawMessage
}

// differencesBut says where ours differs from theirs, except below a path that is excepted. Members are known by their
// keys and entries by their names; both have to stand in the same order.
func differencesBut(excepted func(path string) bool, path string, ours, theirs json.RawMessage) (found []string) {
	if bytes.Equal(ours, theirs) || excepted(path) {
		return nil
	}
	own, their := members(ours), members(theirs)
	if own == nil || their == nil {
		return []string{fmt.Sprintf("%s is %.300s, the server has %.300s", path, ours, theirs)}
	}
	keep := func(all []member) (keys []string) {
		for _, one := range all {
			if !excepted(path + "/" + one.key) {
				keys = append(keys, one.key)
			}
		}
		return keys
	}
	if got, want := keep(own), keep(their); !slices.Equal(got, want) {
		return []string{fmt.Sprintf("%s has %.600q, the server %.600q", path, got, want)}
	}
	isAll := true // nothing is excepted that is directly in it, and its members are the same
	for _, one := range own {
		at := slices.IndexFunc(their, func(other member) bool { return other.key == one.key })
		if at >= 0 {
			found = append(found, differencesBut(excepted, path+"/"+one.key, one.text, their[at].text)...)
		}
		isAll = isAll && at >= 0 && bytes.Equal(one.text, their[at].text)
	}
	if isAll && len(own) == len(their) {
		found = append(found, fmt.Sprintf("%s has other white space: %.300q, the server %.300q", path, ours, theirs))
	}
	if got, want := tail(ours), tail(theirs); path == "" && got != want {
		found = append(found, fmt.Sprintf("it ends with %q, the server's with %q", got, want))
	}
	return found
}

// members are those of an object in their order, or the entries of a list by what they are called; nil of anything
// else.
func members(text json.RawMessage) (found []member) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	first, err := decoder.Token()
	if err != nil || first != json.Delim('{') && first != json.Delim('[') {
		return nil
	}
	found = []member{}
	for decoder.More() {
		var one member
		if first == json.Delim('{') {
			key, err := decoder.Token()
			if err != nil {
				return nil
			}
			one.key = key.(string)
		}
		if decoder.Decode(&one.text) != nil {
			return nil
		}
		if first == json.Delim('[') {
			one.key = nameIn(one.text)
		}
		found = append(found, one)
	}
	return found
}

// nameIn is what an entry of a list is called: a group, a version, a resource, or the text itself.
func nameIn(entry json.RawMessage) string {
	var names struct {
		Name, Resource, Subresource, Version, GroupVersion string
		Metadata                                           struct{ Name string }
	}
	if json.Unmarshal(entry, &names) != nil {
		return string(entry)
	}
	for _, name := range []string{names.Name, names.Resource, names.Subresource, names.Metadata.Name, names.GroupVersion, names.Version} {
		if name != "" {
			return name
		}
	}
	return string(entry)
}
