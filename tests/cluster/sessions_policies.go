package cluster

import "fmt"

// The paths of admission policies, and of the kind with namespaces that they are about.
const (
	admissionPath = "/apis/admissionregistration.k8s.io/v1"
	policiesPath  = admissionPath + "/validatingadmissionpolicies"
	bindingsPath  = admissionPath + "/validatingadmissionpolicybindings"
	budgetsPath   = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
)

// policySessions begin so.
const policySessions = "vap-"

const policyDocument = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"%s","labels":{"s":"@all"}},` +
	`"spec":{"matchConstraints":{"objectSelector":{"matchLabels":{"s":"@all"}},"resourceRules":[{"apiGroups":["flowcontrol.apiserver.k8s.io"],"apiVersions":["*"],` +
	`"operations":["CREATE","UPDATE"],"resources":["prioritylevelconfigurations"]}]},"validations":[{"expression":"!('deny' in object.metadata.labels)"}]}}`

const bindingDocument = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"%s","labels":{"s":"@all"}},` +
	`"spec":{"policyName":"%[1]s","validationActions":["Deny"]}}`

// policy is the JSON of a policy after edits; see [edited]. It is about priority levels of the session, and denies those with the label deny.
func policy(name string, edits ...string) string {
	return edited(fmt.Sprintf(policyDocument, name), edits...)
}

// binding is the JSON of a binding of the policy of the same name after edits.
func binding(name string, edits ...string) string {
	return edited(fmt.Sprintf(bindingDocument, name), edits...)
}

// budget is the JSON of a disruption budget after edits.
func budget(name string, edits ...string) string {
	return edited(fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"%s","labels":{"s":"@all"}},"spec":{"maxUnavailable":1}}`, name), edits...)
}

// PolicySessions are about admission policies: as objects, and what they make of writes.
func PolicySessions() []Session {
	var all []Session
	for _, entry := range []struct {
		name          string
		managedFields bool
		write         func(*script)
	}{
		{"objects", false, policyObjects},
		{"documents", false, policyDocuments},
		{"status", false, policyStatus},
		{"managers", true, policyManagers},
		{"merging", false, policyMerging},
		{"rules", false, policyRules},
		{"expressions", false, policyExpressions},
		{"bindings", false, bindingRules},
		{"ratchet", false, policyRatchet},
		{"names", false, policyNames},
		{"tables", false, policyTables},
		{"watch", false, policyWatch},
	} {
		s := &script{Session{Name: policySessions + entry.name, ManagedFields: entry.managedFields}}
		entry.write(s)
		all = append(all, s.Session)
	}
	return all
}

func policyObjects(s *script) {
	for _, kind := range []struct{ path, body, change string }{
		{policiesPath, policy("@a"), `spec.failurePolicy="Ignore"`},
		{bindingsPath, binding("@a"), `spec.validationActions=["Warn","Audit"]`},
	} {
		item := kind.path + "/@a"
		s.get(item)
		s.put(item, kind.body)
		s.post(kind.path+"?dryRun=All", kind.body)
		s.post(kind.path, edited(kind.body, `status={"observedGeneration":3}`))
		s.post(kind.path, kind.body)
		s.get(item)
		s.get(item, "Accept", yamlType)
		s.get(item, "Accept", protobufType)
		s.get(kind.path + "?labelSelector=s=@all")
		s.get(kind.path + "?fieldSelector=metadata.name=@a")
		s.get(kind.path + "?fieldSelector=spec.policyName=@a")
		s.put(item, kind.body)
		s.put(item, edited(kind.body, `metadata.resourceVersion="{{rv:@a}}"`))
		s.put(item, edited(kind.body, `metadata.resourceVersion="{{rv:@a}}"`, kind.change))
		s.put(item, edited(kind.body, `metadata.resourceVersion="{{first:@a}}"`, kind.change))
		s.patch(item, mergePatch, `{"metadata":{"annotations":{"a":"b"}}}`)
		s.patch(item, mergePatch, `{"spec":{"matchConstraints":{"matchPolicy":"Exact"}}}`)
		s.patch(item, mergePatch, `{"spec":{"matchResources":{"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["*"],"resources":["*/*"],"resourceNames":["a"]}],"excludeResourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["DELETE"],"resources":["pods"],"scope":"Namespaced"}]}}}`)
		s.patch(item, mergePatch, `{"spec":{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"paramRef":{"selector":{},"parameterNotFoundAction":"Allow"}}}`)
		s.patch(item, jsonPatch, `[{"op":"remove","path":"/spec/paramRef"}]`)
		s.patch(item, jsonPatch, `[{"op":"remove","path":"/spec/paramKind"}]`)
		s.patch(item, strategic, `{"metadata":{"labels":{"x":"y"}}}`)
		s.patch(item, mergePatch, `{"spec":{"nope":1}}`)
		s.patch(item+"?fieldValidation=Strict", mergePatch, `{"spec":{"nope":1}}`)
		s.apply(item, "me", edited(kind.body, `metadata.labels.x="z"`))
		s.apply(item+"?force=true", "me", edited(kind.body, `metadata.labels.x="z"`))
		s.apply(kind.path+"/@b", "me", edited(kind.body, `metadata.name="@b"`))
		s.post(kind.path, edited(kind.body, "-metadata.name", `metadata.generateName="@g-"`))
		s.patch(item, mergePatch, `{"metadata":{"finalizers":["example.com/x"]}}`)
		s.delete(item + "?dryRun=All")
		s.delete(item)
		s.patch(item, mergePatch, `{"metadata":{"finalizers":null}}`)
		s.get(item)
		s.delete(kind.path + "?labelSelector=s=@all")
		s.get(kind.path + "?labelSelector=s=@all")
	}
}

func policyDocuments(s *script) {
	s.get(admissionPath + "/none")
	s.get(bindingsPath + "/@a/status")
	s.get(policiesPath + "/@a/status")
	s.get(policiesPath + "/@a/none")
	s.put(bindingsPath+"/@a/status", binding("@a"))
	s.post(policiesPath+"/@a", policy("@a"))
	s.delete(policiesPath + "/@a/status")
	s.post(policiesPath, binding("@a"))
	s.post(bindingsPath, policy("@a"))
	s.post(policiesPath, `{}`)
	s.post(policiesPath, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy"}`)
	s.post(policiesPath, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding"}`)
	s.post(policiesPath, edited(policy("@a"), `spec.validations={}`))
	s.post(policiesPath, edited(policy("@a"), `spec.validations=[{"expression":1}]`))
	s.post(policiesPath, edited(policy("@a"), `spec.matchConstraints.resourceRules.0.operations="CREATE"`))
	s.post(policiesPath+"?fieldValidation=Strict", edited(policy("@a"), `spec.matchConstraints.resourceRules.0.operation=["CREATE"]`))
	s.post(policiesPath+"?fieldValidation=Strict", edited(policy("@a"), `spec.matchConstraints.resourceRules.0.rule={}`, `spec.x=1`))
	s.post(policiesPath+"?dryRun=All", edited(policy("@a"), `spec.matchConstraints.namespaceSelector=null`, `spec.matchConstraints.resourceRules.0.scope=null`, `spec.failurePolicy=null`, `spec.variables=[]`, `spec.matchConditions=[]`))
	s.post(policiesPath+"?dryRun=All", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: "@y"}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "true", message: m, reason: Forbidden}]
`, contentHeader, yamlType)
}

func policyStatus(s *script) {
	item := policiesPath + "/@a"
	s.put(item+"/status", policy("@a"))
	s.post(policiesPath, policy("@a"))
	status := `status={"observedGeneration":1,"typeChecking":{"expressionWarnings":[{"fieldRef":"spec.validations[0].expression","warning":"w"}]},"conditions":[{"type":"X","status":"True","reason":"R","message":"","lastTransitionTime":"2024-01-01T00:00:00Z"}]}`
	s.put(item+"/status", policy("@a", status))
	s.put(item+"/status", policy("@a", `metadata.resourceVersion="{{rv:@a}}"`, status, `metadata.labels.x="y"`, `metadata.annotations={"a":"b"}`, `metadata.finalizers=["example.com/x"]`, `spec.failurePolicy="Ignore"`))
	s.patch(item+"/status", mergePatch, `{"status":{"typeChecking":{"expressionWarnings":[{"fieldRef":" ","warning":""},{}]}}}`)
	s.patch(item+"/status", mergePatch, `{"status":{"typeChecking":{}}}`)
	s.patch(item+"/status", mergePatch, `{"status":{"typeChecking":{"expressionWarnings":[]}}}`)
	s.patch(item+"/status", mergePatch, `{"status":{"typeChecking":null,"conditions":[{"type":"","status":"x"},{"type":"Y","status":"True"},{"type":"Y","status":"True"}]}}`)
	s.patch(item+"/status", mergePatch, `{"status":{"observedGeneration":-4}}`)
	s.patch(item+"/status", strategic, `{"status":{"conditions":[{"type":"Z","status":"True","reason":"R","message":"m","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`)
	s.patch(item+"/status", jsonPatch, `[{"op":"replace","path":"/status/observedGeneration","value":7}]`)
	s.patch(item, mergePatch, `{"status":{"observedGeneration":9}}`)
	s.apply(item+"/status", "m", policy("@a", "-spec", "-metadata.labels", `status={"observedGeneration":8}`))
	s.apply(item+"/status?force=true", "m", policy("@a", "-spec", "-metadata.labels", `status={"observedGeneration":8,"typeChecking":{"expressionWarnings":[{"fieldRef":"f","warning":"w"}]}}`))
	s.get(item + "/status")
	s.get(item+"/status", "Accept", tableType)
	s.delete(item)
}

func policyManagers(s *script) {
	item := policiesPath + "/@a"
	variables := func(list string) string { return "spec.variables=" + list }
	s.apply(item, "one", policy("@a", variables(`[{"name":"x","expression":"1"},{"name":"y","expression":"variables.x"}]`), `spec.matchConditions=[{"name":"a","expression":"true"}]`))
	s.apply(item, "two", policy("@a", "-metadata.labels", "-spec.validations", "-spec.matchConstraints", variables(`[{"name":"z","expression":"2"}]`), `spec.matchConditions=[{"name":"b","expression":"true"}]`))
	s.apply(item, "two", policy("@a", "-metadata.labels", "-spec.validations", "-spec.matchConstraints", variables(`[{"name":"x","expression":"3"}]`)))
	s.apply(item, "two", policy("@a", "-metadata.labels", "-spec.validations", "-spec.matchConstraints", `spec.matchConditions=[{"name":"a","expression":"false"}]`))
	s.apply(item+"?force=true", "two", policy("@a", "-metadata.labels", "-spec.validations", "-spec.matchConstraints", `spec.matchConditions=[{"name":"a","expression":"false"}]`))
	s.apply(item, "three", policy("@a", "-metadata.labels", "-spec.validations", `spec.matchConstraints.matchPolicy="Exact"`))
	s.apply(item, "one", policy("@a", `spec.validations=[{"expression":"true"},{"expression":"false","reason":"Forbidden"}]`))
	s.apply(item, "one", policy("@a", variables(`[{"name":"x","expression":"1"},{"name":"x","expression":"2"}]`)))
	s.patch(item, mergePatch, `{"spec":{"failurePolicy":"Ignore"}}`)
	s.apply(item+"/status", "controller", policy("@a", "-spec", "-metadata.labels", `status={"observedGeneration":1,"typeChecking":{"expressionWarnings":[]}}`))
	s.put(item+"/status", policy("@a", `metadata.resourceVersion="{{rv:@a}}"`, `status={"observedGeneration":2}`))
	s.get(item)
	s.delete(item)
	item = policiesPath + "/@b"
	s.post(policiesPath, policy("@b"))
	for _, checked := range []string{`{}`, `{"expressionWarnings":[{"fieldRef":"f","warning":"w"}]}`, `{}`, `{"expressionWarnings":[]}`} {
		s.apply(item+"/status?force=true", "controller", policy("@b", "-spec", "-metadata.labels", `status={"observedGeneration":1,"typeChecking":`+checked+`}`))
	}
	s.delete(item)
	item = bindingsPath + "/@a"
	s.apply(item, "one", binding("@a"))
	s.apply(item, "two", binding("@a", "-metadata.labels", "-spec.policyName", `spec.validationActions=["Audit"]`))
	s.apply(item, "two", binding("@a", "-metadata.labels", `spec.policyName="@b"`))
	s.apply(item, "one", binding("@a", `spec.matchResources={"matchPolicy":"Exact"}`, `spec.paramRef={"name":"n","parameterNotFoundAction":"Deny"}`))
	s.apply(item+"?force=true", "two", binding("@a", "-metadata.labels", `spec.validationActions=["Deny"]`, `spec.paramRef={"name":"m","parameterNotFoundAction":"Deny"}`))
	s.get(item)
	s.delete(item)
}

func policyMerging(s *script) {
	item := policiesPath + "/@a"
	s.post(policiesPath, policy("@a", `spec.variables=[{"name":"x","expression":"1"},{"name":"y","expression":"variables.x"}]`, `spec.matchConditions=[{"name":"a","expression":"true"},{"name":"b","expression":"true"}]`))
	for _, patch := range []string{
		`{"spec":{"matchConditions":[{"name":"b","expression":"false"}]}}`,
		`{"spec":{"matchConditions":[{"name":"a","$patch":"delete"}]}}`,
		`{"spec":{"matchConditions":[{"name":"c","expression":"true"}],"$setElementOrder/matchConditions":[{"name":"c"},{"name":"b"}]}}`,
		`{"spec":{"variables":[{"name":"z","expression":"variables.y"}]}}`,
		`{"spec":{"variables":[{"name":"x","expression":"2"}]}}`,
		`{"spec":{"variables":[{"expression":"2"}]}}`,
		`{"spec":{"validations":[{"expression":"true"}]}}`,
		`{"spec":{"auditAnnotations":[{"key":"k","valueExpression":"'v'"}]}}`,
		`{"spec":{"matchConstraints":{"namespaceSelector":{"matchLabels":{"a":"b"}}}}}`,
		`{"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]}}}`,
		`{"spec":{"variables":null,"matchConditions":[{"$patch":"replace"}]}}`,
	} {
		s.patch(item, strategic, patch)
	}
	s.delete(item)
	item = bindingsPath + "/@a"
	s.post(bindingsPath, binding("@a"))
	s.patch(item, strategic, `{"spec":{"validationActions":["Audit"]}}`)
	s.patch(item, strategic, `{"spec":{"paramRef":{"selector":{"matchLabels":{"a":"b"}},"parameterNotFoundAction":"Deny"}}}`)
	s.patch(item, strategic, `{"spec":{"paramRef":{"selector":{"matchExpressions":[{"key":"a","operator":"Exists"}]}}}}`)
	s.patch(item, strategic, `{"spec":{"matchResources":{"excludeResourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]}}}`)
	s.delete(item)
}

// creations tries each of several edits of a valid document, without leaving anything.
func creations(s *script, path string, document func(string, ...string) string, edits [][]string) {
	for _, one := range edits {
		s.post(path+"?dryRun=All", document("@a", one...))
	}
}

func policyRules(s *script) {
	rule := "spec.matchConstraints.resourceRules.0."
	creations(s, policiesPath, policy, [][]string{
		{`spec={}`},
		{`-spec`},
		{`-spec.matchConstraints`},
		{`spec.matchConstraints={}`},
		{`-spec.validations`},
		{`spec.validations=[]`, `spec.auditAnnotations=[]`},
		{`spec.validations=[]`, `spec.auditAnnotations=[{"key":"k","valueExpression":"'v'"}]`},
		{`spec.failurePolicy="Never"`},
		{`spec.failurePolicy=""`},
		{`spec.matchConstraints.matchPolicy="Near"`},
		{`spec.matchConstraints.matchPolicy=""`},
		{`spec.matchConstraints.objectSelector={"matchLabels":{"a b":"-"},"matchExpressions":[{"key":"","operator":"Is"},{"key":"k","operator":"In"},{"key":"k","operator":"Exists","values":["x"]}]}`},
		{`spec.matchConstraints.namespaceSelector={"matchExpressions":[{"key":"k","operator":"In","values":["-"]}]}`},
		{rule + `operations=[]`, rule + `apiGroups=[]`, rule + `apiVersions=[]`, rule + `resources=[]`, rule + `scope="Galaxy"`},
		{rule + `operations=["*","CREATE"]`, rule + `apiGroups=["*","apps"]`, rule + `apiVersions=["*","v1",""]`},
		{rule + `operations=["READ"]`, rule + `resources=["pods","","*/*"]`},
		{rule + `resources=["pods/*","pods/log","*/scale","x/scale","*","pods"]`},
		{rule + `resources=["*","*/scale"]`, rule + `scope="Cluster"`},
		{rule + `resourceNames=["a/b",".","a","a"]`},
		{`spec.matchConstraints.excludeResourceRules=[{}]`},
		{`spec.paramKind={}`},
		{`spec.paramKind={"apiVersion":"a/b/c","kind":"x y"}`},
		{`spec.paramKind={"apiVersion":"A_/V1","kind":"ConfigMap"}`},
		{`spec.paramKind={"apiVersion":"apps/","kind":"ConfigMap"}`},
		{`spec.matchConditions=[{"name":"","expression":""},{"name":"a b","expression":"1"},{"name":"c","expression":"true"},{"name":"c","expression":"variables.x"}]`},
		{`spec.variables=[{"name":"","expression":""},{"name":"1x","expression":"1"},{"name":"in","expression":"1"},{"name":"a","expression":"variables.b"},{"name":"b","expression":"1"}]`},
		{`spec.variables=[{"name":"a","expression":"1"},{"name":"a","expression":"2"}]`},
		{`spec.validations=[{"expression":" "},{"expression":"true","message":" "},{"expression":"true","message":"a\nb"},{"expression":"true","messageExpression":" "},{"expression":"true","reason":"Unauthorized"},{"expression":"true","reason":""}]`},
		{`spec.auditAnnotations=[{"key":"","valueExpression":""},{"key":"a/b","valueExpression":"1"},{"key":"c","valueExpression":"null"},{"key":"c","valueExpression":"'x'"}]`},
		{`spec.auditAnnotations=[{"key":"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk","valueExpression":"'v'"}]`},
	})
}

func policyExpressions(s *script) {
	var edits [][]string
	for _, expression := range []string{
		`object.x +`, `1`, `object.spec.paused`, `object.spec.paused == true`, `params.x == 1`, `variables.x == 1`, `nope`, `request.uid == ''`,
		`request.userInfo.username == 'a' && request.kind.group == ''`, `namespaceObject.metadata.UID == ''`, `namespaceObject.metadata.managedFields == null`,
		`authorizer.group('').resource('pods').check('get').allowed()`, `authorizer.requestResource.check('get').allowed()`, `'a' + 1 == ''`, `[1, 'a'] == []`,
		`object.metadata.name.matches('(')`, `object.metadata.name.matches('a.*')`, `quantity('1Ki').isGreaterThan(quantity('1'))`, `isSemver('1.0.0')`, `ip('1.2.3.4').family() == 4`,
		`[1,2].all(x, x > 0)`, `[1,2].all(i, x, x > 0)`, `{'a': 1}.exists(k, v, v > 0)`, `has(object.a)`, `has(object)`, `object.?a.orValue(1) == 1`, `optional.of(1).hasValue()`,
		`format.dns1123Label().validate('x').hasValue()`, `'%d'.format([1]) == '1'`, `timestamp('x') == timestamp('y')`, `true ? 1 : 'a'`, `size(object.a) > 0 || size(1) > 0`,
	} {
		edits = append(edits, []string{fmt.Sprintf(`spec.validations=[{"expression":%q}]`, expression)})
	}
	for _, message := range []string{`1`, `'a'`, `authorizer.path('/x').check('get').allowed() ? 'a' : 'b'`, `'a' + string(object.spec)`, `null`, `object.a`, `string(object.a)`} {
		edits = append(edits, []string{fmt.Sprintf(`spec.validations=[{"expression":"true","messageExpression":%q}]`, message)})
	}
	for _, value := range []string{`1`, `'a'`, `null`, `object.a`, `true ? 'a' : null`, `authorizer.path('/x').check('get').reason()`} {
		edits = append(edits, []string{fmt.Sprintf(`spec.auditAnnotations=[{"key":"k","valueExpression":%q}]`, value)})
	}
	for _, condition := range []string{`1`, `params == null`, `variables.a == 1`, `namespaceObject == null`, `authorizer.path('/x').check('get').allowed()`, "true ||\n x"} {
		edits = append(edits, []string{fmt.Sprintf(`spec.matchConditions=[{"name":"n","expression":%q}]`, condition)})
		edits = append(edits, []string{fmt.Sprintf(`spec.matchConditions=[{"name":"n","expression":%q}]`, condition), `spec.paramKind={"apiVersion":"v1","kind":"ConfigMap"}`, `spec.variables=[{"name":"a","expression":"1"}]`})
	}
	creations(s, policiesPath, policy, edits)
}

func bindingRules(s *script) {
	creations(s, bindingsPath, binding, [][]string{
		{`spec={}`},
		{`-spec`},
		{`spec.policyName="A b"`},
		{`-spec.policyName`, `spec.validationActions=[]`},
		{`spec.validationActions=["Deny","Warn"]`},
		{`spec.validationActions=["Deny","Deny","Log"]`},
		{`spec.validationActions=["Audit","Warn"]`},
		{`spec.paramRef={}`},
		{`spec.paramRef={"name":"a","selector":{},"parameterNotFoundAction":"Never"}`},
		{`spec.paramRef={"name":"a/b","parameterNotFoundAction":"Deny"}`},
		{`spec.paramRef={"name":"a","namespace":"b","parameterNotFoundAction":"Allow"}`},
		{`spec.paramRef={"selector":{"matchExpressions":[{"key":"a","operator":"In"}]},"parameterNotFoundAction":"Allow"}`},
		{`spec.matchResources={}`},
		{`spec.matchResources={"resourceRules":[{}],"excludeResourceRules":[{"operations":["CONNECT"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods/exec"]}]}`},
		{`spec.matchResources={"matchPolicy":"x","namespaceSelector":{"matchLabels":{"a":"-"}}}`},
	})
}

// A policy that is stored is evaluated by more lenient rules where nothing changes.
func policyRatchet(s *script) {
	item := policiesPath + "/@a"
	s.post(policiesPath, policy("@a", `spec.matchConditions=[{"name":"n","expression":"true"}]`, `spec.variables=[{"name":"a","expression":"1"}]`))
	for _, patch := range []string{
		`{"spec":{"matchConditions":[{"name":"n","expression":"1"}]}}`,
		`{"spec":{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"}}}`,
		`{"spec":{"matchConditions":[{"name":"n","expression":"params == null"}]}}`,
		`{"spec":{"paramKind":null}}`,
		`{"spec":{"paramKind":null,"matchConditions":null}}`,
		`{"spec":{"validations":[{"expression":"variables.a == 1"}]}}`,
		`{"spec":{"variables":null}}`,
		`{"spec":{"variables":[{"name":"a","expression":"'x'"}]}}`,
		`{"spec":{"failurePolicy":"Never"}}`,
		`{"spec":{"failurePolicy":null}}`,
		`{"metadata":{"labels":{"b":"c"}}}`,
		`{"metadata":{"name":"b"}}`,
	} {
		s.patch(item, mergePatch, patch)
	}
	s.get(item)
	s.delete(item)
}

func policyNames(s *script) {
	for _, kind := range []struct {
		path     string
		document func(string, ...string) string
	}{{policiesPath, policy}, {bindingsPath, binding}} {
		for _, name := range []string{"", "@a.b", "@A", "@a_b", "@a.static.k8s.io", "a/b", "..", "@-"} {
			s.post(kind.path+"?dryRun=All", kind.document(name))
		}
		s.post(kind.path+"?dryRun=All", kind.document("", "-metadata.name", `metadata.generateName="X_"`))
		s.post(kind.path, kind.document("@s.static.k8s.io"))
		item := kind.path + "/@s.static.k8s.io"
		s.patch(item, mergePatch, `{"metadata":{"labels":{"b":"c"}}}`)
		s.patch(item+"/status", mergePatch, `{"status":{"observedGeneration":1}}`)
		s.apply(item, "m", kind.document("@s.static.k8s.io"))
		s.delete(item)
		s.apply(item, "m", kind.document("@s.static.k8s.io"))
		s.delete(item)
	}
}

func policyTables(s *script) {
	s.post(policiesPath, policy("@a"))
	s.post(policiesPath, policy("@b", `spec.validations=[{"expression":"true"},{"expression":"true"}]`, `spec.paramKind={"apiVersion":"rules.example.com/v1","kind":"Rule"}`))
	s.post(policiesPath, policy("@c", `spec.validations=[]`, `spec.auditAnnotations=[{"key":"k","valueExpression":"'v'"}]`))
	s.post(bindingsPath, binding("@a"))
	s.post(bindingsPath, binding("@b", `spec.paramRef={"name":"n","parameterNotFoundAction":"Deny"}`))
	s.post(bindingsPath, binding("@c", `spec.paramRef={"name":"n","namespace":"m","parameterNotFoundAction":"Deny"}`))
	s.post(bindingsPath, binding("@d", `spec.paramRef={"selector":{"matchLabels":{"b":"c","a":"d"},"matchExpressions":[{"key":"k","operator":"In","values":["x","y"]},{"key":"l","operator":"Exists"}]},"parameterNotFoundAction":"Deny"}`))
	s.post(bindingsPath, binding("@e", `spec.paramRef={"selector":{},"parameterNotFoundAction":"Deny"}`))
	for _, path := range []string{policiesPath, bindingsPath} {
		list := path + "?labelSelector=s=@all"
		for _, include := range []string{"", "&includeObject=None", "&includeObject=Object", "&limit=1"} {
			s.get(list+include, "Accept", tableType)
		}
		s.get(path+"/@a", "Accept", tableType)
		s.get(path+"/@a", "Accept", partialType)
		s.get(list, "Accept", partialsType)
		s.get(list + "&limit=2")
		s.get(list + "&limit=2&continue={{continue}}")
		s.delete(list)
	}
}

func policyWatch(s *script) {
	for _, kind := range []struct {
		path     string
		document func(string, ...string) string
	}{{policiesPath, policy}, {bindingsPath, binding}} {
		s.post(kind.path, kind.document("@a"))
		s.patch(kind.path+"/@a", mergePatch, `{"metadata":{"labels":{"b":"c"}}}`)
		s.post(kind.path, kind.document("@b"))
		s.delete(kind.path + "/@a")
		s.watch(kind.path, "labelSelector=s=@all&resourceVersion={{first:@a}}")
		s.watch(kind.path, "labelSelector=s=@all&resourceVersion={{first:@a}}", "Accept", tableType)
		s.watch(kind.path, "labelSelector=s=@all&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
		s.delete(kind.path + "/@b")
	}
}
