package cluster

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
)

// pluginDifferencesFile lists each field that policies of a server with all its default plugins see otherwise than those of a gateway, with
// reasons.
const pluginDifferencesFile = "plugin_differences.json"

// A pluggedBed has two servers with all plugins that kube-apiserver has by default, all kinds in all versions and objects by which the plugins act.
// One has not the plugin that evaluates by policies, and a gateway is in front of it.
type pluggedBed struct {
	server, plain *Apiserver
	gateway       *Fairgate
}

func startPluggedBed(t *testing.T, ctx context.Context) pluggedBed {
	t.Helper()
	const user = "all-plugins"
	bed := pluggedBed{
		server: must[*Apiserver](t)(shared.StartApiserver("plugged-server", "", allKindsFlags...)),
		plain:  must[*Apiserver](t)(shared.StartApiserver("plugged-plain", "", append(slices.Clone(allKindsFlags), "--disable-admission-plugins=ValidatingAdmissionPolicy")...)),
	}
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	succeeds(t, GrantRules(ctx, bed.plain.Admin, user, user+"-everything", everything))
	for _, server := range []*Apiserver{bed.server, bed.plain} {
		succeeds(t, shared.prepareForAdmission(server), actByDefault(ctx, newDocumentSide(t, server.Name, server.Endpoint)))
	}
	bed.gateway = newFairgate(t, FairgateOptions{Mode: "impersonate", User: user, Upstream: bed.plain.URL, Off: true, Admission: "enforce", Fidelity: "completed"})
	succeeds(t, bed.gateway.Start(), untilPoliciesAreKnown(bed.gateway))
	return bed
}

// plugged names the settings of plugins that all sessions have in common.
var plugged = strings.NewReplacer("@ns", "plugged-ns", "@", "plugged-")

// actByDefault makes the objects by which plugins act, and waits until they do. Those in namespaces are in one of their own.
func actByDefault(ctx context.Context, side documentSide) error {
	if err := side.must(ctx, "POST", "/api/v1/namespaces", plugged.Replace(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"@ns"}}`), 201); err != nil {
		return err
	}
	for _, setting := range setByServerSettings() {
		if err := side.must(ctx, "POST", plugged.Replace(setting[0]), plugged.Replace(setting[1]), 201); err != nil {
			return err
		}
	}
	return untilPluginsAct(ctx, side, plugged.Replace)
}

// withNamespacedSettings has sessions make in their namespaces what plugins act by, before anything else. No request that compares objects is about it.
func withNamespacedSettings(sessions []Session) []Session {
	for at, session := range sessions {
		j := newEvaluation(strings.TrimPrefix(session.Name, playMark))
		for _, setting := range setByServerSettings() {
			if strings.Contains(setting[0], "/@ns/") {
				j.post(setting[0], setting[1])
			}
		}
		session.Requests = slices.Concat(session.Requests[:1:1], j.Requests, session.Requests[1:])
		sessions[at] = session
	}
	return sessions
}

// kindsInAllVersions are all kinds of a server, in all versions.
func kindsInAllVersions() ([]echoedKind, error) {
	further, err := furtherKinds()
	return append(evaluatedObjectKinds(), further...), err
}

// With all plugins of a server, each of which acts, policies of a gateway see what those of the server see but for the listed fields: in objects of all
// kinds that clients may write, in all versions that a server can serve, written in every way.
func TestWhatPluginsSetIsListedForAllKindsAndVersions(t *testing.T) {
	aboutEvaluatingFairgate(t)
	ctx := inTime(t, 30*time.Minute)
	bed := startPluggedBed(t, ctx)
	kinds := must[[]echoedKind](t)(kindsInAllVersions())
	areOfAllKinds(t, bed.server, kinds, func(apiVersion string) string { return apiVersion })
	sessions := withNamespacedSettings(wholeObjectSessions(kinds, "whole"))
	want, got, err := playBoth(ctx, sessions, admissionTarget(t, bed.server.Endpoint), admissionTarget(t, bed.gateway.Endpoint))
	succeeds(t, err)
	tally := wholeDifferences(t, want, got)
	fmt.Printf("ALL PLUGINS {\"sessions\":%d,\"alike\":%d,\"differing\":%d}\n", len(sessions), tally.alike, tally.differing)
	saidBySession := map[string]int{}
	for _, session := range want {
		for _, one := range session {
			if seen, _ := wholeIn(one.Response); seen != nil {
				saidBySession[one.Session]++
			}
		}
	}
	for _, session := range sessions {
		// A server does not ask its policies about reviews.
		isReview := strings.HasSuffix(session.Name, "reviews") || strings.HasSuffix(session.Name, "-whoami")
		if said := saidBySession[session.Name]; isReview != (said == 0) || !isReview && said < 5 {
			t.Errorf("%s: policies are asked about %d writes", session.Name, said)
		}
	}
	onlyKnownDiffer(t, pluginDifferencesFile, sessions, want, tally.found)
	areNamedByCheck(ctx, t, tally.found)
}

// fieldStep is a step of a field below the object; numbered ones are those of lists.
var fieldStep = regexp.MustCompile(`/([^/]+)`)

// fieldOf is what a policy reads of a difference: the resource, and an expression for the field.
func fieldOf(kinds []echoedKind, one Difference) (at exactObject, expression string, isKnown bool) {
	session := strings.TrimPrefix(one.Session, playMark+"whole-")
	number := slices.IndexFunc(kinds, func(kind echoedKind) bool { return kind.session == session })
	field, found := strings.CutPrefix(one.Field, "/whole/0")
	if number < 0 || !found || field == "" {
		return exactObject{}, "", false
	}
	version, resource, found := strings.Cut(kinds[number].path, ":")
	if !found {
		version, resource = "v1", kinds[number].path
	}
	group, version := groupOf(version)
	expression = "object"
	for _, step := range fieldStep.FindAllStringSubmatch(field, -1) {
		name := strings.ReplaceAll(step[1], "~1", "/")
		if _, err := strconv.Atoi(name); err == nil {
			expression += "[" + name + "]"
		} else {
			expression += fmt.Sprintf("[%q]", name)
		}
	}
	return exactObject{group: group, version: version, resource: resource}, "dyn(" + expression + ") == null", true
}

// `fairgate check --admission` names each field that policies of a server see otherwise, but for the status of a claim that is applied: what a dry run says of that.
func areNamedByCheck(ctx context.Context, t *testing.T, found []Difference) {
	t.Helper()
	kinds := must[[]echoedKind](t)(kindsInAllVersions())
	var expressions []exactExpression
	for _, one := range found {
		at, expression, isKnown := fieldOf(kinds, one)
		if !isKnown {
			t.Errorf("no policy reads %s of %s", one.Field, one.Session)
			continue
		}
		isSame := func(other exactExpression) bool { return other.at == at && other.Expression == expression }
		if !slices.ContainsFunc(expressions, isSame) && !strings.HasSuffix(one.Field, "/status/phase") {
			expressions = append(expressions, exactExpression{Expression: expression, at: at})
		}
	}
	names := must[map[int]string](t)(namedByCheck(ctx, expressions))
	for number, one := range expressions {
		if !strings.Contains(names[number], " of "+one.at.resource) {
			t.Errorf("check says of %s of %s: %q", one.Expression, one.at.resource, names[number])
		}
	}
	t.Logf("check names %d fields", len(expressions))
}
