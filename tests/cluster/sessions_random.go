package cluster

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// RandomSessions draws sessions until they hold a number of requests. The same seed gives the same.
func RandomSessions(seed uint64, requests int) []Session {
	var all []Session
	for drawn := 0; drawn < requests; {
		d := &dice{rand: rand.New(rand.NewPCG(seed, uint64(len(all))))}
		d.Name = fmt.Sprintf("r%d-%d", seed, len(all))
		d.ManagedFields = d.one(8)
		d.write(min(requests-drawn, 12+d.rand.IntN(20)))
		drawn += len(d.Requests)
		all = append(all, d.Session)
	}
	return all
}

// dice writes one random session. It keeps to objects of the session's name: every request without a name
// in its path selects by the session's label.
type dice struct {
	script
	rand      *rand.Rand
	generated bool // a name has been asked for
}

func (d *dice) one(in int) bool { return d.rand.IntN(in) == 0 }

func pick[T any](d *dice, from ...T) T { return from[d.rand.IntN(len(from))] }

// A resourceKind has what differs between the two resources.
type resourceKind struct {
	path, watch string
	names       []string
	object      func(name string, edits ...string) string
	empty       func() runtime.Object // of its Go type
	specs       []string              // edits of the spec, good and bad
	patches     []string              // specs of merge patches
	bad         []string              // edits that no decoder takes, or that it warns of
}

var randomSchemas = resourceKind{
	path: flowSchemasPath, watch: versionPath + "/watch/flowschemas", names: []string{"@a", "@b", "@c"},
	object: flowSchema, empty: func() runtime.Object { return &flowcontrolv1.FlowSchema{} },
	specs: []string{"spec.matchingPrecedence=100", "spec.matchingPrecedence=200", "spec.matchingPrecedence=0", "-spec.distinguisherMethod", `spec.distinguisherMethod={"type":"ByNamespace"}`, "spec.rules=[]", "-spec.rules",
		`spec.priorityLevelConfiguration.name="workload-low"`, "spec.matchingPrecedence=-7", `spec.rules.0.subjects=[]`, `spec.rules.0.resourceRules=[{"verbs":["bad","get"],"apiGroups":["*","x"],"resources":["a"]}]`, `spec.rules.0.resourceRules=[{"verbs":["get"],"apiGroups":[""],"resources":["a"],"namespaces":["b"]}]`,
		`spec.rules.0.nonResourceRules.0.nonResourceURLs=["/a/*","b"]`, `spec.rules.0.subjects.0={"kind":"Group","group":{"name":"g"}}`, `spec.rules.0.subjects.0={"kind":"ServiceAccount","serviceAccount":{"namespace":"n","name":"*"}}`,
		`spec.rules.0.subjects.0.kind="Nobody"`, `spec.rules.0.resourceRules=[]`, `spec.rules.0.nonResourceRules=[]`,
		"spec.rules=null", "spec=null", `spec.rules.0.subjects.0.user={"name":""}`, `spec.distinguisherMethod={"type":""}`, `spec.rules.0.resourceRules=[{"verbs":["get"],"apiGroups":[""],"resources":["a"],"clusterScope":true,"namespaces":[]}]`},
	patches: []string{`{"matchingPrecedence":300}`, `{"matchingPrecedence":null}`, `{"distinguisherMethod":null}`, `{"distinguisherMethod":{"type":"ByUser"}}`, `{"rules":null}`, `{"priorityLevelConfiguration":{"name":"system"}}`, `{"priorityLevelConfiguration":null}`, `{"matchingPrecedence":-1,"rules":[{}]}`, `{"foo":1}`, `{"matchingPrecedence":"x"}`,
		`{"rules":[{"subjects":[{"kind":"User","user":{"name":"u"}}],"resourceRules":[],"nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/x"]}]}]}`, `{"rules":{}}`, `{"rules":[5]}`, `{"distinguisherMethod":[]}`},
	bad: []string{`spec.matchingPrecedence="x"`, "spec.rules={}", "spec=[]", "spec.unknown=1", "unknown={}", `spec.rules.0.extra="x"`, `apiVersion="flowcontrol.apiserver.k8s.io/v1beta3"`, `kind="PriorityLevelConfiguration"`, "-kind", "-apiVersion", "-metadata", "metadata=5"},
}

var randomLevels = resourceKind{
	path: levelsPath, watch: versionPath + "/watch/prioritylevelconfigurations", names: []string{"@p", "@q", "@r"}, object: level, empty: func() runtime.Object { return &flowcontrolv1.PriorityLevelConfiguration{} },
	specs: []string{"spec.limited.nominalConcurrencyShares=5", "spec.limited.nominalConcurrencyShares=0", "-spec.limited.nominalConcurrencyShares", "spec.limited.lendablePercent=40", "spec.limited.borrowingLimitPercent=0", "spec.limited.limitResponse.queuing={}",
		`spec.limited.limitResponse={"type":"Reject"}`, `spec={"type":"Exempt"}`, `spec.type="Exempt"`, "spec.limited.limitResponse.queuing.handSize=99", "spec.limited.limitResponse.queuing.queues=-1", "spec.limited.lendablePercent=300", "-spec.limited", "spec.exempt={}", `spec.limited.limitResponse.type="Reject"`,
		"spec.limited=null", "spec=null", "spec.limited.lendablePercent=null", `spec={"type":"Exempt","exempt":{"lendablePercent":5}}`, "spec.limited.limitResponse.queuing.queues=0"},
	patches: []string{`{"limited":{"nominalConcurrencyShares":6}}`, `{"limited":{"nominalConcurrencyShares":null}}`, `{"limited":{"lendablePercent":10}}`, `{"limited":{"limitResponse":{"queuing":null}}}`, `{"limited":{"limitResponse":{"type":"Reject","queuing":null}}}`, `{"type":"Nope"}`, `{"limited":null}`, `{"limited":{"x":1}}`, `{"limited":[]}`,
		`{"type":"Exempt","limited":null}`, `{"type":"Exempt","limited":null,"exempt":{}}`, `{"limited":{"limitResponse":{"queuing":{"handSize":null,"queues":4}}}}`},
	bad: []string{`spec.limited.nominalConcurrencyShares="x"`, "spec.limited=[]", "spec=[]", "spec.unknown=1", "unknown={}", "spec.limited.more=[]", `apiVersion="flowcontrol.apiserver.k8s.io/v1beta3"`, `kind="FlowSchema"`, "-kind", "-apiVersion", "-metadata", "metadata=5"},
}

// metadataEdits are edits of metadata that a server has to check or to keep.
var metadataEdits = []string{
	`metadata.labels.extra="1"`, `metadata.labels.extra="2"`, `metadata.annotations={"a":"1"}`, `metadata.annotations={"a":"2","b":""}`, `metadata.finalizers=["example.com/hold"]`, `metadata.finalizers=[]`,
	`metadata.ownerReferences=[{"apiVersion":"v1","kind":"Pod","name":"o","uid":"u1"}]`, `metadata.labels.bad="a b"`, `metadata.annotations={"a b":"c"}`, `metadata.finalizers=["a b"]`, `metadata.ownerReferences=[{"kind":"Pod"}]`,
	`metadata.namespace="default"`, `metadata.generation=40`, `metadata.resourceVersion="0"`, `metadata.resourceVersion="junk"`, `metadata.resourceVersion="1"`, `metadata.uid="00000000-0000-0000-0000-000000000001"`, `metadata.unknown=1`,
	`metadata.deletionTimestamp="2024-01-01T00:00:00Z"`, `metadata.creationTimestamp=null`, `metadata.managedFields=[]`, `metadata.generateName="@n-"`,
}

func (d *dice) write(requests int) {
	kind := pick(d, &randomSchemas, &randomLevels)
	first := kind.names[0]
	d.post(kind.path, kind.object(first))
	if d.one(2) {
		d.post(kind.path, kind.object(kind.names[1], pick(d, kind.specs...)))
	}
	for len(d.Requests) < requests {
		d.step(kind)
	}
	// The final state, and its deletion.
	d.watch(kind.path, "labelSelector=s=@all&resourceVersion={{first:"+first+"}}")
	d.get(kind.path + "?labelSelector=s=@all")
	d.delete(kind.path + "?labelSelector=s=@all")
}

func (d *dice) step(kind *resourceKind) {
	name := pick(d, kind.names[0], kind.names[0], kind.names[1], kind.names[2])
	item, list := kind.path+"/"+name, kind.path+"?labelSelector="+escaped(d.selector())
	headers := d.accept()
	switch d.rand.IntN(28) {
	case 0, 1:
		d.post(kind.path+d.query("?", writeParameters), d.body(kind, name), headers...)
	case 2:
		// One that stays and is listed; of two, the order would be random.
		query := "?dryRun=All"
		if !d.generated {
			query, d.generated = "", true
		}
		d.post(kind.path+query, kind.object("x", "-metadata.name", `metadata.generateName="@n-"`))
	case 3, 4, 5:
		d.put(item+d.query("?", writeParameters), d.body(kind, name), headers...)
	case 6, 7, 8:
		d.patch(item+d.query("?", writeParameters), pick(d, mergePatch, strategic), d.mergeBody(kind, name), headers...)
	case 9:
		d.patch(item+d.query("?", writeParameters), jsonPatch, d.jsonPatchBody(), headers...)
	case 10, 11, 12:
		d.apply(item+d.query("?", append([]string{"force=true", "force=true"}, writeParameters...)), pick(d, "one", "two", "three"), d.body(kind, name), headers...)
	case 13:
		d.statusWrite(kind, name, headers)
	case 14:
		d.put(item+"/status"+d.query("?", writeParameters), kind.object(name, pick(d, metadataEdits...), `status={"conditions":[{"type":"`+pick(d, "A", "B")+`","status":"`+pick(d, "True", "False")+`"}]}`), headers...)
	case 15:
		d.delete(item+d.query("?", deleteParameters), headers...)
	case 16:
		options := pick(d, `{}`, `{"propagationPolicy":"Orphan"}`, `{"preconditions":{"uid":"{{uid:`+name+`}}"}}`, `{"preconditions":{"resourceVersion":"{{first:`+name+`}}"}}`,
			`{"preconditions":{"resourceVersion":"{{rv:`+name+`}}"}}`, `{"dryRun":["All"]}`, `{"dryRun":["x"]}`, `{"gracePeriodSeconds":"x"}`, `{"orphanDependents":false}`, `{"unknown":1}`, `[]`,
			`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":-1}`, `{"kind":"Status","apiVersion":"v1"}`, `{"kind":"DeleteOptions","apiVersion":"nope/v9"}`, `{"orphanDependents":true,"propagationPolicy":"Background"}`, `{"preconditions":{"uid":""}}`, `null`, `{`)
		languages := append([]string{contentHeader, pick(d, jsonType, jsonType, jsonType, yamlType, "text/plain")}, headers...)
		if d.one(4) {
			d.do("DELETE", list, options, languages...)
			return
		}
		d.do("DELETE", item+pick(d, "", "", "?dryRun=All", "?propagationPolicy=Foreground"), options, languages...)
	case 17:
		d.get(item+pick(d, "", "", "/status")+d.query("?", getParameters), headers...)
	case 18, 19, 20:
		d.get(list+d.query("&", listParameters), headers...)
	case 21:
		// The version of a list is a precondition here, too, and whether an object has it is chance.
		query := strings.ReplaceAll(d.query("&", append(deleteParameters, listParameters...)), "resourceVersion={{rv}}", "resourceVersion={{rv:"+name+"}}")
		d.delete(list+query, headers...)
	case 22:
		if d.one(3) {
			d.get(pick(d, kind.watch+"?labelSelector=s=@all&timeoutSeconds=1", kind.watch+"/"+name+"?timeoutSeconds=1", list+"&watch=true&timeoutSeconds=1")+d.query("&", watchParameters), headers...)
			return
		}
		d.do(pick(d, "HEAD", "OPTIONS", "POST", "PUT", "PATCH"), pick(d, item, item+"/status", item+"/foo", kind.path+"x", versionPath+"/namespaces/a/flowschemas"), "", contentHeader, pick(d, jsonType, mergePatch, "text/plain"))
	case 23:
		// Out of a deletion that a finalizer holds up.
		d.patch(item, mergePatch, `{"metadata":{"finalizers":null}}`, headers...)
	case 24:
		d.patch(pick(d, item, item, item+"/status")+d.query("?", writeParameters), strategic, d.directives(), headers...)
	case 25:
		d.otherLanguage(kind, name, headers)
	case 26:
		d.patch(item+"/status"+d.query("?", writeParameters), jsonPatch, `[`+pick(d, `{"op":"add","path":"/status/conditions","value":[{"type":"A","status":"True"}]}`, `{"op":"add","path":"/status/conditions/-","value":{"type":"D","status":"True"}}`, `{"op":"remove","path":"/status/conditions"}`,
			`{"op":"replace","path":"/status","value":{}}`, `{"op":"add","path":"/spec/matchingPrecedence","value":7}`)+`]`, headers...)
	case 27:
		// The same paths in other spellings, and unknown ones.
		d.do(pick(d, "GET", "GET", "DELETE", "PUT"), item+pick(d, "/", "//", "/status/", "/status//", "/x/", "%20", "/status/status"), "", append([]string{contentHeader, jsonType}, headers...)...)
	}
}

// otherLanguage writes an object in YAML or protobuf.
func (d *dice) otherLanguage(kind *resourceKind, name string, headers []string) {
	method, path := pick(d, "POST", "PUT", "PUT"), kind.path
	if method == "PUT" {
		path += "/" + name
	}
	path += d.query("?", writeParameters)
	if d.one(2) {
		// JSON is YAML.
		d.do(method, path, d.body(kind, name), append([]string{contentHeader, yamlType}, headers...)...)
		return
	}
	object := kind.empty()
	text := kind.object(name, pick(d, metadataEdits...), pick(d, kind.specs...))
	if err := json.Unmarshal([]byte(strings.ReplaceAll(text, "@", d.Name+"-")), object); err != nil {
		object = kind.empty() // an edit may not fit
	}
	d.protobuf(method, path, protobufOf(object), headers...)
}

// directives are those of strategic merge patches.
func (d *dice) directives() string {
	return pick(d, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/hold"]}}`, `{"metadata":{"finalizers":["example.com/x"],"$setElementOrder/finalizers":["example.com/x","example.com/hold"]}}`, `{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"u1"}]}}`,
		`{"metadata":{"ownerReferences":[{"$patch":"replace"},{"apiVersion":"v1","kind":"Pod","name":"n","uid":"u3"}]}}`, `{"metadata":{"annotations":{"$patch":"delete"}}}`, `{"metadata":{"annotations":{"$retainKeys":["a"],"a":"9"}}}`, `{"spec":{"$patch":"merge"}}`, `{"spec":{"$patch":"x"}}`, `{"$patch":"delete"}`,
		`{"spec":{"$retainKeys":["type"],"type":"Exempt"}}`, `{"spec":{"rules":[{"$patch":"delete"}]}}`, `{"metadata":{"$setElementOrder/ownerReferences":[{"uid":"u1"},{"uid":"u2"}]}}`, `{"metadata":{"labels":{"extra":1}}}`, `{"metadata":{"finalizers":{}}}`, `{"metadata":{"ownerReferences":{"a":1}}}`,
		`{"status":{"conditions":[{"type":"A","$patch":"delete"}]}}`, `{"status":{"conditions":[{"type":"A","status":"Unknown"}],"$setElementOrder/conditions":[{"type":"B"},{"type":"A"}]}}`, `{"status":{"conditions":{}}}`, `{"metadata":{"labels":{"$patch":"replace","s":"@all","extra":"6"}}}`)
}

var (
	writeParameters = []string{"dryRun=All", "dryRun=All", "dryRun=none", "fieldValidation=Strict", "fieldValidation=Strict", "fieldValidation=Ignore", "fieldValidation=x", "fieldManager=mine", "fieldManager=yours", "fieldManager=a%0Ab", "pretty=true", "force=true", "timeout=5s", "timeout=x",
		"fieldManager=", "fieldManager=" + strings.Repeat("m", 129), "force=false", "force=x", "dryRun=", "dryRun=All&dryRun=All", "dryRun=All&dryRun=x", "fieldValidation=Warn", "fieldValidation=", "unknown=1", "timeout=0", "timeout=-1s"}
	deleteParameters = []string{"dryRun=All", "dryRun=x", "propagationPolicy=Orphan", "propagationPolicy=Foreground", "propagationPolicy=x", "orphanDependents=true", "orphanDependents=false", "gracePeriodSeconds=5", "gracePeriodSeconds=x", "pretty=1",
		"gracePeriodSeconds=0", "gracePeriodSeconds=-1", "propagationPolicy=Background", "propagationPolicy=", "orphanDependents=x", "ignoreStoreReadErrorWithClusterBreakingPotential=true", "orphanDependents=true&propagationPolicy=Orphan", "timeout=x"}
	getParameters  = []string{"resourceVersion=0", "resourceVersion=x", "pretty=true", "includeObject=Object", "includeObject=None", "includeObject=x", "timeout=x", "resourceVersion=1", "resourceVersion=", "includeObject=Metadata", "pretty=0", "unknown=x"}
	listParameters = []string{"limit=1", "limit=2", "limit=x", "continue={{continue}}", "continue=x", "resourceVersion=0", "resourceVersion={{rv}}", "resourceVersion=x", "resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan", "resourceVersionMatch=x",
		"resourceVersion={{rv}}&resourceVersionMatch=Exact", "sendInitialEvents=true", "fieldSelector=metadata.name%3D@a", "fieldSelector=metadata.name!%3D@a", "fieldSelector=x", "timeoutSeconds=5", "timeoutSeconds=x", "includeObject=Object", "includeObject=None", "pretty=true", "limit=1&continue={{continue}}",
		"limit=0", "limit=-1", "limit=", "limit=1&limit=2", "allowWatchBookmarks=true", "allowWatchBookmarks=x", "watch=false", "watch=0", "watch=x&timeoutSeconds=1", "sendInitialEvents=false", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "sendInitialEvents=x", "resourceVersion=0&resourceVersionMatch=Exact", "resourceVersion=0&resourceVersionMatch=NotOlderThan",
		"resourceVersion={{rv}}&resourceVersionMatch=NotOlderThan", "resourceVersion=-1", "fieldSelector=metadata.namespace%3Dx", "fieldSelector=spec.x%3D1", "fieldSelector=", "fieldSelector=metadata.name%3D%3D@a,metadata.name!%3D@b", "fieldSelector=metadata.name+in+(a)", "timeoutSeconds=0", "timeoutSeconds=-1", "includeObject=x", "labelSelector=extra", "continue=", "unknown=1"}
	watchParameters = []string{"resourceVersion=0", "resourceVersion=x", "resourceVersion={{rv}}", "allowWatchBookmarks=true", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "sendInitialEvents=true", "resourceVersionMatch=Exact", "fieldSelector=metadata.name%3D@a",
		"resourceVersionMatch=NotOlderThan", "sendInitialEvents=false&resourceVersionMatch=NotOlderThan", "sendInitialEvents=true&resourceVersionMatch=Exact", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=x", "limit=1", "continue=x", "resourceVersion=0&resourceVersionMatch=NotOlderThan", "includeObject=Object", "includeObject=x", "timeoutSeconds=2", "allowWatchBookmarks=false", "pretty=true", "watch=0"}
)

// query is none, one or two of the parameters.
func (d *dice) query(join string, from []string) string {
	switch d.rand.IntN(5) {
	case 0, 1:
		return join + pick(d, from...)
	case 2:
		return join + pick(d, from...) + "&" + pick(d, from...)
	}
	return ""
}

func (d *dice) accept() []string {
	if !d.one(4) {
		return nil
	}
	return []string{"Accept", pick(d, jsonType, yamlType, protobufType, tableType, tableType, partialType, partialsType, "application/cbor", "text/html", "*/*", "application/json;as=Table;v=v1beta1;g=meta.k8s.io", protobufType+",*/*", partialType+","+jsonType)}
}

// selector always has the session's own label in it.
func (d *dice) selector() string {
	if d.one(2) {
		return "s=@all"
	}
	return "s=@all," + pick(d, "extra", "!extra", "extra=1", "extra!=1", "extra in (1,2)", "extra notin (2)", "extra>1", "extra in (", "a b", "=", "")
}

// body is an object with some edits, most of them harmless.
func (d *dice) body(kind *resourceKind, name string) string {
	var edits []string
	for d.one(2) && len(edits) < 3 {
		edits = append(edits, pick(d, metadataEdits...))
	}
	if d.one(6) {
		edits = append(edits, `metadata.resourceVersion="{{`+pick(d, "rv", "first")+`:`+name+`}}"`)
	}
	if d.one(8) {
		edits = append(edits, `metadata.uid="{{uid:`+name+`}}"`)
	}
	if d.one(2) {
		// At most one edit of the spec: others may then find no place.
		edits = append(edits, pick(d, kind.specs...))
	}
	if d.one(12) {
		edits = append(edits, pick(d, "-metadata.name", `metadata.name="@other"`, `status={"conditions":[{"type":"C","status":"True"}]}`))
	}
	if slices.Contains(edits, "-metadata.name") {
		// Only one name may be generated, or the order of a list would be random.
		edits = slices.DeleteFunc(edits, func(edit string) bool { return strings.HasPrefix(edit, "metadata.generateName=") })
	}
	body := kind.object(name, edits...)
	if d.one(12) {
		body = kind.object(name, pick(d, kind.bad...))
	}
	switch {
	case d.one(40):
		return pick(d, "", "{", "[]", "null", `"x"`)
	case d.one(20):
		return strings.Replace(body, `"s":`, `"s":"@all","s":`, 1)
	}
	return body
}

func (d *dice) mergeBody(kind *resourceKind, name string) string {
	return pick(d,
		`{"spec":`+pick(d, kind.patches...)+`}`, `{"spec":`+pick(d, kind.patches...)+`}`, `{"spec":`+pick(d, kind.patches...)+`,"metadata":{"annotations":{"p":"1"}}}`,
		`{"metadata":{"labels":{"extra":"3"}}}`, `{"metadata":{"labels":{"extra":null}}}`, `{"metadata":{"annotations":{"a":"3"}}}`, `{"metadata":{"annotations":null}}`, `{"metadata":{"finalizers":["example.com/hold"]}}`,
		`{"metadata":{"resourceVersion":"{{rv:`+name+`}}"}}`, `{"metadata":{"resourceVersion":"{{first:`+name+`}}","labels":{"extra":"4"}}}`, `{"metadata":{"uid":"{{uid:`+name+`}}"}}`, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"o","uid":"u2"}]}}`,
		`{"status":{"conditions":[]}}`, `{}`, `[]`, `null`, `{`, `{"metadata":{"labels":{"$patch":"replace","s":"@all"}}}`, `{"metadata":{"name":"@other"}}`, `{"kind":"X"}`, `{"what":1}`)
}

func (d *dice) jsonPatchBody() string {
	return `[` + pick(d, `{"op":"add","path":"/metadata/labels/extra","value":"5"}`, `{"op":"remove","path":"/metadata/labels/extra"}`, `{"op":"test","path":"/metadata/labels/s","value":"@all"}`, `{"op":"test","path":"/metadata/name","value":"x"}`,
		`{"op":"replace","path":"/metadata/annotations","value":{"j":"1"}}`, `{"op":"add","path":"/metadata/annotations","value":{"j":"2"}}`, `{"op":"copy","from":"/metadata/labels","path":"/metadata/annotations"}`, `{"op":"remove","path":"/spec"}`, `{"op":"add","path":"/spec/new","value":1}`, `{"op":"x"}`, ``, `5`,
		`{"op":"move","from":"/metadata/labels/extra","path":"/metadata/labels/moved"}`, `{"op":"add","path":"/metadata/finalizers","value":["example.com/hold"]}`, `{"op":"add","path":"/spec/rules/-","value":{}}`, `{"op":"remove","path":"/spec/rules/5"}`, `{"op":"replace","path":"/spec/rules/0/subjects/0/user/name","value":"u"}`,
		`{"op":"add","path":"","value":{}}`, `{"op":"replace","path":"/metadata/labels/a~1b","value":"x"}`, `{"op":"copy","from":"/nope","path":"/metadata/annotations"}`, `{"op":"add","path":"/metadata/labels/extra","value":"7"},{"op":"test","path":"/metadata/labels/extra","value":"8"}`, `{"op":"remove","path":"/metadata/labels"},{"op":"add","path":"/metadata/labels","value":{"s":"@all"}}`,
		`{"op":"replace","path":"/spec/limited/limitResponse/queuing/queues","value":5}`, `{"op":"remove","path":"/spec/limited/limitResponse/queuing"}`, `{"op":"replace","path":"/spec/matchingPrecedence","value":77}`, `{"op":"add","path":"/metadata/name","value":"@other"}`, `{"op":"replace","path":"/metadata/resourceVersion","value":"1"}`) + `]`
}

func (d *dice) statusWrite(kind *resourceKind, name string, headers []string) {
	status := pick(d, `{"conditions":[{"type":"A","status":"True"}]}`, `{"conditions":[{"type":"B","status":"False","reason":"R"}]}`, `{"conditions":[{"type":"A"},{"type":"A"}]}`, `{"conditions":[{}]}`, `{"conditions":null}`, `{"conditions":[{"type":"A","status":"True"},{"type":"B","status":"True"}]}`, `{"foo":1}`, `5`)
	item := kind.path + "/" + name + "/status"
	if d.one(3) {
		d.apply(item+d.query("?", []string{"force=true", "dryRun=All"}), pick(d, "one", "two"), edited(kind.object(name), "-spec", "-metadata.labels", "status="+status), headers...)
		return
	}
	d.patch(item+d.query("?", writeParameters), pick(d, mergePatch, strategic), `{"status":`+status+`}`, headers...)
}
