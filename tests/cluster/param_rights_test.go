package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statusOf is the code of the response to a request, and the message of a Status.
func statusOf(ctx context.Context, t *testing.T, at Endpoint, user User, method, target, mediaType, body string) (int, string) {
	t.Helper()
	transport := shared.Transport(user, false)
	defer transport.CloseIdleConnections()
	header := http.Header{"Content-Type": {mediaType}}
	answer := must[*http.Response](t)(shared.Do(ctx, transport, at, user, method, target, header, body))
	defer answer.Body.Close()
	var status struct{ Message string }
	data := must[[]byte](t)(io.ReadAll(answer.Body))
	if err := json.Unmarshal(data, &status); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return answer.StatusCode, status.Message
}

// Whoever writes a policy or a binding with params may read these params, in the words of a kube-apiserver.
func TestTheAuthorsOfPoliciesMayReadTheirParams(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	const space = "param-rights"
	server, ctx := bare(t), inTime(t, 20*time.Minute)
	must[*corev1.Namespace](t)(server.Admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{}))
	const self = "overlay-params"
	succeeds(t, Grant(ctx, server.Admin, self, ImpersonatorRole, OverlayRole))
	gateway := newFairgate(t, FairgateOptions{
		Mode: "impersonate", Source: "overlay", User: self, Upstream: server.URL,
		Admission: "audit", AdmissionHosted: true, Fidelity: "completed",
	})
	succeeds(t, gateway.Start())
	labelled := strings.NewReplacer("@all", "all")
	withParams := labelled.Replace(policy("param-rights", `spec.paramKind={"apiVersion":"v1","kind":"ConfigMap"}`))
	both := []Endpoint{server.Endpoint, gateway.Endpoint}
	for _, at := range both {
		if code, message := statusOf(ctx, t, at, shared.admin, http.MethodPost, policiesPath, jsonType, withParams); code != http.StatusCreated {
			t.Fatalf("%s: %d %s", at.Name, code, message)
		}
	}
	bound := func(ref string) string {
		return labelled.Replace(binding("param-rights", `spec.paramRef=`+ref))
	}
	requests := map[string]struct{ path, body string }{
		"a policy":                      {policiesPath, strings.Replace(withParams, `"name":"param-rights"`, `"name":"another"`, 1)},
		"a binding by name":             {bindingsPath, bound(`{"name":"limits","parameterNotFoundAction":"Allow"}`)},
		"a binding by name, there":      {bindingsPath, bound(`{"name":"limits","namespace":"` + space + `","parameterNotFoundAction":"Allow"}`)},
		"a binding by name, elsewhere":  {bindingsPath, bound(`{"name":"limits","namespace":"default","parameterNotFoundAction":"Allow"}`)},
		"a binding by another name":     {bindingsPath, bound(`{"name":"others","namespace":"` + space + `","parameterNotFoundAction":"Allow"}`)},
		"a binding by selector":         {bindingsPath, bound(`{"selector":{"matchLabels":{"a":"b"}},"parameterNotFoundAction":"Deny"}`)},
		"a binding by selector, there":  {bindingsPath, bound(`{"selector":{},"namespace":"` + space + `","parameterNotFoundAction":"Deny"}`)},
		"a binding without params":      {bindingsPath, strings.Replace(bound(`null`), `"name":"param-rights"`, `"name":"none"`, 1)},
		"a binding of a missing policy": {bindingsPath, strings.Replace(bound(`{"name":"limits","parameterNotFoundAction":"Allow"}`), `"policyName":"param-rights"`, `"policyName":"missing"`, 1)},
	}
	reads := func(names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: names, Verbs: []string{"get"}}
	}
	writes := rbacv1.PolicyRule{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"create", "get"}}
	lists := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}}
	all := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	refused := 0
	for name, rights := range map[string]struct {
		everywhere []rbacv1.PolicyRule
		there      []rbacv1.PolicyRule
	}{
		"none":      {},
		"list":      {everywhere: []rbacv1.PolicyRule{lists}},
		"kind":      {everywhere: []rbacv1.PolicyRule{reads()}},
		"name":      {everywhere: []rbacv1.PolicyRule{reads("limits")}},
		"there":     {there: []rbacv1.PolicyRule{reads()}},
		"one-there": {there: []rbacv1.PolicyRule{reads("limits")}},
		"anything":  {everywhere: []rbacv1.PolicyRule{all}},
	} {
		author := must[User](t)(shared.NewUser("params-" + name))
		succeeds(t, GrantRules(ctx, server.Admin, author.Name, author.Name, append(rights.everywhere, writes)))
		if rights.there != nil {
			role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: author.Name}, Rules: rights.there}
			must[*rbacv1.Role](t)(server.Admin.RbacV1().Roles(space).Create(ctx, role, metav1.CreateOptions{}))
			must[*rbacv1.RoleBinding](t)(server.Admin.RbacV1().RoleBindings(space).Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: author.Name},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: author.Name},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: author.Name}},
			}, metav1.CreateOptions{}))
		}
		for what, request := range requests {
			// Both learn of rights within seconds.
			var want, got string
			err := poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
				answers := make([]string, len(both))
				for i, at := range both {
					code, message := statusOf(ctx, t, at, author, http.MethodPost, request.path+"?dryRun=All", jsonType, request.body)
					answers[i] = fmt.Sprint(code, " ", message)
				}
				want, got = answers[0], answers[1]
				return want == got, nil
			})
			if err != nil {
				t.Errorf("%s by who may read %s: the apiserver says %s, fairgate %s", what, name, want, got)
			}
			if strings.HasPrefix(want, "403") || strings.HasPrefix(want, "422") {
				refused++
			}
		}
	}
	if refused < 20 {
		t.Errorf("%d requests were refused, fewer than the rights that are missing", refused)
	}
}
