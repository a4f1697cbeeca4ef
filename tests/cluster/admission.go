package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// An AdmissionBed is two apiservers that store the same admission policies: one enforces them, the other does not.
type AdmissionBed struct {
	Enforcing, Plain *Apiserver
}

// StartAdmissionBed starts both. Neither has a controller: only requests change objects, and pods need no service account.
func (c *Cluster) StartAdmissionBed() (*AdmissionBed, error) {
	bed := &AdmissionBed{}
	failures := make(chan error, 2)
	for _, one := range []struct {
		name, without string
		into          **Apiserver
	}{{"enforcing", "ServiceAccount", &bed.Enforcing}, {"plain", "ServiceAccount,ValidatingAdmissionPolicy", &bed.Plain}} {
		go func() {
			server, err := c.StartApiserver("admission-"+one.name, "", uidFlag, "--enable-priority-and-fairness=false", "--disable-admission-plugins="+one.without)
			if *one.into = server; err == nil {
				err = c.prepareForAdmission(server)
			}
			failures <- err
		}()
	}
	for range 2 {
		if err := <-failures; err != nil {
			return nil, err
		}
	}
	return bed, nil
}

// prepareForAdmission makes the custom kinds of the sessions, and waits until they and the first namespaces are there.
func (c *Cluster) prepareForAdmission(server *Apiserver) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	target, err := NewTarget(server.Name, c.Config(server.Endpoint, c.admin))
	if err != nil {
		return err
	}
	for _, kind := range evaluatedKinds {
		request := Request{Method: "POST", Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", Headers: map[string]string{contentHeader: jsonType}, Body: kind}
		response, err := target.send(ctx, request, newNormaliser(false, false))
		if err != nil || response.Code != 201 {
			return fmt.Errorf("%s: a custom kind was answered %d %v: %w", server.Name, response.Code, response.Body, err)
		}
	}
	return poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		for _, path := range []string{"/apis/judged.example.com/v1/things", "/apis/judged.example.com/v2/things", "/apis/judged.example.com/v1/limits", "/apis/judged.example.com/v1/ceilings", "/api/v1/namespaces/default"} {
			response, err := target.send(ctx, Request{Method: "GET", Path: path}, newNormaliser(false, false))
			if err != nil || response.Code != 200 {
				return false, err
			}
		}
		return true, nil
	})
}

// evaluatedKinds are custom kinds: one with two versions, a default, a status and a scale, and two for params.
var evaluatedKinds = func() []string {
	definition := func(plural, kind, scope, versions string) string {
		return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.judged.example.com"},`+
			`"spec":{"group":"judged.example.com","scope":"%[3]s","names":{"plural":"%[1]s","singular":"%[4]s","kind":"%[2]s","listKind":"%[2]sList"},"versions":[%[5]s]}}`,
			plural, kind, scope, strings.ToLower(kind), versions)
	}
	version := func(name string, stored bool, spec, more string) string {
		return fmt.Sprintf(`{"name":"%s","served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%s}},`+
			`"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}%s}`, name, stored, spec, more)
	}
	thing := `"size":{"type":"integer","default":3,"maximum":100},"colour":{"type":"string"},"replicas":{"type":"integer","default":1},` +
		`"parts":{"type":"array","items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"count":{"type":"integer","default":1}}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"]}`
	subresources := `,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}`
	limit := `"most":{"type":"integer"},"step":{"type":"string"},"tags":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},"list":{"type":"array","items":{"type":"string"}},` +
		`"rules":{"type":"array","items":{"type":"object","required":["name","port"],"properties":{"name":{"type":"string"},"port":{"type":"integer"},"verbs":{"type":"array","items":{"type":"string"}}}},` +
		`"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port","name"]},"box":{"type":"object","properties":{"a":{"type":"string"}},"x-kubernetes-map-type":"atomic"},` +
		`"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"map":{"type":"object","additionalProperties":{"type":"string"}},` +
		`"pod":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},"either":{"x-kubernetes-int-or-string":true},"any":{"x-kubernetes-preserve-unknown-fields":true}`
	return []string{
		definition("things", "Thing", "Namespaced", version("v1", true, thing, subresources)+","+version("v2", false, thing, subresources)),
		definition("limits", "Limit", "Namespaced", version("v1", true, limit, "")),
		definition("ceilings", "Ceiling", "Cluster", version("v1", true, limit, "")),
	}
}()

// numbered is a session for one more play on a server: "#" in its name is the number of the play. What is left of an
// earlier play then is in nobody's way, such as namespaces, which no controller removes.
func (s Session) numbered(play int) Session {
	swap := func(text string) string { return strings.ReplaceAll(text, playMark, playNumber(play)) }
	other := s
	other.Name = swap(s.Name)
	other.Requests = slices.Clone(s.Requests)
	for i := range other.Requests {
		request := &other.Requests[i]
		request.Path, request.Query, request.Body, request.Warning = swap(request.Path), swap(request.Query), swap(request.Body), swap(request.Warning)
		if request.By != nil {
			by := *request.By
			by.Name = swap(by.Name)
			request.By = &by
		}
		if len(request.Headers) > 0 {
			headers := map[string]string{}
			for name, value := range request.Headers {
				headers[name] = swap(value)
			}
			request.Headers = headers
		}
		if data, err := base64.StdEncoding.DecodeString(request.Base64); err == nil {
			// The mark and the number have one length, so lengths in protobuf hold.
			request.Base64 = base64.StdEncoding.EncodeToString([]byte(swap(string(data))))
		}
	}
	return other
}

const playMark = "j-z-"

func playNumber(play int) string { return "j-" + string(rune('a'+play)) + "-" }

// unnumbered is what was played, without the number, and without the fingerprints of the users' certificates, whose names
// have it.
func unnumbered(played [][]Exchange, play int) ([][]Exchange, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(played); err != nil {
		return nil, err
	}
	plainText := strings.ReplaceAll(text.String(), playNumber(play), playMark)
	decoder := json.NewDecoder(strings.NewReader(fingerprint.ReplaceAllString(plainText, "X509SHA256={{certificate}}")))
	decoder.UseNumber()
	var plain [][]Exchange
	return plain, decoder.Decode(&plain)
}

var fingerprint = regexp.MustCompile(`X509SHA256=[0-9a-f]{64}`)

// playEvaluated plays sessions as the play of that number, many at once, since they mostly wait for policies to take effect.
func playEvaluated(ctx context.Context, target *Target, sessions []Session, play int) ([][]Exchange, error) {
	const atOnce = 16
	mine := make([]Session, len(sessions))
	for i, session := range sessions {
		mine[i] = session.numbered(play)
	}
	played, err := playAtOnce(ctx, target, mine, atOnce)
	if err != nil {
		return nil, err
	}
	if played, err = unnumbered(played, play); err != nil {
		return nil, err
	}
	for _, session := range played {
		for i := range session {
			session[i].Response = evaluatedResponse(session[i].Response)
		}
	}
	return played, nil
}

// evaluatedResponse leaves out what is random in each answer.
func evaluatedResponse(response Response) Response {
	// Tokens, and where in a list of conditions a time stood.
	if status, ok := at(response.Body, "status").(map[string]any); ok && text(response.Body, "kind") == "TokenRequest" {
		status["token"] = "{{token}}"
	}
	// The server stops at the first field that is not in the schema, in the order of a Go map.
	if body, ok := response.Body.(map[string]any); ok && undeclared.MatchString(text(body, "message")) {
		body["message"] = undeclared.ReplaceAllString(text(body, "message"), "$1 {{field}}: field not declared in schema")
	}
	return response
}

var undeclared = regexp.MustCompile(`(?s)^(failed to create typed patch object \(.*\):).*field not declared in schema$`)

// A evaluation writes a session about what policies make of requests. Its namespace is "@ns"; its policies are about
// objects in that namespace, or about objects with the label s of the session.
type evaluation struct {
	script
	changes int // of policies, bindings, params and the namespace; see settle
}

func newEvaluation(name string) *evaluation {
	return &evaluation{script: script{Session{Name: playMark + name}}}
}

// by makes somebody else send the last request.
func (j *evaluation) by(who Requester) { j.Requests[len(j.Requests)-1].By = &who }

// in is a path in the session's namespace: of the core group, or of another one with "GROUP/VERSION:".
func in(resource string) string {
	root := "/api/v1"
	if group, rest, found := strings.Cut(resource, ":"); found {
		root, resource = "/apis/"+group, rest
	}
	return root + "/namespaces/@ns/" + resource
}

// A fence is a policy that tells, by a warning about a dry run, which changes the server knows: of policies, of bindings,
// of params and of the namespace.
const (
	fencePolicy = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"@fence","labels":{"s":"@all"}},` +
		`"spec":{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"matchConstraints":{"namespaceSelector":{"matchLabels":{"s":"@all"}},"objectSelector":{"matchExpressions":[{"key":"fence","operator":"Exists"}]},` +
		`"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},"validations":[%s]}}`
	fenceBinding = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"@fence","labels":{"s":"@all"}},` +
		`"spec":{"policyName":"@fence","validationActions":["Warn"],"paramRef":{"name":"@steps","namespace":"default","parameterNotFoundAction":"Allow"},"matchResources":{"objectSelector":{"matchLabels":{"fence":"f%d"}}}}}`
	fenceValidation = `{"expression":"false","messageExpression":"'fence %d, params ' + params.data.step + ', namespace ' + namespaceObject.metadata.labels.step"}`
)

// stepsPath is where the params of fences are: no policy of a session is about that namespace.
const stepsPath = "/api/v1/namespaces/default/configmaps"

// begin makes the namespace, with more labels if there are any.
func (j *evaluation) begin(labels ...string) {
	more := ""
	for _, label := range labels {
		more += "," + label
	}
	j.post("/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"@ns","labels":{"s":"@all","step":"0"`+more+`}}}`)
	j.post(stepsPath, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"@steps"},"data":{"step":"0"}}`)
}

// settle waits until all changes so far are known to the server.
func (j *evaluation) settle() {
	validation := fmt.Sprintf(fenceValidation, j.changes)
	if j.changes == 0 {
		j.post(policiesPath, fmt.Sprintf(fencePolicy, validation))
		j.post(bindingsPath, fmt.Sprintf(fenceBinding, 0))
	} else {
		step := fmt.Sprintf(`"step":"%d"`, j.changes)
		j.patch("/api/v1/namespaces/@ns", mergePatch, `{"metadata":{"labels":{`+step+`}}}`)
		j.patch(stepsPath+"/@steps", mergePatch, `{"data":{`+step+`}}`)
		j.patch(policiesPath+"/@fence", mergePatch, `{"spec":{"validations":[`+validation+`]}}`)
		j.patch(bindingsPath+"/@fence", mergePatch, fmt.Sprintf(`{"spec":{"matchResources":{"objectSelector":{"matchLabels":{"fence":"f%d"}}}}}`, j.changes))
	}
	j.post(in("configmaps?dryRun=All"), fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"@probe","labels":{"fence":"f%d"}},"data":{"mode":"probe","size":"0"}}`, j.changes))
	last := &j.Requests[len(j.Requests)-1]
	last.Until, last.Warning = warned, fmt.Sprintf("fence %[1]d, params %[1]d, namespace %[1]d", j.changes)
	j.changes++
}

// replacePolicy and replaceBinding replace the one of the session that has this name.
func (j *evaluation) replacePolicy(name, document string)  { j.replace(policiesPath, name, document) }
func (j *evaluation) replaceBinding(name, document string) { j.replace(bindingsPath, name, document) }

func (j *evaluation) replace(path, name, document string) {
	// A policy and its binding have one name, so the version is that of the one which was read last.
	j.get(path + "/" + name)
	j.put(path+"/"+name, edited(document, `metadata.resourceVersion="{{rv:`+name+`}}"`))
}

// end lists what is there afterwards, and deletes the policies.
func (j *evaluation) end(paths ...string) {
	for _, path := range paths {
		join := "?"
		if strings.Contains(path, "?") {
			join = "&"
		}
		j.get(path + join + "labelSelector=s%3D@all")
	}
	for _, name := range []string{"@a", "@b", "@fence"} {
		j.delete(bindingsPath + "/" + name)
	}
	for _, name := range []string{"@a", "@b", "@fence"} {
		j.delete(policiesPath + "/" + name)
	}
}

// evaluatedPolicy is a policy after edits. It is about all objects in the namespace of the session for which rules are, and
// it denies those with the label deny.
func evaluatedPolicy(name string, edits ...string) string {
	first := []string{`spec.matchConstraints={"namespaceSelector":{"matchLabels":{"s":"@all"}},"resourceRules":[` +
		rule("", "configmaps", "CREATE", "UPDATE") + `]}`, mustHold(`!has(object.metadata.labels) || !('deny' in object.metadata.labels)`)}
	return policy(name, append(first, edits...)...)
}

// rule is a resource rule for all versions of a group. Resources are joined by commas.
func rule(group, resources string, operations ...string) string {
	return fmt.Sprintf(`{"apiGroups":[%q],"apiVersions":["*"],"resources":%s,"operations":%s}`, group, asJSON(strings.Split(resources, ",")), asJSON(operations))
}

// rules is an edit of a policy: what it is about.
func rules(all ...string) string {
	return "spec.matchConstraints.resourceRules=[" + strings.Join(all, ",") + "]"
}

// mustHold is an edit of a policy: what must hold, as expressions or as objects.
func mustHold(all ...string) string {
	for i, one := range all {
		if !strings.HasPrefix(one, `{"expression"`) {
			all[i] = validation(one)
		}
	}
	return "spec.validations=[" + strings.Join(all, ",") + "]"
}
