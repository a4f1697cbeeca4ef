package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// documentsNamespace is where bodies are sent that say things in unusual ways.
const documentsNamespace = "documents"

// A documentKind is a kind of object whose bodies are mutated.
type documentKind struct {
	path     string // of its resource
	resource string // in the rules of policies, with the group before a slash
	evil     string // an expression for objects that a policy denies
	fields   []echoedField
	json     []string // bodies that create one; %[1]s is its name
	yaml     []string
	protobuf func(name string) []byte
	patches  map[string][]string // by media type, of the object "target"
}

// An echoedField is printed by a policy, and by the test from what was stored.
type echoedField struct {
	path string
	kind string // of its value: text, number, flag, texts (a list), map, containers
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

// documentKinds are a kind that every server has a table for, one with many types of fields, and a custom one.
func documentKinds() []documentKind {
	metadata := []echoedField{{"metadata.name", "text"}, {"metadata.labels", "map"}, {"metadata.annotations", "map"}}
	maps := documentKind{
		path: "/api/v1/namespaces/" + documentsNamespace + "/configmaps", resource: "configmaps",
		evil:   `object.?data.?bad.hasValue() || object.?data.?mode.orValue('') == 'evil'`,
		fields: append(metadata[:len(metadata):len(metadata)], echoedField{"data", "map"}, echoedField{"immutable", "flag"}),
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
			applyPatch: {"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: target\n  labels: {a: \"yes\"}\ndata:\n  x: 'y'\n  z: |\n    k\n", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"target"},"data":{"bad":"x"}}`},
		},
	}
	pods := documentKind{
		path: "/api/v1/namespaces/" + documentsNamespace + "/pods", resource: "pods",
		evil: `object.?spec.?hostNetwork.orValue(false) || object.spec.containers.exists(c, c.?image.orValue('').startsWith('evil/'))`,
		fields: append(metadata[:len(metadata):len(metadata)], echoedField{"spec.hostNetwork", "flag"}, echoedField{"spec.containers", "containers"},
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
	limits := documentKind{
		path: "/apis/judged.example.com/v1/namespaces/" + documentsNamespace + "/limits", resource: "judged.example.com/limits",
		evil:   `object.?spec.?step.orValue('') == 'evil' || object.?spec.?most.orValue(0) == 77`,
		fields: append(metadata[:len(metadata):len(metadata)], echoedField{"spec.most", "number"}, echoedField{"spec.step", "text"}),
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
			applyPatch: {"apiVersion: judged.example.com/v1\nkind: Limit\nmetadata: {name: target}\nspec: {most: 12, step: evil}\n"},
		},
	}
	return []documentKind{maps, pods, limits}
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

// A sentDocument is one body, and what it is sent as.
type sentDocument struct {
	kind                      documentKind
	method, path, media, name string
	body                      []byte
}

// A documentMaker draws bodies. The same seed draws the same.
type documentMaker struct {
	random *rand.Rand
	kinds  []documentKind
	count  int
}

func newDocumentMaker(seed uint64) *documentMaker {
	return &documentMaker{random: rand.New(rand.NewPCG(seed, seed)), kinds: documentKinds()}
}

// next draws a body; for the item "target" if it is no new object.
func (m *documentMaker) next() sentDocument {
	m.count++
	kind := m.kinds[m.random.IntN(len(m.kinds))]
	name := fmt.Sprintf("d-%07d", m.count)
	sent := sentDocument{kind: kind, method: "POST", path: kind.path, name: name}
	switch draw := m.random.IntN(20); {
	case draw < 7:
		sent.media, sent.body = yamlType, m.drawn(kind.yaml, name)
	case draw < 13:
		sent.media, sent.body = jsonType, m.drawn(kind.json, name)
	case draw < 15 && kind.protobuf != nil:
		sent.media, sent.body = protobufType, m.mutatedMessage(kind.protobuf(name))
		return sent
	case draw < 19:
		media := slices.Sorted(func(yield func(string) bool) {
			for one := range kind.patches {
				if !yield(one) {
					return
				}
			}
		})
		sent.media = media[m.random.IntN(len(media))]
		sent.method, sent.path, sent.name = "PATCH", kind.path+"/target?dryRun=All", "target"
		if sent.media == applyPatch {
			sent.path += "&fieldManager=documents&force=true"
		}
		sent.body = m.drawn(kind.patches[sent.media], name)
	default:
		sent.kind = m.kinds[0]
		sent.media = []string{jsonType, yamlType}[m.random.IntN(2)]
		sent.method, sent.path, sent.name = "DELETE", sent.kind.path+"/victim", "victim"
		sent.body = m.drawn(deletionDocuments[sent.media], name)
	}
	return sent
}

func (m *documentMaker) drawn(from []string, name string) []byte {
	text := from[m.random.IntN(len(from))]
	if strings.Contains(text, "%[1]s") {
		text = fmt.Sprintf(strings.ReplaceAll(text, "%[1]s", "%[1]s"), name)
	}
	body := []byte(text)
	// Many stay as they are.
	for range []int{0, 0, 0, 1, 1, 1, 1, 2, 2, 3}[m.random.IntN(10)] {
		if m.random.IntN(3) == 0 {
			body = m.mutated(body)
		} else {
			body = m.varied(body)
		}
	}
	return body
}

// Members and values that are mostly valid where others are.
var (
	jsonMembers = []string{`"bad":"x"`, `"data":{"bad":"x"}`, `"data":{"more":"y"}`, `"hostNetwork":true`, `"HostNetwork":true`, `"SPEC":{"hostNetwork":true}`, `"spec":{"hostNetwork":true}`, `"spec":{"step":"evil"}`, `"Kind":"Secret"`,
		`"labels":{"a":"x","a":"y"}`, `"a":1`, `"a":"b"`, `"\u0062ad":"x"`, `"mode":"evil"`, `"mode":"good"`, `"image":"evil/x"`, `"image":"good/x"`, `"most":77`, `"most":1e1`, `"step":"evil"`, `"unknown":{"a":1,"a":2}`, "\"a\xff\":\"b\"", `"name":"target"`}
	jsonValues  = []string{`"x"`, `"evil"`, `"evil/x"`, "1", "1.0", "1e2", "-0", "77", "9007199254740993", "18446744073709551616", "0.1000000000000000055", "null", "true", "false", `"\u0065vil"`, `"\ud83d\ude00"`, `"\ud800"`, `"\u2028"`, "\"\xff\"", "\"\u2028\x7f\"", "[]", "{}", `{"a":"b"}`, `["a"]`, `"\/"`}
	yamlMembers = []string{"bad: x", "'bad': x", "data: {bad: x}", "data:\n%[1]s  more: \"y\"", "hostNetwork: yes", "hostNetwork: !!bool true", "spec: {hostNetwork: true}", "mode: evil", "mode: !!str good", "!!binary YmFk: x", "? bad\n%[1]s: x", "<<: {bad: x}", "yes: a",
		"\"true\": b", "1: x", "\"1\": y", "most: 77", "most: 0115", "step: evil", "step: &s evil", "image: !!binary ZXZpbC94", "image: good/x", "a: 'b'", "\"\\x62ad\": x", "# bad: x", "kind: ConfigMap", "labels: {a: x, a: y}", "text: |\n%[1]s  a && b\n\n%[1]s   c", "text: >-\n%[1]s  a\n%[1]s  b", "text: \"a\n%[1]s  b\\\n%[1]s  c\"", "text: a\n%[1]s  b"}
	yamlValues = []string{"x", "\"x\"", "'it''s'", "evil", "evil/x", "!!binary ZXZpbA==", "!!str 1", "!x y", "&a x", "*a", "yes", "\"yes\"", "off", "~", "null", "", "010", "0x4d", "1_0", "1e1", ".5", "._5", "1:30", "2020-01-01", "0o7", "+1", "-0", "77", "9007199254740993", "18446744073709551616", ".inf", "{a: b}", "[a, b]", "{a: b, 'c': \"d\", e}", "\"\\x65vil\"", "\"\\u2028\\/\"", "a # b", "a#b", "a: b", "- a", "\"a\tb\"", "a\tb", "\u2028", "é", "=", "<<"}
)

// varied adds a member to a body, or gives one another value.
func (m *documentMaker) varied(body []byte) []byte {
	if bytes.HasPrefix(body, []byte("{\"")) || bytes.HasPrefix(body, []byte("[")) {
		return m.variedJSON(string(body))
	}
	return m.variedYAML(string(body))
}

func (m *documentMaker) variedJSON(body string) []byte {
	if m.random.IntN(2) == 0 {
		if at := m.place(body, '{'); at > 0 {
			member := jsonMembers[m.random.IntN(len(jsonMembers))]
			if strings.HasPrefix(body[at:], "}") {
				return []byte(body[:at] + member + body[at:])
			}
			return []byte(body[:at] + member + "," + body[at:])
		}
	}
	at := m.place(body, ':')
	length := strings.IndexAny(body[at:], ",}]")
	if at == 0 || length < 0 {
		return []byte(body)
	}
	return []byte(body[:at] + jsonValues[m.random.IntN(len(jsonValues))] + body[at+length:])
}

// variedYAML adds a line before another, or gives one another value.
func (m *documentMaker) variedYAML(body string) []byte {
	lines := strings.SplitAfter(body, "\n")
	at := m.random.IntN(len(lines))
	line := strings.TrimSuffix(lines[at], "\n")
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	if m.random.IntN(2) == 0 {
		member := yamlMembers[m.random.IntN(len(yamlMembers))]
		lines[at] = indent + strings.ReplaceAll(member, "%[1]s", indent) + "\n" + lines[at]
	} else if colon := strings.LastIndex(line, ": "); colon >= 0 {
		lines[at] = line[:colon+2] + yamlValues[m.random.IntN(len(yamlValues))] + "\n"
	}
	return []byte(strings.Join(lines, ""))
}

// place is a place after one of these bytes, or 0.
func (m *documentMaker) place(body string, after byte) int {
	from := m.random.IntN(len(body))
	for i := range body {
		if at := (from + i) % len(body); body[at] == after {
			return at + 1
		}
	}
	return 0
}

// documentPieces are what readers of JSON and YAML may disagree about.
var documentPieces = []string{":", ": ", "- ", "\n", "  ", " ", "\t", "#", " #", "'", `"`, `\`, "[", "]", "{", "}", ",", "|", ">-\n", "!!binary ", "!!str ", "!x ", "&a ", "*a", "? ", "<<: ", "yes", "no", "true", "null",
	"~", "010", "0o7", "1e3", "1.0", "9007199254740993", "18446744073709551616", "-0", ".5", ".inf", "_", "0x", "\u0085", "\u2028", "\ufeff", "é", "\r\n", "\n---\n", "%", "@", "\xff", "\xed\xa0\x80", `\u00e9`, `\ud800`, `\u0000`, "\x00", "\x7f", "=",
	"1", "e", "K", "\u212a", "\u017f", `"bad":"x",`, `"spec":{},`, `"data":{"bad":"x"},`, `"hostNetwork":true,`, `"HostNetwork":true,`, `"SPEC":{"hostNetwork":true},`, `"kind":"Secret",`, `"KIND":"Secret",`, "\nspec: {}\n", "\ndata: {bad: x}\n", `"a":1,"a":2,`, "/* */"}

func (m *documentMaker) mutated(body []byte) []byte {
	if len(body) == 0 {
		return body
	}
	at := m.random.IntN(len(body))
	end := min(len(body), at+1+m.random.IntN(8))
	piece := []byte(documentPieces[m.random.IntN(len(documentPieces))])
	switch m.random.IntN(8) {
	case 0:
		return slices.Concat(body[:at], body[end:])
	case 1, 2:
		return slices.Concat(body[:at], piece, body[at:])
	case 3:
		return slices.Concat(body[:at], piece, body[min(len(body), at+len(piece)):])
	case 4, 5: // at the beginning of a value or a member
		for i := range body {
			if at := (at + i) % len(body); strings.IndexByte(":{,[", body[at]) >= 0 {
				return slices.Concat(body[:at+1], piece, body[at+1:])
			}
		}
		return body
	case 6: // a part of it again
		to := m.random.IntN(len(body))
		end := min(len(body), at+m.random.IntN(40))
		return slices.Concat(body[:to], body[at:end], body[to:])
	default: // one letter in the other case
		changed := slices.Clone(body)
		if c := changed[at] | 0x20; 'a' <= c && c <= 'z' {
			changed[at] ^= 0x20
		}
		return changed
	}
}

// mutatedMessage changes bytes of a message, or adds fields to it, known and unknown ones.
func (m *documentMaker) mutatedMessage(body []byte) []byte {
	switch m.random.IntN(5) {
	case 0:
		return body
	case 1, 2:
		changed := slices.Clone(body)
		for range 1 + m.random.IntN(3) {
			changed[4+m.random.IntN(len(changed)-4)] = byte(m.random.IntN(256))
		}
		return changed
	}
	// The message is field 2 of the envelope, after its type.
	prefix, rest := body[:4], body[4:]
	length, n := binary.Uvarint(rest[1:])
	head := rest[:1+n+int(length)]
	rest = rest[len(head):]
	length, n = binary.Uvarint(rest[1:])
	message, tail := rest[1+n:1+n+int(length)], rest[1+n+int(length):]
	more := [][]byte{{0x0a, 0}, {0x12, 0}, {0xf8, 0x01, 1}, {0x0a, 4, 0x0a, 2, 'd', '-'}, {0x12, 7, 0x0a, 3, 'b', 'a', 'd', 0x12, 0}, {0x12, 2, 0x58, 1}, {0x1a, 0}}
	changed := slices.Concat(message, more[m.random.IntN(len(more))])
	var buffer bytes.Buffer
	buffer.Write(prefix)
	buffer.Write(head)
	buffer.Write(binary.AppendUvarint([]byte{0x12}, uint64(len(changed))))
	buffer.Write(changed)
	buffer.Write(tail)
	if m.random.IntN(4) == 0 {
		buffer.Write(binary.AppendUvarint([]byte{0x12}, 0))
	}
	return buffer.Bytes()
}

// storedForm is an object as text, without what is another each time.
func storedForm(object any) string {
	metadata, _ := at(object, "metadata").(map[string]any)
	for _, name := range []string{"uid", "resourceVersion", "creationTimestamp"} {
		delete(metadata, name)
	}
	if details, ok := at(object, "details").(map[string]any); ok {
		delete(details, "uid")
	}
	entries, _ := metadata["managedFields"].([]any)
	for _, entry := range entries {
		if entry, ok := entry.(map[string]any); ok {
			delete(entry, "time")
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
