package cluster

import (
	"fmt"
	"strings"
)

// until repeats the last request until it is answered with this code; see [Request].
func (s *script) until(code int) { s.Requests[len(s.Requests)-1].Until = code }

// inForce stores a policy and a binding, and waits until they deny a level with the label deny.
func (s *script) inForce(policy, binding string) {
	s.post(policiesPath, policy)
	s.post(bindingsPath, binding)
	s.post(levelsPath+"?dryRun=All", denied("@probe"))
	s.until(422)
}

// released deletes the binding of [script.inForce], waits until nothing is denied any more, and deletes the policy.
func (s *script) released() {
	s.delete(bindingsPath + "/@a")
	s.post(levelsPath+"?dryRun=All", denied("@probe"))
	s.until(201)
	s.delete(policiesPath + "/@a")
}

// denied is a level that every policy of these sessions denies.
func denied(name string) string { return level(name, `metadata.labels.deny="yes"`) }

// notDenied is true of everything else.
const notDenied = `object == null || !('deny' in object.metadata.labels)`

// validations is an edit of a policy: what [notDenied] says must hold, and these.
func validations(more ...string) string {
	first := fmt.Sprintf(`{"expression":%q}`, notDenied)
	return "spec.validations=[" + strings.Join(append([]string{first}, more...), ",") + "]"
}

// validation is one of these.
func validation(expression string, more ...string) string {
	return strings.Join(append([]string{fmt.Sprintf(`{"expression":%q`, expression)}, more...), ",") + "}"
}

// operations is an edit of a policy: the operations that it is about.
func operations(list string) string {
	return "spec.matchConstraints.resourceRules.0.operations=" + list
}

// EnforcementSessions are about what policies make of writes.
func EnforcementSessions() []Session {
	var all []Session
	for _, entry := range []struct {
		name  string
		write func(*script)
	}{
		{"create", enforcedCreation},
		{"messages", enforcedMessages},
		{"update", enforcedUpdate},
		{"status", enforcedStatus},
		{"delete", enforcedDeletion},
		{"warn", enforcedWarnings},
		{"conditions", enforcedConditions},
		{"failures", enforcedFailures},
		{"ignored", enforcedIgnored},
		{"unknown", enforcedUnknownParams},
		{"params", enforcedParams},
		{"selected", enforcedSelectedParams},
		{"namespaced", enforcedInNamespaces},
		{"request", enforcedRequest},
		{"objects", enforcedObjects},
		{"exempt", enforcedExemptions},
		{"changes", enforcedChanges},
		{"matching", enforcedMatching},
		{"authorizer", enforcedAuthorizer},
		{"annotations", enforcedAnnotations},
	} {
		s := &script{Session{Name: policySessions + "on-" + entry.name}}
		entry.write(s)
		all = append(all, s.Session)
	}
	return all
}

func enforcedCreation(s *script) {
	s.post(levelsPath, level("@old"))
	s.inForce(policy("@a"), binding("@a"))
	s.post(levelsPath, level("@x"))
	s.post(levelsPath, denied("@y"))
	s.get(levelsPath + "/@y")
	s.post(levelsPath, denied("@old"))
	s.post(levelsPath, edited(denied("@z"), `spec.type="Nonsense"`))
	s.post(levelsPath, edited(denied(""), "-metadata.name", `metadata.generateName="@g-"`))
	s.post(levelsPath, edited(denied("@z"), `metadata.resourceVersion="7"`))
	s.post(levelsPath+"?fieldManager=me&fieldValidation=Strict", denied("@z"))
	s.post(levelsPath, denied("@z"), "Accept", yamlType)
	s.post(levelsPath, denied("@z"), "Accept", protobufType)
	s.post(levelsPath, denied("@z"), "Accept", tableType)
	s.put(levelsPath+"/@z", denied("@z"))
	s.apply(levelsPath+"/@z", "me", denied("@z"))
	s.apply(levelsPath+"/@z", "me", level("@z"))
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("@a", `metadata.labels.deny="yes"`))
	s.post(levelsPath+"?dryRun=All", edited(denied("@z"), `metadata.labels.s="other"`))
	s.released()
}

func enforcedMessages(s *script) {
	s.inForce(policy("@a", validations(
		validation(`object.metadata.name != '@forbidden'`, `"reason":"Forbidden"`),
		validation(`object.metadata.name != '@large'`, `"reason":"RequestEntityTooLarge"`, `"message":" too large "`),
		validation(`object.metadata.name != '@invalid'`, `"reason":"Invalid"`, `"message":"say \"why\""`),
		validation(`object.metadata.name != '@says'`, `"messageExpression":"'no ' + object.metadata.name + ' of ' + string(object.spec.limited.nominalConcurrencyShares)"`),
		validation(`object.metadata.name != '@fails'`, `"message":"instead"`, `"messageExpression":"'a' + object.nope"`),
		validation(`object.metadata.name != '@blank'`, `"messageExpression":"' '"`),
		validation(`object.metadata.name != '@lines'`, `"message":"one line"`, `"messageExpression":"'a' + '\\n' + 'b'"`),
		validation("object.metadata.name != '@two' &&\n  object.metadata.name != '@three'"),
		validation(`object.metadata.name != '@error' || object.nope == 1`),
		validation(`object.metadata.name != '@type' || object.spec + 1 == 2`),
		validation(`object.metadata.name != '@dear' || [1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, f > 0))))))`),
	)), binding("@a"))
	for _, name := range []string{"forbidden", "large", "invalid", "says", "fails", "blank", "lines", "two", "error", "type", "dear", "fine"} {
		s.post(levelsPath+"?dryRun=All", level("@"+name))
	}
	s.post(levelsPath+"?dryRun=All", edited(level("@x"), "-metadata.name", `metadata.generateName="@says"`))
	s.released()
}

func enforcedUpdate(s *script) {
	item := levelsPath + "/@x"
	s.post(levelsPath, level("@x"))
	s.inForce(policy("@a", validations(validation(`oldObject == null || oldObject.spec.limited.nominalConcurrencyShares <= object.spec.limited.nominalConcurrencyShares`, `"message":"shares may only grow"`))), binding("@a"))
	shares := func(count int) string {
		return fmt.Sprintf(`{"spec":{"limited":{"nominalConcurrencyShares":%d}}}`, count)
	}
	s.put(item, level("@x", `spec.limited.nominalConcurrencyShares=1`))
	s.put(item, level("@x", `spec.limited.nominalConcurrencyShares=3`))
	s.put(item, level("@x", `metadata.resourceVersion="{{first:@x}}"`, `spec.limited.nominalConcurrencyShares=1`))
	s.put(item, level("@x", `metadata.uid="u"`, `spec.limited.nominalConcurrencyShares=1`))
	s.put(item, level("@x", `spec.limited.nominalConcurrencyShares=1`, `spec.type="Nonsense"`))
	s.put(item+"?dryRun=All", level("@x", `spec.limited.nominalConcurrencyShares=1`))
	s.patch(item, mergePatch, shares(2))
	s.patch(item, mergePatch, shares(4))
	s.patch(item, strategic, shares(1))
	s.patch(item, strategic, shares(5))
	s.patch(item, jsonPatch, `[{"op":"replace","path":"/spec/limited/nominalConcurrencyShares","value":1}]`)
	s.patch(item, jsonPatch, `[{"op":"replace","path":"/spec/limited/nominalConcurrencyShares","value":6}]`)
	s.apply(item+"?force=true", "me", level("@x", `spec.limited.nominalConcurrencyShares=1`))
	s.apply(item+"?force=true", "me", level("@x", `spec.limited.nominalConcurrencyShares=7`))
	s.patch(item, mergePatch, `{"metadata":{"labels":{"deny":"yes"}}}`)
	s.patch(item, mergePatch, `{"metadata":{"labels":{"s":"other","deny":"yes"}}}`)
	s.patch(item, mergePatch, `{}`)
	s.patch(item, mergePatch, `{"metadata":{"finalizers":["example.com/x"]}}`)
	s.delete(item)
	s.patch(item, mergePatch, shares(2))
	s.patch(item, mergePatch, `{"metadata":{"finalizers":null,"labels":{"deny":"yes"}}}`)
	s.get(item)
	s.patch(item, mergePatch, `{"metadata":{"finalizers":null}}`)
	s.get(item)
	s.released()
}

func enforcedStatus(s *script) {
	item := levelsPath + "/@x"
	s.post(levelsPath, level("@x"))
	s.inForce(policy("@a",
		`spec.matchConstraints.resourceRules.0.resources=["prioritylevelconfigurations","prioritylevelconfigurations/status"]`,
		validations(validation(`!has(request.subResource) || !has(object.status.conditions)`, `"messageExpression":"'at ' + request.subResource + ' of ' + request.resource.resource + ' ' + request.kind.kind + ' ' + request.name"`))), binding("@a"))
	condition := `{"status":{"conditions":[{"type":"X","status":"True"}]}}`
	s.patch(item+"/status", mergePatch, condition)
	s.put(item+"/status", level("@x", `status={"conditions":[{"type":"X","status":"True"}]}`))
	s.patch(item+"/status", mergePatch, `{"status":{}}`)
	s.patch(item, mergePatch, condition)
	s.patch(item+"/status", mergePatch, `{"metadata":{"labels":{"deny":"yes"}}}`)
	s.apply(item+"/status", "me", level("@x", "-spec", "-metadata.labels", `status={"conditions":[{"type":"X","status":"True"}]}`))
	s.delete(item)
	s.released()
}

func enforcedDeletion(s *script) {
	item := levelsPath + "/@x"
	s.post(levelsPath, level("@x"))
	s.post(levelsPath, level("@y", `metadata.finalizers=["example.com/x"]`))
	s.inForce(policy("@a", operations(`["CREATE","DELETE"]`), validations(
		validation(`oldObject == null || has(oldObject.metadata.annotations) && 'deletable' in oldObject.metadata.annotations`, `"messageExpression":"'object ' + (object == null ? 'null' : 'there') + ', name ' + (has(request.name) ? request.name : 'absent') + ', ' + request.operation + ' ' + request.options.kind"`))), binding("@a"))
	s.delete(item)
	s.delete(item + "?dryRun=All")
	s.delete(item + "?resourceVersion=1")
	s.do("DELETE", item, `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"u"}}`, contentHeader, jsonType)
	s.delete(levelsPath + "/@none")
	s.delete(levelsPath + "/@y")
	s.delete(levelsPath + "?labelSelector=s=@all")
	s.delete(levelsPath + "?labelSelector=s=@all&dryRun=All")
	s.get(levelsPath + "?labelSelector=s=@all")
	s.patch(item, mergePatch, `{"metadata":{"annotations":{"deletable":"yes"}}}`)
	s.delete(item + "?dryRun=All")
	s.delete(item)
	s.patch(levelsPath+"/@y", mergePatch, `{"metadata":{"annotations":{"deletable":"yes"}}}`)
	s.delete(levelsPath + "/@y")
	s.patch(levelsPath+"/@y", mergePatch, `{"metadata":{"annotations":null}}`)
	s.delete(levelsPath + "/@y")
	s.patch(levelsPath+"/@y", mergePatch, `{"metadata":{"finalizers":null}}`)
	s.get(levelsPath + "?labelSelector=s=@all")
	s.released()
}

func enforcedWarnings(s *script) {
	s.post(policiesPath, policy("@a", validations(
		validation(`!('one' in object.metadata.labels)`, `"message":"has \"one\" \\ label"`),
		validation("!('lines' in object.metadata.labels) ||\n  false"),
		validation(`!('long' in object.metadata.labels)`, `"messageExpression":"['aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'].map(a, a + a + a + a + a)[0]"`),
		validation(`!('error' in object.metadata.labels) || object.nope`),
	)))
	s.post(bindingsPath, binding("@a", `spec.validationActions=["Warn","Audit"]`))
	s.post(levelsPath+"?dryRun=All", denied("@probe"))
	s.until(warned)
	for _, label := range []string{"one", "lines", "long", "error", "none"} {
		s.post(levelsPath+"?dryRun=All", level("@x", `metadata.labels.`+label+`="yes"`))
	}
	s.post(levelsPath+"?dryRun=All", level("@x", `metadata.labels={"s":"@all","deny":"a","one":"b","error":"c"}`, `spec.nope=1`))
	s.post(levelsPath+"?dryRun=All", level("@x", `metadata.labels={"s":"@all","deny":"a","one":"b"}`, `spec.type="Nonsense"`))
	s.post(levelsPath, denied("@x"))
	s.patch(levelsPath+"/@x", mergePatch, `{"metadata":{"labels":{"one":"a"}}}`)
	s.apply(levelsPath+"/@y", "me", denied("@y"))
	s.delete(levelsPath + "/@x")
	s.delete(levelsPath + "/@y")
	s.delete(bindingsPath + "/@a")
	s.delete(policiesPath + "/@a")
}

func enforcedConditions(s *script) {
	s.inForce(policy("@a",
		`spec.matchConditions=[{"name":"not-skipped","expression":"!('skip' in object.metadata.labels)"},{"name":"no-error","expression":"!('error' in object.metadata.labels) || object.nope == 1"},{"name":"no-other","expression":"!('other' in object.metadata.labels) || object.nope == 1"},{"name":"no-namespace","expression":"namespaceObject == null"},{"name":"of-level","expression":"request.resource.resource == 'prioritylevelconfigurations'"}]`,
		`spec.variables=[{"name":"shares","expression":"object.spec.limited.nominalConcurrencyShares"},{"name":"double","expression":"variables.shares * 2"},{"name":"broken","expression":"object.nope.deeper"}]`,
		validations(validation(`variables.double < 100`, `"messageExpression":"'twice ' + string(variables.shares) + ' is ' + string(variables.double)"`), validation(`!('broken' in object.metadata.labels) || variables.broken == 1`))), binding("@a"))
	for _, labels := range []string{`"deny":"a"`, `"deny":"a","skip":"b"`, `"deny":"a","error":"b"`, `"deny":"a","error":"b","other":"c"`, `"deny":"a","error":"b","skip":"c"`, `"error":"a"`, `"broken":"a"`, `"x":"y"`} {
		s.post(levelsPath+"?dryRun=All", level("@x", `metadata.labels={"s":"@all",`+labels+`}`))
	}
	s.post(levelsPath+"?dryRun=All", level("@x", `spec.limited.nominalConcurrencyShares=50`))
	s.released()
}

func enforcedFailures(s *script) {
	s.inForce(policy("@a", validations(validation(`!('error' in object.metadata.labels) || object.nope == 1`), validation(`!('also' in object.metadata.labels)`))), binding("@a", `spec.validationActions=["Deny","Audit"]`))
	for _, labels := range []string{`"error":"a"`, `"error":"a","also":"b"`, `"also":"b"`} {
		s.post(levelsPath+"?dryRun=All", level("@x", `metadata.labels={"s":"@all",`+labels+`}`))
	}
	s.released()
}

func enforcedIgnored(s *script) {
	s.inForce(policy("@a", `spec.failurePolicy="Ignore"`, validations(validation(`!('error' in object.metadata.labels) || object.nope == 1`), validation(`!('also' in object.metadata.labels)`))), binding("@a"))
	for _, labels := range []string{`"error":"a"`, `"error":"a","also":"b"`, `"also":"b"`} {
		s.post(levelsPath+"?dryRun=All", level("@x", `metadata.labels={"s":"@all",`+labels+`}`))
	}
	s.released()
}

func enforcedUnknownParams(s *script) {
	s.inForce(policy("@a", `spec.paramKind={"apiVersion":"example.com/v1","kind":"Nothing"}`), binding("@a", `spec.validationActions=["Warn"]`))
	s.post(levelsPath+"?dryRun=All", level("@x"))
	s.delete(bindingsPath + "/@a")
	s.post(levelsPath+"?dryRun=All", denied("@probe"))
	s.until(201)
	s.delete(policiesPath + "/@a")
}

func enforcedParams(s *script) {
	s.post(flowSchemasPath, flowSchema("@param", `spec.matchingPrecedence=500`))
	s.inForce(policy("@a", `spec.paramKind={"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema"}`, validations(
		validation(`params == null || object.spec.limited.nominalConcurrencyShares < params.spec.matchingPrecedence`, `"messageExpression":"'not below ' + string(params.spec.matchingPrecedence) + ' of ' + params.kind + ' ' + params.metadata.name"`))),
		binding("@a", `spec.paramRef={"name":"@param","parameterNotFoundAction":"Deny"}`))
	shares := func(count int) { // dry
		s.post(levelsPath+"?dryRun=All", level("@x", fmt.Sprintf("spec.limited.nominalConcurrencyShares=%d", count)))
	}
	shares(400)
	shares(600)
	s.patch(flowSchemasPath+"/@param", mergePatch, `{"spec":{"matchingPrecedence":700}}`)
	s.post(levelsPath+"?dryRun=All", level("@x", "spec.limited.nominalConcurrencyShares=600"))
	s.until(201)
	shares(800)
	s.delete(flowSchemasPath + "/@param")
	s.post(levelsPath+"?dryRun=All", level("@x"))
	s.until(422)
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"paramRef":{"parameterNotFoundAction":"Allow"}}}`)
	s.post(levelsPath+"?dryRun=All", level("@x"))
	s.until(201)
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"paramRef":{"namespace":"default"}}}`)
	s.post(levelsPath+"?dryRun=All", level("@x"))
	s.until(422)
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"paramRef":null}}`)
	s.post(levelsPath+"?dryRun=All", level("@x"))
	s.until(201)
	s.post(levelsPath+"?dryRun=All", denied("@x"))
	s.released()
}

func enforcedSelectedParams(s *script) {
	s.post(budgetsPath, budget("@one", `metadata.labels.set="a"`, `spec={"minAvailable":5}`))
	s.post(budgetsPath, budget("@two", `metadata.labels.set="a"`, `spec={"minAvailable":7}`))
	s.post(budgetsPath, budget("@three", `metadata.labels.set="b"`, `spec={"minAvailable":1}`))
	s.inForce(policy("@a", `spec.paramKind={"apiVersion":"policy/v1","kind":"PodDisruptionBudget"}`, validations(
		validation(`object.spec.limited.nominalConcurrencyShares <= params.spec.minAvailable`, `"messageExpression":"'more than ' + params.metadata.name + ' allows: ' + string(params.spec.minAvailable)"`))),
		binding("@a", `spec.paramRef={"selector":{"matchLabels":{"s":"@all","set":"a"}},"namespace":"default","parameterNotFoundAction":"Deny"}`))
	for _, count := range []int{4, 6, 2} {
		s.post(levelsPath+"?dryRun=All", level("@x", fmt.Sprintf("spec.limited.nominalConcurrencyShares=%d", count)))
	}
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"paramRef":{"selector":{"matchLabels":{"set":"none"}}}}}`)
	s.post(levelsPath+"?dryRun=All", level("@x", "spec.limited.nominalConcurrencyShares=3"))
	s.until(422)
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"paramRef":{"parameterNotFoundAction":"Allow"}}}`)
	s.post(levelsPath+"?dryRun=All", level("@x", "spec.limited.nominalConcurrencyShares=3"))
	s.until(201)
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"paramRef":{"namespace":null}}}`)
	s.post(levelsPath+"?dryRun=All", level("@x", "spec.limited.nominalConcurrencyShares=3"))
	s.until(422)
	s.delete(bindingsPath + "/@a")
	s.post(levelsPath+"?dryRun=All", denied("@probe"))
	s.until(201)
	s.delete(policiesPath + "/@a")
	s.delete(budgetsPath + "?labelSelector=s=@all")
}

func enforcedInNamespaces(s *script) {
	rules := `spec.matchConstraints.resourceRules=[{"apiGroups":["flowcontrol.apiserver.k8s.io"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["prioritylevelconfigurations"]},{"apiGroups":["policy"],"apiVersions":["v1"],"operations":["*"],"resources":["*/*"],"scope":"Namespaced"}]`
	s.inForce(policy("@a", rules,
		`spec.matchConstraints.namespaceSelector={"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"In","values":["default"]}]}`,
		validations(validation(`!('show' in object.metadata.labels)`, `"messageExpression":"namespaceObject.metadata.name + ' ' + namespaceObject.status.phase + ' ' + namespaceObject.metadata.labels['kubernetes.io/metadata.name'] + ' ' + request.namespace"`))), binding("@a"))
	s.post(budgetsPath+"?dryRun=All", budget("@x"))
	s.post(budgetsPath+"?dryRun=All", budget("@x", `metadata.labels.show="yes"`))
	s.post(budgetsPath+"?dryRun=All", budget("@x", `metadata.labels.deny="yes"`))
	other := strings.Replace(budgetsPath, "default", "kube-public", 1)
	s.post(other+"?dryRun=All", budget("@x", `metadata.labels.deny="yes"`))
	s.post(budgetsPath, budget("@x"))
	s.patch(budgetsPath+"/@x", mergePatch, `{"metadata":{"labels":{"show":"yes"}}}`)
	s.patch(budgetsPath+"/@x/status", mergePatch, `{"metadata":{"labels":{"show":"yes"}}}`)
	s.delete(budgetsPath + "/@x")
	s.released()
	s.delete(budgetsPath + "/@x")
}

// What an expression sees of the request. Fields that are empty are absent.
func shownRequest() string {
	given := func(path string) string { return fmt.Sprintf(`(has(%[1]s) ? '%[1]s ' + %[1]s + ' ' : '')`, path) }
	typed := func(path, convert string) string {
		return fmt.Sprintf(`(has(%[1]s) ? '%[1]s ' + %[2]s + ' ' : '')`, path, convert)
	}
	return strings.Join([]string{
		given("request.operation"), given("request.name"), given("request.namespace"), given("request.subResource"), given("request.requestSubResource"),
		given("request.kind.group"), given("request.kind.version"), given("request.kind.kind"), given("request.resource.version"), given("request.resource.resource"),
		given("request.requestKind.kind"), given("request.requestResource.resource"), typed("request.dryRun", "string(request.dryRun)"),
		given("request.options.apiVersion"), given("request.options.kind"), typed("request.options", "string(size(request.options))"),
		given("request.options.fieldManager"), given("request.options.fieldValidation"), typed("request.options.dryRun", "request.options.dryRun.join(',')"),
		typed("request.options.gracePeriodSeconds", "string(request.options.gracePeriodSeconds)"), given("request.options.propagationPolicy"),
		typed("request.options.orphanDependents", "string(request.options.orphanDependents)"), typed("request.options.preconditions", "string(size(request.options.preconditions))"),
	}, " + ")
}

func enforcedRequest(s *script) {
	item := levelsPath + "/@x"
	shown := `metadata.labels.show="yes"`
	s.post(levelsPath, level("@x", shown))
	s.inForce(policy("@a", operations(`["*"]`), validations(
		validation(`!('show' in (object == null ? oldObject : object).metadata.labels)`, fmt.Sprintf(`"messageExpression":%q`, shownRequest())))), binding("@a"))
	s.post(levelsPath, level("@y", shown))
	s.post(levelsPath, edited(level("", shown), "-metadata.name", `metadata.generateName="@g-"`))
	s.post(levelsPath+"?fieldManager=m&fieldValidation=Strict&dryRun=All", level("@y", shown))
	s.put(item+"?fieldManager=m", level("@x", shown))
	s.put(item+"?dryRun=All&dryRun=All", level("@x", shown))
	s.patch(item, mergePatch, `{"spec":{"limited":{"nominalConcurrencyShares":3}}}`)
	s.patch(item+"?fieldManager=m&fieldValidation=Ignore", mergePatch, `{}`)
	s.apply(item+"?force=true", "me", level("@x", shown))
	s.apply(levelsPath+"/@z", "me", level("@z", shown))
	s.delete(item)
	s.delete(item + "?gracePeriodSeconds=5&propagationPolicy=Background")
	s.delete(item + "?orphanDependents=false&dryRun=All")
	s.do("DELETE", item, `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"{{uid:@x}}"},"propagationPolicy":"Foreground"}`, contentHeader, jsonType)
	s.do("DELETE", item, `{"gracePeriodSeconds":0}`, contentHeader, jsonType)
	s.do("DELETE", item, `{"kind":"DeleteOptions","apiVersion":"flowcontrol.apiserver.k8s.io/v1","dryRun":[]}`, contentHeader, jsonType)
	s.delete(levelsPath + "?labelSelector=s=@all,show")
	s.patch(item+"/status", mergePatch, `{}`)
	s.released()
	s.delete(levelsPath + "?labelSelector=s=@all")
}

// What an expression sees of an object.
func shownObject(name string) string {
	var parts []string
	for _, field := range []string{"apiVersion", "kind", "metadata.uid", "metadata.creationTimestamp", "metadata.resourceVersion", "metadata.generateName", "metadata.managedFields", "metadata.selfLink", "metadata.annotations", "status", "status.conditions", "spec.limited.lendablePercent", "spec.limited.borrowingLimitPercent", "spec.exempt"} {
		parts = append(parts, fmt.Sprintf(`(has(%s.%s) ? '%s ' : '')`, name, field, field))
	}
	return fmt.Sprintf(`%s == null ? 'null' : `, name) + strings.Join(parts, " + ") + fmt.Sprintf(` + string(%[1]s.metadata.generation) + ' ' + string(type(%[1]s.metadata.generation) == int) + ' ' + %[1]s.metadata.name`, name)
}

func enforcedObjects(s *script) {
	item := levelsPath + "/@x"
	shown := `metadata.labels.show="yes"`
	s.post(levelsPath, level("@x", shown))
	s.inForce(policy("@a", operations(`["*"]`), validations(
		validation(`!('show' in (object == null ? oldObject : object).metadata.labels)`, fmt.Sprintf(`"messageExpression":%q`, `(`+shownObject("object")+`) + ' OLD ' + (`+shownObject("oldObject")+`)`)))), binding("@a"))
	s.post(levelsPath, level("@y", shown))
	s.post(levelsPath, edited(level("", shown), "-metadata.name", `metadata.generateName="@g-"`))
	s.put(item, level("@x", shown, `spec.limited.nominalConcurrencyShares=9`))
	s.patch(item, mergePatch, `{"metadata":{"annotations":{"a":"b"}}}`)
	s.patch(item, mergePatch, `{"metadata":{"managedFields":[]}}`)
	s.patch(item, mergePatch, `{"metadata":{"resourceVersion":null}}`)
	s.delete(item)
	s.released()
	s.delete(levelsPath + "?labelSelector=s=@all")
}

func enforcedExemptions(s *script) {
	s.inForce(policy("@a",
		`spec.matchConstraints.resourceRules=[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*/*"]}]`,
		validations()), binding("@a"))
	s.post(policiesPath, policy("@b", `metadata.labels.deny="yes"`))
	s.patch(policiesPath+"/@b", mergePatch, `{"metadata":{"labels":{"x":"y"}}}`)
	s.patch(policiesPath+"/@b/status", mergePatch, `{"status":{"observedGeneration":1}}`)
	s.post(bindingsPath, binding("@b", `metadata.labels.deny="yes"`))
	s.delete(bindingsPath + "/@b")
	s.delete(policiesPath + "/@b")
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("@x", `metadata.labels.deny="yes"`))
	s.post(budgetsPath+"?dryRun=All", budget("@x", `metadata.labels.deny="yes"`))
	s.released()
}

func enforcedChanges(s *script) {
	s.inForce(policy("@a"), binding("@a"))
	probe := func(body string, code int) {
		s.post(levelsPath+"?dryRun=All", body)
		s.until(code)
	}
	s.patch(policiesPath+"/@a", mergePatch, `{"spec":{"validations":[{"expression":"!('other' in object.metadata.labels)","reason":"Forbidden"}]}}`)
	probe(denied("@x"), 201)
	probe(level("@x", `metadata.labels.other="yes"`), 403)
	s.delete(policiesPath + "/@a")
	probe(level("@x", `metadata.labels.other="yes"`), 201)
	s.post(policiesPath, policy("@a"))
	probe(denied("@x"), 422)
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"validationActions":["Warn"]}}`)
	probe(denied("@x"), warned)
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"validationActions":["Deny"],"matchResources":{"objectSelector":{"matchLabels":{"t":"u"}}}}}`)
	probe(level("@x", `metadata.labels={"s":"@all","t":"u","deny":"yes"}`), 422)
	s.post(levelsPath+"?dryRun=All", denied("@x"))
	s.delete(bindingsPath + "/@a")
	probe(level("@x", `metadata.labels={"s":"@all","t":"u","deny":"yes"}`), 201)
	s.delete(policiesPath + "/@a")
}

func enforcedMatching(s *script) {
	s.inForce(policy("@a",
		`spec.matchConstraints.resourceRules=[{"apiGroups":["flowcontrol.apiserver.k8s.io"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["*"],"scope":"Cluster"},{"apiGroups":["*"],"apiVersions":["v1"],"operations":["UPDATE"],"resources":["prioritylevelconfigurations"],"resourceNames":["@named"]}]`,
		`spec.matchConstraints.excludeResourceRules=[{"apiGroups":["flowcontrol.apiserver.k8s.io"],"apiVersions":["*"],"operations":["CREATE"],"resources":["*"],"resourceNames":["@spared"]},{"apiGroups":["*"],"apiVersions":["*"],"operations":["CREATE"],"resources":["flowschemas"]}]`,
		`spec.matchConstraints.matchPolicy="Exact"`), binding("@a"))
	s.post(levelsPath+"?dryRun=All", denied("@spared"))
	s.post(levelsPath+"?dryRun=All", denied("@named"))
	s.post(flowSchemasPath+"?dryRun=All", flowSchema("@x", `metadata.labels.deny="yes"`))
	for _, name := range []string{"@named", "@other"} {
		s.post(levelsPath, level(name))
		s.patch(levelsPath+"/"+name, mergePatch, `{"metadata":{"labels":{"deny":"yes"}}}`)
		s.patch(levelsPath+"/"+name+"/status", mergePatch, `{"status":{}}`)
	}
	s.patch(levelsPath+"/@named", mergePatch, `{"metadata":{"labels":{"deny":"yes","s":"other"}}}`)
	s.patch(levelsPath+"/@named", mergePatch, `{"metadata":{"labels":{"deny":"yes"}}}`)
	s.released()
	s.delete(levelsPath + "/@named")
	s.delete(levelsPath + "/@other")
}

func enforcedAuthorizer(s *script) {
	s.inForce(policy("@a", `spec.variables=[{"name":"may","expression":"authorizer.group('').resource('pods').namespace('x').check('get').allowed()"}]`, validations(
		validation(`variables.may && authorizer.path('/healthz').check('get').allowed()`),
		validation(`!('account' in object.metadata.labels) || authorizer.serviceAccount('default', 'nobody').group('').resource('secrets').check('delete').allowed()`, `"reason":"Forbidden"`),
		validation(`!('verb' in object.metadata.labels) || !authorizer.requestResource.check('custom').allowed()`),
		validation(`!('bad' in object.metadata.labels) || authorizer.serviceAccount('Not Valid', 'x').path('/').check('get').allowed()`),
		validation(`!('message' in object.metadata.labels)`, `"message":"m"`, `"messageExpression":"'may ' + string(variables.may)"`),
	)), binding("@a"))
	for _, label := range []string{"none", "account", "verb", "bad", "message"} {
		s.post(levelsPath+"?dryRun=All", level("@x", `metadata.labels.`+label+`="yes"`))
	}
	s.released()
}

func enforcedAnnotations(s *script) {
	s.inForce(policy("@a", validations(), `spec.auditAnnotations=[{"key":"k","valueExpression":"'v ' + object.metadata.name"},{"key":"n","valueExpression":"null"},{"key":"e","valueExpression":"'error' in object.metadata.labels ? string(object.nope) : ''"}]`), binding("@a"))
	s.post(levelsPath+"?dryRun=All", level("@x"))
	s.post(levelsPath+"?dryRun=All", level("@x", `metadata.labels.error="yes"`))
	s.post(levelsPath+"?dryRun=All", level("@x", `metadata.labels={"s":"@all","error":"a","deny":"b"}`))
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"validationActions":["Warn"]}}`)
	s.post(levelsPath+"?dryRun=All", denied("@x"))
	s.until(warned)
	s.post(levelsPath+"?dryRun=All", level("@x", `metadata.labels.error="yes"`))
	s.delete(bindingsPath + "/@a")
	s.post(levelsPath+"?dryRun=All", level("@x", `metadata.labels.error="yes"`))
	s.until(201)
	s.delete(policiesPath + "/@a")
}
