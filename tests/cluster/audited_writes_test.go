package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	auditedMaps        = "/api/v1/namespaces/" + auditedNamespace + "/configmaps"
	auditedPods        = "/api/v1/namespaces/" + auditedNamespace + "/pods"
	auditedDeployments = "/apis/apps/v1/namespaces/" + auditedNamespace + "/deployments"
	auditedLeases      = "/apis/coordination.k8s.io/v1/namespaces/" + auditedNamespace + "/leases"
	auditedParts       = "/apis/audited.example.com/v1/namespaces/" + auditedNamespace + "/parts"
	mergeType          = "application/merge-patch+json"
	jsonPatchType      = "application/json-patch+json"
	applyType          = "application/apply-patch+yaml"
)

// auditedVersionPolicies record which version of which object a write was carried out on.
func auditedVersionPolicies() (policies []string) {
	rules := []string{
		`{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps","pods","pods/eviction","namespaces"]}`,
		`{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["*"],"resources":["deployments","deployments/status","deployments/scale"]}`,
		`{"apiGroups":["coordination.k8s.io"],"apiVersions":["v1"],"operations":["*"],"resources":["leases"]}`,
		`{"apiGroups":["audited.example.com"],"apiVersions":["v1"],"operations":["*"],"resources":["parts","parts/status"]}`,
	}
	message := `request.operation + ' ' + request.name + ' ' + (oldObject == null ? 'none' : oldObject.metadata.resourceVersion + ' ' + string(oldObject.metadata.?labels.l.orValue('-')) + ' ' + string(has(oldObject.metadata.deletionTimestamp))) + ` +
		`' ' + (object == null ? 'none' : string(object.metadata.?labels.l.orValue('-'))) + ' ' + string(request.options.?gracePeriodSeconds.orValue(-1))`
	for i, rule := range rules {
		name := fmt.Sprintf("audited-versions-%d", i)
		policies = append(policies, fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":%q},"spec":{"failurePolicy":"Fail","matchConstraints":{`+
			`"resourceRules":[%s]},"matchConditions":[{"name":"audited","expression":"request.?namespace.orValue('').startsWith('audited')"}],"validations":[{"expression":"false","messageExpression":%s}]}}`, name, rule, quoted(message)),
			fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":%[1]q},"spec":{"policyName":%[1]q,"validationActions":["Audit"]}}`, name))
	}
	return policies
}

// An auditedClient sends requests through a gateway, each with a name that is in the server's log.
type auditedClient struct {
	t      *testing.T
	ctx    context.Context
	target *Target
}

// send returns the answered object, and fails unless the code is the expected one; 0 is any.
func (c auditedClient) send(name, method, path, media, body string, code int) map[string]any {
	c.t.Helper()
	wire, err := http.NewRequestWithContext(c.ctx, method, c.target.base.String()+path, bytes.NewReader([]byte(body)))
	if err != nil {
		c.t.Error(err)
		return nil
	}
	wire.Header.Set("User-Agent", name)
	if media != "" {
		wire.Header.Set("Content-Type", media)
	}
	response, err := c.target.transport.RoundTrip(wire)
	if err != nil {
		c.t.Errorf("%s: %v", name, err)
		return nil
	}
	defer response.Body.Close()
	data, _ := io.ReadAll(response.Body)
	if code != 0 && response.StatusCode != code {
		c.t.Errorf("%s: %s %s is answered with %d, not %d: %s", name, method, path, response.StatusCode, code, data)
	}
	var object map[string]any
	_ = json.Unmarshal(data, &object)
	return object
}

func versionOf(object map[string]any) string { return text(object, "metadata", "resourceVersion") }

func auditedMap(name, label, version string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"l":%q},"resourceVersion":%q}}`, name, label, version)
}

// conflicts are what a server refuses because of what is stored.
func (c auditedClient) conflicts() {
	first := c.send("create", "POST", auditedMaps, jsonType, auditedMap("m", "1", ""), 201)
	c.send("create an existing one", "POST", auditedMaps, jsonType, auditedMap("m", "2", ""), 409)
	c.send("update", "PUT", auditedMaps+"/m", jsonType, auditedMap("m", "3", versionOf(first)), 200)
	c.send("update an old version", "PUT", auditedMaps+"/m", jsonType, auditedMap("m", "4", versionOf(first)), 409)
	c.send("patch an old version", "PATCH", auditedMaps+"/m", mergeType, `{"metadata":{"resourceVersion":"`+versionOf(first)+`","labels":{"l":"5"}}}`, 409)
	c.send("delete another object", "DELETE", auditedMaps+"/m", jsonType, `{"preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}`, 409)
	c.send("delete an old version", "DELETE", auditedMaps+"/m", jsonType, `{"preconditions":{"resourceVersion":"`+versionOf(first)+`"}}`, 409)
	c.send("update another object", "PUT", auditedMaps+"/m", jsonType, `{"metadata":{"name":"m","uid":"00000000-0000-0000-0000-000000000000"}}`, 409)
	c.send("delete", "DELETE", auditedMaps+"/m", "", "", 200)
	c.send("update a deleted one", "PUT", auditedMaps+"/m", jsonType, auditedMap("m", "6", versionOf(first)), 404)
	c.send("patch a deleted one", "PATCH", auditedMaps+"/m", mergeType, `{"metadata":{"labels":{"l":"7"}}}`, 404)
	c.send("delete a deleted one", "DELETE", auditedMaps+"/m", "", "", 404)
	c.send("create without a namespace", "POST", "/api/v1/namespaces/audited-none/configmaps", jsonType, auditedMap("m", "8", ""), 404)
	c.send("create an invalid one", "POST", auditedMaps, jsonType, `{"metadata":{"name":"M"}}`, 422)
	c.send("evict none", "POST", auditedPods+"/none/eviction", jsonType, `{"metadata":{"name":"none"}}`, 404)
	c.send("create a lease by PUT", "PUT", auditedLeases+"/l", jsonType, `{"metadata":{"name":"l","labels":{"l":"1"}}}`, 201)
}

// changes are writes of all forms.
func (c auditedClient) changes() {
	for _, one := range []struct{ name, path, object string }{
		{"a map", auditedMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","labels":{"l":%q}%s}}`},
		{"a deployment", auditedDeployments, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"c","labels":{"l":%q}%s},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
		{"a custom resource", auditedParts, `{"apiVersion":"audited.example.com/v1","kind":"Part","metadata":{"name":"c","labels":{"l":%q}%s},"spec":{"a":"b"}}`},
	} {
		at := one.path + "/c"
		made := c.send("create "+one.name, "POST", one.path, jsonType, fmt.Sprintf(one.object, "1", ""), 201)
		stated := func(object map[string]any) string { return `,"resourceVersion":"` + versionOf(object) + `"` }
		made = c.send("update "+one.name, "PUT", at, jsonType, fmt.Sprintf(one.object, "2", stated(made)), 200)
		c.send("update nothing of "+one.name, "PUT", at, jsonType, fmt.Sprintf(one.object, "2", stated(made)), 200)
		for step := range 4 {
			c.send("patch "+one.name, "PATCH", at, mergeType, fmt.Sprintf(`{"metadata":{"labels":{"l":"p%d"}}}`, step), 200)
		}
		c.send("patch nothing of "+one.name, "PATCH", at, mergeType, `{"metadata":{"labels":{"l":"p3"}}}`, 200)
		c.send("JSON patch of "+one.name, "PATCH", at, jsonPatchType, `[{"op":"replace","path":"/metadata/labels/l","value":"j"}]`, 200)
		for step := range 3 {
			body := fmt.Sprintf(one.object, fmt.Sprintf("a%d", step/2), "")
			c.send("apply "+one.name, "PATCH", at+"?fieldManager=me&force=true", applyType, body, 200)
		}
		c.send("apply anew "+one.name, "PATCH", one.path+"/applied?fieldManager=me", applyType, strings.Replace(fmt.Sprintf(one.object, "n", ""), `"c"`, `"applied"`, 1), 201)
		if one.path != auditedMaps {
			c.send("status of "+one.name, "PATCH", at+"/status", mergeType, `{"status":{"replicas":3}}`, 200)
			c.send("status of "+one.name, "PATCH", at+"/status", mergeType, `{"status":{"replicas":4}}`, 200)
		}
		c.send("dry run of "+one.name, "PATCH", at+"?dryRun=All", mergeType, `{"metadata":{"labels":{"l":"dry"}}}`, 200)
		c.send("delete "+one.name, "DELETE", at, "", "", 200)
	}
	c.send("create to scale", "POST", auditedDeployments, jsonType, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"s"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, 201)
	for step := range 3 {
		c.send("scale", "PATCH", auditedDeployments+"/s/scale", mergeType, fmt.Sprintf(`{"spec":{"replicas":%d}}`, step), 200)
	}
}

// deletions are those of pods and namespaces, which take several steps.
func (c auditedClient) deletions() {
	pod := func(name, node string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"l":"p"}},"spec":{%s"terminationGracePeriodSeconds":30,"containers":[{"name":"c","image":"i"}]}}`, name, node)
	}
	for i := range 5 {
		waiting, running := fmt.Sprintf("waiting-%d", i), fmt.Sprintf("running-%d", i)
		c.send("create a pod", "POST", auditedPods, jsonType, pod(waiting, ""), 201)
		c.send("create a running pod", "POST", auditedPods, jsonType, pod(running, `"nodeName":"n",`), 201)
		c.send("delete a waiting pod", "DELETE", auditedPods+"/"+waiting, "", "", 200)
		c.send("delete a running pod", "DELETE", auditedPods+"/"+running, "", "", 200)
		c.send("delete it again", "DELETE", auditedPods+"/"+running, "", "", 200)
		c.send("delete it sooner", "DELETE", auditedPods+"/"+running, jsonType, `{"gracePeriodSeconds":5}`, 200)
		c.send("delete it at once", "DELETE", auditedPods+"/"+running, jsonType, `{"gracePeriodSeconds":0}`, 200)
		kept := fmt.Sprintf("kept-%d", i)
		body := strings.Replace(auditedMap(kept, "1", ""), `"labels"`, `"finalizers":["audited.example.com/kept"],"labels"`, 1)
		c.send("create a kept one", "POST", auditedMaps, jsonType, body, 201)
		c.send("delete a kept one", "DELETE", auditedMaps+"/"+kept, "", "", 200)
		c.send("delete a kept one again", "DELETE", auditedMaps+"/"+kept, "", "", 200)
		c.send("let go of a kept one", "PATCH", auditedMaps+"/"+kept, mergeType, `{"metadata":{"finalizers":null}}`, 200)
		space := fmt.Sprintf("audited-%d", i)
		c.send("create a namespace", "POST", "/api/v1/namespaces", jsonType, `{"metadata":{"name":"`+space+`"}}`, 201)
		c.send("delete a namespace", "DELETE", "/api/v1/namespaces/"+space, "", "", 200)
		c.send("delete a namespace again", "DELETE", "/api/v1/namespaces/"+space, "", "", 200)
	}
}

// together are many writes of the same objects at the same time.
func (c auditedClient) together() {
	c.send("create for all", "POST", auditedMaps, jsonType, auditedMap("all", "0", ""), 201)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for step := range 25 {
				label, own := fmt.Sprintf("%d-%d", worker, step), fmt.Sprintf("own-%d-%d", worker, step)
				c.send("patch together", "PATCH", auditedMaps+"/all", mergeType, `{"metadata":{"labels":{"l":"`+label+`"}}}`, 0)
				c.send("create each", "POST", auditedMaps, jsonType, auditedMap(own, label, ""), 201)
				c.send("patch each", "PATCH", auditedMaps+"/"+own, mergeType, `{"metadata":{"labels":{"l":"new"}}}`, 200)
				c.send("delete each", "DELETE", auditedMaps+"/"+own, "", "", 200)
			}
		})
	}
	group.Wait()
}

// What a gateway in audit mode records of writes that a server refuses, or carries out in several steps, is what the server records: for each
// the version of the stored object, and nothing for those that it does not ask its policies about.
func TestAuditRecordsWhichVersionAWriteWasCarriedOutOn(t *testing.T) {
	aboutEvaluatingFairgate(t)
	oneAtATime(t)
	ctx := inTime(t, 10*time.Minute)
	world := newAuditedWorld(t, ctx, "versions", auditedVersionPolicies())
	client := auditedClient{t, ctx, admissionTarget(t, world.gateway.Endpoint)}
	direct := newDocumentSide(t, world.server.Name, world.server.Endpoint)
	definition := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"parts.audited.example.com"},"spec":{"group":"audited.example.com","scope":"Namespaced","names":{"plural":"parts","singular":"part","kind":"Part","listKind":"PartList"},` +
		`"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
	succeeds(t, direct.must(ctx, "POST", definitions, definition, 201))
	// Both record the last policy's finding, and the gateway knows the custom resource.
	for _, probe := range []string{auditedParts, auditedMaps} {
		body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + auditedProbe + `"}}`
		if probe == auditedParts {
			body = `{"apiVersion":"audited.example.com/v1","kind":"Part","metadata":{"name":"` + auditedProbe + `"}}`
		}
		succeeds(t, poll(changeLimit, 200*time.Millisecond, func() (bool, error) {
			client.send(auditedProbe, "POST", probe+"?dryRun=All", jsonType, body, 0)
			both := 0
			for _, log := range []string{world.serverLog, world.log} {
				recorded, err := readRecorded(log)
				if err != nil {
					return false, err
				}
				for _, one := range recorded {
					if strings.Contains(asText(one.Annotations), auditedProbe) && (one.Resource == "" || strings.HasSuffix(probe, one.Resource)) {
						both++
						break
					}
				}
			}
			return both == 2, nil
		}))
	}
	client.conflicts()
	client.changes()
	client.deletions()
	client.together()
	succeeds(t, world.gateway.Stop())
	compareVersions(t, must[map[string]recordedRequest](t)(readAnswered(world.serverLog)), must[map[string]recordedRequest](t)(readRecorded(world.log)))
}

// readAnswered reads all responses of a server's log, also those without annotations.
func readAnswered(file string) (map[string]recordedRequest, error) {
	return readAllRecorded(file, true)
}

// compareVersions compares the records of all named requests.
func compareVersions(t *testing.T, server, gateway map[string]recordedRequest) {
	type outcome struct{ alike, notJudged, wrong int }
	all := map[string]*outcome{}
	total := outcome{}
	for id, wanted := range server {
		got, found := gateway[id]
		if wanted.Agent == auditedProbe || strings.Contains(wanted.Agent, "/") || strings.HasPrefix(wanted.Agent, "documents") {
			continue // not through the gateway, or before it knew all
		}
		one := all[wanted.Agent]
		if one == nil {
			one = &outcome{}
			all[wanted.Agent] = one
		}
		switch {
		case asText(got.Annotations) == asText(wanted.Annotations) && got.Decision != "notJudged" || !found && len(wanted.Annotations) == 0:
			one.alike++
			total.alike++
		case got.Decision == "notJudged":
			one.notJudged++
			total.notJudged++
			fmt.Printf("  not judged: %s: %s: %s\n", wanted.Agent, asText(wanted.Annotations), got.Failure)
		default:
			one.wrong++
			total.wrong++
			t.Errorf("%s (%s, %d), found %v:\nserver:  %s\ngateway: %s %s", wanted.Agent, id, wanted.Answer.Code, found, asText(wanted.Annotations), got.Decision, asText(got.Annotations))
		}
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Printf("  %s: %d alike, %d not judged, %d wrong\n", name, all[name].alike, all[name].notJudged, all[name].wrong)
	}
	fmt.Printf("AUDITED WRITES %d alike, %d not judged, %d wrong\n", total.alike, total.notJudged, total.wrong)
	if one := all["create an existing one"]; one == nil || one.alike != 1 {
		t.Error("a creation of an object that exists is to be judged: a server asks its policies before it finds that")
	}
	// Policies see the version, so nothing is recorded of those objects that have changed just before.
	if total.alike < 300 {
		t.Errorf("too few are alike: %d", total.alike)
	}
}
