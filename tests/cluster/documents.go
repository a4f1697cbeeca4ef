package cluster

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// documentsNamespace is where bodies are sent that say things in unusual ways.
const documentsNamespace = "documents"

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

// The objects of each kind that are there: one that is written in dry runs alone, one that is made again after each write, and one to
// be deleted.
const (
	targetDocument = "target"
	keptDocument   = "kept"
	victimDocument = "victim"
)

// versionMark stands for the version of the object that a body is about.
const versionMark = "@version"

// withVersion has a template name the version, which a PUT of a custom object must.
var withVersion = strings.NewReplacer(
	`"name":"%[1]s"`, `"name":"%[1]s","resourceVersion":"@version"`, `"name": "%[1]s"`, `"name": "%[1]s", "resourceVersion": "@version"`,
	"name: %[1]s}", `name: %[1]s, resourceVersion: "@version"}`, "name: %[1]s\n", "name: %[1]s\n  resourceVersion: \"@version\"\n")

// next draws a body.
func (m *documentMaker) next() sentDocument {
	m.count++
	kind := m.kinds[m.random.IntN(len(m.kinds))]
	switch draw := m.random.IntN(28); {
	case draw < 14:
		return m.creation(kind, draw)
	case draw < 20:
		return m.patch(kind)
	case draw < 25:
		return m.update(kind)
	case draw < 27 && kind.statuses != nil:
		return m.status(kind)
	case draw < 27:
		return m.patch(kind)
	}
	kind = m.kinds[0]
	sent := sentDocument{kind: kind, method: "DELETE", path: kind.path + "/" + victimDocument, name: victimDocument}
	sent.media = []string{jsonType, yamlType}[m.random.IntN(2)]
	sent.body = m.drawn(deletionDocuments[sent.media], sent.name)
	return sent
}

func (m *documentMaker) creation(kind documentKind, draw int) sentDocument {
	sent := sentDocument{kind: kind, method: "POST", path: kind.path, name: fmt.Sprintf("d-%07d", m.count)}
	switch {
	case draw < 2 && kind.protobuf != nil:
		sent.media, sent.body = protobufType, m.mutatedMessage(kind.protobuf(sent.name))
	case draw < 8:
		sent.media, sent.body = yamlType, m.drawn(kind.yaml, sent.name)
	default:
		sent.media, sent.body = jsonType, m.drawn(kind.json, sent.name)
	}
	return sent
}

// existing is a write of an object that is there, in every other case as a dry run.
func (m *documentMaker) existing(kind documentKind, method, media, subresource string) sentDocument {
	sent := sentDocument{kind: kind, method: method, media: media, name: keptDocument}
	query := "?fieldManager=documents"
	if m.random.IntN(2) == 0 {
		sent.name, query = targetDocument, query+"&dryRun=All"
	}
	if media == applyPatch {
		query += "&force=true"
	}
	sent.path = kind.path + "/" + sent.name + subresource + query
	return sent
}

func (m *documentMaker) patch(kind documentKind) sentDocument {
	media := slices.Sorted(maps.Keys(kind.patches))
	sent := m.existing(kind, "PATCH", media[m.random.IntN(len(media))], "")
	sent.body = m.drawn(kind.patches[sent.media], sent.name)
	return sent
}

func (m *documentMaker) update(kind documentKind) sentDocument {
	draw := m.random.IntN(5)
	if draw == 0 && kind.protobuf != nil {
		sent := m.existing(kind, "PUT", protobufType, "")
		sent.body = m.mutatedMessage(kind.protobuf(sent.name))
		return sent
	}
	media, templates := jsonType, kind.json
	if draw < 3 {
		media, templates = yamlType, kind.yaml
	}
	sent := m.existing(kind, "PUT", media, "")
	template := templates[m.random.IntN(len(templates))]
	if kind.protobuf == nil || m.random.IntN(2) == 0 {
		template = withVersion.Replace(template)
	}
	sent.body = m.drawn([]string{template}, sent.name)
	return sent
}

// status writes the subresource, by a merge patch or by a PUT of a whole object with other members.
func (m *documentMaker) status(kind documentKind) sentDocument {
	status := kind.statuses[m.random.IntN(len(kind.statuses))]
	if m.random.IntN(2) == 0 {
		sent := m.existing(kind, "PATCH", mergePatch, "/status")
		sent.body = m.drawn([]string{status}, sent.name)
		return sent
	}
	sent := m.existing(kind, "PUT", jsonType, "/status")
	template := withVersion.Replace(kind.json[m.random.IntN(len(kind.json))])
	member, _, _ := strings.Cut(strings.TrimPrefix(status, "{"), `},"`)
	sent.body = m.drawn([]string{strings.TrimSuffix(template, "}") + "," + strings.TrimRight(member, "}") + "}}"}, sent.name)
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
