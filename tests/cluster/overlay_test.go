package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	groupName      = "flowcontrol.apiserver.k8s.io"
	aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	openAPIProto   = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

// bare is a kube-apiserver that has neither the group nor priority and fairness: one for all tests.
func bare(t *testing.T) *Apiserver {
	t.Helper()
	return must[*Apiserver](t)(startBare())
}

var startBare = sync.OnceValues(func() (*Apiserver, error) {
	return shared.StartApiserver("bare", "", uidFlag, "--enable-priority-and-fairness=false", "--runtime-config="+groupName+"/v1=false")
})

// A fairgate with mode: overlay has the group that its apiserver lacks. To kubectl the two are one server, of
// which the apiserver authorizes requests.
func TestFairgateHostsThePolicyObjectsThatItsApiserverLacks(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	server := bare(t)
	ctx := inTime(t, 20*time.Minute)
	if answer := responseTo(t, server.Endpoint, shared.admin, groupPath); !strings.HasPrefix(answer, "404 ") {
		t.Fatalf("the apiserver has the group: %s", answer)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "overlay"}}
	must[*corev1.Namespace](t)(server.Admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}))
	// No controller makes one, without which no pod is admitted.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	must[*corev1.ServiceAccount](t)(server.Admin.CoreV1().ServiceAccounts(namespace.Name).Create(ctx, account, metav1.CreateOptions{}))

	for _, mode := range Modes {
		t.Run(mode, func(t *testing.T) {
			self := "overlay-" + strings.ToLower(mode)
			roles := map[string]ShippedRole{"impersonate": ImpersonatorRole, "requestHeader": SidecarRole}
			succeeds(t, Grant(ctx, server.Admin, self, roles[mode], OverlayRole))
			gateway := newFairgate(t, FairgateOptions{Mode: mode, Source: "overlay", User: self, Upstream: server.URL})
			succeeds(t, gateway.Start())
			untilMetric(t, gateway, "fairgate_bootstrap_ensured", 1)
			subject := must[User](t)(shared.NewUser("subject-of-" + self))

			t.Run("with documents that list both", func(t *testing.T) { mergesDocuments(t, gateway.Endpoint, server.Endpoint) })
			t.Run("beside its own objects, to kubectl", func(t *testing.T) { kubectlKnowsBoth(t, gateway.Endpoint, server.Endpoint, self) })
			t.Run("to those whom the apiserver lets", func(t *testing.T) { followsRights(t, gateway, server, self) })
			t.Run("and classifies by them, as nobody else does", func(t *testing.T) {
				client := clientOf(t, gateway)
				level := makeLevel(t, client, self+"-effect")
				schema := makeSchema(t, client, schemaFor(subject, level.Name, level.Name, 200))
				newDecider(t, gateway, subject).until(schema.UID, level.UID)
				passed := ask(t, gateway, subject, http.MethodGet, "/version", "").Header
				if passed.Get(flowSchemaHeader) != string(schema.UID) || passed.Get(priorityLevelHeader) != string(level.UID) {
					t.Errorf("a request that is passed on bears %v, want %s and %s", passed, schema.UID, level.UID)
				}
				direct := must[*http.Response](t)(shared.Do(ctx, shared.Transport(subject, true), server.Endpoint, subject, http.MethodGet, "/version", nil, ""))
				direct.Body.Close()
				if direct.Header.Get(flowSchemaHeader) != "" {
					t.Errorf("the apiserver classifies: %v", direct.Header)
				}
			})
			t.Run("and says in their status what dangles", func(t *testing.T) {
				client := clientOf(t, gateway)
				makeSchema(t, client, schemaFor(subject, self+"-dangling", self+"-late", 100))
				untilDangling(t, client, self+"-dangling", flowcontrolv1.ConditionTrue)
				makeLevel(t, client, self+"-late")
				untilDangling(t, client, self+"-dangling", flowcontrolv1.ConditionFalse)
				kubectl(t, gateway.Endpoint, shared.admin, "", "wait", "--for=condition=Dangling=False", "flowschema/"+self+"-dangling", "--timeout=60s")
			})
			t.Run("and keeps them over a restart, by itself", func(t *testing.T) {
				client := clientOf(t, gateway)
				before := makeSchema(t, client, schemaFor(subject, self+"-kept", "workload-low", 100))
				succeeds(t, gateway.Restart())
				kept := must[*flowcontrolv1.FlowSchema](t)(clientOf(t, gateway).FlowSchemas().Get(ctx, before.Name, metav1.GetOptions{}))
				if kept.UID != before.UID || kept.Generation != before.Generation {
					t.Errorf("it was %+v, is %+v", before, kept)
				}
				newDecider(t, gateway, subject).until(before.UID, "")
				if answer := responseTo(t, server.Endpoint, shared.admin, groupPath+"/v1/flowschemas/"+before.Name); !strings.HasPrefix(answer, "404 ") {
					t.Errorf("the apiserver has it: %s", answer)
				}
				keys := must[[]string](t)(shared.etcd.Keys(ctx, server.Prefix+"/"))
				if !slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, "serviceaccounts/overlay/default") }) {
					t.Errorf("the apiserver's own objects are not among its keys: %q", keys)
				}
				for _, key := range keys {
					if strings.Contains(key, "flowschema") || strings.Contains(key, "prioritylevel") {
						t.Errorf("it came through to %s", key)
					}
				}
			})
		})
	}
	t.Run("also while the apiserver cannot be asked", func(t *testing.T) {
		self := "overlay-unasked"
		succeeds(t, Grant(ctx, server.Admin, self, SidecarRole))
		valve := must[*Valve](t)(NewValve(strings.TrimPrefix(server.URL, "https://")))
		t.Cleanup(valve.Close)
		gateway := newFairgate(t, FairgateOptions{Mode: "requestHeader", Source: "overlay", User: self, Upstream: "https://" + valve.Address})
		succeeds(t, gateway.Start())
		user := must[User](t)(shared.NewUser("subject-of-" + self))
		answers := func(user User, code int, part string) {
			t.Helper()
			response := ask(t, gateway, user, http.MethodGet, groupPath+"/v1/flowschemas", "")
			if text := must[[]byte](t)(io.ReadAll(response.Body)); response.StatusCode != code || !strings.Contains(string(text), part) {
				t.Errorf("%s is answered %s %.500s, want %d with %q", user.Name, response.Status, text, code, part)
			}
		}
		// The role that is shipped for that is missing. That is neither yes nor no, and is not remembered.
		answers(user, http.StatusInternalServerError, "SubjectAccessReview: ")
		answers(shared.admin, http.StatusOK, `"catch-all"`)
		succeeds(t, Grant(ctx, server.Admin, self, OverlayRole))
		answers(user, http.StatusForbidden, "cannot list resource")

		valve.Shut()
		answers(must[User](t)(shared.NewUser("another-subject-of-"+self)), http.StatusInternalServerError, "SubjectAccessReview: ")
		answers(shared.admin, http.StatusOK, `"catch-all"`)
		client := clientOf(t, gateway)
		schema := makeSchema(t, client, schemaFor(user, self, "workload-low", 200))
		newDecider(t, gateway, user).until(schema.UID, "")
		passed := ask(t, gateway, user, http.MethodGet, "/version", "")
		if passed.StatusCode != http.StatusServiceUnavailable || passed.Header.Get(flowSchemaHeader) != string(schema.UID) {
			t.Errorf("a request for the apiserver is answered %s with %v", passed.Status, passed.Header)
		}
	})
	t.Run("with groups that come later", func(t *testing.T) {
		self := "overlay-later"
		succeeds(t, Grant(ctx, server.Admin, self, SidecarRole, OverlayRole))
		gateway := startFairgate(t, FairgateOptions{Mode: "requestHeader", Source: "overlay", User: self, Upstream: server.URL})
		mergesDocuments(t, gateway, server.Endpoint)
		before := documentOf(t, gateway, "/openapi/v3", "")
		kubectl(t, server.Endpoint, shared.admin, laterGroup, "apply", "-f", "-")
		// The apiserver does not change all of its documents at once.
		succeeds(t, poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
			groups, documents := documentOf(t, server.Endpoint, "/apis", aggregatedType), documentOf(t, server.Endpoint, "/openapi/v3", "")
			v2 := documentOf(t, server.Endpoint, "/openapi/v2", "")
			return slices.Contains(names(t, groups, "items"), "later.example.com") && paths(t, documents)["apis/later.example.com/v1"] != nil &&
				paths(t, v2)["/apis/later.example.com/v1/laters"] != nil, nil
		}))
		mergesDocuments(t, gateway, server.Endpoint)
		if after := documentOf(t, gateway, "/openapi/v3", ""); after.tag == before.tag {
			t.Errorf("the document of another set of groups has the tag %s as well", after.tag)
		}
		expect(t, "later.later.example.com/one created", kubectl(t, gateway, shared.admin,
			"apiVersion: later.example.com/v1\nkind: Later\nmetadata: {name: one}\n", "apply", "-f", "-"))
	})
}

// laterGroup is a group that the apiserver has not from its start.
const laterGroup = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: laters.later.example.com}
spec:
  group: later.example.com
  scope: Cluster
  names: {plural: laters, singular: later, kind: Later, listKind: LaterList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
`

// A fairgate with mode: overlay takes the place of a group that its apiserver has, too. What is changed there takes
// effect, and once it is reported, on all connections.
func TestFairgateHidesThePolicyObjectsOfItsApiserver(t *testing.T) {
	aboutFairgate(t)
	ctx := inTime(t, 20*time.Minute)
	self := "overlay-hiding"
	succeeds(t, Grant(ctx, shared.Admin, self, SidecarRole, OverlayRole))
	gateway := newFairgate(t, FairgateOptions{Mode: "requestHeader", Source: "overlay", User: self, Upstream: shared.Direct.URL})
	succeeds(t, gateway.Start())
	untilMetric(t, gateway, "fairgate_bootstrap_ensured", 1)
	subject := must[User](t)(shared.NewUser("subject-of-" + self))
	changesTakeEffect(t, gateway, subject, self, clientOf(t, gateway), "hosted")
	hosted, theirs := clientOf(t, gateway).FlowSchemas(), shared.Admin.FlowcontrolV1().FlowSchemas()

	hidden := makeSchema(t, shared.Admin.FlowcontrolV1(), schemaFor(subject, "overlay-hidden", "workload-high", 100))
	own := makeSchema(t, clientOf(t, gateway), schemaFor(subject, "overlay-own", "workload-low", 200))
	if found, err := hosted.Get(ctx, hidden.Name, metav1.GetOptions{}); err == nil {
		t.Errorf("the apiserver's is seen: %+v", found)
	}
	if found, err := theirs.Get(ctx, own.Name, metav1.GetOptions{}); err == nil {
		t.Errorf("the apiserver has %+v", found)
	}
	newDecider(t, gateway, subject).until(own.UID, "")
	// The apiserver classifies as well, by its own objects.
	var passed http.Header
	err := poll(changeLimit, 20*time.Millisecond, func() (bool, error) {
		passed = ask(t, &Fairgate{Endpoint: shared.Direct}, subject, http.MethodGet, "/version", "").Header
		return passed.Get(flowSchemaHeader) == string(hidden.UID), nil
	})
	if err != nil {
		t.Errorf("the apiserver says %v, want %s", passed, hidden.UID)
	}
	if passed = ask(t, gateway, subject, http.MethodGet, "/version", "").Header; !slices.Equal(passed.Values(flowSchemaHeader), []string{string(own.UID)}) {
		t.Errorf("a request that is passed on bears %v, want %s", passed, own.UID)
	}
	mergesDocuments(t, gateway.Endpoint, shared.Direct)
}

// mergesDocuments expects the documents of both to be those of the server, with the group put into them, and all
// else to be the server's to the byte.
func mergesDocuments(t *testing.T, gateway, server Endpoint) {
	t.Helper()
	theirs, ours := documentOf(t, server, "/apis", ""), documentOf(t, gateway, "/apis", "")
	sameBut(t, "/apis", entries(t, theirs, "groups"), entries(t, ours, "groups"))
	aggregated := documentOf(t, gateway, "/apis", aggregatedType)
	sameBut(t, "/apis, aggregated", entries(t, documentOf(t, server, "/apis", aggregatedType), "items"), entries(t, aggregated, "items"))
	// They stand where they stand in a server that has them all.
	whole := names(t, documentOf(t, shared.Direct, "/apis", ""), "groups")
	for _, got := range [][]string{names(t, ours, "groups"), names(t, aggregated, "items")} {
		if got = slices.DeleteFunc(got, func(name string) bool { return !slices.Contains(whole, name) }); !slices.Equal(got, whole) {
			t.Errorf("the groups stand as %q, want %q", got, whole)
		}
	}

	v2, theirV2 := documentOf(t, gateway, "/openapi/v2", ""), documentOf(t, server, "/openapi/v2", "")
	sameBut(t, "the paths of /openapi/v2", paths(t, theirV2), paths(t, v2))
	definitions := v2.body["definitions"].(map[string]any)
	for name, definition := range theirV2.body["definitions"].(map[string]any) {
		if !strings.Contains(name, "flowcontrol") && !reflect.DeepEqual(definitions[name], definition) {
			t.Errorf("/openapi/v2 defines %s as %v, the server as %v", name, definitions[name], definition)
		}
	}
	if definitions["io.k8s.api.flowcontrol.v1.FlowSchema"] == nil {
		t.Error("/openapi/v2 does not define FlowSchema")
	}

	v3, theirV3 := documentOf(t, gateway, "/openapi/v3", ""), documentOf(t, server, "/openapi/v3", "")
	sameBut(t, "/openapi/v3", paths(t, theirV3), paths(t, v3))
	for _, version := range []string{"v1", "v1beta3"} {
		at, _ := paths(t, v3)["apis/"+groupName+"/"+version].(map[string]any)["serverRelativeURL"].(string)
		of := documentOf(t, gateway, at, "")
		if of.code != http.StatusOK || paths(t, of)[groupPath+"/"+version+"/flowschemas"] == nil {
			t.Errorf("%s: %d with the paths %v", at, of.code, slices.Sorted(maps.Keys(paths(t, of))))
		}
	}

	// A client that has a document gets 304 while it has not changed.
	for _, one := range []struct{ target, accept string }{{"/apis", aggregatedType}, {"/openapi/v2", ""}, {"/openapi/v2", openAPIProto}, {"/openapi/v3", ""}} {
		first := documentOf(t, gateway, one.target, one.accept)
		again := documentOf(t, gateway, one.target, one.accept, "If-None-Match", first.tag)
		other := documentOf(t, gateway, one.target, one.accept, "If-None-Match", `"of-another"`)
		if first.tag == "" || again.code != http.StatusNotModified || len(again.text) != 0 || again.tag != first.tag ||
			other.code != http.StatusOK || len(other.text) != len(first.text) {
			t.Errorf("%s, %s: has the tag %s; with it %d, %d bytes and %s; with another %d, %d of %d bytes", one.target, one.accept,
				first.tag, again.code, len(again.text), again.tag, other.code, len(other.text), len(first.text))
		}
	}

	same := []string{"/", "/api", "/api/v1", "/version", "/openid/v1/jwks", "/nothing/here"}
	for _, group := range theirs.body["groups"].([]any) {
		group := group.(map[string]any)
		if name := group["name"].(string); name != groupName {
			same = append(same, "/apis/"+name)
			for _, version := range group["versions"].([]any) {
				same = append(same, "/apis/"+version.(map[string]any)["groupVersion"].(string))
			}
		}
	}
	for key, path := range paths(t, theirV3) {
		if !strings.Contains(key, groupName) {
			same = append(same, path.(map[string]any)["serverRelativeURL"].(string))
		}
	}
	if len(same) < 60 {
		t.Errorf("only %d documents are compared", len(same))
	}
	for _, target := range same {
		if got, want := responseTo(t, gateway, shared.admin, target), responseTo(t, server, shared.admin, target); got != want {
			t.Errorf("%s: through fairgate\n%.1000s\nitself\n%.1000s", target, got, want)
		}
	}
}

// sameBut expects everything but the group to be the server's, and the group to be there.
func sameBut(t *testing.T, what string, theirs, merged map[string]any) {
	t.Helper()
	own := 0
	for name, value := range merged {
		if strings.Contains(name, groupName) {
			own++
		} else if !reflect.DeepEqual(value, theirs[name]) {
			t.Errorf("%s: %s is %v, the server has %v", what, name, value, theirs[name])
		}
	}
	for name := range theirs {
		if merged[name] == nil && !strings.Contains(name, groupName) {
			t.Errorf("%s: %s is missing", what, name)
		}
	}
	if own == 0 {
		t.Errorf("%s: nothing of the group", what)
	}
}

// A document is the answer to a GET of an administrator.
type document struct {
	code int
	tag  string
	text []byte
	body map[string]any // nil unless it is a JSON object
}

func documentOf(t *testing.T, at Endpoint, target, accept string, header ...string) document {
	t.Helper()
	transport := shared.Transport(shared.admin, true)
	defer transport.CloseIdleConnections()
	headers := http.Header{"Accept": {"application/json"}}
	if accept != "" {
		headers.Set("Accept", accept)
	}
	for i := 0; i < len(header); i += 2 {
		headers.Set(header[i], header[i+1])
	}
	response := must[*http.Response](t)(shared.Do(inTime(t, time.Minute), transport, at, shared.admin, http.MethodGet, target, headers, ""))
	defer response.Body.Close()
	found := document{code: response.StatusCode, tag: response.Header.Get("ETag"), text: must[[]byte](t)(io.ReadAll(response.Body))}
	if strings.HasPrefix(string(found.text), "{") { // some servers call it text
		succeeds(t, json.Unmarshal(found.text, &found.body))
	}
	return found
}

// entries are those of a list by their names.
func entries(t *testing.T, of document, list string) map[string]any {
	t.Helper()
	found := map[string]any{}
	for i, name := range names(t, of, list) {
		found[name] = of.body[list].([]any)[i]
	}
	return found
}

// names are those of the entries of a list, in order.
func names(t *testing.T, of document, list string) (found []string) {
	t.Helper()
	all, ok := of.body[list].([]any)
	if !ok {
		t.Fatalf("no %s in %d %.1000s", list, of.code, of.text)
	}
	for _, entry := range all {
		entry := entry.(map[string]any)
		if metadata, ok := entry["metadata"].(map[string]any); ok {
			entry = metadata
		}
		found = append(found, entry["name"].(string))
	}
	return found
}

func paths(t *testing.T, of document) map[string]any {
	t.Helper()
	found, ok := of.body["paths"].(map[string]any)
	if !ok {
		t.Fatalf("no paths in %d %.1000s", of.code, of.text)
	}
	return found
}

// kubectlKnowsBoth runs kubectl through fairgate on objects of both, of a prefix.
func kubectlKnowsBoth(t *testing.T, gateway, server Endpoint, prefix string) {
	t.Helper()
	run := func(stdin string, args ...string) string {
		t.Helper()
		return kubectl(t, gateway, shared.admin, stdin, args...)
	}
	lines := func(at Endpoint, args ...string) []string {
		t.Helper()
		found := strings.Split(strings.TrimSpace(kubectl(t, at, shared.admin, "", args...)), "\n")
		slices.Sort(found)
		return found
	}
	for _, list := range []struct {
		args []string
		more []string
	}{
		{[]string{"api-versions"}, []string{groupName + "/v1", groupName + "/v1beta3"}},
		{[]string{"api-resources", "-o", "name"}, []string{"flowschemas." + groupName, "prioritylevelconfigurations." + groupName}},
	} {
		want := append(lines(server, list.args...), list.more...)
		slices.Sort(want)
		if got := lines(gateway, list.args...); !slices.Equal(got, want) {
			t.Errorf("kubectl %v prints %q, want %q", list.args, got, want)
		}
	}
	expect(t, "matchingPrecedence\t<integer>", run("", "explain", "flowschema.spec"))
	expect(t, "nominalConcurrencyShares\t<integer>", run("", "explain", "prioritylevelconfiguration.spec.limited"))
	if got, want := run("", "explain", "pod.spec", "--recursive"), kubectl(t, server, shared.admin, "", "explain", "pod.spec", "--recursive"); got != want {
		t.Errorf("kubectl explain pod.spec prints\n%s\nwant\n%s", got, want)
	}
	table := run("", "get", "flowschemas")
	for _, part := range []string{"MATCHINGPRECEDENCE", "global-default", "catch-all"} {
		expect(t, part, table)
	}

	level := "apiVersion: " + groupName + "/v1\nkind: PriorityLevelConfiguration\nmetadata: {name: " + prefix + "}\n" +
		"spec: {type: Limited, limited: {nominalConcurrencyShares: 3, limitResponse: {type: Reject}}}\n"
	schema := "apiVersion: " + groupName + "/v1\nkind: FlowSchema\nmetadata: {name: " + prefix + "}\n" +
		"spec: {matchingPrecedence: 900, priorityLevelConfiguration: {name: " + prefix + "}}\n"
	configMap := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + prefix + ", namespace: overlay}\ndata: {colour: red}\n"
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + prefix + ", namespace: overlay}\nspec: {containers: [{name: one, image: none}]}\n"
	all := strings.Join([]string{level, schema, configMap, pod}, "---\n")

	// Both are validated by the server they belong to, and one call may go to both.
	for _, mistake := range []struct{ from, to, why string }{
		{"\ndata:", "\ndate:", `unknown field "date"`}, {"matchingPrecedence", "matchingPresidents", `unknown field "spec.matchingPresidents"`},
		{"image: none", "imago: none", `unknown field "spec.containers[0].imago"`}, {"Shares: 3", "Shares: -3", "must be a non-negative integer"},
		{"containers: [{name: one, image: none}]", "containers: []", "spec.containers: Required value"},
	} {
		_, err := shared.RunKubectl(inTime(t, 2*time.Minute), gateway, shared.admin, strings.Replace(all, mistake.from, mistake.to, 1), "apply", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), mistake.why) {
			t.Errorf("with %s: %v, want %q", mistake.to, err, mistake.why)
		}
	}
	each := func(want string, printed string) {
		t.Helper()
		if strings.Count(printed, want) != 4 {
			t.Errorf("printed %q, want %q four times", printed, want)
		}
	}
	each(" created", run(all, "apply", "-f", "-"))
	each(" unchanged", run(all, "apply", "-f", "-"))
	each(" serverside-applied", run(all, "apply", "--server-side", "--force-conflicts", "-f", "-"))
	changed := strings.NewReplacer("Shares: 3", "Shares: 4", "900", "901", "red", "green", "image: none", "image: other").Replace(all)
	each(" configured", run(changed, "apply", "-f", "-"))
	expect(t, "4", run("", "get", "prioritylevelconfiguration", prefix, "-o", "jsonpath={.spec.limited.nominalConcurrencyShares}"))
	expect(t, "patched", run("", "patch", "flowschema", prefix, "--type=json", "-p", `[{"op":"replace","path":"/spec/matchingPrecedence","value":902}]`))
	expect(t, "902", run("", "get", "flowschema.v1beta3."+groupName, prefix, "-o", "jsonpath={.spec.matchingPrecedence}"))
	expect(t, "labeled", run("", "label", "flowschema", prefix, "colour=red"))
	expect(t, prefix, run("", "get", "flowschemas", "-l", "colour=red", "-o", "name"))
	kinds := run("", "get", "-n", "overlay", "pod/"+prefix, "configmap/"+prefix, "flowschema/"+prefix, "-o", "jsonpath={.items[*].kind}")
	if kinds != "Pod ConfigMap FlowSchema" {
		t.Errorf("kubectl get of both prints %q", kinds)
	}
	each(" deleted", run(all, "delete", "--force", "--grace-period=0", "-f", "-"))
	_, err := shared.RunKubectl(inTime(t, 2*time.Minute), gateway, shared.admin, "", "get", "flowschema", prefix)
	if err == nil || !strings.Contains(err.Error(), "NotFound") {
		t.Errorf("a deleted object should be NotFound, got %v", err)
	}
}

// followsRights grants a user rights on the server and revokes them, and expects them to hold for hosted objects.
func followsRights(t *testing.T, fairgate *Fairgate, server *Apiserver, prefix string) {
	t.Helper()
	ctx, gateway := inTime(t, 20*time.Minute), fairgate.Endpoint
	user := must[User](t)(shared.NewUser(prefix + "-keeper"))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: prefix}}
	must[*corev1.ServiceAccount](t)(server.Admin.CoreV1().ServiceAccounts("overlay").Create(ctx, account, metav1.CreateOptions{}))
	token := must[*authenticationv1.TokenRequest](t)(server.Admin.CoreV1().ServiceAccounts("overlay").CreateToken(ctx, prefix, &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))
	robot := User{Name: "system:serviceaccount:overlay:" + prefix, Token: token.Status.Token}

	const schemas = groupPath + "/v1/flowschemas"
	body := string(must[[]byte](t)(json.Marshal(schemaFor(user, prefix+"-asked", "workload-low", 500))))
	calls := []struct{ method, target, body string }{
		{http.MethodGet, schemas, ""}, {http.MethodGet, schemas + "/exempt", ""}, {http.MethodGet, schemas + "?watch=1&timeoutSeconds=1", ""},
		{http.MethodPost, schemas + "?dryRun=All", body}, {http.MethodPut, schemas + "/exempt", body}, {http.MethodPut, schemas + "/exempt/status", body},
		{http.MethodPatch, schemas + "/exempt", "{}"}, {http.MethodDelete, schemas + "/exempt", ""}, {http.MethodDelete, schemas, ""},
		{http.MethodGet, groupPath + "/v1/prioritylevelconfigurations", ""},
	}
	call := func(at Endpoint, user User, number int) string {
		t.Helper()
		one, header := calls[number], http.Header{"Content-Type": {jsonType}}
		if one.method == http.MethodPatch {
			header.Set("Content-Type", "application/merge-patch+json")
		}
		transport := shared.Transport(user, true)
		defer transport.CloseIdleConnections()
		response := must[*http.Response](t)(shared.Do(ctx, transport, at, user, one.method, one.target, header, one.body))
		defer response.Body.Close()
		return response.Status + " " + string(must[[]byte](t)(io.ReadAll(response.Body)))
	}
	// The apiserver authorizes before it looks whether there is such a thing, so it refuses in these very words.
	for _, user := range []User{user, robot, Anonymous} {
		for number, one := range calls {
			got, want := call(gateway, user, number), call(server.Endpoint, user, number)
			if got != want || !strings.HasPrefix(got, "403 ") {
				t.Errorf("%s, %s %s: through fairgate\n%s\nitself\n%s", user.Name, one.method, one.target, got, want)
			}
		}
	}
	canI := func(user User, want, verb string) {
		t.Helper()
		// It ends with 1 if not.
		printed, err := shared.RunKubectl(ctx, gateway, user, "", "auth", "can-i", verb, "flowschemas")
		if strings.TrimSpace(printed) != want || (err == nil) != (want == "yes") {
			t.Errorf("%s can %s: printed %q, %v, want %s", user.Name, verb, printed, err, want)
		}
	}
	// One that fails decides nothing.
	reviews := func() float64 {
		const name = "fairgate_access_reviews_total"
		return must[float64](t)(fairgate.Sum(ctx, name)) - must[float64](t)(fairgate.Sum(ctx, name, `outcome="failed"`))
	}
	// until waits until a call is answered with a code. The apiserver has said so already: the first review decides.
	until := func(user User, number int, code string) {
		t.Helper()
		began, last, before := time.Now(), "", reviews()
		err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			last = call(gateway, user, number)
			return strings.HasPrefix(last, code+" "), nil
		})
		took, asked := time.Since(began), reviews()-before
		if err != nil {
			t.Errorf("%s, %s %s: %s, want %s", user.Name, calls[number].method, calls[number].target, last, code)
		} else if asked > 1 {
			t.Errorf("%s, %s %s: %s after %v reviews, want one", user.Name, calls[number].method, calls[number].target, code, asked)
		}
		measured(t, fmt.Sprintf("%s: a right in force, %s %s %s", fairgate.Name, calls[number].method, calls[number].target, code), took.Seconds(), "s")
	}
	const list, create = 0, 3
	canI(user, "no", "list")
	reads := []rbacv1.PolicyRule{{APIGroups: []string{groupName}, Resources: []string{"flowschemas"}, Verbs: []string{"list"}}}
	for role, user := range map[string]User{prefix + ":lists": user, prefix + ":robot-lists": robot} {
		succeeds(t, GrantRules(ctx, server.Admin, user.Name, role, reads))
		until(user, list, "200")
		canI(user, "yes", "list")
		canI(user, "no", "create")
		if refused := call(gateway, user, create); !strings.Contains(refused, `cannot create resource \"flowschemas\" in API group \"`+groupName+`\" at the cluster scope`) {
			t.Errorf("%s may list and gets %s", user.Name, refused)
		}
	}
	// By the role that is shipped for policy editors.
	succeeds(t, Grant(ctx, server.Admin, user.Name, EditorRole))
	until(user, create, "201")
	canI(user, "yes", "create")
	expect(t, "created", kubectl(t, gateway, user, body, "apply", "-f", "-"))
	expect(t, "deleted", kubectl(t, gateway, user, "", "delete", "flowschema", prefix+"-asked"))
	succeeds(t, Revoke(ctx, server.Admin, user.Name, EditorRole), RevokeRules(ctx, server.Admin, user.Name, prefix+":lists", reads))
	until(user, list, "403")
	until(user, create, "403")
	canI(user, "no", "list")
	// Nobody has bound the administrators.
	if got := call(gateway, shared.admin, create); !strings.HasPrefix(got, "201 ") {
		t.Errorf("an administrator makes a schema: %s", got)
	}
}
