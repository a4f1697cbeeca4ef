package cluster

import (
	"fmt"
	"strings"
)

// Warnings of policies beside those of the server itself.
func evaluatedWarnings(j *evaluation) {
	long := `"messageExpression":"'` + strings.Repeat("a", 300) + ` ' + object.metadata.name"`
	j.begins(evaluatedPolicy("@a", rules(rule("", "configmaps,pods", "*"), rule("judged.example.com", "things", "*")), mustHold(
		validation(`!('one' in object.metadata.labels)`, `"message":"has \"one\" \\ label"`),
		validation("!('lines' in object.metadata.labels) ||\n  false"),
		validation(`!('long' in object.metadata.labels)`, long),
		validation(`!('error' in object.metadata.labels) || object.nope`),
		validation(`!('one' in object.metadata.labels)`, `"message":"has \"one\" \\ label"`),
		validation(`!('umlaut' in object.metadata.labels)`, `"message":"schön"`),
	)), binding("@a", `spec.validationActions=["Warn"]`))
	for _, label := range []string{"one", "lines", "long", "error", "umlaut", "none"} {
		j.post(in("configmaps?dryRun=All"), of(configMapDocument, "@x", `metadata.labels.`+label+`="yes"`))
	}
	one := `metadata.labels.one="yes"`
	j.post(in("configmaps"), of(configMapDocument, "@x", one, `what=5`))
	j.post(in("configmaps?fieldValidation=Strict"), of(configMapDocument, "@y", one, `what=5`))
	j.post(in("configmaps?fieldValidation=Ignore"), of(configMapDocument, "@y", one, `what=5`))
	j.post(in("pods"), of(podDocument, "@p", one, `spec.containers.0.env=[{"name":"A","value":"1"},{"name":"A","value":"2"}]`))
	j.post(in("pods"), of(podDocument, "@q", one, `spec.nodeSelector={"beta.kubernetes.io/os":"linux"}`, `metadata.annotations={"scheduler.alpha.kubernetes.io/critical-pod":""}`))
	j.post(in("judged.example.com/v1:things"), of(thingDocument, "@t", one, `spec.what=5`))
	j.patch(in("configmaps/@x"), mergePatch, `{"data":{"a":"b"},"more":5}`)
	j.patch(in("configmaps/@x"), strategic, `{"data":{"a":"c"}}`)
	j.apply(in("configmaps/@x")+"?force=true", "me", of(configMapDocument, "@x", one))
	j.put(in("configmaps/@x"), of(configMapDocument, "@x"))
	j.put(in("configmaps/@x"), of(configMapDocument, "@x", one, `metadata.resourceVersion="1"`))
	j.post(in("configmaps"), of(configMapDocument, "@x", one)) // exists
	// More than a reply has room for.
	var many []string
	for number := range 30 {
		many = append(many, validation(`!('many' in object.metadata.labels)`, fmt.Sprintf(`"message":"%d %s"`, number, strings.Repeat("b", 20*number))))
	}
	j.replacePolicy("@a", evaluatedPolicy("@a", mustHold(many...)))
	j.settle()
	j.post(in("configmaps?dryRun=All"), of(configMapDocument, "@x", `metadata.labels.many="yes"`))
	j.post(in("configmaps?dryRun=All"), of(configMapDocument, "@x", `metadata.labels.many="yes"`, `what=5`))
	// One policy warns, one refuses.
	j.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"validationActions":["Warn","Audit"]}}`)
	j.replacePolicy("@a", evaluatedPolicy("@a", mustHold(`!('one' in object.metadata.labels)`)))
	j.post(policiesPath, evaluatedPolicy("@b", mustHold(`!('deny' in object.metadata.labels)`)))
	j.post(bindingsPath, binding("@b", `spec.validationActions=["Deny","Audit"]`))
	j.settle()
	j.post(in("configmaps"), of(configMapDocument, "@z", one, `metadata.labels.deny="yes"`))
	j.post(in("configmaps"), of(configMapDocument, "@z", `metadata.labels.deny="yes"`, `what=5`))
	j.post(in("configmaps"), of(configMapDocument, "@z", one))
	j.end(in("configmaps"))
}

// Params that are ConfigMaps: by name and by selector, of the namespace and of another, absent and changed.
func evaluatedParams(j *evaluation) {
	j.begin()
	param := func(name, mode, labels string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `","labels":{` + labels + `}},"data":{"forbidden":"` + mode + `"}}`
	}
	j.post(in("configmaps"), param("@p1", "slow", `"set":"one"`))
	j.post(in("configmaps"), param("@p2", "fast", `"set":"two"`))
	j.post(in("configmaps"), param("@p3", "never", `"set":"two"`))
	j.post("/api/v1/namespaces/default/configmaps", param("@far", "far", `"set":"@all"`))
	j.post(policiesPath, evaluatedPolicy("@a", `spec.paramKind={"apiVersion":"v1","kind":"ConfigMap"}`, rules(rule("", "secrets", "*"), rule("", "namespaces/status", "UPDATE")), mustHold(
		validation(`params == null || object == null || object.metadata.?labels.orValue({})[?'mode'].orValue('') != params.data.forbidden`, `"messageExpression":"params.data.forbidden + ' of ' + params.metadata.namespace + ' ' + params.kind + ' ' + params.apiVersion"`))))
	reference := func(text string) string { return `spec.paramRef=` + text }
	j.post(bindingsPath, binding("@a", reference(`{"name":"@p1","parameterNotFoundAction":"Deny"}`)))
	j.settle()
	write := func() {
		for _, mode := range []string{"slow", "fast", "far", "other"} {
			j.post(in("secrets?dryRun=All"), of(secretDocument, "@x", `metadata.labels.mode="`+mode+`"`))
		}
	}
	write()
	j.patch(in("configmaps/@p1"), mergePatch, `{"data":{"forbidden":"other"}}`)
	j.settle()
	write()
	j.patch(in("configmaps/@p1"), mergePatch, `{"data":null}`)
	j.settle()
	write()
	j.delete(in("configmaps/@p1"))
	j.settle()
	write()
	for _, text := range []string{
		`{"name":"@p1","parameterNotFoundAction":"Allow"}`,
		`{"selector":{"matchLabels":{"set":"two"}},"parameterNotFoundAction":"Deny"}`,
		`{"selector":{"matchLabels":{"set":"@all"}},"namespace":"default","parameterNotFoundAction":"Deny"}`,
		`{"name":"@far","namespace":"default","parameterNotFoundAction":"Deny"}`,
		`{"selector":{"matchLabels":{"set":"none"}},"parameterNotFoundAction":"Deny"}`,
		`{"selector":{"matchLabels":{"set":"none"}},"parameterNotFoundAction":"Allow"}`,
		`null`,
	} {
		j.replaceBinding("@a", binding("@a", reference(text)))
		j.settle()
		write()
	}
	j.delete("/api/v1/namespaces/default/configmaps/@far")
	// A request without a namespace, and params that need one.
	j.replacePolicy("@a", policy("@a", `spec.paramKind={"apiVersion":"v1","kind":"ConfigMap"}`, `spec.matchConstraints={"objectSelector":{"matchLabels":{"s":"@all"}},"resourceRules":[`+rule("judged.example.com", "ceilings", "*")+`]}`, mustHold(`params == null || params.data.forbidden != 'fast'`)))
	for _, text := range []string{`{"name":"@p2","parameterNotFoundAction":"Allow"}`, `{"name":"@p2","namespace":"@ns","parameterNotFoundAction":"Allow"}`} {
		for _, failure := range []string{"Fail", "Ignore"} {
			j.patch(policiesPath+"/@a", mergePatch, `{"spec":{"failurePolicy":"`+failure+`"}}`)
			j.replaceBinding("@a", binding("@a", reference(text)))
			j.settle()
			j.post("/apis/judged.example.com/v1/ceilings?dryRun=All", of(ceilingDocument, "@c"))
		}
	}
	// A kind that nobody knows.
	j.replacePolicy("@a", evaluatedPolicy("@a", `spec.paramKind={"apiVersion":"example.com/v1","kind":"Nothing"}`, rules(rule("", "secrets", "*"))))
	j.settle()
	j.post(in("secrets?dryRun=All"), of(secretDocument, "@x"))
	j.post(in("configmaps?dryRun=All"), of(configMapDocument, "@x"))
	j.end(in("secrets"))
}

// Params of a custom kind in the namespace.
func evaluatedCustomParams(j *evaluation) {
	j.begin()
	limits := in("judged.example.com/v1:limits")
	j.post(limits, of(limitDocument, "@l"))
	j.post(limits, of(limitDocument, "@m", `spec.most=2`, `metadata.labels.set="a"`))
	j.post(limits, of(limitDocument, "@n", `spec.most=4`, `metadata.labels.set="a"`))
	j.post(policiesPath, evaluatedPolicy("@a", `spec.paramKind={"apiVersion":"judged.example.com/v1","kind":"Limit"}`, rules(rule("apps", "deployments,deployments/scale", "CREATE", "UPDATE")), mustHold(
		validation(`object.spec.replicas <= params.spec.most`, `"messageExpression":"string(object.spec.replicas) + ' is more than ' + string(params.spec.most) + ' of ' + params.kind"`))))
	j.post(bindingsPath, binding("@a", `spec.paramRef={"name":"@l","parameterNotFoundAction":"Deny"}`))
	j.settle()
	deployments, item := in("apps/v1:deployments"), in("apps/v1:deployments/@d")
	most := func(dry string, code int, replicas int) {
		j.post(deployments+"?dryRun=All", of(deployDocument, "@"+dry, fmt.Sprintf("spec.replicas=%d", replicas)))
		j.until(code)
	}
	most("d", 422, 6)
	j.post(deployments, of(deployDocument, "@d", `spec.replicas=5`))
	j.patch(item, mergePatch, `{"spec":{"replicas":6}}`)
	j.patch(item+"/scale", mergePatch, `{"spec":{"replicas":6}}`)
	j.patch(limits+"/@l", mergePatch, `{"spec":{"most":7}}`)
	most("e", 201, 6)
	j.patch(item+"/scale", mergePatch, `{"spec":{"replicas":8}}`)
	j.patch(item+"/scale", mergePatch, `{"spec":{"replicas":7}}`)
	j.delete(limits + "/@l")
	most("e", 422, 1)
	j.patch(item, mergePatch, `{"metadata":{"annotations":{"a":"b"}}}`)
	j.replaceBinding("@a", binding("@a", `spec.paramRef={"selector":{"matchLabels":{"set":"a"}},"parameterNotFoundAction":"Deny"}`))
	j.settle()
	for _, replicas := range []int{1, 3, 5} {
		// With 5, each of two params refuses, in an order that the server leaves to chance.
		if replicas < 5 {
			j.post(deployments+"?dryRun=All", of(deployDocument, "@e", fmt.Sprintf("spec.replicas=%d", replicas)))
		}
	}
	j.delete(limits + "/@m")
	most("e", 201, 3)
	j.post(deployments+"?dryRun=All", of(deployDocument, "@e", "spec.replicas=5"))
	j.end(deployments)
}

// Params of a custom kind without namespaces.
func evaluatedCeilings(j *evaluation) {
	j.begin()
	ceilings := "/apis/judged.example.com/v1/ceilings"
	j.post(ceilings, of(ceilingDocument, "@c"))
	j.post(policiesPath, policy("@a", `spec.paramKind={"apiVersion":"judged.example.com/v1","kind":"Ceiling"}`, `spec.matchConstraints={"objectSelector":{"matchLabels":{"s":"@all"}},"resourceRules":[`+rule("judged.example.com", "things,ceilings", "CREATE")+`]}`, mustHold(
		validation(`object.spec.?size.orValue(object.spec.?most.orValue(0)) <= params.spec.most`, `"messageExpression":"'more than ' + string(params.spec.most) + ' of ' + params.metadata.name + ' ' + string(has(params.metadata.namespace)) + ' ' + string(namespaceObject == null)"`))))
	j.post(bindingsPath, binding("@a", `spec.paramRef={"name":"@c","parameterNotFoundAction":"Deny"}`))
	j.settle()
	write := func() {
		for _, size := range []int{4, 6} {
			j.post(in("judged.example.com/v1:things?dryRun=All"), of(thingDocument, "@t", fmt.Sprintf("spec.size=%d", size)))
			j.post(ceilings+"?dryRun=All", of(ceilingDocument, "@d", fmt.Sprintf("spec.most=%d", size)))
		}
	}
	write()
	for _, text := range []string{`{"name":"@c","namespace":"default","parameterNotFoundAction":"Deny"}`, `{"selector":{"matchLabels":{"s":"@all"}},"parameterNotFoundAction":"Deny"}`, `{"name":"@none","parameterNotFoundAction":"Deny"}`, `{"name":"@none","parameterNotFoundAction":"Allow"}`} {
		j.replaceBinding("@a", binding("@a", "spec.paramRef="+text))
		j.settle()
		write()
	}
	j.delete(ceilings + "/@c")
	j.end(in("judged.example.com/v1:things"))
}

// Who asks: others, with rights and without.
func evaluatedUsers(j *evaluation) {
	j.begin()
	j.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"@writer"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["create","update","patch","delete","get","list","deletecollection","special"]},{"apiGroups":[""],"resources":["pods"],"verbs":["get"]},{"nonResourceURLs":["/healthz"],"verbs":["get"]}]}`)
	j.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"@writer"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"@writer"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"@bob"},{"kind":"ServiceAccount","name":"robot","namespace":"@ns"}]}`)
	j.post(policiesPath, evaluatedPolicy("@a", rules(rule("", "configmaps,secrets", "*")), `spec.variables=[{"name":"who","expression":"request.userInfo.username + ' ' + request.userInfo.groups.join(',') + ' ' + request.userInfo.?uid.orValue('-') + ' ' + request.userInfo.?extra.orValue({}).map(k, k + ' ' + request.userInfo.extra[k][0].substring(0, 10)).join(',')"}]`, mustHold(
		shows(`variables.who`),
		validation(`!('pods' in object.metadata.?labels.orValue({})) || authorizer.group('').resource('pods').namespace(request.namespace).check('get').allowed()`, `"messageExpression":"variables.who + ' may not get pods'"`),
		validation(`!('nodes' in object.metadata.?labels.orValue({})) || authorizer.group('').resource('nodes').name('n').check('get').allowed()`, `"messageExpression":"variables.who + ' may not get nodes'"`, `"reason":"Forbidden"`),
		validation(`!('path' in object.metadata.?labels.orValue({})) || authorizer.path('/metrics').check('get').allowed()`),
		validation(`!('special' in object.metadata.?labels.orValue({})) || authorizer.requestResource.check('special').allowed()`),
		validation(`!('robot' in object.metadata.?labels.orValue({})) || authorizer.serviceAccount(request.namespace, 'robot').group('').resource('configmaps').namespace('default').check('delete').allowed()`),
		validation(`!('stranger' in object.metadata.?labels.orValue({})) || authorizer.serviceAccount('default', 'robot').group('').resource('configmaps').check('delete').allowed()`),
		validation(`!('denied' in object.metadata.?labels.orValue({})) || !authorizer.group('').resource('pods').fieldSelector('spec.nodeName=x').labelSelector('a=b').subresource('log').check('get').errored()`),
	)))
	j.post(bindingsPath, binding("@a"))
	j.settle()
	bob := Requester{Name: j.Name + "-bob", UID: "u1", Groups: []string{"team"}}
	j.post(in("configmaps?dryRun=All"), of(configMapDocument, "@probe"))
	j.by(bob)
	j.until(201) // until the role is known
	for _, label := range []string{"show", "pods", "nodes", "path", "special", "robot", "stranger", "denied"} {
		document := of(configMapDocument, "@x", `metadata.labels.`+label+`="yes"`)
		j.post(in("configmaps?dryRun=All"), document)
		j.post(in("configmaps?dryRun=All"), document)
		j.by(bob)
	}
	j.post(in("configmaps"), of(configMapDocument, "@x"))
	j.by(bob)
	j.patch(in("configmaps/@x"), mergePatch, `{"metadata":{"labels":{"nodes":"yes"}}}`)
	j.by(bob)
	j.apply(in("configmaps/@x")+"?force=true", "me", of(configMapDocument, "@x", `metadata.labels.nodes="yes"`))
	j.by(bob)
	// Bob may not do this.
	j.post(in("secrets"), of(secretDocument, "@x", shown))
	j.by(bob)
	j.patch(in("secrets/@none"), mergePatch, `{"metadata":{"labels":{"show":"yes"}}}`)
	j.by(bob)
	j.delete(in("secrets/@none"))
	j.by(bob)
	// Nobody may do anything.
	j.post(in("configmaps"), of(configMapDocument, "@y", shown))
	j.by(Requester{Name: j.Name + "-nobody"})
	j.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/@writer")
	j.delete("/apis/rbac.authorization.k8s.io/v1/clusterroles/@writer")
	j.end(in("configmaps"))
}

// Kinds that PUT creates.
func evaluatedCreationByUpdate(j *evaluation) {
	j.begins(evaluatedPolicy("@a", rules(rule("", "endpoints", "CREATE"), rule("coordination.k8s.io", "leases", "*")), mustHold(
		validation(`!('deny' in object.metadata.labels)`, `"messageExpression":"request.operation + ' ' + string(oldObject == null) + ' ' + request.options.kind + ' ' + request.name"`))), binding("@a"))
	deny := `metadata.labels.deny="yes"`
	lease := `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"holderIdentity":"me"}}`
	for _, one := range []struct{ path, document string }{{"endpoints", endpointDocument}, {"coordination.k8s.io/v1:leases", lease}} {
		item := in(one.path + "/@x")
		j.put(item, of(one.document, "@x", deny))
		j.put(item+"?dryRun=All", of(one.document, "@x", deny))
		j.put(item+"?dryRun=All", of(one.document, "@x"))
		j.put(item, of(one.document, "@x", `metadata.resourceVersion="5"`, deny))
		j.put(item, of(one.document, "@y", deny))
		j.apply(item, "me", of(one.document, "@x", deny))
		j.put(item, of(one.document, "@x"))
		j.put(item, of(one.document, "@x", deny))
		j.apply(in(one.path+"/@z"), "me", of(one.document, "@z"))
		j.delete(item)
	}
	j.end(in("endpoints"), in("coordination.k8s.io/v1:leases"))
}

func evaluatedConditions(j *evaluation) {
	conditions := func(text string) string { return "spec.matchConditions=[" + text + "]" }
	all := conditions(`{"name":"not-bob","expression":"request.userInfo.username != '@bob'"},{"name":"update","expression":"request.operation != 'DELETE'"},{"name":"skip","expression":"!('skip' in object.metadata.labels)"},{"name":"broken","expression":"!('broken' in object.metadata.labels) || object.nope == 1"},{"name":"ns","expression":"namespaceObject == null"}`)
	j.begins(evaluatedPolicy("@a", rules(rule("", "configmaps", "*")), all, mustHold(`!('deny' in object.metadata.labels)`)), binding("@a"))
	write := func() {
		for _, labels := range []string{`"deny":"a"`, `"deny":"a","skip":"b"`, `"broken":"a"`, `"broken":"a","skip":"b"`, `"x":"y"`} {
			j.post(in("configmaps?dryRun=All"), of(configMapDocument, "@x", `metadata.labels={"s":"@all",`+labels+`}`))
		}
		j.post(in("configmaps"), of(configMapDocument, "@y"))
		j.delete(in("configmaps/@y"))
		j.post(in("configmaps?dryRun=All"), of(configMapDocument, "@x", `metadata.labels.deny="a"`))
		j.by(Requester{Name: j.Name + "-bob", Groups: []string{"system:masters"}})
	}
	write()
	j.patch(policiesPath+"/@a", mergePatch, `{"spec":{"failurePolicy":"Ignore"}}`)
	j.settle()
	write()
	j.end(in("configmaps"))
}

func evaluatedSelectors(j *evaluation) {
	gold := `"objectSelector":{"matchLabels":{"tier":"gold"}}`
	j.begins(evaluatedPolicy("@a", `spec.matchConstraints={"namespaceSelector":{"matchLabels":{"s":"@all"}},`+gold+`,"resourceRules":[`+rule("", "configmaps", "*")+`],"excludeResourceRules":[{"apiGroups":["*"],"apiVersions":["v1"],"operations":["*"],"resources":["*"],"resourceNames":["@spared"]}]}`,
		mustHold(`false`)), binding("@a", `spec.matchResources={"objectSelector":{"matchExpressions":[{"key":"free","operator":"DoesNotExist"}]},"excludeResourceRules":[`+rule("", "configmaps", "DELETE")+`]}`))
	maps := in("configmaps")
	j.post(maps, of(configMapDocument, "@x", `metadata.labels.tier="gold"`))
	j.post(maps, of(configMapDocument, "@spared", `metadata.labels.tier="gold"`))
	j.post(maps, of(configMapDocument, "@free", `metadata.labels={"s":"@all","tier":"gold","free":"yes"}`))
	j.post(maps, of(configMapDocument, "@x", `metadata.labels.tier="silver"`))
	j.post(maps, of(configMapDocument, "@bare", "-metadata.labels"))
	item := in("configmaps/@x")
	j.patch(item, mergePatch, `{"metadata":{"labels":{"tier":"gold"}}}`)
	j.patch(item, mergePatch, `{"data":{"a":"b"}}`)
	j.patch(in("configmaps/@free"), mergePatch, `{"metadata":{"labels":{"free":null,"tier":null}}}`) // only the old one has the label
	j.patch(in("configmaps/@free"), mergePatch, `{"metadata":{"labels":{"tier":"silver"}}}`)
	j.apply(item+"?force=true", "me", of(configMapDocument, "@x", `metadata.labels.tier="gold"`))
	j.delete(in("configmaps/@free"))
	j.delete(maps + "?labelSelector=s%3D@all")
	// All of a server, whatever the kind: in this namespace.
	j.replacePolicy("@a", evaluatedPolicy("@a", `spec.matchConstraints.resourceRules=[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*/*"],"scope":"Namespaced"}]`,
		mustHold(validation(`object == null || !('deny' in object.metadata.?labels.orValue({}))`, `"messageExpression":"request.kind.kind + ' ' + request.resource.resource + ' ' + request.?subResource.orValue('')"`))))
	j.replaceBinding("@a", binding("@a"))
	j.settle()
	deny := `metadata.labels.deny="yes"`
	for _, one := range []struct{ path, document string }{{"configmaps", configMapDocument}, {"pods", podDocument}, {"apps/v1:deployments", deployDocument}, {"judged.example.com/v1:things", thingDocument}, {"endpoints", endpointDocument}} {
		j.post(in(one.path), of(one.document, "@w", deny))
		j.post(in(one.path), of(one.document, "@w"))
	}
	j.patch(in("pods/@w/status"), mergePatch, `{"metadata":{"labels":{"deny":"a"}}}`)
	j.patch(in("judged.example.com/v1:things/@w/scale"), mergePatch, `{"spec":{"replicas":4}}`)
	j.post("/api/v1/namespaces/default/configmaps?dryRun=All", of(configMapDocument, "@w", deny))
	j.end(maps, in("pods"))
}

// Requests that no policy is asked about.
func evaluatedExemptions(j *evaluation) {
	j.begin()
	everything := `"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*/*"]}]`
	// Only what one user asks for, since other sessions have requests without a namespace.
	j.post(policiesPath, policy("@a", `spec.matchConstraints={`+everything+`}`, `spec.matchConditions=[{"name":"ours","expression":"request.userInfo.username == '@bob'"}]`,
		mustHold(validation(`false`, `"messageExpression":"request.operation + ' ' + request.kind.kind + ' ' + request.?name.orValue('none') + ' ' + request.?subResource.orValue('-')"`))))
	j.post(bindingsPath, binding("@a"))
	j.settle()
	bob := Requester{Name: j.Name + "-bob", Groups: []string{"system:masters"}}
	for _, one := range []struct{ path, body string }{
		{"/apis/authentication.k8s.io/v1/tokenreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"x"}}`},
		{"/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`},
		{"/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"x","nonResourceAttributes":{"path":"/","verb":"get"}}}`},
		{"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`},
		{"/apis/authorization.k8s.io/v1/namespaces/@ns/localsubjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"LocalSubjectAccessReview","metadata":{"namespace":"@ns"},"spec":{"user":"x","resourceAttributes":{"namespace":"@ns","verb":"get","resource":"pods"}}}`},
		{policiesPath + "?dryRun=All", policy("@c")},
		{bindingsPath + "?dryRun=All", binding("@c")},
		{"/api/v1/namespaces?dryRun=All", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"@c"}}`},
		{"/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"@c"},"rules":[]}`},
		{"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?dryRun=All", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"@c"}}`},
		{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"cs.judged.example.com"},"spec":{"group":"judged.example.com","scope":"Cluster","names":{"plural":"cs","singular":"c","kind":"C","listKind":"CList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`},
		{"/api/v1/nodes?dryRun=All", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"@c"}}`},
	} {
		j.post(one.path, one.body)
		j.by(bob)
	}
	for _, path := range []string{"/version", in("configmaps")} {
		j.get(path)
		j.by(bob)
	}
	for _, path := range []string{"/nothing/here", "/apis/none.example.com/v1/things"} {
		j.post(path, "{}")
		j.by(bob)
	}
	j.end()
}

// Tokens, which are made and not stored.
func evaluatedTokens(j *evaluation) {
	j.begins(evaluatedPolicy("@a", rules(rule("", "serviceaccounts/token", "*")), mustHold(
		validation(`object.spec.expirationSeconds <= 1000`, `"messageExpression":"object.kind + ' ' + string(object.spec.expirationSeconds) + ' ' + object.spec.audiences.join(',') + ' ' + request.name + ' ' + request.operation"`))), binding("@a"))
	j.post(in("serviceaccounts"), `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"@robot"}}`)
	token := `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":%d,"audiences":["a"]}}`
	for _, seconds := range []int{2000, 900, 5} {
		j.post(in("serviceaccounts/@robot/token"), fmt.Sprintf(token, seconds))
		j.post(in("serviceaccounts/@robot/token?dryRun=All"), fmt.Sprintf(token, seconds))
	}
	j.post(in("serviceaccounts/@robot/token"), `{}`)
	j.post(in("serviceaccounts/@none/token"), fmt.Sprintf(token, 2000))
	j.inProtobuf("POST", in("serviceaccounts/@robot/token"), fmt.Sprintf(token, 2000))
	j.end()
}

// Expressions that fail.
func evaluatedErrors(j *evaluation) {
	list := `[1,2,3,4,5,6,7,8,9,10]`
	dear := fmt.Sprintf(`%[1]s.all(a, %[1]s.all(b, %[1]s.all(c, %[1]s.all(d, %[1]s.all(e, %[1]s.all(f, f > 0))))))`, list)
	j.begins(evaluatedPolicy("@a", `spec.variables=[{"name":"broken","expression":"object.nope.deeper"}]`,
		`spec.auditAnnotations=[{"key":"k","valueExpression":"'annotation' in object.metadata.labels ? string(object.nope) : ''"}]`, mustHold(
			validation(`!('missing' in object.metadata.labels) || object.nope == 1`),
			validation(`!('type' in object.metadata.labels) || object.data + 1 == 2`),
			validation(`!('variable' in object.metadata.labels) || variables.broken == 1`, `"message":"m"`),
			validation(`!('dear' in object.metadata.labels) || `+dear),
			validation(`!('expression' in object.metadata.labels)`, `"message":"m"`, `"messageExpression":"'a' + object.nope"`),
			validation(`!('blank' in object.metadata.labels)`, `"messageExpression":"' '"`),
			validation(`!('index' in object.metadata.labels) || [1][int(object.data.size)] == 1`),
			validation(`!('zero' in object.metadata.labels) || 1 / int(object.data.zero) == 1`),
		)), binding("@a"))
	write := func() {
		for _, label := range []string{"missing", "type", "variable", "dear", "expression", "blank", "index", "zero", "annotation", "none"} {
			j.post(in("configmaps?dryRun=All"), of(configMapDocument, "@x", `data.zero="0"`, `metadata.labels.`+label+`="yes"`))
		}
	}
	write()
	j.patch(policiesPath+"/@a", mergePatch, `{"spec":{"failurePolicy":"Ignore"}}`)
	j.settle()
	write()
	j.patch(policiesPath+"/@a", mergePatch, `{"spec":{"failurePolicy":"Fail"}}`)
	j.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"validationActions":["Warn"]}}`)
	j.settle()
	write()
	j.end(in("configmaps"))
}
