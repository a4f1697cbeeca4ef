package cluster

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// A normaliser turns the responses of one session into a form in which two servers should agree. It also keeps
// the values that placeholders of later requests stand for. The rules are in README.md, since the
// reader of the corpus has to repeat them.
type normaliser struct {
	managedFields bool
	conditions    bool              // see Target.Conditions
	values        map[string]string // of placeholders, without braces
	versions      map[string]string // resource version of an object → its mark
	uids          map[string]string // uid → its mark
	generated     []string          // names that the server made up
	dangling      map[string]bool   // by name: has the condition of the controller, about the level it names
	settled       map[string]string // by name: the resource version with which it had
}

func newNormaliser(managedFields, conditions bool) *normaliser {
	return &normaliser{
		managedFields: managedFields,
		conditions:    conditions,
		values:        map[string]string{},
		versions:      map[string]string{},
		uids:          map[string]string{},
		dangling:      map[string]bool{},
		settled:       map[string]string{},
	}
}

func (n *normaliser) clone() *normaliser {
	other := *n
	other.values, other.versions, other.uids = maps.Clone(n.values), maps.Clone(n.versions), maps.Clone(n.uids)
	other.dangling, other.settled = maps.Clone(n.dangling), maps.Clone(n.settled)
	other.generated = slices.Clone(n.generated)
	return &other
}

func (n *normaliser) response(request Request, answer *http.Response, data []byte) (Response, error) {
	response := Response{Code: answer.StatusCode}
	response.Headers.ContentType = answer.Header.Get("Content-Type")
	response.Headers.RetryAfter = answer.Header.Get("Retry-After")

	documents, stream, err := documents(response.Headers.ContentType, data)
	stream = stream && response.Code == http.StatusOK
	if err != nil {
		return response, fmt.Errorf("%w: %s: %.300q", err, response.Headers.ContentType, data)
	}
	switch {
	case documents == nil && !stream:
		response.Text = string(data)
	case stream:
		response.Events = []any{}
		for _, document := range documents {
			if event := n.event(document); event != nil && !(n.conditions && repeated(response.Events, event)) {
				response.Events = append(response.Events, event)
			}
		}
	default:
		n.learn(documents[0])
		n.learnRefused(request, documents[0])
		response.Body = n.tree(documents[0])
	}
	for _, warning := range answer.Header.Values("Warning") {
		response.Headers.Warning = append(response.Headers.Warning, n.text(warning))
	}
	return response, nil
}

// documents decodes a body: its one document, or the events of a watch. No document and no stream means
// that the body is text. A body of JSON
// without any is a watch without events.
func documents(contentType string, data []byte) (found []any, stream bool, err error) {
	mediaType, parameters, _ := mime.ParseMediaType(contentType)
	switch mediaType {
	case "application/json":
		found, err = jsonDocuments(data)
		if err != nil {
			return nil, false, nil // the error documents of some filters are no JSON
		}
		if len(found) == 0 {
			return nil, true, nil
		}
		first, _ := found[0].(map[string]any)
		_, event := first["type"].(string)
		return found, event && first["object"] != nil, nil
	case "application/yaml":
		text, err := yaml.ToJSON(data)
		if err != nil {
			return nil, false, err
		}
		found, err = jsonDocuments(text)
		return found, false, err
	case "application/vnd.kubernetes.protobuf":
		if parameters["stream"] == "watch" {
			found, err = protobufEvents(data)
			return found, true, err
		}
		document, err := protobufDocument(data)
		return []any{document}, false, err
	}
	return nil, false, nil
}

func jsonDocuments(data []byte) ([]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var found []any
	for {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		found = append(found, document)
	}
}

// protobufSerializer knows client-go's kinds and those into which a server converts others.
var protobufSerializer = func() *protobuf.Serializer {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme} {
		if err := add(kinds); err != nil {
			panic(err) // the kinds are compiled in
		}
	}
	return protobuf.NewSerializer(kinds, kinds)
}()

func protobufDocument(data []byte) (any, error) {
	object, kind, err := protobufSerializer.Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(*kind)
	return asTree(object)
}

// protobufEvents decodes frames of a length and a bare WatchEvent.
func protobufEvents(data []byte) ([]any, error) {
	var found []any
	for len(data) > 0 {
		if len(data) < 4 || len(data)-4 < int(binary.BigEndian.Uint32(data)) {
			return found, io.ErrUnexpectedEOF
		}
		end := 4 + int(binary.BigEndian.Uint32(data))
		var event metav1.WatchEvent
		if err := event.Unmarshal(data[4:end]); err != nil {
			return found, err
		}
		object, err := protobufDocument(event.Object.Raw)
		if err != nil {
			return found, err
		}
		found = append(found, map[string]any{"type": event.Type, "object": object})
		data = data[end:]
	}
	return found, nil
}

func asTree(object runtime.Object) (any, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	documents, err := jsonDocuments(text)
	if err != nil {
		return nil, err
	}
	return documents[0], nil
}

// event normalises one event of a watch. Bookmarks arrive at any time, so only that at the end of
// the initial events is kept.
func (n *normaliser) event(document any) any {
	if text(document, "type") == "BOOKMARK" {
		object := at(document, "object")
		if rows, ok := at(object, "rows").([]any); ok && len(rows) == 1 {
			object = at(rows[0], "object")
		}
		if at(object, "metadata", "annotations", "k8s.io/initial-events-end") == nil {
			return nil
		}
		if metadata, ok := at(document, "object", "metadata").(map[string]any); ok {
			metadata["resourceVersion"] = "{{rv}}"
		}
		if metadata, ok := at(object, "metadata").(map[string]any); ok {
			metadata["resourceVersion"] = "{{rv}}"
		}
	}
	return n.tree(document)
}

// learn keeps the values that later requests may name.
func (n *normaliser) learn(document any) {
	items, isList := at(document, "items").([]any)
	_, isTable := at(document, "rows").([]any)
	if isList || isTable {
		n.keep("rv", text(document, "metadata", "resourceVersion"))
		n.keep("continue", text(document, "metadata", "continue"))
		for _, item := range items {
			n.learnObject(item)
		}
		return
	}
	if text(document, "kind") != "Status" {
		n.learnObject(document)
	}
}

func (n *normaliser) learnObject(document any) {
	name := text(document, "metadata", "name")
	if name == "" {
		return
	}
	n.learnGenerated(text(document, "metadata", "generateName"), name)
	conditions, _ := at(document, "status", "conditions").([]any)
	level := strconv.Quote(text(document, "spec", "priorityLevelConfiguration", "name"))
	n.dangling[name] = slices.ContainsFunc(conditions, func(condition any) bool {
		return text(condition, "type") == "Dangling" && strings.Contains(text(condition, "message"), level)
	})
	version := text(document, "metadata", "resourceVersion")
	n.keep("rv:"+name, version)
	n.keep("uid:"+name, text(document, "metadata", "uid"))
	if _, known := n.values["first:"+name]; !known {
		n.keep("first:"+name, version)
	}
}

// learnGenerated keeps a name if the server has made it of a base.
func (n *normaliser) learnGenerated(base, name string) {
	if base == "" {
		return
	}
	base = base[:min(len(base), 58)]
	if made := strings.HasPrefix(name, base) && len(name) == len(base)+5; made && !slices.Contains(n.generated, name) {
		n.generated = append(n.generated, name)
		n.keep(fmt.Sprintf("generated:%d", len(n.generated)), name)
	}
}

// learnRefused keeps the name that was made for an object which was then refused.
func (n *normaliser) learnRefused(request Request, document any) {
	if request.Method != http.MethodPost || text(document, "kind") != "Status" {
		return
	}
	if sent, err := jsonDocuments([]byte(request.Body)); err == nil && len(sent) == 1 && text(sent[0], "metadata", "name") == "" {
		n.learnGenerated(text(sent[0], "metadata", "generateName"), text(document, "details", "name"))
	}
}

func (n *normaliser) keep(placeholder, value string) {
	if value != "" {
		n.values[placeholder] = value
	}
}

// tree normalises a document. Keys are visited in order, since marks are numbered by first appearance.
func (n *normaliser) tree(node any) any {
	switch node := node.(type) {
	case map[string]any:
		if _, ok := node["metadata"].(map[string]any); ok {
			n.metadata(node)
		}
		if columns, ok := node["columnDefinitions"].([]any); ok {
			for _, column := range columns {
				delete(column.(map[string]any), "description") // free text
			}
		}
		if status, ok := node["status"].(map[string]any); ok {
			dropDangling(status)
			if n.conditions && text(node, "kind") == "ValidatingAdmissionPolicy" {
				delete(status, "observedGeneration") // the type checker's
				delete(status, "typeChecking")
			}
		}
		if causes, ok := node["causes"].([]any); ok {
			sortConflicts(causes)
		}
		for _, key := range slices.Sorted(maps.Keys(node)) {
			if cells, ok := node[key].([]any); ok && key == "cells" {
				n.cells(cells)
			}
			node[key] = n.tree(node[key])
		}
		return node
	case []any:
		for i := range node {
			node[i] = n.tree(node[i])
		}
		return node
	case string:
		if timestamp.MatchString(node) {
			return "{{time}}"
		}
		return n.text(node)
	default:
		return node
	}
}

// metadata normalises the metadata of one object or list.
func (n *normaliser) metadata(node map[string]any) {
	metadata := node["metadata"].(map[string]any)
	if token, ok := metadata["continue"].(string); ok && token != "" {
		metadata["continue"] = "{{continue}}"
	}
	if entries, ok := metadata["managedFields"].([]any); ok {
		entries = slices.DeleteFunc(entries, func(entry any) bool { return slices.Contains(conditionsManagers, text(entry, "manager")) })
		slices.SortStableFunc(entries, compareEntries)
		for _, entry := range entries {
			if list, ok := at(entry, "fieldsV1", "f:status", "f:conditions").(map[string]any); ok && n.conditions {
				// Who made the list, and who has what of the controller's conditions: that depends on when it wrote.
				maps.DeleteFunc(list, func(key string, _ any) bool {
					return key == "." || key == `k:{"type":"Dangling"}` || key == `k:{"type":"Unreachable"}`
				})
			}
		}
		metadata["managedFields"] = entries
	}
	if !n.managedFields {
		delete(metadata, "managedFields")
	}
	version, ok := metadata["resourceVersion"].(string)
	if !ok || version == "" || version == "{{rv}}" {
		return
	}
	_, isList := node["items"]
	_, isTable := node["rows"]
	if isList || isTable || n.conditions {
		// A snapshot's version moves with whatever else happens on the server.
		metadata["resourceVersion"] = "{{rv}}"
		return
	}
	metadata["resourceVersion"] = marked(n.versions, "rv", version)
}

var (
	timestamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)
	uuid      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	age       = regexp.MustCompile(`^(\d+[smhdy](\d+[smhd])?|<invalid>)$`)
	// The places of messages in which a resource version, a storage key or a whole document stands.
	versionInText  = regexp.MustCompile(`([rR]esource ?[vV]ersion: |current: |in the precondition \(|in record \()\d+`)
	tooOldInText   = regexp.MustCompile(`(too old resource version: \{\{rv\}\}) \(\d+\)`)
	keyInText      = regexp.MustCompile(`Key: [^,]+`)
	documentInText = regexp.MustCompile(`(?s)Invalid value: "(\{.*\}|map\[.*\]|\[.*\])": `)
)

func (n *normaliser) text(value string) string {
	for number, name := range n.generated {
		value = strings.ReplaceAll(value, name, fmt.Sprintf("{{generated:%d}}", number+1))
	}
	value = documentInText.ReplaceAllString(value, `Invalid value: "{{document}}": `)
	value = uuid.ReplaceAllStringFunc(value, func(found string) string { return marked(n.uids, "uid", found) })
	value = versionInText.ReplaceAllString(value, "$1{{rv}}")
	value = tooOldInText.ReplaceAllString(value, "$1 ({{rv}})")
	return keyInText.ReplaceAllString(value, "Key: {{key}}")
}

// marked is the mark of a value, numbered by its first appearance in the session.
func marked(marks map[string]string, kind, value string) string {
	if _, known := marks[value]; !known {
		marks[value] = "{{" + kind + ":" + strconv.Itoa(len(marks)+1) + "}}"
	}
	return marks[value]
}

// sortConflicts puts conflicts about the ownership of fields in order, which the real server leaves to chance.
func sortConflicts(causes []any) {
	key := func(cause any) string { return text(cause, "message") + "\x00" + text(cause, "field") }
	if len(causes) > 0 && text(causes[0], "reason") == "FieldManagerConflict" {
		slices.SortStableFunc(causes, func(a, b any) int { return strings.Compare(key(a), key(b)) })
	}
}

func (n *normaliser) cells(row []any) {
	for i, cell := range row {
		if text, ok := cell.(string); ok && age.MatchString(text) {
			row[i] = "{{age}}"
		}
	}
	if n.conditions && len(row) == 6 {
		row[5] = "{{missing}}" // whether a FlowSchema's level is
	}
}

// dropDangling removes the condition that the controller of priority and fairness writes.
func dropDangling(status map[string]any) {
	conditions, _ := status["conditions"].([]any)
	kept := slices.DeleteFunc(conditions, isDangling)
	switch {
	case len(kept) == len(conditions):
	case len(kept) == 0:
		delete(status, "conditions")
	default:
		status["conditions"] = kept
	}
}

// compareEntries orders entries of managedFields without their times. A server orders by those first, to the
// second, so the order of two writes may be lost.
func compareEntries(a, b any) int {
	for _, key := range []string{"operation", "manager", "apiVersion", "subresource"} {
		if order := strings.Compare(text(a, key), text(b, key)); order != 0 {
			return order
		}
	}
	return 0
}

// isDangling says whether a condition is written by a controller: that of priority and fairness, and fairgate's own.
func isDangling(condition any) bool {
	kind := text(condition, "type")
	return kind == "Dangling" || kind == "Unreachable"
}

// conditionsManagers own those conditions.
var conditionsManagers = []string{"api-priority-and-fairness-config-consumer-v1", "fairgate-unreachable", "validatingadmissionpolicy-status"}

// repeated says whether an event is the last one again of the same object, as far as can be seen.
func repeated(events []any, event any) bool {
	name, content := eventContent(event)
	for _, earlier := range slices.Backward(events) {
		if other, before := eventContent(earlier); other == name {
			return text(event, "type") == "MODIFIED" && reflect.DeepEqual(before, content)
		}
	}
	return false
}

// eventContent is the name of an event's object and what the event shows of it.
func eventContent(event any) (string, any) {
	rows, ok := at(event, "object", "rows").([]any)
	if !ok || len(rows) != 1 {
		return text(event, "object", "metadata", "name"), at(event, "object")
	}
	if cells, ok := at(rows[0], "cells").([]any); ok && len(cells) > 0 {
		return fmt.Sprint(cells[0]), rows
	}
	return "", rows
}

// at is what a path of keys leads to, or nil.
func at(node any, keys ...string) any {
	for _, key := range keys {
		object, _ := node.(map[string]any)
		node = object[key]
	}
	return node
}

// text is the string at a path of keys, or "".
func text(node any, keys ...string) string {
	value, _ := at(node, keys...).(string)
	return value
}
