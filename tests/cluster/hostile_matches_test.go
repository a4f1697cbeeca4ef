package cluster

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// matchesOfAUser is how many policies are about the requests of one user: the warnings of more would not fit into a response.
const matchesOfAUser = 16

// A hostileMatch is what a policy and its binding match, and the params.
type hostileMatch struct{ constraints, policy, binding string }

// hostileMatches are about requests that a server matches in a way that is not what one reads first.
func hostileMatches() (all []hostileMatch) {
	rule := func(groups, versions, operations, resources, more string) string {
		list := func(text string) string { return `["` + strings.ReplaceAll(text, ",", `","`) + `"]` }
		return `{"apiGroups":` + list(groups) + `,"apiVersions":` + list(versions) + `,"operations":` + list(operations) + `,"resources":` + list(resources) + more + `}`
	}
	matching := func(more string, rules ...string) {
		all = append(all, hostileMatch{constraints: `"resourceRules":[` + strings.Join(rules, ",") + `]` + more})
	}
	everything := rule("*", "*", "*", "*/*", "")
	for _, resources := range []string{"pods", "pods/*", "*", "*/*", "*/scale", "*/status", "pods/status", "pods/exec", "pods/eviction", "pods,pods/binding", "bindings", "deployments/scale", "services/proxy", "namespaces", "namespaces/finalize", "namespaces/*", "nodes", "nodes/*", "serviceaccounts/token", "things", "things/scale", "things/*", "horizontalpodautoscalers", "events", "configmaps"} {
		matching("", rule("*", "*", "*", resources, ""))
	}
	for _, operations := range []string{"CREATE", "UPDATE", "DELETE", "CONNECT", "CREATE,DELETE"} {
		matching("", rule("*", "*", operations, "*/*", ""))
	}
	for _, policy := range []string{"Exact", "Equivalent"} {
		more := `,"matchPolicy":"` + policy + `"`
		for _, of := range [][3]string{{"autoscaling", "v1", "horizontalpodautoscalers"}, {"autoscaling", "v2", "horizontalpodautoscalers"}, {"autoscaling", "v1", "*/scale"}, {"autoscaling", "v2", "*/*"}, {"", "v1", "events"}, {"events.k8s.io", "v1", "events"}, {"judged.example.com", "v1", "things"}, {"judged.example.com", "v2", "things"}, {"judged.example.com", "v2", "things/status"}, {"judged.example.com", "v2", "*/scale"}, {"judged.example.com", "v1,v2", "*/*"}, {"autoscaling", "v1", "deployments/scale"}, {"apps", "v1", "deployments/scale"}, {"extensions", "v1beta1", "*/*"}, {"apps", "v1beta1", "*"}, {"judged.example.com", "v3", "things"}} {
			matching(more, rule(of[0], of[1], "*", of[2], ""))
		}
	}
	for _, scope := range []string{"Cluster", "Namespaced", "*"} {
		matching("", rule("*", "*", "*", "*/*", `,"scope":"`+scope+`"`))
		matching("", rule("", "v1", "*", "namespaces,nodes,configmaps", `,"scope":"`+scope+`"`))
	}
	for _, names := range []string{"a", "hostile", "hostile-a", "b,a", "new"} {
		matching("", rule("*", "*", "*", "*/*", `,"resourceNames":["`+strings.ReplaceAll(names, ",", `","`)+`"]`))
	}
	for _, excluded := range []string{rule("", "v1", "*", "configmaps", ""), rule("judged.example.com", "v2", "*", "things", ""), rule("autoscaling", "v2", "*", "*", ""), rule("*", "*", "DELETE", "*/*", ""), rule("*", "*", "*", "*", ""), rule("*", "*", "*", "*/*", `,"resourceNames":["a"]`), rule("*", "*", "*", "*/*", `,"scope":"Cluster"`), rule("*", "*", "*", "*/status", "")} {
		matching(`,"excludeResourceRules":[`+excluded+`]`, everything)
		matching(`,"matchPolicy":"Exact","excludeResourceRules":[`+excluded+`]`, everything)
	}
	selectors := []string{`{"matchLabels":{"app":"a"}}`, `{"matchLabels":{"app":"b"}}`, `{"matchExpressions":[{"key":"app","operator":"DoesNotExist"}]}`, `{"matchExpressions":[{"key":"app","operator":"NotIn","values":["a"]}]}`, `{"matchExpressions":[{"key":"app","operator":"Exists"}]}`, `{}`,
		`{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"In","values":["hostile"]}]}`, `{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"DoesNotExist"}]}`, `{"matchLabels":{"kubernetes.io/metadata.name":"new"}}`}
	for _, selector := range selectors {
		for _, key := range []string{"objectSelector", "namespaceSelector"} {
			matching(`,"`+key+`":`+selector, everything)
			all = append(all, hostileMatch{constraints: `"resourceRules":[` + everything + `]`, binding: `,"matchResources":{"` + key + `":` + selector + `}`})
		}
	}
	for _, bound := range []string{`"resourceRules":[` + rule("", "v1", "*", "configmaps", "") + `]`, `"resourceRules":[` + rule("judged.example.com", "v2", "*", "things", "") + `]`, `"matchPolicy":"Exact","resourceRules":[` + rule("judged.example.com", "v2", "*", "things", "") + `]`, `"excludeResourceRules":[` + rule("", "v1", "*", "configmaps", "") + `]`, `"excludeResourceRules":[` + rule("judged.example.com", "v2", "*", "*/*", "") + `]`,
		`"matchPolicy":"Exact"`, `"resourceRules":[` + rule("*", "*", "*", "*/*", `,"resourceNames":["a"]`) + `]`} {
		all = append(all, hostileMatch{constraints: `"resourceRules":[` + everything + `]`, binding: `,"matchResources":{` + bound + `}`}, hostileMatch{constraints: `"matchPolicy":"Exact","resourceRules":[` + rule("*", "v1", "*", "*/*", "") + `]`, binding: `,"matchResources":{` + bound + `}`})
	}
	of := `"resourceRules":[` + everything + `]`
	for _, condition := range []string{`authorizer.requestResource.check('get').allowed()`, `authorizer.group('').resource('configmaps').namespace('hostile').name('a').check('delete').allowed()`, `authorizer.serviceAccount('hostile','a').group('').resource('pods').check('get').allowed()`, `authorizer.path('/healthz').check('get').allowed()`, `request.userInfo.groups.exists(g, g == 'system:authenticated')`,
		`request.userInfo.?extra.hasValue()`, `has(request.userInfo.uid) && request.userInfo.uid != ''`, `request.?name.orValue('') == 'a'`, `has(request.namespace) && request.namespace == 'hostile'`, `request.dryRun`, `has(request.options) && request.options.kind == 'PatchOptions'`, `request.requestKind == request.kind`, `object != null && oldObject == null`, `object == null && oldObject != null`, `request.subResource != ''`, `request.requestSubResource == 'scale'`,
		`object != null && has(object.metadata.labels) && 'app' in object.metadata.labels`, `object.metadata.name == 'a'`, `has(object.metadata.uid)`, `has(object.metadata.managedFields)`, `has(object.metadata.generation)`, `has(object.metadata.resourceVersion)`, `has(object.metadata.creationTimestamp)`, `has(object.metadata.selfLink)`, `object.metadata.namespace == 'hostile'`} {
		all = append(all, hostileMatch{constraints: of, policy: `,"failurePolicy":"Ignore","matchConditions":[{"name":"c","expression":` + quoted(condition) + `}]`})
	}
	// A binding that is configured wrongly concerns everybody, so these are about one namespace.
	param := func(kind, ref string) {
		within := `,"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"hostile"}}`
		all = append(all, hostileMatch{constraints: `"resourceRules":[` + rule("*", "*", "*", "*/*", `,"scope":"Namespaced"`) + `]` + within, policy: `,"paramKind":` + kind, binding: `,"paramRef":` + ref})
	}
	maps, limits, ceilings := `{"apiVersion":"v1","kind":"ConfigMap"}`, `{"apiVersion":"judged.example.com/v1","kind":"Limit"}`, `{"apiVersion":"judged.example.com/v1","kind":"Ceiling"}`
	for _, ref := range []string{`{"name":"a","namespace":"hostile","parameterNotFoundAction":"Allow"}`, `{"name":"absent","namespace":"hostile","parameterNotFoundAction":"Allow"}`, `{"name":"a","parameterNotFoundAction":"Allow"}`, `{"selector":{"matchLabels":{"app":"a"}},"namespace":"hostile","parameterNotFoundAction":"Allow"}`, `{"selector":{"matchExpressions":[{"key":"app","operator":"Exists"}]},"parameterNotFoundAction":"Allow"}`,
		`{"selector":{"matchLabels":{"app":"none"}},"parameterNotFoundAction":"Allow"}`, `{"name":"a","namespace":"absent","parameterNotFoundAction":"Allow"}`} {
		param(maps, ref)
		param(limits, ref)
	}
	for _, ref := range []string{`{"name":"hostile-a","parameterNotFoundAction":"Allow"}`, `{"name":"absent","parameterNotFoundAction":"Allow"}`, `{"selector":{},"parameterNotFoundAction":"Allow"}`} {
		param(ceilings, ref)
	}
	return all
}

func matchUser(number int) string { return fmt.Sprintf("matched-%d", number/matchesOfAUser) }

func (m hostileMatch) objects(number int) (policy, binding string) {
	mine := `{"name":"mine","expression":"request.userInfo.username == '` + matchUser(number) + `'"}`
	conditions := `,"matchConditions":[` + mine + `]`
	if rest, found := strings.CutPrefix(m.policy, `,"failurePolicy":"Ignore","matchConditions":[`); found {
		conditions, m.policy = `,"failurePolicy":"Ignore","matchConditions":[`+mine+`,`+rest, ""
	}
	message := fmt.Sprintf(`'m%d %%s %%s'.format([request.resource.version, %s])`, number, map[bool]string{true: `params == null ? 'none' : params.metadata.name`, false: `'-'`}[strings.Contains(m.policy, "paramKind")])
	policy = fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"m%d"},"spec":{"matchConstraints":{%s}%s%s,"validations":[{"expression":"false","messageExpression":%s}]}}`, number, m.constraints, conditions, m.policy, quoted(message))
	binding = fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"m%[1]d"},"spec":{"policyName":"m%[1]d","validationActions":["Warn"]%[2]s}}`, number, m.binding)
	return policy, binding
}

// matchedRequests change nothing.
func matchedRequests() (rows []hostileRow) {
	of := func(group, path string) string {
		return "/apis/" + group + "/namespaces/" + hostileNamespace + "/" + path
	}
	for _, item := range []string{"@ns/configmaps/a", "@ns/configmaps/b", "@ns/pods/a", "@ns/services/a", "@ns/serviceaccounts/a", of("apps/v1", "deployments/a"), of("autoscaling/v1", "horizontalpodautoscalers/a"), of("autoscaling/v2", "horizontalpodautoscalers/a"), of("judged.example.com/v1", "things/a"), of("judged.example.com/v2", "things/a"), "/api/v1/namespaces/hostile", "/api/v1/nodes/hostile-a", "/apis/judged.example.com/v1/ceilings/hostile-a"} {
		rows = append(rows, row("PATCH", item+"?dryRun=All", mergePatch, `{}`), row("PATCH", item+"?dryRun=All", mergePatch, `{"metadata":{"labels":{"app":"b"}}}`), row("PATCH", item+"?dryRun=All", mergePatch, `{"metadata":{"labels":{"app":null}}}`), row("PATCH", item+"?dryRun=All&fieldManager=x&force=true", applyPatch, `{"metadata":{"labels":{"app":"c"}}}`),
			row("DELETE", item+"?dryRun=All", "", ""), row("PATCH", item+"/status?dryRun=All", mergePatch, `{"status":{}}`), row("PATCH", item+"/scale?dryRun=All", mergePatch, `{"spec":{"replicas":3}}`))
	}
	for _, made := range [][2]string{{"@ns/configmaps", `{"metadata":{"name":"new"}}`}, {"@ns/configmaps", `{"metadata":{"name":"new","labels":{"app":"a"}}}`}, {"@ns/configmaps", `{"metadata":{"generateName":"new-","labels":{"app":"b"}}}`}, {"/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a","labels":{"app":"a"}}}`}, {"/api/v1/namespaces", `{"metadata":{"name":"new"}}`}, {"/api/v1/namespaces", `{"metadata":{"name":"new","labels":{"app":"a"}}}`},
		{"/api/v1/nodes", `{"metadata":{"name":"a","labels":{"app":"a"}}}`}, {of("judged.example.com/v1", "things"), `{"apiVersion":"judged.example.com/v1","kind":"Thing","metadata":{"name":"new"},"spec":{}}`}, {of("judged.example.com/v2", "things"), `{"apiVersion":"judged.example.com/v2","kind":"Thing","metadata":{"name":"new","labels":{"app":"a"}},"spec":{}}`}, {of("autoscaling/v1", "horizontalpodautoscalers"), `{"metadata":{"name":"new"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"a","apiVersion":"apps/v1"}}}`},
		{"@ns/events", `{"metadata":{"name":"e","namespace":"hostile"},"involvedObject":{"kind":"Pod","name":"a","namespace":"hostile"}}`}, {of("events.k8s.io/v1", "events"), `{"metadata":{"name":"e"},"eventTime":"2026-01-01T00:00:00.000000Z","action":"a","reason":"r","type":"Normal","reportingController":"c/d","reportingInstance":"i","regarding":{"namespace":"hostile"}}`},
		{"@ns/pods/a/eviction", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"a"}}`}, {"@ns/pods/a/binding", `{"metadata":{"name":"a"},"target":{"kind":"Node","name":"n"}}`}, {"@ns/bindings", `{"metadata":{"name":"a"},"target":{"kind":"Node","name":"n"}}`}, {"@ns/serviceaccounts/a/token", `{"spec":{"audiences":["x"]}}`}} {
		rows = append(rows, row("POST", made[0]+"?dryRun=All", jsonType, made[1]))
	}
	for _, target := range []string{"@ns/configmaps", "@ns/pods", of("judged.example.com/v1", "things"), of("judged.example.com/v2", "things"), "/api/v1/nodes"} {
		rows = append(rows, row("DELETE", target+"?dryRun=All&labelSelector=app%3Da", "", ""), row("DELETE", target+"?dryRun=All&labelSelector=app%3Dnone", "", ""), row("DELETE", target+"?dryRun=All&fieldSelector=metadata.name%3Da", "", ""))
	}
	for _, target := range []string{"@ns/pods/a/exec?command=x", "@ns/pods/a/attach", "@ns/pods/a/portforward", "@ns/services/a/proxy/x", "/api/v1/nodes/hostile-a/proxy/x", "@ns/pods/a/proxy/x"} {
		rows = append(rows, row("GET", target, "", ""), row("POST", target, "", ""))
	}
	return append(rows, row("PUT", "/api/v1/namespaces/hostile/finalize?dryRun=All", jsonType, `{"metadata":{"name":"hostile"},"spec":{"finalizers":["kubernetes"]}}`), row("PUT", of("coordination.k8s.io/v1", "leases/new")+"?dryRun=All", jsonType, `{"metadata":{"name":"new"},"spec":{}}`),
		row("PATCH", "@ns/configmaps/new?dryRun=All&fieldManager=x", applyPatch, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"labels":{"app":"a"}}}`))
}

var matchWarning = func(line string) bool { return strings.Contains(line, "ValidatingAdmissionPolicy") }

// Which policies match a request is the same through the gateway as in a server.
func TestPoliciesMatchAsInAServer(t *testing.T) {
	aboutEvaluatingFairgate(t)
	ctx := inTime(t, 20*time.Minute)
	bed := startHostileBed(t, ctx)
	matches, rows := hostileMatches(), matchedRequests()
	var users []*tls.Config
	for number := 0; number < len(matches); number += matchesOfAUser {
		users = append(users, shared.Transport(must[User](t)(shared.NewUser(matchUser(number), "system:masters")), false).TLSClientConfig)
	}
	for _, side := range []documentSide{bed.server, bed.plain} {
		for number, match := range matches {
			policy, binding := match.objects(number)
			succeeds(t, side.must(ctx, "POST", policiesPath, policy, 201, 409), side.must(ctx, "POST", bindingsPath, binding, 201, 409))
		}
		succeeds(t, side.must(ctx, "POST", "/apis/judged.example.com/v1/namespaces/hostile/limits", `{"apiVersion":"judged.example.com/v1","kind":"Limit","metadata":{"name":"a","labels":{"app":"a"}}}`, 201, 409))
	}
	t.Cleanup(func() {
		for _, side := range []documentSide{bed.server, bed.plain} {
			for number := range matches {
				name := fmt.Sprintf("/m%d", number)
				succeeds(t, side.must(ctx, "DELETE", bindingsPath+name, "", 200, 404), side.must(ctx, "DELETE", policiesPath+name, "", 200, 404))
			}
		}
	})
	bed.through(t, ctx, FairgateOptions{Fidelity: "completed"})
	last := row("POST", "@ns/configmaps?dryRun=All", jsonType, `{"metadata":{"name":"probe"}}`)
	for _, at := range bed.sides() {
		succeeds(t, poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			answer, err := sendHostile(ctx, at, users[len(users)-1], last, hostilePatience[0])
			return len(answer.warnings) > 0, err
		}))
	}
	count := len(rows) * len(users)
	answers := make([][2]hostileAnswer, count)
	atOnce(t, count, func(number int) (err error) {
		for side, at := range bed.sides() {
			if answers[number][side], err = sendHostile(ctx, at, users[number%len(users)], rows[number/len(users)], hostilePatience[1]); err != nil {
				return err
			}
		}
		return nil
	})
	verdicts, matched, fewer := 0, 0, 0
	for number, both := range answers {
		want, got := both[0].warnings, both[1].warnings
		verdicts += min(matchesOfAUser, len(matches)-number%len(users)*matchesOfAUser)
		matched += len(want)
		if both[0].code != both[1].code || !slices.Equal(want, got) {
			lacks := func(one, other []string) (found []string) {
				for _, line := range one {
					if !slices.Contains(other, line) {
						found = append(found, line)
					}
				}
				return found
			}
			missing, more := lacks(want, got), lacks(got, want)
			fewer += len(missing)
			t.Errorf("%s by %d: server %d, gateway %d %s %s\n  missing %q\n  more    %q", rows[number/len(users)], number%len(users), both[0].code, both[1].code, both[1].reason, around(both[1].message, both[0].message), missing, more)
		}
	}
	fmt.Printf("MATCHES %d policies, %d requests, %d verdicts, %d matched, %d missing\n", len(matches), len(rows), verdicts, matched, fewer)
}

// policyWarnings are those of a response that policies give, sorted.
func policyWarnings(headers http.Header) (all []string) {
	for _, line := range headers.Values("Warning") {
		if matchWarning(line) {
			all = append(all, hostileVarying.ReplaceAllString(line, "@"))
		}
	}
	slices.Sort(all)
	return all
}
