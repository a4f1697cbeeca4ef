package cluster

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A documentKind is a kind of object whose bodies are mutated.
type documentKind struct {
	path     string // of its resource
	group    string
	plural   string // of the resource
	evil     string // an expression for objects that a policy denies
	fields   []echoedField
	json     []string // bodies that create one; %[1]s is its name
	yaml     []string
	protobuf func(name string) []byte
	patches  map[string][]string // by media type
	statuses []string            // merge patches and bodies of PUTs of the subresource, if it has one
}

// name is what policies about the kind are called by.
func (k documentKind) name() string { return k.plural }

// resources are those of the kind in the rules of a policy.
func (k documentKind) resources() string {
	if k.statuses == nil {
		return fmt.Sprintf("%q", k.plural)
	}
	return fmt.Sprintf("%q,%q", k.plural, k.plural+"/status")
}

// An echoedField is printed by a policy, and by the test from what was stored.
type echoedField struct {
	path string
	kind string // of its value: text, number, flag, texts (a list), map, containers, any (whose type is not known)
}

// hexOf is an expression for text that no header changes.
func hexOf(expression string) string { return `'%x'.format([` + expression + `])` }

func (f echoedField) optional() string {
	return "object.?" + strings.ReplaceAll(f.path, ".", ".?")
}

// expression prints the field of the object that a policy sees.
func (f echoedField) expression() string {
	value := f.optional()
	some := func(printed string) string {
		return "(" + value + ".hasValue() ? " + printed + " : '-')"
	}
	switch f.kind {
	case "text":
		return some(hexOf(value + ".value()"))
	case "any":
		return some("(type(" + value + ".value()) == string ? " + hexOf(value+".value()") + " : 'another')")
	case "number", "flag":
		return some("string(" + value + ".value())")
	case "texts":
		return some(value + `.value().map(t, ` + hexOf("t") + `).join('+')`)
	case "map":
		return some(value + `.value().map(k, ` + hexOf("k") + ` + ':' + ` + hexOf(value+".value()[k]") + `).sort().join('+')`)
	case "containers":
		return some(value + `.value().map(c, ` + hexOf("c.name") + ` + '/' + ` + hexOf("c.?image.orValue('')") +
			` + '/' + c.?args.orValue([]).map(a, ` + hexOf("a") + `).join('_') + '/' + c.?ports.orValue([]).map(p, string(p.containerPort)).join('_')).join('+')`)
	}
	panic("no such field: " + f.kind)
}

// of prints the field of a stored object in the same way.
func (f echoedField) of(object any) string {
	value := at(object, strings.Split(f.path, ".")...)
	if value == nil {
		return "-"
	}
	hex := func(value any) string { return fmt.Sprintf("%x", fmt.Sprint(value)) }
	join := func(list any, by string, print func(any) string) string {
		var all []string
		items, _ := list.([]any)
		for _, item := range items {
			all = append(all, print(item))
		}
		return strings.Join(all, by)
	}
	switch f.kind {
	case "text":
		return hex(value)
	case "any":
		if _, isText := value.(string); !isText {
			return "another"
		}
		return hex(value)
	case "number", "flag":
		return fmt.Sprint(value)
	case "texts":
		return join(value, "+", hex)
	case "map":
		var all []string
		members, _ := value.(map[string]any)
		for key, value := range members {
			all = append(all, hex(key)+":"+hex(value))
		}
		slices.Sort(all)
		return strings.Join(all, "+")
	}
	return join(value, "+", func(container any) string {
		image := ""
		if found := at(container, "image"); found != nil {
			image = fmt.Sprint(found)
		}
		ports := join(at(container, "ports"), "_", func(port any) string { return fmt.Sprint(at(port, "containerPort")) })
		return hex(at(container, "name")) + "/" + hex(image) + "/" + join(at(container, "args"), "_", hex) + "/" + ports
	})
}

// echo is the message of the kind's policy.
func (k documentKind) echo() string {
	var all []string
	for _, field := range k.fields {
		all = append(all, field.expression())
	}
	return strings.Join(all, ` + ' ' + `) + ` + ' .'` // white space at the end is cut off
}

// echoOf is what the policy prints if it sees a stored object.
func (k documentKind) echoOf(object any) string {
	var all []string
	for _, field := range k.fields {
		all = append(all, field.of(object))
	}
	return strings.Join(all, " ") + " ."
}

// documentKinds are kinds that every server has a table for, among them one with two names for its data, those with many types of
// fields, and custom ones with and without a status.
func documentKinds() []documentKind {
	return []documentKind{mapDocuments(), secretDocuments(), podDocuments(), deploymentDocuments(), limitDocuments(), thingDocuments()}
}

// withMetadata are fields of a kind, after those that all kinds have.
func withMetadata(fields ...echoedField) []echoedField {
	return append([]echoedField{{"metadata.name", "text"}, {"metadata.labels", "map"}, {"metadata.annotations", "map"}}, fields...)
}

func mapDocuments() documentKind {
	return documentKind{
		path: "/api/v1/namespaces/" + documentsNamespace + "/configmaps", plural: "configmaps",
		evil:   `object.?data.?bad.hasValue() || object.?data.?mode.orValue('') == 'evil'`,
		fields: withMetadata(echoedField{"data", "map"}, echoedField{"immutable", "flag"}),
		json: []string{
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%[1]s","labels":{"a":"b","c":""},"annotations":{"x/y":"é\u00e9\n"}},"data":{"mode":"good","more":"1"},"immutable":false}`,
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"%[1]s"},"data":{"bad":"x"}}`,
			`{"metadata":{"name":"%[1]s"},"data":{"mode":"evil"},"data":{"mode":"good"}}`,
		},
		yaml: []string{
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %[1]s\n  labels: {a: b, \"yes\": 'no', c: \"\"}\ndata:\n  mode: good # fine\n  script: |\n    a && b\n     !c\n\n  folded: >-\n    one\n    two\n  \"1\": \"2\"\n",
			"metadata:\n  name: %[1]s\ndata:\n  bad: \"x\"\n  mode: good\nimmutable: no\n",
			"metadata: {name: %[1]s}\ndata:\n  !!binary YmFk: !!binary eA==\n  mode: &m good\n  n: *m\n",
			"metadata: {name: %[1]s}\ndata: {yes: a, \"true\": b, mode: 'evil'}\n",
		},
		protobuf: func(name string) []byte {
			return sealed(protobufOf(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"a": "b"}}, Data: map[string]string{"mode": "good", "bae": "x"}}))
		},
		patches: map[string][]string{
			mergePatch: {`{"metadata":{"labels":{"a":"b","c":null}},"data":{"mode":"good","x":"y"}}`, `{"data":{"bad":"1"},"data":{"good":"2"}}`},
			jsonPatch:  {`[{"op":"add","path":"/data/bad","value":"x"},{"op":"test","path":"/data/mode","value":"good"}]`, `[{"op":"replace","path":"/data","value":{"mode":"good","k":"v"}},{"op":"remove","path":"/data/k"}]`},
			strategic:  {`{"metadata":{"annotations":{"a":"b"}},"data":{"mode":"good","$patch":"replace"}}`},
			applyPatch: {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %[1]s\n  labels: {a: \"yes\"}\ndata:\n  x: 'y'\n  z: |\n    k\n", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%[1]s"},"data":{"bad":"x"}}`},
		},
	}
}

func podDocuments() documentKind {
	return documentKind{
		path: "/api/v1/namespaces/" + documentsNamespace + "/pods", plural: "pods",
		evil: `object.?spec.?hostNetwork.orValue(false) || object.spec.containers.exists(c, c.?image.orValue('').startsWith('evil/'))`,
		fields: withMetadata(echoedField{"spec.hostNetwork", "flag"}, echoedField{"spec.containers", "containers"},
			echoedField{"spec.nodeSelector", "map"}, echoedField{"spec.activeDeadlineSeconds", "number"}),
		json: []string{
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%[1]s","labels":{"a":"b"}},"spec":{"hostNetwork":false,"activeDeadlineSeconds":60,"nodeSelector":{"k":"v"},"containers":[{"name":"c","image":"good/app:1","args":["a","b c"],"ports":[{"containerPort":80}]}]}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%[1]s"},"spec":{"hostNetwork":true,"HostNetwork":false,"containers":[{"name":"c","image":"good/app"}]}}`,
			`{"metadata":{"name":"%[1]s"},"spec":{"containers":[{"name":"c","image":"evil/app"}],"containers":[{"image":"good/app"}]}}`,
		},
		yaml: []string{
			"apiVersion: v1\nkind: Pod\nmetadata:\n  name: %[1]s\nspec:\n  hostNetwork: off\n  activeDeadlineSeconds: 0x40\n  containers:\n  - name: c\n    image: good/app:1\n    args: [a, \"b c\", '2']\n    ports:\n    - containerPort: 8_080\n  nodeSelector: {k: v}\n",
			"metadata: {name: %[1]s}\nspec: {hostNetwork: yes, containers: [{name: c, image: good/app}]}\n",
			"metadata: {name: %[1]s}\nspec: {!!binary aG9zdE5ldHdvcms=: true, containers: [{name: c, image: !!binary ZXZpbC94}]}\n",
		},
		protobuf: func(name string) []byte {
			seconds := int64(60)
			return sealed(protobufOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{ActiveDeadlineSeconds: &seconds,
				Containers: []corev1.Container{{Name: "c", Image: "good/app", Args: []string{"a"}, Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}}}))
		},
		patches: map[string][]string{
			strategic:  {`{"spec":{"containers":[{"name":"c","image":"evil/app"}]}}`, `{"metadata":{"labels":{"a":"b"}},"spec":{"activeDeadlineSeconds":30}}`},
			mergePatch: {`{"spec":{"activeDeadlineSeconds":30},"metadata":{"annotations":{"k":"v"}}}`},
		},
	}
}

func limitDocuments() documentKind {
	return documentKind{
		path: "/apis/judged.example.com/v1/namespaces/" + documentsNamespace + "/limits", group: "judged.example.com", plural: "limits",
		evil:   `object.?spec.?step.orValue('') == 'evil' || object.?spec.?most.orValue(0) == 77`,
		fields: withMetadata(echoedField{"spec.most", "number"}, echoedField{"spec.step", "text"}),
		json: []string{
			`{"apiVersion":"judged.example.com/v1","kind":"Limit","metadata":{"name":"%[1]s","labels":{"a":"b"}},"spec":{"most":9007199254740993,"step":"a"}}`,
			`{"apiVersion":"judged.example.com/v1","kind":"Limit","metadata":{"name":"%[1]s"},"spec":{"step":"evil"},"spec":{"most":5}}`,
		},
		yaml: []string{
			"apiVersion: judged.example.com/v1\nkind: Limit\nmetadata:\n  name: %[1]s\nspec:\n  most: 0115\n  step: \"a\"\n",
			"{\"apiVersion\": \"judged.example.com/v1\", \"kind\": \"Limit\", \"metadata\": {\"name\": \"%[1]s\"}, \"spec\": {\"most\": 1, \"step\": \"evil\"}}",
		},
		patches: map[string][]string{
			mergePatch: {`{"spec":{"most":77}}`, `{"spec":{"step":"a","most":12}}`},
			applyPatch: {"apiVersion: judged.example.com/v1\nkind: Limit\nmetadata: {name: %[1]s}\nspec: {most: 12, step: evil}\n"},
		},
	}
}

// secretDocuments have two names for their data: what a client writes as text is stored in base64.
func secretDocuments() documentKind {
	return documentKind{
		path: "/api/v1/namespaces/" + documentsNamespace + "/secrets", plural: "secrets",
		evil:   `object.?data.?bad.hasValue() || object.?data.?mode.orValue('') == 'ZXZpbA==' || object.?stringData.hasValue()`,
		fields: withMetadata(echoedField{"data", "map"}, echoedField{"immutable", "flag"}),
		json: []string{
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"%[1]s","labels":{"a":"b"}},"type":"Opaque","data":{"mode":"Z29vZA==","more":"AP/+"},"stringData":{"text":"é"}}`,
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"%[1]s"},"type":"Opaque","data":{"mode":"Z29vZA=="},"stringData":{"mode":"evil"}}`,
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"%[1]s"},"type":"Opaque","stringData":{"bad":"x"},"data":null}`,
			`{"metadata":{"name":"%[1]s"},"type":"Opaque","data":{"mode":"ZXZpbA=="},"stringData":{"mode":"good","empty":""}}`,
			`{"metadata":{"name":"%[1]s"},"type":"Opaque","data":{"mode":[101,118,105,108],"more":[]}}`,
		},
		yaml: []string{
			"apiVersion: v1\nkind: Secret\nmetadata:\n  name: %[1]s\ntype: Opaque\nstringData:\n  mode: good\n  number: \"1\"\ndata:\n  more: eA==\n",
			"metadata:\n  name: %[1]s\ntype: Opaque\nstringData: {mode: evil}\ndata: {mode: Z29vZA==}\n",
		},
		protobuf: func(name string) []byte {
			return sealed(protobufOf(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: "Opaque", Data: map[string][]byte{"mode": []byte("good"), "bae": {0, 0xff}}, StringData: map[string]string{"text": "x"}}))
		},
		patches: map[string][]string{
			mergePatch: {`{"stringData":{"bad":"x"}}`, `{"data":{"mode":"ZXZpbA=="},"stringData":{"mode":"good","more":"x"}}`, `{"data":{"more":null},"stringData":{"mode":"good"}}`, `{"data":{"mode":[101,118,105,108]}}`},
			jsonPatch:  {`[{"op":"add","path":"/stringData","value":{"mode":"evil"}}]`, `[{"op":"add","path":"/data/bad","value":"eA=="},{"op":"add","path":"/stringData","value":{"text":"y"}}]`},
			strategic:  {`{"stringData":{"mode":"evil","more":"x"}}`, `{"metadata":{"annotations":{"a":"b"}},"data":{"bad":"eA=="}}`, `{"data":{"mode":[101,374,105,108.0]}}`},
			applyPatch: {"apiVersion: v1\nkind: Secret\nmetadata:\n  name: %[1]s\ntype: Opaque\nstringData:\n  mode: good\n", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"%[1]s"},"type":"Opaque","stringData":{"bad":"x"}}`},
		},
	}
}

// deploymentDocuments have a template with two names for the service account, and a status that is written by itself.
func deploymentDocuments() documentKind {
	const template = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{%s"containers":[{"name":"c","image":"%s"}]}}`
	of := func(spec, status string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"%[1]s"},"spec":{"replicas":2,"paused":true,"selector":{"matchLabels":{"a":"b"}},` + spec + `}` + status + `}`
	}
	return documentKind{
		path: "/apis/apps/v1/namespaces/" + documentsNamespace + "/deployments", group: "apps", plural: "deployments",
		evil: `object.spec.template.spec.?serviceAccountName.orValue('') == 'evil' || object.?status.?replicas.orValue(0) == 77`,
		fields: withMetadata(echoedField{"spec.template.spec.containers", "containers"}, echoedField{"spec.template.spec.serviceAccountName", "text"},
			echoedField{"status.replicas", "number"}, echoedField{"status.observedGeneration", "number"}),
		json: []string{
			of(fmt.Sprintf(template, `"serviceAccountName":"good",`, "good/app"), ``),
			of(fmt.Sprintf(template, `"serviceAccount":"evil",`, "good/app"), ``),
			of(fmt.Sprintf(template, `"serviceAccount":"evil","serviceAccountName":"good",`, "good/app"), ``),
			of(fmt.Sprintf(template, `"serviceAccount":"good","serviceAccountName":"evil",`, "good/app"), `,"status":{"replicas":77,"observedGeneration":3}`),
			of(fmt.Sprintf(template, ``, "good/app"), `,"status":{"replicas":77}`),
		},
		yaml: []string{
			"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: %[1]s\nspec:\n  replicas: 2\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec:\n      serviceAccount: evil\n      containers:\n      - {name: c, image: good/app}\n",
		},
		protobuf: func(name string) []byte {
			replicas := int32(2)
			labels := map[string]string{"a": "b"}
			return sealed(protobufOf(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: appsv1.DeploymentStatus{Replicas: 7},
				Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{DeprecatedServiceAccount: "evil", ServiceAccountName: "good", Containers: []corev1.Container{{Name: "c", Image: "good/app"}}}}}}))
		},
		patches: map[string][]string{
			mergePatch: {`{"spec":{"template":{"spec":{"serviceAccount":"evil"}}}}`, `{"spec":{"template":{"spec":{"serviceAccountName":"evil","serviceAccount":null}}},"status":{"replicas":77}}`, `{"status":{"replicas":77}}`},
			jsonPatch:  {`[{"op":"replace","path":"/spec/template/spec/serviceAccount","value":"evil"}]`, `[{"op":"remove","path":"/spec/template/spec/serviceAccountName"}]`},
			strategic:  {`{"spec":{"template":{"spec":{"serviceAccount":"evil","containers":[{"name":"c","image":"good/x"}]}}}}`, `{"spec":{"replicas":3,"template":{"spec":{"serviceAccountName":null}}}}`},
			applyPatch: {`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"%[1]s"},"spec":{"template":{"spec":{"serviceAccount":"evil"}}}}`},
		},
		statuses: []string{`{"status":{"replicas":77}}`, `{"status":{"replicas":5,"observedGeneration":2},"spec":{"replicas":9},"metadata":{"labels":{"x":"y"}}}`},
	}
}

// thingDocuments are of a custom kind whose status is written by itself.
func thingDocuments() documentKind {
	const evil = `"status":{"phase":"evil"}`
	return documentKind{
		path: "/apis/judged.example.com/v1/namespaces/" + documentsNamespace + "/things", group: "judged.example.com", plural: "things",
		evil:   `object.?status.?phase.orValue('') == 'evil' || object.?spec.?colour.orValue('') == 'evil'`,
		fields: withMetadata(echoedField{"spec.colour", "text"}, echoedField{"status.phase", "any"}),
		json: []string{
			`{"apiVersion":"judged.example.com/v1","kind":"Thing","metadata":{"name":"%[1]s"},"spec":{"size":1,"replicas":2,"colour":"red"}}`,
			`{"apiVersion":"judged.example.com/v1","kind":"Thing","metadata":{"name":"%[1]s"},"spec":{"size":1,"replicas":2},` + evil + `}`,
			`{"apiVersion":"judged.example.com/v1","kind":"Thing","metadata":{"name":"%[1]s"},"spec":{"size":1,"replicas":2,"colour":"evil"},"status":{"phase":"a"}}`,
		},
		yaml: []string{
			"apiVersion: judged.example.com/v1\nkind: Thing\nmetadata:\n  name: %[1]s\nspec: {size: 0o2, replicas: 2, colour: \"red\"}\nstatus: {phase: evil}\n",
		},
		patches: map[string][]string{
			mergePatch: {`{"spec":{"colour":"evil"}}`, `{` + evil + `,"spec":{"colour":"blue"}}`},
			jsonPatch:  {`[{"op":"add","path":"/status","value":{"phase":"evil"}},{"op":"replace","path":"/spec/size","value":4}]`},
			applyPatch: {`{"apiVersion":"judged.example.com/v1","kind":"Thing","metadata":{"name":"%[1]s"},"spec":{"colour":"blue"},` + evil + `}`},
		},
		statuses: []string{`{"status":{"phase":"evil"},"spec":{"colour":"evil"}}`, `{"status":{"phase":"fine"},"metadata":{"labels":{"a":"c"}},"spec":{"size":9}}`},
	}
}

// deletionDocuments are bodies of deletions.
var deletionDocuments = map[string][]string{
	jsonType: {`{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"],"gracePeriodSeconds":0}`, `{"dryRun":["All"],"propagationPolicy":"Background","dryRun":[]}`},
	yamlType: {"kind: DeleteOptions\napiVersion: v1\ndryRun: [All]\ngracePeriodSeconds: 010\n", "dryRun: [!!binary QWxs]\n", "dryRun:\n- All\norphanDependents: no\n"},
}

func sealed(base64Text string) []byte {
	data, err := base64.StdEncoding.DecodeString(base64Text)
	if err != nil {
		panic(err) // encoded here
	}
	return data
}
