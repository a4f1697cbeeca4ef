package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"
)

// versionsNamespace is where objects with several versions are.
const versionsNamespace = "versions"

// allVersions are flags of a server that serves all versions that it can.
var allVersions = []string{uidFlag, "--enable-priority-and-fairness=false", "--runtime-config=api/all=true", "--feature-gates=ClusterTrustBundle=true"}

// A policy that names another version than the one of the request sees the object in that version, as in a server: for every kind that a
// server can serve in several versions, in each of them, for each choice of versions that a policy names, and for each way of
// writing.
func TestPoliciesSeeObjectsInTheVersionThatTheyName(t *testing.T) {
	aboutEvaluatingFairgate(t)
	oneAtATime(t)
	ctx := inTime(t, 20*time.Minute)
	kinds := equivalentKinds(must[string](t)(authorityBundle()))
	server := must[*Apiserver](t)(shared.StartApiserver("versions-enforcing", "", allVersions...))
	plain := must[*Apiserver](t)(shared.StartApiserver("versions-plain", "", append(slices.Clone(allVersions), "--disable-admission-plugins=ValidatingAdmissionPolicy")...))
	succeeds(t, servedVersionsAre(plain.Admin, kinds))
	const user = "version-reader"
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	succeeds(t, GrantRules(ctx, plain.Admin, user, user+"-everything", everything))
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: user, Upstream: plain.URL, Off: true, Admission: "enforce", Fidelity: "completed"})
	succeeds(t, gateway.Start(), untilPoliciesAreKnown(gateway))
	want, stored := newDocumentSide(t, "server", server.Endpoint), newDocumentSide(t, "plain", plain.Endpoint)
	got := stored.through(t, "completed", gateway.Endpoint)
	for _, side := range []documentSide{want, stored} {
		succeeds(t, side.prepareVersions(ctx, kinds))
	}
	tally := versionTally{converted: map[string]int{}}
	for _, kind := range kinds {
		for _, side := range []documentSide{want, got} {
			succeeds(t, side.versionsInForce(ctx, kind))
		}
		for number, named := range kind.subsets() {
			for index, version := range kind.versions {
				for _, write := range kind.writes(version, kind.name(number, index)) {
					one, other, err := bothVersionAnswers(ctx, write, want, got)
					if err != nil {
						t.Fatal(err)
					}
					tally.evaluate(write, named, one, other)
				}
			}
		}
	}
	tally.report(t)
}

// servedVersionsAre says whether a server serves all these versions, and no resource else in several, but those of admission.
func servedVersionsAre(client kubernetes.Interface, kinds []equivalentKind) error {
	lists, err := client.Discovery().ServerPreferredResources()
	if err != nil {
		return err
	}
	_, all, err := client.Discovery().ServerGroupsAndResources()
	if err != nil || len(lists) == 0 {
		return fmt.Errorf("%d lists: %w", len(lists), err)
	}
	served := map[string][]string{}
	for _, list := range all {
		group, _ := groupOf(list.GroupVersion)
		for _, resource := range list.APIResources {
			if group == "events.k8s.io" {
				group = "" // events have moved
			}
			if group != "admissionregistration.k8s.io" && !strings.Contains(resource.Name, "/") {
				key := group + " " + resource.Name
				served[key] = append(served[key], list.GroupVersion)
			}
		}
	}
	maps.DeleteFunc(served, func(_ string, versions []string) bool { return len(versions) < 2 })
	known := map[string][]string{}
	for _, kind := range kinds {
		group, _ := groupOf(kind.versions[0])
		known[group+" "+kind.resource] = kind.versions
	}
	for _, versions := range []map[string][]string{served, known} {
		for _, of := range versions {
			slices.Sort(of)
		}
	}
	if !maps.EqualFunc(served, known, slices.Equal) {
		return fmt.Errorf("the server serves in several versions: %v; known are: %v", served, known)
	}
	return nil
}

// authorityBundle is the certificate of the cluster's authority, as JSON.
func authorityBundle() (string, error) {
	text, err := os.ReadFile(shared.PKI.CA.Cert)
	if err != nil {
		return "", err
	}
	quoted, err := json.Marshal(string(text))
	return string(quoted), err
}

func (s documentSide) prepareVersions(ctx context.Context, kinds []equivalentKind) error {
	if err := s.must(ctx, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+versionsNamespace+`"}}`, 201); err != nil {
		return err
	}
	for _, kind := range kinds {
		for number, document := range kind.policies() {
			path := []string{policiesPath, bindingsPath}[number%2]
			if err := s.must(ctx, "POST", path, document, 201); err != nil {
				return err
			}
		}
	}
	return nil
}

// versionsInForce waits until all policies about a kind are.
func (s documentSide) versionsInForce(ctx context.Context, kind equivalentKind) error {
	version := kind.versions[0]
	for number := range kind.subsets() {
		body := []byte(kind.of(version, kind.name(number, 0)))
		err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			answer, err := s.send(ctx, "POST", kind.path(version, "?dryRun=All"), jsonType, body)
			if err == nil && !answer.isAccepted() && answer.code != http.StatusUnprocessableEntity {
				err = fmt.Errorf("%d %s", answer.code, answer.message)
			}
			return answer.echo != "", err
		})
		if err != nil {
			return fmt.Errorf("%s: policy %d about %s: %w", s.name, number, kind.resource, err)
		}
	}
	return nil
}

// A versionWrite is a request for an object with several versions.
type versionWrite struct {
	method, path, media, body string
	item                      string // the path of the object
	version                   string // the one of the request
}

// writes are the ways to write an object in a version, also one that was made in another.
func (k equivalentKind) writes(version, name string) []versionWrite {
	item := k.path(version, "/"+name)
	var all []versionWrite
	add := func(method, path, media, body string) {
		all = append(all, versionWrite{method, path, media, body, item, version})
	}
	marked, labelled := `metadata.resourceVersion="`+versionMark+`"`, `metadata.labels.changed="yes"`
	change := labelled
	if k.change != nil {
		change = k.change(version)
	}
	add("POST", k.path(version, ""), jsonType, k.of(version, name))
	add("PUT", item, jsonType, k.of(version, name, marked, labelled, change))
	add("PATCH", item, mergePatch, edited(`{}`, `metadata.labels.changed="merged"`))
	add("PATCH", item, strategic, edited(`{}`, `metadata.labels.changed="strategic"`))
	add("PATCH", item, jsonPatch, `[{"op":"add","path":"/metadata/labels/changed","value":"patched"}]`)
	add("PATCH", item+"?fieldManager=me&force=true", applyPatch, k.of(version, name, `metadata.labels.changed="applied"`))
	if k.status != "" {
		add("PUT", item+"/status", jsonType, k.of(version, name, marked, k.status))
		add("PATCH", item+"/status", mergePatch, edited(`{}`, `metadata.labels.status="yes"`, k.status))
	}
	// What protects an object of a storage class would keep it.
	unprotected := edited(`{}`, `metadata.finalizers=null`, `metadata.labels.changed="unprotected"`)
	add("DELETE", item, jsonType, ``)
	add("POST", k.path(version, ""), jsonType, k.of(version, name))
	add("PATCH", item, mergePatch, unprotected)
	add("DELETE", k.path(version, "?labelSelector=n%3D"+name), jsonType, ``)
	for _, other := range k.versions {
		if other == version {
			continue
		}
		all = append(all, versionWrite{"POST", k.path(other, ""), jsonType, k.of(other, name), k.path(other, "/"+name), other})
		add("PATCH", item, mergePatch, unprotected)
		add("DELETE", item, jsonType, ``)
	}
	return all
}

// bothVersionAnswers are those of a server and of a gateway.
func bothVersionAnswers(ctx context.Context, write versionWrite, sides ...documentSide) (one, other documentAnswer, err error) {
	var answers [2]documentAnswer
	for i, side := range sides {
		answers[i], err = side.send(ctx, write.method, write.path, write.media, []byte(write.body))
		if err != nil {
			return one, other, err
		}
		if answers[i].isAccepted() && write.method != http.MethodDelete {
			side.versions.note(write.item, answers[i].object)
		}
	}
	return answers[0], answers[1], nil
}

// storedForms is the stored form of an object, or of those in a list. Which entry of managedFields comes first is left to the clock.
func storedForms(object any) string {
	items, isList := at(object, "items").([]any)
	if !isList {
		items = []any{object}
	}
	var forms []string
	for _, item := range items {
		_ = storedForm(item) // removes times
		if entries, ok := at(item, "metadata", "managedFields").([]any); ok {
			slices.SortFunc(entries, func(a, b any) int { return bytes.Compare(asJSON(a), asJSON(b)) })
		}
		forms = append(forms, string(asJSON(item)))
	}
	return strings.Join(forms, "\n")
}

// A versionTally counts writes.
type versionTally struct {
	converted map[string]int // by kind and both versions
	same      int
	refused   []string
	wrong     []string
}

func (v *versionTally) evaluate(write versionWrite, named []string, want, got documentAnswer) {
	about := fmt.Sprintf("%s %s %s %s, policy for %v", write.method, write.path, write.media, write.body, named)
	switch {
	case want.code != got.code || want.message != got.message:
		v.wrong = append(v.wrong, fmt.Sprintf("%s:\n  the server  %d %s\n  the gateway %d %s", about, want.code, want.message, got.code, got.message))
	case !want.isAccepted():
		v.refused = append(v.refused, fmt.Sprintf("%s: %d %s", about, want.code, want.message))
	case want.echo == "" || want.echo != got.echo:
		v.wrong = append(v.wrong, fmt.Sprintf("%s:\n  the server  %s\n  the gateway %s", about, want.echo, got.echo))
	case storedForms(want.object) != storedForms(got.object):
		v.wrong = append(v.wrong, fmt.Sprintf("%s:\n  the server  %s\n  the gateway %s", about, storedForms(want.object), storedForms(got.object)))
	case slices.Contains(named, write.version):
		v.same++
	default:
		v.converted[fmt.Sprintf("%s for %v", write.item[:strings.LastIndex(write.item, "/")], named)]++
	}
}

func (v *versionTally) report(t *testing.T) {
	converted := 0
	for _, count := range v.converted {
		converted += count
	}
	fmt.Printf("VERSIONS {\"converted\":%d,\"ways\":%d,\"not converted\":%d,\"refused by both\":%d,\"wrong\":%d}\n", converted, len(v.converted), v.same, len(v.refused), len(v.wrong))
	for _, refused := range v.refused {
		t.Errorf("refused by both, which shows nothing: %s", refused)
	}
	for i, wrong := range v.wrong {
		if i < 20 {
			t.Error(wrong)
		}
	}
	if len(v.wrong) > 20 {
		t.Errorf("and %d more", len(v.wrong)-20)
	}
}
