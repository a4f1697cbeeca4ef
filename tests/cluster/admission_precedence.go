package cluster

import (
	"fmt"
	"strings"
)

// A precededKind is a resource of which a policy denies every write.
type precededKind struct {
	name, path, document string
	// unknown are edits that add fields which the kind does not have, at several depths.
	unknown []string
	// wrong is an edit that gives a field a value of another type.
	wrong string
	// repeated is text of the document, and what it is replaced by so that a key is there twice.
	repeated [2]string
	custom   bool
}

var precededKinds = []precededKind{
	{"configmaps", "configmaps", configMapDocument, []string{`what=1`, `metadata.nope="x"`}, `data.mode=5`, [2]string{`"data":{`, `"data":{"mode":"a",`}, false},
	{"pods", "pods", podDocument, []string{`spec.containers.0.extra={"a":1}`, `metadata.labelz={}`, `spec.nope=true`}, `spec.containers.0.image=5`, [2]string{`"containers":[{`, `"containers":[{"name":"d","name":"e",`}, false},
	{"deployments", "apps/v1:deployments", deployDocument, []string{`spec.replicaz=3`, `spec.template.spec.containers.0.extra="x"`}, `spec.replicas="x"`, [2]string{`"selector":{`, `"replicas":1,"replicas":2,"selector":{`}, false},
	{"leases", "coordination.k8s.io/v1:leases", `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"holderIdentity":"me"}}`, []string{`spec.holder="x"`}, `spec.leaseDurationSeconds="x"`, [2]string{`"spec":{`, `"spec":{"holderIdentity":"you",`}, false},
	{"things", "judged.example.com/v1:things", thingDocument, []string{`spec.nope=1`, `metadata.nope="x"`, `what={"a":1}`}, `spec.size="x"`, [2]string{`"spec":{`, `"spec":{"colour":"blue",`}, true},
}

// PrecedenceSessions are about what a server says of a request before its policies, and beside their denial: policies deny whatever
// these sessions write.
func PrecedenceSessions() []Session {
	var all []Session
	for _, kind := range precededKinds {
		for _, write := range []struct {
			name  string
			write func(*evaluation, precededKind)
		}{{"create", precededCreates}, {"update", precededUpdates}, {"patch", precededPatches}, {"delete", precededDeletions}, {"paths", precededPaths}} {
			j := newEvaluation("before-" + kind.name + "-" + write.name)
			j.denyAll(kind)
			write.write(j, kind)
			j.end(in(kind.path))
			all = append(all, j.Session)
		}
	}
	return append(all, precededTokens(), precededInvalid())
}

// denyAll makes an object "@x", and then policies that deny everything.
func (j *evaluation) denyAll(kind precededKind) {
	j.begin()
	j.post(in(kind.path), of(kind.document, "@x"))
	j.post(policiesPath, evaluatedPolicy("@a", `spec.matchConstraints.objectSelector={"matchExpressions":[{"key":"fence","operator":"DoesNotExist"}]}`,
		rules(`{"apiGroups":["*"],"apiVersions":["*"],"resources":["*/*"],"operations":["*"],"scope":"Namespaced"}`), mustHold(validation("false", `"message":"nothing goes"`))))
	j.post(bindingsPath, binding("@a", `spec.validationActions=["Deny"]`))
	j.settle()
}

// document is the one of the kind after edits, if wanted with a field twice.
func (k precededKind) body(name string, twice bool, edits ...string) string {
	text := of(k.document, name, edits...)
	if !twice {
		return text
	}
	// Editing sorts keys.
	replaced := strings.Replace(text, k.repeated[0], k.repeated[1], 1)
	if replaced == text {
		panic(fmt.Sprintf("nothing like %s in %s", k.repeated[0], text)) // written here
	}
	return replaced
}

var precededValidations = []string{"", "?fieldValidation=Warn", "?fieldValidation=Strict", "?fieldValidation=Ignore", "?fieldValidation=x"}

// bodies are documents of an object: right ones, and those with fields that are unknown, or there twice, or both.
func (k precededKind) bodies(name string) []string {
	return []string{k.body(name, false), k.body(name, false, k.unknown[0]), k.body(name, false, k.unknown...), k.body(name, true), k.body(name, true, k.unknown...)}
}

// invalidBodies are those that are refused before anything is asked about them. That the objects themselves are not valid is not among the reasons:
// a gateway leaves it to the upstream.
func (k precededKind) invalidBodies(name string) []string {
	bodies := []string{"", "{", "[]", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"` + name + `"}}`, k.body(name, false, `apiVersion="v7"`), k.body(name, false, "-metadata.name"),
		k.body(name, false, `metadata.namespace="other"`), k.body(name, false, `metadata.labels=5`), k.body(name, false, `metadata.ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"1"},{"apiVersion":"v1","kind":"Pod","name":"a","uid":"1"}]`)}
	for _, edits := range [][]string{{"-kind"}, {"-apiVersion"}, {"-apiVersion", "-kind"}} {
		bodies = append(bodies, k.body(name, false, edits...))
	}
	if k.custom || k.name == "configmaps" {
		bodies = append(bodies, "null", "{}")
	}
	if !k.custom {
		bodies = append(bodies, k.body(name, false, k.wrong), k.body(name, false, append([]string{k.wrong}, k.unknown...)...), k.body(name, true, k.wrong))
	}
	return bodies
}

func precededCreates(j *evaluation, kind precededKind) {
	path := in(kind.path)
	for _, query := range precededValidations {
		for _, body := range append(kind.bodies("@n"), kind.body("@x", false), kind.body("@x", false, kind.unknown...)) {
			j.post(path+query, body)
		}
		for _, twice := range []bool{false, true} {
			j.do("POST", path+query, kind.body("@n", twice, kind.unknown...), contentHeader, yamlType)
		}
	}
	for _, body := range kind.invalidBodies("@n") {
		j.post(path, body)
		j.post(path+"?fieldValidation=Strict", body)
	}
	for _, edit := range []string{`metadata.resourceVersion="1"`, `metadata.uid="x"`, `metadata.generateName="@g-"`} {
		j.post(path, kind.body("@n", false, edit))
	}
	j.post(path, edited(kind.body("@n", false), "-metadata.name", `metadata.generateName="@g-"`, kind.unknown[0]))
	j.post(path+"?dryRun=All", kind.body("@n", false, kind.unknown...))
	j.post(path+"?dryRun=x", kind.body("@n", false))
	j.post(path+"?dryRun=x&fieldValidation=x", kind.body("@n", false, kind.unknown...))
	j.post(path+"?fieldManager="+strings.Repeat("x", 200), kind.body("@n", false))
	j.post(strings.Replace(path, "@ns", "@absent", 1), kind.body("@n", false, kind.unknown...))
	for _, media := range []string{"text/plain", "", "application/json; charset=utf-8"} {
		j.do("POST", path, kind.body("@n", false, kind.unknown...), contentHeader, media)
	}
	for _, accept := range []string{"text/plain", protobufType, yamlType, tableType, "application/nope;q=1"} {
		j.post(path, kind.body("@n", false, kind.unknown[0]), "Accept", accept)
	}
}

func precededUpdates(j *evaluation, kind precededKind) {
	item := in(kind.path + "/@x")
	version := `metadata.resourceVersion="{{rv:@x}}"`
	for _, query := range precededValidations {
		for _, body := range kind.bodies("@x") {
			j.put(item+query, edit1(body, version))
		}
	}
	for _, body := range kind.invalidBodies("@x") {
		j.put(item, body)
		j.put(item+"?fieldValidation=Strict", body)
	}
	for _, edits := range [][]string{{}, {`metadata.resourceVersion="1"`}, {`metadata.resourceVersion="0"`}, {`metadata.resourceVersion="x"`}, {`metadata.resourceVersion=""`}, {version, `metadata.uid="wrong"`}, {version, `metadata.uid="{{uid:@x}}"`}, {`metadata.uid="wrong"`, `metadata.resourceVersion="1"`},
		{`metadata.name="@y"`}, {`metadata.resourceVersion="1"`, kind.unknown[0]}, {`metadata.resourceVersion="1"`, kind.wrong}} {
		j.put(item, kind.body("@x", false, edits...))
		j.put(item+"?fieldValidation=Strict", kind.body("@x", false, edits...))
	}
	j.put(in(kind.path+"/@none"), kind.body("@none", false))
	j.put(in(kind.path+"/@none"), kind.body("@none", false, kind.unknown...))
	j.put(in(kind.path+"/@none"), kind.body("@none", false, `metadata.resourceVersion="1"`))
	j.put(in(kind.path+"/@none"), kind.body("@none", false, `metadata.uid="x"`))
	j.put(in(kind.path+"/@none")+"?fieldValidation=Strict", kind.body("@none", false, kind.unknown...))
	j.put(in(kind.path+"/@none"), kind.body("@x", false))
	j.put(strings.Replace(item, "@ns", "@absent", 1), kind.body("@x", false, kind.unknown...))
	j.put(item+"?dryRun=x", kind.body("@x", false))
	for _, media := range []string{"text/plain", ""} {
		j.do("PUT", item, kind.body("@x", false, kind.unknown...), contentHeader, media)
	}
	for _, accept := range []string{"text/plain", protobufType} {
		j.put(item, kind.body("@x", false, kind.unknown[0]), "Accept", accept)
	}
}

// edit1 adds members to the metadata of a body, which may have keys twice.
func edit1(body, edit string) string {
	key, value, _ := strings.Cut(strings.TrimPrefix(edit, "metadata."), "=")
	return strings.Replace(body, `"metadata":{`, `"metadata":{"`+key+`":`+value+`,`, 1)
}

func precededPatches(j *evaluation, kind precededKind) {
	item := in(kind.path + "/@x")
	merges := []string{`{}`, `{"metadata":{"labels":{"a":"b"}}}`, `{"what":1}`, `{"what":1,"spec":{"nope":2},"metadata":{"nope":3}}`, `{"metadata":{"labels":{"a":"b","a":"c"}}}`, `{"what":1,"metadata":{"labels":{"a":"b","a":"c"}}}`, `{"metadata":{"labels":5}}`, `{"what":1,"metadata":{"labels":5}}`,
		`{"metadata":{"resourceVersion":"1"}}`, `{"metadata":{"resourceVersion":"1"},"what":1}`, `{"metadata":{"resourceVersion":"x"}}`, `{"metadata":{"uid":"wrong"}}`, `{"metadata":{"name":"@y"}}`, `{"metadata":{"namespace":"other"}}`, `{"kind":"Node"}`, `{"apiVersion":"v7"}`, `{`, `[]`, `null`, ``}
	operations := []string{`[]`, `[{"op":"add","path":"/metadata/labels/a","value":"b"}]`, `[{"op":"add","path":"/what","value":1}]`, `[{"op":"add","path":"/what","value":1,"more":2}]`, `[{"op":"add","op":"add","path":"/metadata/labels/a","value":"b"}]`, `[{"op":"test","path":"/metadata/name","value":"no"}]`, `[{"op":"remove","path":"/nothing"}]`, `[{"op":"nope","path":"/a"}]`,
		`[{"op":"replace","path":"/metadata/resourceVersion","value":"1"}]`, `[{"op":"replace","path":"/metadata/uid","value":"wrong"}]`, `[{"op":"replace","path":"/metadata/name","value":"@y"}]`, `[{"op":"replace","path":"/metadata/labels","value":5}]`, `{}`, `[`, `null`}
	for _, query := range precededValidations {
		query += map[bool]string{true: "?", false: "&"}[query == ""] + "fieldManager=me"
		for _, body := range merges {
			j.patch(item+query, mergePatch, body)
			j.patch(item+query, strategic, body)
		}
		for _, body := range operations {
			j.patch(item+query, jsonPatch, body)
		}
		for _, body := range append(kind.bodies("@x"), kind.body("@x", false, kind.wrong), kind.body("@x", false, `metadata.resourceVersion="1"`), kind.body("@x", false, `metadata.uid="wrong"`), kind.body("@y", false), "{", "a: b: c", "[]", "") {
			j.patch(item+query, applyPatch, body)
		}
	}
	for _, media := range []string{mergePatch, strategic, jsonPatch, applyPatch} {
		body := map[string]string{jsonPatch: operations[2], applyPatch: kind.body("@none", false, kind.unknown[0])}[media]
		if body == "" {
			body = merges[2]
		}
		j.patch(in(kind.path+"/@none")+"?fieldManager=me", media, body)
		j.patch(strings.Replace(item, "@ns", "@absent", 1)+"?fieldManager=me", media, body)
		j.patch(item+"?dryRun=x", media, body)
		j.patch(item+"?force=true", media, body)
		j.patch(item, media, body)
	}
	for _, media := range []string{"", "text/plain", jsonType, "application/merge-patch+json; charset=utf-8"} {
		j.patch(item, media, merges[2])
	}
}

func precededDeletions(j *evaluation, kind precededKind) {
	item, all := in(kind.path+"/@x"), in(kind.path)
	for _, path := range []string{item, all} {
		for _, query := range []string{"", "?dryRun=x", "?propagationPolicy=x", "?propagationPolicy=Foreground&orphanDependents=true", "?gracePeriodSeconds=x", "?dryRun=All"} {
			j.delete(path + query)
		}
		for _, body := range []string{"{", "[]", "null", "{}", `{"what":1}`, `{"gracePeriodSeconds":1,"gracePeriodSeconds":2}`, `{"gracePeriodSeconds":"x"}`, `{"kind":"Node","apiVersion":"v1"}`, `{"propagationPolicy":"x"}`, `{"dryRun":["x"]}`,
			`{"preconditions":{"uid":"wrong"}}`, `{"preconditions":{"resourceVersion":"1"}}`, `{"preconditions":{"uid":"{{uid:@x}}"}}`} {
			j.do("DELETE", path, body, contentHeader, jsonType)
		}
		j.do("DELETE", path, "{}", contentHeader, "text/plain")
	}
	j.delete(in(kind.path + "/@none"))
	j.do("DELETE", in(kind.path+"/@none"), `{"preconditions":{"uid":"wrong"}}`, contentHeader, jsonType)
	j.delete(strings.Replace(item, "@ns", "@absent", 1))
	j.delete(strings.Replace(all, "@ns", "@absent", 1))
	j.delete(all + "?labelSelector=a%20in%20(")
	j.delete(all + "?fieldSelector=a.b%3Dc")
	j.delete(all + "?fieldSelector=a")
	j.delete(all + "?limit=x")
	j.delete(all + "?resourceVersion=x")
	j.delete(all + "?labelSelector=s%3Dnobody")
}

// precededPaths are methods and paths that the server does not serve.
func precededPaths(j *evaluation, kind precededKind) {
	item, all := in(kind.path+"/@x"), in(kind.path)
	body := kind.body("@x", false)
	j.post(item, body)
	j.post(item, "{")
	j.put(all, body)
	j.patch(all, mergePatch, `{"metadata":{}}`)
	for _, subresource := range []string{"nope", "status", "scale", "eviction", "binding", "ephemeralcontainers", "log", "exec", "token"} {
		path := item + "/" + subresource
		j.post(path, body)
		j.put(path, body)
		j.patch(path, mergePatch, `{"metadata":{"labels":{"a":"b"}}}`)
		j.patch(path, strategic, `{"metadata":{"labels":{"a":"b"}}}`)
		j.delete(path)
		j.post(path+"/more", body)
		j.put(in(kind.path+"/@none/"+subresource), kind.body("@none", false))
		j.patch(in(kind.path+"/@none/"+subresource), mergePatch, `{"metadata":{"labels":{"a":"b"}}}`)
	}
	for _, path := range []string{in("nothings"), in("nothings/@x"), "/apis/nothing.example.com/v1/namespaces/@ns/nothings", "/apis/apps/v9/namespaces/@ns/deployments", in("apps/v1:configmaps"), "/api/v1/configmaps", "/apis/apps/v1/deployments", "/api/v1/namespaces/@ns"} {
		j.post(path, body)
		j.put(path, body)
		j.patch(path, mergePatch, `{"metadata":{"labels":{"a":"b"}}}`)
		if path != "/api/v1/namespaces/@ns" && !strings.HasPrefix(path, "/api/v1/configmaps") && !strings.HasPrefix(path, "/apis/apps/v1/deployments") {
			j.delete(path)
		}
	}
}

// precededTokens are requests for tokens that a policy denies, which says whether it sees the UID of the account.
func precededTokens() Session {
	j := newEvaluation("before-tokens")
	j.begin()
	j.post(in("serviceaccounts"), `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"@robot"}}`)
	j.post(in("pods"), of(podDocument, "@p"))
	seen := fmt.Sprintf(`"messageExpression":%q`, `request.resource.resource + ' ' + request.name + ' ' + object.metadata.?name.orValue('-') + ' ' + object.metadata.?namespace.orValue('-') + ' ' + `+
		`string(object.metadata.?uid.orValue('') == '{{uid:@robot}}') + ' ' + string(has(object.metadata.creationTimestamp))`)
	j.post(policiesPath, evaluatedPolicy("@a", rules(rule("", "serviceaccounts/token,pods/eviction,pods/binding", "CREATE")), mustHold(validation("false", seen))))
	j.post(bindingsPath, binding("@a", `spec.validationActions=["Deny"]`))
	j.settle()
	token := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{},"spec":{"audiences":["a"]}}`
	for _, edits := range [][]string{
		nil, {"-metadata"}, {`metadata.name="@robot"`}, {`metadata.name="other"`}, {`metadata.namespace="other"`}, {`metadata.namespace="@ns"`}, {`metadata.uid="{{uid:@robot}}"`}, {`metadata.uid="` + forgedUID + `"`},
		{`metadata.creationTimestamp="2019-01-01T00:00:00Z"`}, {`spec.expirationSeconds=5`}, {`spec.expirationSeconds=599`}, {`spec.expirationSeconds=600`}, {`spec.expirationSeconds=4294967296`}, {`spec.expirationSeconds=4294967297`},
		{`metadata.name="other"`, `metadata.uid="` + forgedUID + `"`}, {`metadata.uid="` + forgedUID + `"`, `spec.expirationSeconds=5`}, {`metadata.name="other"`, `metadata.namespace="other"`},
	} {
		for _, name := range []string{"@robot", "@none"} {
			j.post(in("serviceaccounts/"+name+"/token"), edited(token, edits...))
		}
	}
	for _, namespace := range []string{"@ns", "other", ""} {
		j.post(in("pods/@p/eviction"), edited(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"@p"}}`, `metadata.namespace="`+namespace+`"`))
		j.post(in("pods/@p/binding"), edited(`{"apiVersion":"v1","kind":"Binding","metadata":{"name":"@p"},"target":{"kind":"Node","name":"n"}}`, `metadata.namespace="`+namespace+`"`))
	}
	j.end(in("pods"), in("serviceaccounts"))
	return j.Session
}

// precededInvalid are objects that are not valid, and denied: a server validates an object before it asks its policies, whatever the verb.
func precededInvalid() Session {
	j := newEvaluation("before-invalid")
	j.denyAll(precededKinds[0])
	j.post(in("configmaps"), of(configMapDocument, "@Not_Valid"))
	j.post(in("pods"), edited(of(podDocument, "@p"), `spec.containers=[]`))
	item, wrong := in("configmaps/@x"), `metadata.labels.a="not valid"`
	j.put(item, of(configMapDocument, "@x", wrong))
	j.patch(item, mergePatch, edited(`{}`, wrong))
	j.patch(item, strategic, edited(`{}`, wrong))
	j.patch(item, jsonPatch, `[{"op":"add","path":"/metadata/annotations","value":{"not valid":"a"}}]`)
	j.put(in("coordination.k8s.io/v1:leases/@new"), `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"@new"},"spec":{"leaseDurationSeconds":-1}}`)
	j.post(in("judged.example.com/v1:things"), of(thingDocument, "@n", `metadata.labels.a="not valid"`))
	// An apply is evaluated by its dry run.
	j.apply(item, "me", of(configMapDocument, "@x", wrong))
	j.end(in("configmaps"), in("pods"))
	return j.Session
}
