package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// An exactWrite is a change or a deletion of an object that is there, or a PUT that creates one. All are dry runs.
type exactWrite struct {
	method, media, subresource, operation string
	// edits are made of the stored object; without them the document of the exactObject is sent.
	edits []string
	item  string // path of the object, or of its subresource
	// mine is an expression that holds for the request of the policy's number alone.
	mine string
}

func (w *exactWrite) resource(of string) string {
	if w.subresource == "" {
		return of
	}
	return of + "/" + w.subresource
}

// writesNamespace is where the objects are that are written. A LimitRange among them would decide about pods elsewhere.
const writesNamespace = "exact-writes"

// inWrites is a text about that namespace, with the number of an expression.
func inWrites(text string, number int) string {
	return numbered(strings.ReplaceAll(text, "@ns", writesNamespace), number)
}

// kept is what the object of a kind is called that is written.
func (k echoedKind) kept() string { return "kept-" + k.session }

// body is what is sent to a side.
func (b exactBed) body(side documentSide, at exactObject, number int) string {
	if at.write.edits == nil {
		return inWrites(at.document, number)
	}
	stored := must2(json.Marshal(b.storedOn(side, at.write.item)))
	return inWrites(edited(string(stored), at.write.edits...), number)
}

// storedOn is an object as a side has it; a gateway has those of the server behind it.
func (b exactBed) storedOn(side documentSide, item string) any {
	if side.name == b.gateway.name {
		side = b.plain
	}
	return b.stored[side.name][item]
}

func must2[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// writtenKinds are those of which an object is written: all whose labels are free and which nobody else writes.
func writtenKinds() (kinds []echoedKind) {
	for _, group := range [][]echoedKind{coreKinds(), workloadKinds(), clusterKinds(), otherKinds(), customKinds()} {
		for _, kind := range group {
			if strings.Contains(kind.document, evaluatedLabels) && !writtenByOthers.MatchString("echo-"+kind.session) {
				kind.document = strings.Replace(kind.document, evaluatedLabels, `"labels":{"exact":"stored"}`, 1)
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds
}

// keep makes an object of each kind on both servers, and notes what they store.
func (b *exactBed) keep(ctx context.Context, kinds []echoedKind) error {
	b.stored = map[string]map[string]any{}
	for _, side := range []documentSide{b.server, b.plain} {
		b.stored[side.name] = map[string]any{}
		for _, kind := range kinds {
			if err := side.must(ctx, "POST", inWrites(kind.at(""), 0), inWrites(kind.of(kind.kept()), 0), 201); err != nil {
				return fmt.Errorf("%s: %w", kind.session, err)
			}
			for _, subresource := range append(kind.subresources[:len(kind.subresources):len(kind.subresources)], echoedSubresource{}) {
				item := inWrites(kind.item(kind.kept(), subresource.name), 0)
				from := item
				if subresource.name != "scale" && subresource.name != "" {
					from = inWrites(kind.item(kind.kept(), ""), 0)
				}
				answer, err := side.send(ctx, "GET", from, jsonType, nil)
				if err != nil || !answer.isAccepted() {
					return fmt.Errorf("%s: %s: %d %s: %w", side.name, item, answer.code, answer.message, err)
				}
				b.stored[side.name][item] = answer.object
			}
		}
	}
	return nil
}

// aboutOwners are expressions that tell who owns the fields of an object, which of a changed custom resource only the server knows.
var aboutOwners = regexp.MustCompile(`managedFields|metadata [=!]= |object [=!]= oldObject`)

// drawWrites makes expressions about changes and deletions of objects of all kinds, and about what they were before.
func (b *exactBed) drawWrites(ctx context.Context, random *rand.Rand, count int) (expressions []exactExpression, err error) {
	kinds := writtenKinds()
	if err := b.keep(ctx, kinds); err != nil {
		return nil, err
	}
	drawing := expressionDrawing{random: random, members: map[string]bool{"paused": true, "none": true}}
	for draws := 0; len(expressions) < count; draws++ {
		if draws > 20*count+200 {
			return nil, fmt.Errorf("of %d drawn writes, a server accepts %d", draws, len(expressions))
		}
		kind := kinds[random.IntN(len(kinds))]
		at := drawing.write(kind)
		object, isAccepted, err := b.madeOf(ctx, at)
		if err != nil {
			return nil, err
		}
		if !isAccepted {
			continue
		}
		old := b.storedOn(b.plain, at.write.item)
		if at.write.operation == "CREATE" {
			old = nil
		}
		one := exactExpression{Kind: at.resource, at: at}
		one.Expression, one.message = drawing.aboutWrite(object, old, at.write)
		if strings.HasSuffix(at.group, ".example.com") && aboutOwners.MatchString(one.Expression) {
			continue
		}
		expressions = append(expressions, one)
	}
	return expressions, nil
}

// madeOf is what a server without policies makes of a write; nil for a deletion.
func (b *exactBed) madeOf(ctx context.Context, at exactObject) (object any, isAccepted bool, err error) {
	answer, err := b.plain.send(ctx, at.write.method, inWrites(at.path, 0), at.write.media, []byte(b.body(b.plain, at, 0)))
	if err != nil || !answer.isAccepted() {
		return nil, false, err
	}
	if at.write.method == "DELETE" {
		return nil, true, nil
	}
	return answer.object, true, nil
}

// write draws one of an object of a kind.
func (d *expressionDrawing) write(kind echoedKind) exactObject {
	one := exactObject{version: "v1", resource: kind.path}
	if group, resource, found := strings.Cut(kind.path, ":"); found {
		one.group, one.version, _ = strings.Cut(group, "/")
		one.resource = resource
	}
	write := &exactWrite{operation: "UPDATE", mine: `request.options.?fieldManager.orValue("") == "e%d"`}
	one.write = write
	query := "?dryRun=All&fieldManager=e%d"
	changed := d.edits(kind)
	written := slices.DeleteFunc(slices.Clone(kind.subresources), func(of echoedSubresource) bool { return of.posts })
	switch draw := d.random.IntN(10); {
	case draw == 0:
		write.method, write.operation, write.media = "DELETE", "DELETE", jsonType
		one.document, query = `{"gracePeriodSeconds":1%[1]d,"dryRun":["All"]}`, ""
		write.mine = `request.options.?gracePeriodSeconds.orValue(0) == 1%[1]d`
	case draw == 1 && kind.puts:
		write.method, write.operation, write.media = "PUT", "CREATE", jsonType
		one.document = kind.of("e%[1]d", changed...)
	case draw < 5 && len(written) > 0:
		of := written[d.random.IntN(len(written))]
		write.subresource = of.name
		changed = slices.Concat(of.edits, changed)
		if of.name == "scale" {
			changed = of.edits
		}
		d.update(&one, kind, changed, of.putsOnly, of.strategic)
	default:
		d.update(&one, kind, changed, false, false)
	}
	write.item = inWrites(kind.item(kind.kept(), write.subresource), 0)
	one.path = write.item + query
	if write.operation == "CREATE" {
		one.path = strings.ReplaceAll(kind.item("e%[1]d", ""), "@ns", writesNamespace) + query
	}
	if write.media == applyPatch {
		one.path += "&force=true"
	}
	return one
}

// edits are some that change the object, its metadata, or what the server does not let a client change.
func (d *expressionDrawing) edits(kind echoedKind) (edits []string) {
	mutable := slices.DeleteFunc(slices.Clone(forgeries), immutable)
	if kind.change != "" && d.random.IntN(3) > 0 {
		edits = append(edits, kind.change)
	}
	if kind.exempt != "" && d.random.IntN(4) == 0 {
		edits = append(edits, kind.exempt)
	}
	if d.random.IntN(3) == 0 {
		edits = append(edits, mutable[d.random.IntN(len(mutable))])
	}
	return append(edits, exemptions[d.random.IntN(len(exemptions))])
}

// update draws how the edits are sent: by PUT, or by one of the patches.
func (d *expressionDrawing) update(one *exactObject, kind echoedKind, edits []string, putsOnly, strategicOnly bool) {
	write := one.write
	write.method = "PATCH"
	draw := d.random.IntN(6)
	isCustom := strings.HasSuffix(one.group, ".example.com")
	switch {
	case strategicOnly || draw == 0 && !isCustom && !putsOnly:
		write.media, one.document = strategic, edited(`{}`, edits...)
	case putsOnly || draw < 3:
		write.method, write.media, write.edits = "PUT", jsonType, edits
	case draw == 3 && write.subresource == "":
		write.media, one.document = applyPatch, kind.of(kind.kept(), edits...)
	case draw == 4:
		write.media, one.document = jsonPatch, patchOf(edits)
	default:
		write.media, one.document = mergePatch, edited(`{}`, edits...)
	}
}

// patchOf is edits as a JSON patch.
func patchOf(edits []string) string {
	var operations []string
	for _, edit := range edits {
		path, value, _ := strings.Cut(edit, "=")
		operation := "add"
		if strings.Contains(path, ".0.") {
			operation = "replace"
		}
		segments := strings.Split(path, ".")
		if last := len(segments) - 1; segments[0] == "metadata" && last == 2 {
			// There may be no such map yet.
			value = `{"` + segments[last] + `":` + value + `}`
			segments = segments[:last]
		}
		operations = append(operations, fmt.Sprintf(`{"op":%q,"path":"/%s","value":%s}`, operation, strings.Join(segments, "/"), value))
	}
	return "[" + strings.Join(operations, ",") + "]"
}

// aboutWrite is an expression about the object, the old one, both of them, or the request.
func (d *expressionDrawing) aboutWrite(object, old any, write *exactWrite) (condition, message string) {
	both := object != nil && old != nil
	switch draw := d.random.IntN(10); {
	case draw == 0:
		return d.aboutRequest(write)
	case draw < 3 && both:
		return d.unchanged("object", "oldObject", object, old, 0), ""
	case draw < 4 && both:
		one, _ := d.about("object", object, 0)
		other, _ := d.about("oldObject", old, 0)
		return "(" + one + ")" + d.one(" && ", " || ") + "(" + other + ")", ""
	case draw < 7 && both || object == nil:
		return d.about("oldObject", old, 0)
	case draw == 7 && old == nil:
		return d.one("oldObject == null", "oldObject != null"), ""
	}
	return d.about("object", object, 0)
}

// unchanged compares what two objects have at one place.
func (d *expressionDrawing) unchanged(path, oldPath string, object, old any, depth int) string {
	value, _ := object.(map[string]any)
	before, _ := old.(map[string]any)
	names := slices.Sorted(maps.Keys(value))
	for name := range before {
		if _, found := value[name]; !found {
			names = append(names, name)
		}
	}
	names = slices.DeleteFunc(names, unstable.MatchString)
	slices.Sort(names)
	if len(names) == 0 || depth > 1 && d.random.IntN(2) == 0 {
		return path + d.one(" == ", " != ") + oldPath
	}
	name := names[d.random.IntN(len(names))]
	step := "[?" + quoted(name) + "]"
	if identifier.MatchString(name) {
		step = ".?" + name
	}
	if depth > 0 && d.random.IntN(3) == 0 {
		return path + step + d.one(" == ", " != ") + oldPath + step
	}
	return d.unchanged(path+step, oldPath+step, value[name], before[name], depth+1)
}

func (d *expressionDrawing) aboutRequest(write *exactWrite) (condition, message string) {
	conditions := []string{
		`request.operation == ` + quoted(write.operation), `request.?subResource.orValue("") == ` + quoted(write.subresource), `request.dryRun`, `has(request.options.force)`,
		`request.kind == request.requestKind`, `request.resource == request.requestResource`, `request.?requestSubResource.orValue("-") == request.?subResource.orValue("-")`,
		`request.name.startsWith("e")`, `request.?namespace.orValue("") == "` + writesNamespace + `"`, `request.options.?dryRun.orValue([]).size() == 1`, `request.options.size() == 3`,
		`object == null`, `oldObject == null`, `object != oldObject`, `request.options == {}`,
	}
	words := []string{`request.operation`, `request.kind.group`, `request.kind.version`, `request.kind.kind`, `request.resource.resource`, `request.requestKind.kind`, `request.name`,
		`request.?subResource.orValue("-")`, `request.?namespace.orValue("-")`, `request.options.kind`, `request.options.apiVersion`, `string(request.options.?force.orValue(false))`}
	return d.one("", "!") + "(" + conditions[d.random.IntN(len(conditions))] + ")", strings.Join(words, ` + " " + `)
}
