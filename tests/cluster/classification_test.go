package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	flowSchemaHeader    = "X-Kubernetes-Pf-Flowschema-Uid"
	priorityLevelHeader = "X-Kubernetes-Pf-Prioritylevel-Uid"
)

// customPolicies are added to the built-in ones, so that every kind of subject and rule, and each way to
// order and to drop a schema, decides something.
const customPolicies = `
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: custom}
spec:
  type: Limited
  limited:
    nominalConcurrencyShares: 30
    limitResponse: {type: Queue, queuing: {queues: 16, handSize: 4, queueLengthLimit: 50}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: custom-reject}
spec:
  type: Limited
  limited: {nominalConcurrencyShares: 30, limitResponse: {type: Reject}}
---
# It names a level that is not there: nobody may match it, though it comes first.
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: custom-dangling}
spec:
  matchingPrecedence: 10
  priorityLevelConfiguration: {name: absent}
  rules:
  - subjects: [{kind: User, user: {name: "*"}}]
    nonResourceRules: [{verbs: ["*"], nonResourceURLs: ["*"]}]
---
# One service account, some verbs of one resource in one namespace.
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: custom-service-account}
spec:
  matchingPrecedence: 200
  priorityLevelConfiguration: {name: custom}
  distinguisherMethod: {type: ByNamespace}
  rules:
  - subjects: [{kind: ServiceAccount, serviceAccount: {namespace: team-a, name: reader}}]
    resourceRules: [{verbs: [get, list, deletecollection], apiGroups: [""], resources: [pods], namespaces: [team-a]}]
---
# Every service account of a namespace, cluster scope only.
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: custom-service-accounts-of-default}
spec:
  matchingPrecedence: 210
  priorityLevelConfiguration: {name: custom}
  rules:
  - subjects: [{kind: ServiceAccount, serviceAccount: {namespace: default, name: "*"}}]
    resourceRules: [{verbs: ["*"], apiGroups: [""], resources: [nodes, namespaces, pods], clusterScope: true}]
---
# Every user, one group of resources, its subresources apart.
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: custom-every-user}
spec:
  matchingPrecedence: 300
  priorityLevelConfiguration: {name: custom-reject}
  rules:
  - subjects: [{kind: User, user: {name: "*"}}]
    resourceRules:
    - {verbs: [get, list, watch], apiGroups: [example.com], resources: [widgets], clusterScope: true, namespaces: ["*"]}
    - {verbs: ["*"], apiGroups: [example.com], resources: [widgets/status], namespaces: [team-a]}
---
# Groups; a prefix of paths for one method, an exact path for all. (The server takes no other verbs of plain
# paths than get and those of resources, so head, options and post are matched by "*" alone.)
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: custom-paths}
spec:
  matchingPrecedence: 310
  priorityLevelConfiguration: {name: custom}
  distinguisherMethod: {type: ByUser}
  rules:
  - subjects: [{kind: Group, group: {name: dev}}, {kind: Group, group: {name: "system:serviceaccounts"}}]
    nonResourceRules:
    - {verbs: [get], nonResourceURLs: [/openapi/*, /apis/*]}
    - {verbs: ["*"], nonResourceURLs: [/version]}
---
# Of two schemas of one precedence the name decides.
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: custom-tie-a}
spec:
  matchingPrecedence: 320
  priorityLevelConfiguration: {name: custom}
  rules:
  - subjects: [{kind: User, user: {name: alice}}]
    resourceRules: [{verbs: ["*"], apiGroups: [coordination.k8s.io], resources: ["*"], namespaces: [team-a]}]
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: custom-tie-b}
spec:
  matchingPrecedence: 320
  priorityLevelConfiguration: {name: custom-reject}
  rules:
  - subjects: [{kind: User, user: {name: alice}}]
    resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"], namespaces: [team-a]}]
---
# All groups, of whomever, on an exact subresource; and the verb that an unknown method becomes is in "*".
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: custom-every-group}
spec:
  matchingPrecedence: 330
  priorityLevelConfiguration: {name: custom}
  rules:
  - subjects: [{kind: Group, group: {name: "*"}}]
    resourceRules:
    - {verbs: [patch, update], apiGroups: [""], resources: [nodes/status], clusterScope: true}
    - {verbs: ["*"], apiGroups: [apps], resources: [deployments], clusterScope: true, namespaces: ["*"]}
`

// A probe is one request of the matrix.
type probe struct {
	method, target string
}

func (p probe) String() string { return p.method + " " + p.target }

// probes are the requests: every verb of several resources, paths that are no resources, odd paths.
func probes() []probe {
	var all []probe
	add := func(method string, targets ...string) {
		for _, target := range targets {
			all = append(all, probe{method, target})
		}
	}
	collections := []string{
		"/api/v1/namespaces/team-a/pods", "/api/v1/namespaces/default/pods",
		"/apis/coordination.k8s.io/v1/namespaces/team-a/leases", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
		"/api/v1/nodes", "/api/v1/namespaces", "/apis/example.com/v1/namespaces/team-a/widgets",
		"/apis/example.com/v1/widgets",
		"/apis/apps/v1/namespaces/team-a/deployments",
	}
	for _, collection := range collections {
		// Nothing is changed: allowed requests are dry runs on an object that does not exist.
		add(http.MethodGet, collection+"/absent", collection+"?limit=1", collection+"?watch=true&timeoutSeconds=1&resourceVersion=0")
		add(http.MethodPost, collection+"?dryRun=All")
		add(http.MethodPut, collection+"/absent?dryRun=All")
		add(http.MethodPatch, collection+"/absent?dryRun=All")
		add(http.MethodDelete, collection+"/absent?dryRun=All", collection+"?dryRun=All&labelSelector=nobody=has")
		add(http.MethodHead, collection+"/absent")
		add(http.MethodOptions, collection)
	}
	for _, subresource := range []string{
		"/api/v1/nodes/absent/status", "/apis/example.com/v1/namespaces/team-a/widgets/absent/status",
		"/apis/apps/v1/namespaces/team-a/deployments/absent/scale", "/api/v1/namespaces/team-a/status",
	} {
		add(http.MethodGet, subresource)
		add(http.MethodPut, subresource+"?dryRun=All")
		add(http.MethodPatch, subresource+"?dryRun=All")
	}
	add(http.MethodGet,
		"/api/v1/pods?limit=1", "/apis/coordination.k8s.io/v1/leases?limit=1",
		"/apis/coordination.k8s.io/v1/leases?watch=1&timeoutSeconds=1",
		"/api/v1/namespaces/team-a", "/api/v1/namespaces/team-a/finalize",
		// no resources
		"/", "/healthz", "/healthz/ping", "/healthz/", "/livez", "/livez/ping", "/readyz", "/readyz/ping", "/version",
		"/version/", "/openapi/v2", "/openapi/v3",
		"/openapi/v3/version", "/openapi", "/api", "/api/", "/api/v1", "/apis", "/apis/", "/apis/apps",
		"/apis/apps/v1", "/apis/example.com", "/apis/example.com/v1",
		"/openid/v1/jwks", "/.well-known/openid-configuration", "/nothing/here", "/logs",
		// long-running without being a watch: no flow control
		"/api/v1/namespaces/team-a/pods/absent/log", "/api/v1/namespaces/team-a/pods/absent/log?follow=true",
		"/api/v1/nodes/absent/proxy/healthz",
		"/api/v1/namespaces/team-a/pods/absent/exec?command=true", "/debug/pprof/cmdline",
		"/apis/example.com/v1/namespaces/team-a/widgets/absent/log",
		// watch or not
		"/api/v1/namespaces/team-a/pods?watch&timeoutSeconds=1",
		"/api/v1/namespaces/team-a/pods?watch=&timeoutSeconds=1",
		"/api/v1/namespaces/team-a/pods?watch=no&timeoutSeconds=1",
		"/api/v1/namespaces/team-a/pods?watch=0", "/api/v1/namespaces/team-a/pods?watch=FALSE",
		"/api/v1/namespaces/team-a/pods?watch=false&watch=true",
		"/api/v1/namespaces/team-a/pods?%77atch=1&timeoutSeconds=1",
		"/api/v1/namespaces/team-a/pods/absent?watch=true", "/api/v1/namespaces/team-a/pods?watch=true;limit=1",
		"/api/v1/namespaces/team-a/pods?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dabsent",
		"/api/v1/namespaces/team-a/pods?fieldSelector=metadata.name%3Dabsent",
		"/api/v1/watch/namespaces/team-a/pods?timeoutSeconds=1", "/api/v1/watch/pods?timeoutSeconds=1",
		"/api/v1/proxy/nodes/absent",
		// spelled oddly
		"//api/v1/namespaces/team-a/pods", "/api//v1/namespaces/team-a/pods", "/api/v1//namespaces/team-a/pods",
		"/api/v1/namespaces//pods", "/api/v1/namespaces/team-a//pods",
		"/api/v1/namespaces/team-a/pods/", "/api/v1/namespaces/team-a/pods//", "/api/v1/namespaces/team-a%2Fpods",
		"/api/v1/%6eodes", "/API/v1/nodes", "/api/v1/Nodes",
		"/api/v1/namespaces/team-a/pods/../leases", "/api/v1/./nodes", "/api/v1/namespaces/team-a/pods/a/b/c/d",
		"/apis/example.com/v1/namespaces/finalize/status",
		"/api/v1/nodes?", "/api/v1/nodes/%00", "/api/v1/nodes/%FF", "/version%2F", "/openapi%2Fv2", "/healthz%2Fping",
		"/livez/../api/v1/nodes", "/livez/../version",
	)
	add(http.MethodHead, "/livez/ping", "/version", "/openapi/v2", "/api/v1/nodes?limit=1")
	add(http.MethodPost, "/healthz", "/version", "/api/v1/namespaces/team-a/pods/absent/exec",
		"/api/v1/namespaces/team-a/pods/absent/eviction?dryRun=All", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
	add(http.MethodPut, "/version")
	add(http.MethodDelete, "/version", "/api/v1/namespaces/team-a/pods/?dryRun=All&labelSelector=nobody=has")
	add(http.MethodOptions, "/version", "/openapi/v2")
	add("PROPFIND", "/api/v1/nodes", "/version", "/apis/apps/v1/deployments")
	add("get", "/api/v1/nodes", "/version")
	return all
}

// An outcome is the visible decision of flow control, and how the request ended.
type outcome struct {
	flowSchema, priorityLevel string
	status                    int
}

func TestFairgateClassifiesAsTheApiserverDoes(t *testing.T) {
	ctx := inTime(t, 10*time.Minute)
	for _, namespace := range []string{"team-a", "default"} {
		if err := shared.EnsureNamespace(ctx, namespace); err != nil {
			t.Fatal(err)
		}
	}
	users := []User{
		shared.admin,
		must[User](t)(shared.NewUser("system:node:node-1", "system:nodes")),
		must[User](t)(shared.NewUser("system:kube-scheduler")),
		must[User](t)(shared.NewUser("system:kube-controller-manager")),
		must[User](t)(alice()),
		must[User](t)(shared.NewUser("carol")),
		must[User](t)(shared.NewServiceAccount(ctx, "kube-system", "some-controller")),
		must[User](t)(shared.NewServiceAccount(ctx, "default", "app")),
		must[User](t)(shared.NewServiceAccount(ctx, "team-a", "reader")),
		{Name: StaticUser, Token: StaticToken},
		Anonymous,
		{Name: "bad token", Token: "of-nobody"},
	}
	kubectl(t, shared.Direct, shared.admin, customPolicies, "apply", "-f", "-")
	t.Cleanup(func() { kubectl(t, shared.Direct, shared.admin, customPolicies, "delete", "-f", "-") })
	names := awaitPolicies(t, ctx)

	// What an operator would save: the complete output of the server.
	printed := kubectl(t, shared.Direct, shared.admin, "",
		"get", "flowschemas,prioritylevelconfigurations", "-o", "yaml", "--show-managed-fields")
	// The upstream sends the same headers. To see that those of fairgate are its own, fairgate is given the
	// objects under other UIDs: the first group of digits distinguishes them.
	marked := regexp.MustCompile(`(?m)^(\s+uid: )[0-9a-f]{8}-`).ReplaceAllString(printed, "${1}"+mark+"-")
	if got := strings.Count(marked, "uid: "+mark); got < len(names) {
		t.Fatalf("%d objects marked of %d:\n%s", got, len(names), printed)
	}
	policies := filepath.Join(t.TempDir(), "policies")
	if err := os.MkdirAll(policies, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(policies, "cluster.yaml"), []byte(marked), 0o600); err != nil {
		t.Fatal(err)
	}

	requests := probes()
	want := map[string]outcome{}
	schemas := map[string]int{}
	for _, user := range users {
		for protocol, outcomes := range classify(t, ctx, shared.Direct, user, requests) {
			for i, outcome := range outcomes {
				want[fmt.Sprint(user.Name, protocol, i)] = outcome
				if outcome.flowSchema != "" {
					schemas[names[outcome.flowSchema]]++
				}
			}
		}
	}
	// The matrix must distinguish schemas, or agreement would prove little.
	t.Logf("%d users × %d requests × 2 protocols match: %v", len(users), len(requests), schemas)
	for _, name := range []string{
		"exempt", "probes", "system-leader-election", "system-node-high", "system-nodes", "kube-controller-manager",
		"kube-scheduler", "kube-system-service-accounts", "service-accounts", "global-default",
		"custom-service-account", "custom-service-accounts-of-default", "custom-every-user", "custom-paths",
		"custom-tie-a", "custom-tie-b", "custom-every-group",
	} {
		if schemas[name] == 0 {
			t.Errorf("no request matches %s", name)
		}
	}
	if schemas["custom-dangling"] != 0 {
		t.Error("requests match a schema without a level")
	}

	throughEach(t, FairgateOptions{Policies: policies}, func(t *testing.T, at Endpoint) {
		differences := 0
		for _, user := range users {
			for protocol, outcomes := range classify(t, ctx, at, user, requests) {
				for i, got := range outcomes {
					want := want[fmt.Sprint(user.Name, protocol, i)]
					if at != shared.Direct {
						want.flowSchema, want.priorityLevel = marking(want.flowSchema), marking(want.priorityLevel)
					}
					// A path that cannot be classified may be answered 404 as well.
					if want.status == http.StatusInternalServerError && got.status == http.StatusNotFound {
						got.status = want.status
					}
					if got == want {
						continue
					}
					if differences++; differences > 40 {
						t.Fatal("and more")
					}
					t.Errorf("%s, HTTP/%d, %s: %s, the apiserver %s", user.Name, protocol, requests[i], got.describe(names), want.describe(names))
				}
			}
		}
	})
}

const mark = "fa126a7e"

// marking is the UID under which fairgate knows the object.
func marking(uid string) string {
	if uid == "" {
		return ""
	}
	return mark + uid[8:]
}

func (o outcome) describe(names map[string]string) string {
	name := func(uid string) string {
		if uid == "" {
			return "none"
		}
		for known, name := range names {
			switch uid {
			case known:
				return name
			case marking(known):
				return name + " (marked)"
			}
		}
		return "unknown " + uid
	}
	return fmt.Sprintf("says %d, schema %s, level %s", o.status, name(o.flowSchema), name(o.priorityLevel))
}

// classify sends all requests as a user by HTTP/1.1 and by HTTP/2.
func classify(t *testing.T, ctx context.Context, at Endpoint, user User, requests []probe) map[int][]outcome {
	t.Helper()
	all := map[int][]outcome{}
	for _, protocol := range []int{1, 2} {
		transport := shared.Transport(user, protocol == 2)
		for _, request := range requests {
			got, err := classifyOne(ctx, transport, at, user, request)
			if err != nil {
				t.Errorf("%s, HTTP/%d, %s: %v", user.Name, protocol, request, err)
			}
			all[protocol] = append(all[protocol], got)
		}
		transport.CloseIdleConnections()
	}
	return all
}

func classifyOne(ctx context.Context, transport *http.Transport, at Endpoint, user User, request probe) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	header := http.Header{}
	body := ""
	switch request.method {
	case http.MethodPost, http.MethodPut:
		body = "{}"
		header.Set("Content-Type", "application/json")
	case http.MethodPatch:
		body = "{}"
		header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := shared.Do(ctx, transport, at, user, request.method, request.target, header, body)
	if err != nil {
		return outcome{}, err
	}
	defer response.Body.Close()
	// To the end, so that connections serve again; watches end by timeoutSeconds or are short of events.
	if !strings.Contains(request.target, "atch") {
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return outcome{}, err
		}
	}
	for _, name := range []string{flowSchemaHeader, priorityLevelHeader} {
		if values := response.Header.Values(name); len(values) > 1 {
			return outcome{}, fmt.Errorf("header %s has the values %q", name, values)
		}
	}
	return outcome{
		flowSchema:    response.Header.Get(flowSchemaHeader),
		priorityLevel: response.Header.Get(priorityLevelHeader),
		status:        response.StatusCode,
	}, nil
}

// awaitPolicies waits until the apiserver has taken in the custom policies, and names all objects by UID.
func awaitPolicies(t *testing.T, ctx context.Context) map[string]string {
	t.Helper()
	names := map[string]string{}
	schemas, err := shared.Admin.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, schema := range schemas.Items {
		names[string(schema.UID)] = schema.Name
	}
	levels, err := shared.Admin.FlowcontrolV1().PriorityLevelConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range levels.Items {
		names[string(level.UID)] = level.Name
	}
	// The controller compiles all objects at once, and its dump shows what is in use.
	transport := shared.Transport(shared.admin, true)
	defer transport.CloseIdleConnections()
	err = poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
		response, err := shared.Do(ctx, transport, shared.Direct, shared.admin,
			http.MethodGet, "/debug/api_priority_and_fairness/dump_priority_levels", nil, "")
		if err != nil {
			return false, err
		}
		defer response.Body.Close()
		dump, err := io.ReadAll(response.Body)
		if err != nil || !strings.Contains(string(dump), "custom-reject") {
			return false, err
		}
		created, err := shared.Admin.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, schema := range created.Items {
			// The controller writes the condition Dangling to every schema that it has compiled.
			if len(schema.Status.Conditions) == 0 {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatalf("the apiserver has not taken in the custom policies: %v", err)
	}
	return names
}
