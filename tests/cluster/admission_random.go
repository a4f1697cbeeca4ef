package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// RandomEvaluatedSessions draws sessions, each with policies of its own, until they hold a number of requests. The same seed
// gives the same.
func RandomEvaluatedSessions(seed uint64, requests int) []Session {
	var all []Session
	for drawn := 0; drawn < requests; {
		d := &evaluatedDice{
			evaluation: newEvaluation(fmt.Sprintf("r%d-%d", seed, len(all))),
			dice:       &dice{rand: rand.New(rand.NewPCG(seed, 1<<32+uint64(len(all))))},
		}
		d.draw(25 + d.dice.rand.IntN(30))
		drawn += len(d.Requests)
		all = append(all, d.evaluation.Session)
	}
	return all
}

// evaluatedDice writes one random session.
type evaluatedDice struct {
	*evaluation
	dice  *dice
	kinds []*evaluatedKind // that the policies of the session are about
}

// A evaluatedKind is what random sessions know of a kind of object.
type evaluatedKind struct {
	group, resource, path, document string
	subresources                    string   // that its rules name as well
	edits                           []string // of a document
	merges                          []string // merge patches
	strategic                       []string // strategic merge patches
	json                            []string // operations of JSON patches
	holds                           []string // expressions about object
	since                           []string // expressions about object and oldObject
	says                            []string // message expressions
	built                           bool     // in: has a form in protobuf
}

var commonEdits = []string{`metadata.labels.tier="gold"`, `metadata.labels.tier="silver"`, `metadata.labels.env="prod"`, `metadata.annotations={"note":"a"}`, `metadata.finalizers=["example.com/hold"]`, `what=5`, `metadata.labels.bad="a b"`}

var commonMerges = []string{`{"metadata":{"labels":{"tier":"gold"}}}`, `{"metadata":{"labels":{"tier":null}}}`, `{"metadata":{"annotations":{"note":"b"}}}`, `{"metadata":{"annotations":null}}`, `{}`, `{"what":1}`, `{"metadata":{"finalizers":null}}`, `{"metadata":{"resourceVersion":"1"}}`}

var commonJSON = []string{`{"op":"add","path":"/metadata/labels/tier","value":"gold"}`, `{"op":"remove","path":"/metadata/labels/tier"}`, `{"op":"test","path":"/metadata/labels/tier","value":"gold"}`, `{"op":"add","path":"/metadata/annotations","value":{"note":"c"}}`, `{"op":"copy","from":"/metadata/labels","path":"/metadata/annotations"}`}

var commonHolds = []string{
	`object.metadata.?labels[?'tier'].orValue('none') != 'gold'`, `object.metadata.labels.tier != 'gold'`, `has(object.metadata.annotations)`, `object.metadata.name.endsWith('a')`, `!has(object.metadata.deletionTimestamp)`,
	`object.metadata.?finalizers.orValue([]).size() == 0`, `namespaceObject.metadata.labels.env == 'prod'`, `namespaceObject.metadata.?labels[?'env'].orValue('test') != 'test'`, `request.operation != 'UPDATE'`, `!has(request.dryRun) || !request.dryRun`,
	`request.userInfo.username == 'kubernetes-admin'`, `variables.gold == false`, `!variables.gold || variables.count < 2`, `object.metadata.labels.all(k, k.size() < 5)`, `object.metadata.?generation.orValue(1) < 3`, `request.name != object.metadata.name`,
	`'note' in object.metadata.annotations`, `object.metadata.?annotations.orValue({}).exists(k, k == 'note') || request.operation == 'CREATE'`, `authorizer.group('').resource('configmaps').namespace(request.namespace).check('get').allowed()`, `!has(object.metadata.uid)`,
}

var commonSays = []string{`request.operation + ' ' + request.?name.orValue('unnamed')`, `'labels ' + object.metadata.labels.map(k, k).filter(k, k != 's').join(',')`, `string(object.metadata.annotations.note)`, `namespaceObject.metadata.labels.env`, `string(variables.count) + ' annotations'`, `' '`, `'a' + '\n'`, `string(oldObject == null) + request.kind.kind`}

var randomKinds = []*evaluatedKind{
	{
		resource: "configmaps", path: "configmaps", document: configMapDocument, built: true,
		edits:     []string{`data.mode="slow"`, `data.size="12"`, `-data`, `immutable=true`, `data.extra="x"`, `data.mode=5`},
		merges:    []string{`{"data":{"mode":"slow"}}`, `{"data":{"mode":"fast","size":"2"}}`, `{"data":{"size":null}}`, `{"data":null}`, `{"data":{"extra":"y"}}`},
		strategic: []string{`{"data":{"mode":"slow"}}`, `{"data":{"$patch":"replace","mode":"fast"}}`, `{"data":{"size":null}}`},
		json:      []string{`{"op":"replace","path":"/data/mode","value":"slow"}`, `{"op":"remove","path":"/data/size"}`, `{"op":"add","path":"/data/extra","value":"z"}`, `{"op":"move","from":"/data/size","path":"/data/length"}`},
		holds:     []string{`object.data.mode != 'slow'`, `!has(object.data) || object.data.size() < 3`, `int(object.data.size) <= 10`, `object.data.all(k, k.matches('^[a-z]+$'))`, `object.?data[?'mode'].orValue('') in ['', 'fast']`},
		since:     []string{`object.data.mode == oldObject.data.mode`, `object.?data.orValue({}).size() >= oldObject.?data.orValue({}).size()`, `object.metadata.resourceVersion == oldObject.metadata.resourceVersion`},
		says:      []string{`'mode ' + object.data.mode`, `object.data.map(k, k + '=' + object.data[k]).filter(k, k.startsWith('mode')).join(' ')`},
	},
	{
		resource: "secrets", path: "secrets", document: secretDocument, built: true,
		edits:     []string{`stringData.password="other"`, `data={"password":"b3RoZXI="}`, `type="example.com/x"`, `-stringData`},
		merges:    []string{`{"stringData":{"password":"new"}}`, `{"data":{"password":"bmV3"}}`, `{"data":{"password":null}}`, `{"type":"other"}`},
		strategic: []string{`{"stringData":{"password":"newer"}}`, `{"data":{"more":"bmV3"}}`},
		json:      []string{`{"op":"add","path":"/stringData","value":{"password":"newest"}}`, `{"op":"replace","path":"/data/password","value":"eA=="}`},
		holds:     []string{`!has(object.stringData)`, `object.type == 'Opaque'`, `object.data.password != 'b3RoZXI='`, `object.data.password.size() > 3`},
		since:     []string{`object.data == oldObject.data`, `object.type == oldObject.type`},
		says:      []string{`object.type + ' ' + string(object.?data.orValue({}).size())`, `string(object.data.password)`},
	},
	{
		resource: "services", path: "services", document: serviceDocument, built: true, subresources: "services/status",
		edits:     []string{`spec.ports=[{"name":"web","port":80},{"name":"more","port":443}]`, `spec.sessionAffinity="ClientIP"`, `spec.ports.0.targetPort="http"`, `spec.ports.0.protocol="UDP"`, `spec.publishNotReadyAddresses=true`, `spec.ports=[]`, `spec.ports.0.port=0`},
		merges:    []string{`{"spec":{"sessionAffinity":"ClientIP"}}`, `{"spec":{"ports":[{"name":"x","port":81}]}}`, `{"spec":{"selector":null}}`, `{"spec":{"ports":[{"name":"x","port":-1}]}}`},
		strategic: []string{`{"spec":{"ports":[{"port":81,"name":"more"}]}}`, `{"spec":{"ports":[{"port":80,"name":"renamed"}]}}`, `{"spec":{"ports":[{"$patch":"delete","port":81}]}}`, `{"spec":{"$setElementOrder/ports":[{"port":81},{"port":80}]}}`},
		json:      []string{`{"op":"add","path":"/spec/ports/-","value":{"name":"late","port":90}}`, `{"op":"remove","path":"/spec/ports/1"}`, `{"op":"replace","path":"/spec/sessionAffinity","value":"None"}`},
		holds:     []string{`object.spec.ports.all(p, p.protocol == 'TCP')`, `object.spec.sessionAffinity == 'None'`, `object.spec.ports.exists_one(p, p.port == 80)`, `object.spec.ports.all(p, p.targetPort == p.port)`, `object.spec.ports.size() < 2`, `object.spec.internalTrafficPolicy == 'Cluster' && has(object.spec.selector)`},
		since:     []string{`object.spec.ports == oldObject.spec.ports`, `object.spec.ports.size() >= oldObject.spec.ports.size()`, `object.spec.sessionAffinity == oldObject.spec.sessionAffinity`},
		says:      []string{`object.spec.ports.map(p, p.name + ':' + string(p.port) + '/' + p.protocol).join(', ')`, `object.spec.ipFamilyPolicy + ' ' + object.spec.clusterIP`},
	},
	{
		resource: "pods", path: "pods", document: podDocument, built: true, subresources: "pods/status,pods/ephemeralcontainers,pods/exec,pods/eviction",
		edits:     []string{`spec.containers.0.image="bad/app"`, `spec.containers.0.image="good/app:v2"`, `spec.containers.0.resources={"limits":{"cpu":"500m","memory":"1Gi"}}`, `spec.containers.0.env=[{"name":"A","value":"b"}]`, `spec.hostNetwork=true`, `spec.containers.0.securityContext={"privileged":true}`, `spec.tolerations=[{"key":"x","operator":"Exists"}]`, `spec.initContainers=[{"name":"i","image":"good/init"}]`, `spec.terminationGracePeriodSeconds=3`, `spec.containers=[]`},
		merges:    []string{`{"spec":{"activeDeadlineSeconds":30}}`, `{"spec":{"terminationGracePeriodSeconds":5}}`, `{"spec":{"nodeName":"x"}}`},
		strategic: []string{`{"spec":{"containers":[{"name":"c","image":"bad/new"}]}}`, `{"spec":{"containers":[{"name":"c","image":"good/new"}]}}`, `{"spec":{"tolerations":[{"key":"y","operator":"Exists"}]}}`, `{"spec":{"containers":[{"name":"c","env":[{"name":"B","value":"c"}]}]}}`},
		json:      []string{`{"op":"replace","path":"/spec/containers/0/image","value":"bad/json"}`, `{"op":"replace","path":"/spec/containers/0/image","value":"good/json"}`, `{"op":"add","path":"/spec/tolerations/-","value":{"key":"z","operator":"Exists"}}`},
		holds: []string{`object.spec.containers.all(c, c.image.startsWith('good/'))`, `object.spec.containers.all(c, has(c.resources) && has(c.resources.limits))`, `object.spec.containers.all(c, c.imagePullPolicy == 'Always')`, `object.spec.?hostNetwork.orValue(false) == false`, `object.spec.containers.all(c, !c.?securityContext.?privileged.orValue(false))`,
			`object.spec.tolerations.exists(t, t.key == 'x')`, `object.spec.tolerations.size() == 2`, `object.spec.priority == 0 && object.spec.preemptionPolicy == 'PreemptLowerPriority'`, `object.spec.containers.all(c, quantity(c.?resources.?limits.?cpu.orValue('0')).isLessThan(quantity('1')))`, `object.status.qosClass == 'BestEffort'`, `object.spec.terminationGracePeriodSeconds > 4`},
		since: []string{`object.spec.containers.all(c, oldObject.spec.containers.exists(o, o.image == c.image))`, `object.spec.tolerations.size() == oldObject.spec.tolerations.size()`, `object.?status.?conditions.orValue([]).size() == oldObject.?status.?conditions.orValue([]).size()`},
		says:  []string{`'images ' + object.spec.containers.map(c, c.image).join(',')`, `object.spec.tolerations.map(t, t.key).join(' ')`, `object.status.phase + ' ' + object.spec.restartPolicy`},
	},
	{
		group: "apps", resource: "deployments", path: "apps/v1:deployments", document: deployDocument, built: true, subresources: "deployments/scale,deployments/status",
		edits:     []string{`spec.replicas=5`, `spec.replicas=0`, `spec.template.spec.containers.0.image="bad/app"`, `spec.strategy={"type":"Recreate"}`, `spec.paused=true`, `spec.template.metadata.labels={"app":"y"}`, `spec.template.spec.containers=[{"name":"c","image":"good/app"},{"name":"d","image":"good/side:v1"}]`, `spec.replicas=-1`},
		merges:    []string{`{"spec":{"replicas":6}}`, `{"spec":{"replicas":null}}`, `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`, `{"spec":{"paused":true}}`, `{"spec":{"template":{"spec":{"containers":[{"name":"n","image":"bad/merged"}]}}}}`},
		strategic: []string{`{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"good/d"}]}}}}`, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"bad/s"}]}}}}`, `{"spec":{"template":{"spec":{"containers":[{"$patch":"delete","name":"d"}]}}}}`, `{"spec":{"replicas":2}}`, `{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`},
		json:      []string{`{"op":"replace","path":"/spec/replicas","value":7}`, `{"op":"remove","path":"/spec/replicas"}`, `{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"j","image":"bad/j"}}`},
		holds:     []string{`object.spec.replicas <= 3`, `object.spec.replicas == 1`, `object.spec.template.spec.containers.all(c, c.image.startsWith('good/'))`, `object.spec.strategy.type == 'RollingUpdate' && object.spec.strategy.rollingUpdate.maxSurge == '25%'`, `object.spec.template.spec.containers.size() == 1`, `!has(object.spec.paused)`, `object.spec.template.spec.containers.all(c, c.imagePullPolicy == 'Always')`, `object.spec.revisionHistoryLimit == 10`},
		since:     []string{`object.spec.replicas >= oldObject.spec.replicas`, `object.spec.template == oldObject.spec.template`, `object.metadata.generation == oldObject.metadata.generation`},
		says:      []string{`'replicas ' + string(object.spec.replicas)`, `object.spec.template.spec.containers.map(c, c.name + '=' + c.image).join(',')`, `string(object.spec.strategy.type)`},
	},
	{
		group: "judged.example.com", resource: "things", path: "judged.example.com/v1:things", document: thingDocument, subresources: "things/status,things/scale",
		edits:  []string{`spec.size=9`, `spec.size=200`, `spec.colour="blue"`, `spec.parts=[{"name":"a"}]`, `spec.parts=[{"name":"a","count":4},{"name":"b"}]`, `spec.unknown=1`, `spec.replicas=4`, `-spec`},
		merges: []string{`{"spec":{"size":8}}`, `{"spec":{"size":null}}`, `{"spec":{"colour":"green"}}`, `{"spec":{"parts":[{"name":"z"}]}}`, `{"spec":null}`},
		json:   []string{`{"op":"replace","path":"/spec/size","value":7}`, `{"op":"add","path":"/spec/parts","value":[{"name":"q"}]}`, `{"op":"remove","path":"/spec/colour"}`},
		holds:  []string{`object.spec.size < 8`, `object.spec.size == 3`, `object.spec.colour in ['red', 'green']`, `!has(object.spec.parts) || object.spec.parts.all(p, p.count == 1)`, `!has(object.status)`, `object.spec.replicas < 3`, `!has(object.spec.unknown)`},
		since:  []string{`object.spec.size >= oldObject.spec.size`, `object.?spec.?colour == oldObject.?spec.?colour`, `object.metadata.generation == oldObject.metadata.generation`},
		says:   []string{`'size ' + string(object.spec.size)`, `object.spec.parts.map(p, p.name + string(p.count)).join(',')`},
	},
}

func (d *evaluatedDice) one(in int) bool { return d.dice.one(in) }

func choose[T any](d *evaluatedDice, from ...T) T { return pick(d.dice, from...) }

func (d *evaluatedDice) draw(requests int) {
	d.kinds = []*evaluatedKind{choose(d, randomKinds...)}
	if other := choose(d, randomKinds...); d.one(2) && other != d.kinds[0] {
		d.kinds = append(d.kinds, other)
	}
	d.begin(choose(d, `"env":"prod"`, `"env":"test"`, `"team":"a"`))
	d.post(in("configmaps"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"@param","labels":{"set":"@all"}},"data":{"most":"4"}}`)
	for _, kind := range d.kinds {
		d.post(in(kind.path), of(kind.document, "@a"))
	}
	d.post(policiesPath, d.policy("@a"))
	d.post(bindingsPath, d.binding("@a", choose(d, `["Deny"]`, `["Deny"]`, `["Deny","Audit"]`, `["Warn"]`)))
	if d.one(3) {
		d.post(policiesPath, d.policy("@b"))
		d.post(bindingsPath, d.binding("@b", choose(d, `["Warn"]`, `["Warn","Audit"]`, `["Audit"]`)))
	}
	d.settle()
	for len(d.Requests) < requests {
		d.step(choose(d, d.kinds...))
		if d.one(14) {
			d.change()
		}
	}
	var paths []string
	for _, kind := range d.kinds {
		paths = append(paths, in(kind.path))
	}
	d.end(paths...)
}

// change changes what policies decide by, and waits until that is known.
func (d *evaluatedDice) change() {
	switch d.dice.rand.IntN(4) {
	case 0:
		d.patch("/api/v1/namespaces/@ns", mergePatch, `{"metadata":{"labels":{"env":`+choose(d, `"prod"`, `"test"`, "null")+`}}}`)
	case 1:
		d.patch(in("configmaps/@param"), mergePatch, `{"data":{"most":"`+choose(d, "1", "9", "x")+`"}}`)
	case 2:
		d.replacePolicy("@a", d.policy("@a"))
	case 3:
		d.replaceBinding("@a", d.binding("@a", choose(d, `["Deny"]`, `["Warn"]`, `["Audit"]`)))
	}
	d.settle()
}

// policy is a random policy about the session's kinds.
func (d *evaluatedDice) policy(name string) string {
	operations := choose(d, []string{"CREATE", "UPDATE"}, []string{"CREATE", "UPDATE"}, []string{"*"}, []string{"UPDATE", "DELETE"}, []string{"CREATE", "UPDATE", "DELETE", "CONNECT"})
	var about []string
	for _, kind := range d.kinds {
		resources := kind.resource
		if kind.subresources != "" && d.one(3) {
			resources += "," + kind.subresources
		}
		about = append(about, rule(kind.group, resources, operations...))
	}
	edits := []string{rules(about...), `spec.variables=[{"name":"gold","expression":"object.metadata.?labels[?'tier'].orValue('') == 'gold'"},{"name":"count","expression":"object.metadata.?annotations.orValue({}).size()"}]`}
	if d.one(3) {
		edits = append(edits, `spec.failurePolicy="Ignore"`)
	}
	if d.one(4) {
		edits = append(edits, `spec.matchConstraints.objectSelector=`+choose(d, `{"matchLabels":{"tier":"gold"}}`, `{"matchExpressions":[{"key":"tier","operator":"NotIn","values":["silver"]}]}`, `{"matchExpressions":[{"key":"s","operator":"Exists"}]}`))
	}
	if d.one(5) {
		edits = append(edits, `spec.matchConstraints.excludeResourceRules=[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"],"resourceNames":["@b"]}]`)
	}
	if d.one(3) {
		edits = append(edits, `spec.matchConditions=[`+strings.Join(d.some(3, `{"name":"a","expression":"request.operation != 'DELETE'"}`, `{"name":"b","expression":"!has(request.dryRun) || !request.dryRun"}`, `{"name":"c","expression":"object == null || object.metadata.name.endsWith('a')"}`,
			`{"name":"d","expression":"request.?subResource.orValue('') == ''"}`, `{"name":"e","expression":"object.metadata.labels.tier == 'gold'"}`, `{"name":"f","expression":"request.kind.kind != 'Pod'"}`), ",")+`]`)
	}
	if d.one(6) {
		edits = append(edits, `spec.auditAnnotations=[{"key":"k","valueExpression":"`+choose(d, `'v ' + request.operation`, `string(object.metadata.annotations.note)`, `null`)+`"}]`)
	}
	withParams := name == "@a" && d.one(3)
	if withParams {
		edits = append(edits, `spec.paramKind={"apiVersion":"v1","kind":"ConfigMap"}`)
	}
	return evaluatedPolicy(name, append(edits, mustHold(d.validations(withParams)...))...)
}

func (d *evaluatedDice) some(most int, from ...string) []string {
	from = slices.Clone(from)
	d.dice.rand.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
	return from[:1+d.dice.rand.IntN(most)]
}

func (d *evaluatedDice) validations(withParams bool) []string {
	var all []string
	for range 1 + d.dice.rand.IntN(3) {
		kind := choose(d, d.kinds...)
		expression := choose(d, choose(d, kind.holds...), choose(d, kind.holds...), choose(d, commonHolds...))
		if d.one(4) {
			expression = "oldObject == null || object == null || " + choose(d, kind.since...)
		}
		if withParams && d.one(2) {
			expression = choose(d, `params == null || size(object.metadata.name) < 40 + int(params.data.most)`, `params.data.most != '4'`, `has(params.data.most) && int(params.data.most) < 5`)
		}
		if !d.one(5) {
			// What is said of one kind is no error for the others, nor for subresources and deletions.
			expression = fmt.Sprintf("object == null || request.resource.resource != '%s' || request.?subResource.orValue('') != '' || (%s)", kind.resource, expression)
		}
		var more []string
		if d.one(3) {
			more = append(more, `"message":"`+choose(d, "plain", " trimmed ", `with \"quotes\"`)+`"`)
		}
		if d.one(2) {
			more = append(more, fmt.Sprintf(`"messageExpression":%q`, choose(d, choose(d, kind.says...), choose(d, commonSays...))))
		}
		if d.one(3) {
			more = append(more, `"reason":"`+choose(d, "Forbidden", "Invalid", "RequestEntityTooLarge")+`"`)
		}
		all = append(all, validation(expression, more...))
	}
	return all
}

func (d *evaluatedDice) binding(name, actions string) string {
	edits := []string{`spec.validationActions=` + actions}
	if d.one(2) {
		// One that a policy without params does not look at.
		edits = append(edits, `spec.paramRef=`+choose(d, `{"name":"@param","parameterNotFoundAction":"Deny"}`, `{"selector":{"matchLabels":{"set":"@all"}},"parameterNotFoundAction":"Deny"}`, `{"name":"@none","parameterNotFoundAction":"Deny"}`, `{"name":"@none","parameterNotFoundAction":"Allow"}`))
	}
	if d.one(4) {
		edits = append(edits, `spec.matchResources=`+choose(d, `{"namespaceSelector":{"matchLabels":{"env":"prod"}}}`, `{"namespaceSelector":{"matchExpressions":[{"key":"env","operator":"Exists"}]}}`, `{"objectSelector":{"matchExpressions":[{"key":"tier","operator":"DoesNotExist"}]}}`, `{"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["CREATE"],"resources":["*"]}]}`))
	}
	return binding(name, edits...)
}

// document is an object of the kind with some edits.
func (d *evaluatedDice) document(kind *evaluatedKind, name string) string {
	document := of(kind.document, name)
	// The edits of a kind may exclude each other.
	if d.one(2) {
		document = edited(document, choose(d, kind.edits...))
	}
	for d.one(3) {
		document = edited(document, choose(d, commonEdits...))
	}
	return document
}

// step is one request.
func (d *evaluatedDice) step(kind *evaluatedKind) {
	name := choose(d, "@a", "@a", "@b", "@c")
	list, item := in(kind.path), in(kind.path+"/"+name)
	query := func(join string, more ...string) string {
		if !d.one(3) {
			return ""
		}
		return join + choose(d, append(more, "dryRun=All", "dryRun=All", "fieldManager=other", "fieldValidation=Strict", "fieldValidation=Ignore")...)
	}
	encoding := choose(d, jsonType, jsonType, jsonType, yamlType)
	switch d.dice.rand.IntN(16) {
	case 0, 1, 2:
		d.do("POST", list+query("?"), d.document(kind, name), contentHeader, encoding)
	case 3, 4:
		document := d.document(kind, name)
		if kind.group == "judged.example.com" || d.one(3) {
			document = edited(document, `metadata.resourceVersion="{{rv:`+name+`}}"`)
		}
		d.do("PUT", item+query("?"), document, contentHeader, encoding)
	case 5, 6:
		d.patch(item+query("?"), mergePatch, choose(d, choose(d, kind.merges...), choose(d, commonMerges...)))
	case 7, 8:
		if len(kind.strategic) > 0 {
			d.patch(item+query("?"), strategic, choose(d, choose(d, kind.strategic...), choose(d, kind.strategic...), choose(d, commonMerges...)))
			return
		}
		d.patch(item+query("?"), mergePatch, choose(d, kind.merges...))
	case 9:
		d.patch(item+query("?"), jsonPatch, "["+strings.Join(d.some(2, append(commonJSON, kind.json...)...), ",")+"]")
	case 10, 11:
		manager := choose(d, "one", "two")
		d.apply(item+query("?", "force=true", "force=true", "force=true"), manager, d.document(kind, name))
	case 12:
		if d.one(3) {
			d.delete(list + "?labelSelector=" + choose(d, "tier%3Dgold", "s%3D@all,tier", "tier%3Dsilver") + query("&"))
			return
		}
		d.delete(item + choose(d, "", "?dryRun=All", "?gracePeriodSeconds=0", "?propagationPolicy=Background"))
	case 13:
		d.other(kind, item)
	case 14:
		if !kind.built {
			return
		}
		document := edited(of(kind.document, name), choose(d, commonEdits[:3]...))
		if d.one(2) {
			d.inProtobuf("POST", list+query("?"), document)
			return
		}
		d.inProtobuf("PUT", item+query("?"), document)
	case 15:
		d.get(item)
	}
}

// other is a request to a subresource.
func (d *evaluatedDice) other(kind *evaluatedKind, item string) {
	status := `{"status":{"conditions":[{"type":"` + choose(d, "A", "B") + `","status":"True"}]},"metadata":{"labels":{"tier":"` + choose(d, "gold", "silver") + `"}}}`
	switch kind.resource {
	case "pods":
		switch d.dice.rand.IntN(4) {
		case 0:
			d.patch(item+"/status", choose(d, strategic, mergePatch), status)
		case 1:
			d.post(item+"/exec?stdout=true&command="+choose(d, "ls", "rm"), "")
		case 2:
			d.post(item+"/eviction", of(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%s"}}`, item[strings.LastIndex(item, "/")+1:]))
		case 3:
			d.patch(item+"/ephemeralcontainers", strategic, `{"spec":{"ephemeralContainers":[{"name":"e`+choose(d, "1", "2")+`","image":"`+choose(d, "good/e", "bad/e")+`"}]}}`)
		}
	case "deployments", "things":
		if d.one(2) {
			d.patch(item+"/scale", mergePatch, fmt.Sprintf(`{"spec":{"replicas":%d}}`, d.dice.rand.IntN(8)))
			return
		}
		d.patch(item+"/status", mergePatch, status)
	case "services":
		d.patch(item+"/status", mergePatch, `{"metadata":{"annotations":{"note":"status"}}}`)
	default:
		d.patch(item, mergePatch, `{"metadata":{"finalizers":null}}`)
	}
}
