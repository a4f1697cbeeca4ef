package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// A race is two writes of one object, each harmless by what is stored before. Together they are forbidden: whichever comes second
// must be refused. A race is lost if both are carried out.

// racesNamespace has a label that the policies of races select.
const racesNamespace = "races"

// A RacingKind is what the writes of a race are about.
type RacingKind struct {
	Name, Path, APIVersion, Kind string
}

var (
	racingMaps   = RacingKind{"configmaps", "/api/v1/namespaces/races/configmaps", "v1", "ConfigMap"}
	racingRoles  = RacingKind{"roles", "/apis/rbac.authorization.k8s.io/v1/namespaces/races/roles", "rbac.authorization.k8s.io/v1", "Role"} // a PUT creates them, and changes them without a version
	racingThings = RacingKind{"things", "/apis/judged.example.com/v1/namespaces/races/things", "judged.example.com/v1", "Thing"}
)

// racingPolicies are about all kinds of races. The label a must not be removed, nobody may have a and b, what has a may not be deleted,
// and nothing is created with c. A thing with a has no status.b, and fewer replicas are never asked for.
var racingPolicies = []string{
	policy("races", `spec.variables=[
		{"name":"labels","expression":"object == null || !has(object.metadata.labels) ? {} : object.metadata.labels"},
		{"name":"old","expression":"oldObject == null || !has(oldObject.metadata.labels) ? {} : oldObject.metadata.labels"}]`,
		`spec.matchConstraints={"namespaceSelector":{"matchLabels":{"races":"yes"}},"resourceRules":[`+
			rule("", "configmaps", "*")+","+rule("rbac.authorization.k8s.io", "roles", "*")+","+rule("judged.example.com", "things,things/status", "*")+`]}`,
		mustHold(
			`!('a' in variables.labels && 'b' in variables.labels)`,
			`request.operation == 'DELETE' || !('a' in variables.old) || 'a' in variables.labels`,
			`request.operation != 'DELETE' || !('a' in variables.old)`,
			`request.operation != 'CREATE' || !('c' in variables.labels)`,
			`object == null || !('a' in variables.labels) || !has(object.status) || !has(object.status.b)`,
			`request.resource.resource != 'things' || request.operation != 'UPDATE' || object.spec.replicas >= oldObject.spec.replicas`,
		)),
	policy("races-scale", `spec.matchConstraints={"namespaceSelector":{"matchLabels":{"races":"yes"}},"resourceRules":[`+rule("judged.example.com", "things/scale", "*")+`]}`,
		mustHold(`object.spec.replicas >= oldObject.spec.replicas`)),
}

// A RacingWrite is one write of a race.
type RacingWrite struct {
	Verb string // POST, PUT, merge, strategic, json, apply, DELETE or deletecollection
	Sub  string // the subresource, or empty
	// Version is what the client says of resourceVersion: nothing, "zero", "empty" or "own", which is that of the object before.
	Version string
	// Change is what it does: the label that it sets, "status" or "replicas=N"; empty for a deletion.
	Change string
}

func (w RacingWrite) String() string {
	parts := []string{w.Verb}
	for _, part := range []string{w.Sub, w.Version} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}

// request is the write of an object of this name, whose version is the one before.
func (w RacingWrite) request(kind RacingKind, name, version string) Request {
	path, contentType := kind.Path+"/"+name, jsonType
	if w.Sub != "" {
		path += "/" + w.Sub
	}
	request := Request{Path: path, Headers: map[string]string{}}
	switch w.Verb {
	case "POST":
		request.Method, request.Path = "POST", kind.Path
	case "PUT", "DELETE":
		request.Method = w.Verb
	case "deletecollection":
		request.Method, request.Path, request.Query = "DELETE", kind.Path, "labelSelector="+url.QueryEscape("race="+name)
	case "apply":
		request.Method, contentType, request.Query = "PATCH", applyPatch, "force=true&fieldManager="+w.Change[:1]
	default:
		request.Method, contentType = "PATCH", "application/"+map[string]string{"merge": "merge-patch", "strategic": "strategic-merge-patch", "json": "json-patch"}[w.Verb]+"+json"
	}
	if w.Change != "" {
		request.Headers[contentHeader] = contentType
		request.Body = w.body(kind, name, version)
	}
	return request
}

func (w RacingWrite) body(kind RacingKind, name, version string) string {
	stated, states := map[string]string{"zero": "0", "empty": "", "own": version}[w.Version]
	if w.Verb == "json" {
		return string(asJSON(w.operations(stated, states)))
	}
	metadata := map[string]any{"labels": map[string]any{"race": name}}
	object := map[string]any{"metadata": metadata}
	isPatch := w.Verb == "merge" || w.Verb == "strategic"
	if !isPatch {
		object["apiVersion"], object["kind"], metadata["name"], metadata["namespace"] = kind.APIVersion, kind.Kind, name, racesNamespace
	}
	replicas, scales := strings.CutPrefix(w.Change, "replicas=")
	switch {
	case scales && w.Sub == "scale" && !isPatch:
		object["apiVersion"], object["kind"] = "autoscaling/v1", "Scale"
		delete(metadata, "labels")
		object["spec"] = map[string]any{"replicas": json.Number(replicas)}
	case scales:
		delete(metadata, "labels")
		object["spec"] = map[string]any{"replicas": json.Number(replicas)}
	case w.Change == "status":
		object["status"] = map[string]any{"b": "1"}
	default:
		if kind == racingThings && !isPatch {
			object["spec"] = map[string]any{"replicas": 1}
		}
		metadata["labels"] = map[string]any{"race": name, w.Change: "1"}
		if isPatch {
			metadata["labels"] = map[string]any{w.Change: "1"}
		}
	}
	if states {
		metadata["resourceVersion"] = stated
	}
	return string(asJSON(object))
}

// operations are those of a JSON patch: the version comes last, where it counts.
func (w RacingWrite) operations(version string, states bool) []map[string]any {
	add := func(path string, value any) map[string]any {
		return map[string]any{"op": "add", "path": path, "value": value}
	}
	operation := add("/metadata/labels/"+w.Change, "1")
	if replicas, scales := strings.CutPrefix(w.Change, "replicas="); scales {
		operation = add("/spec/replicas", json.Number(replicas))
	} else if w.Change == "status" {
		operation = add("/status", map[string]any{"b": "1"})
	}
	operations := []map[string]any{operation}
	if states {
		operations = append(operations, add("/metadata/resourceVersion", version))
	}
	return operations
}

// A RaceRow is a pair of writes.
type RaceRow struct {
	Kind   RacingKind
	Exists bool // the object exists before
	Writes [raceWrites]RacingWrite
	IsLost func(RaceOutcome) bool
}

func (r RaceRow) String() string {
	before := "absent"
	if r.Exists {
		before = "stored"
	}
	return fmt.Sprintf("%s %s: %s × %s", before, r.Kind.Name, r.Writes[firstWrite], r.Writes[secondWrite])
}

// createsNothing is whether there is no object, and no write makes one where there is a guard, which refuses a PUT that would.
func (r RaceRow) createsNothing() bool {
	creates := func(write RacingWrite) bool { return write.Verb == "POST" || write.Verb == "apply" }
	return !r.Exists && !slices.ContainsFunc(r.Writes[:], creates)
}

// A RaceOutcome is what is there after a race.
type RaceOutcome struct {
	Before string // the uid of the object before; empty if there was none
	Codes  [raceWrites]int
	UIDs   [raceWrites]string // of the objects that were answered
	After  map[string]any     // the object afterwards; nil if there is none
}

func (o RaceOutcome) succeeded(which int) bool { return o.Codes[which] >= 200 && o.Codes[which] < 300 }

// labelled: the first write has given the object its label, and then that is lost, or beside the other one, or with the object.
func labelled(o RaceOutcome) bool {
	if !o.succeeded(firstWrite) {
		return false
	}
	labels, _ := at(o.After, "metadata", "labels").(map[string]any)
	_, hasFirst := labels["a"]
	_, hasSecond := labels["b"]
	return o.After == nil || text(o.After, "metadata", "uid") != o.UIDs[firstWrite] || !hasFirst || hasSecond
}

// recreated: the object was deleted, and made again by what was evaluated as a change of it.
func recreated(o RaceOutcome) bool {
	labels, _ := at(o.After, "metadata", "labels").(map[string]any)
	_, has := labels["c"]
	return has && text(o.After, "metadata", "uid") != o.Before
}

// beside: the object has the label and the status that exclude each other.
func beside(o RaceOutcome) bool {
	_, has := at(o.After, "metadata", "labels", "a").(string)
	_, hasStatus := at(o.After, "status", "b").(string)
	return has && hasStatus
}

// scaledDown: the first write has asked for five replicas, and then there are three.
func scaledDown(o RaceOutcome) bool {
	return o.succeeded(firstWrite) && fmt.Sprint(at(o.After, "spec", "replicas")) == "3"
}

// RaceRows are all pairs that are played.
func RaceRows() []RaceRow {
	var rows []RaceRow
	patches := []string{"PUT", "merge", "strategic", "json", "apply"}
	stated := []string{"", "zero", "empty"}
	for _, first := range patches {
		one := RacingWrite{Verb: first, Change: "a"}
		for _, second := range patches {
			for _, version := range stated {
				other := RacingWrite{Verb: second, Version: version, Change: "b"}
				rows = append(rows, RaceRow{Kind: racingMaps, Exists: true, Writes: [2]RacingWrite{one, other}, IsLost: labelled})
			}
		}
		for _, second := range []RacingWrite{{Verb: "DELETE"}, {Verb: "deletecollection"}, {Verb: "PUT", Version: "own", Change: "b"}, {Verb: "json", Version: "own", Change: "b"}} {
			rows = append(rows, RaceRow{Kind: racingMaps, Exists: true, Writes: [2]RacingWrite{one, second}, IsLost: labelled})
		}
		for _, version := range stated {
			both := [2]RacingWrite{{Verb: first, Version: version, Change: "a"}, {Verb: first, Version: version, Change: "b"}}
			rows = append(rows, RaceRow{Kind: racingRoles, Exists: true, Writes: both, IsLost: labelled})
		}
	}
	return slices.Concat(rows, absentRows(patches, stated), subresourceRows(stated))
}

// absentRows are those in which an object is created, or created again.
func absentRows(patches, stated []string) []RaceRow {
	var rows []RaceRow
	for _, first := range []string{"POST", "apply", "PUT"} {
		one := RacingWrite{Verb: first, Change: "a"}
		for _, second := range patches {
			for _, version := range stated {
				other := RacingWrite{Verb: second, Version: version, Change: "b"}
				rows = append(rows, RaceRow{Kind: racingRoles, Writes: [2]RacingWrite{one, other}, IsLost: labelled})
			}
		}
		for _, second := range []string{"DELETE", "deletecollection"} {
			rows = append(rows, RaceRow{Kind: racingRoles, Writes: [2]RacingWrite{one, {Verb: second}}, IsLost: labelled})
		}
	}
	for _, second := range []string{"PUT", "apply"} {
		for _, version := range append(stated, "own") {
			other := RacingWrite{Verb: second, Version: version, Change: "c"}
			rows = append(rows, RaceRow{Kind: racingRoles, Exists: true, Writes: [2]RacingWrite{{Verb: "DELETE"}, other}, IsLost: recreated})
		}
	}
	return rows
}

func subresourceRows(stated []string) []RaceRow {
	var rows []RaceRow
	for _, second := range []string{"PUT", "merge", "json", "apply"} {
		for _, version := range stated {
			row := RaceRow{Kind: racingThings, Exists: true, IsLost: beside}
			row.Writes = [2]RacingWrite{{Verb: "merge", Change: "a"}, {Verb: second, Sub: "status", Version: version, Change: "status"}}
			rows = append(rows, row)
			if second == "apply" {
				continue // of a scale, only the fields of the main resource are owned
			}
			row.IsLost = scaledDown
			row.Writes = [2]RacingWrite{{Verb: "merge", Change: "replicas=5"}, {Verb: second, Sub: "scale", Version: version, Change: "replicas=3"}}
			rows = append(rows, row)
		}
	}
	return rows
}

// A RaceCount is how many races of a row were played on a server, and how many of them were lost.
type RaceCount struct {
	Played, Lost int
	Codes        map[string]int // how both were answered
}

func (c RaceCount) String() string {
	return fmt.Sprintf("%d of %d lost (%s)", c.Lost, c.Played, countedCodes(c.Codes))
}

// countedCodes says how often each pair of codes was answered.
func countedCodes(codes map[string]int) string {
	var counted []string
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		counted = append(counted, fmt.Sprintf("%s ×%d", code, codes[code]))
	}
	return strings.Join(counted, ", ")
}
