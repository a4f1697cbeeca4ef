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

// drawnObjects are those of all kinds that are evaluated as they are stored, as far as their labels are free.
func drawnObjects() (objects []exactObject) {
	for _, group := range [][]echoedKind{coreKinds(), workloadKinds(), clusterKinds(), otherKinds()} {
		for _, kind := range group {
			if !strings.Contains(kind.document, evaluatedLabels) {
				continue
			}
			document := strings.NewReplacer("%[1]s", "e%[1]d", "%s", "e%[1]d", evaluatedLabels, `"labels":{"exact":"e%[1]d"}`, "@ns", exactNamespace).Replace(kind.document)
			one := exactObject{version: "v1", resource: kind.path, path: kind.at("?dryRun=All"), document: document}
			if group, resource, found := strings.Cut(kind.path, ":"); found {
				one.group, one.version, _ = strings.Cut(group, "/")
				one.resource = resource
			}
			objects = append(objects, one)
		}
	}
	return objects
}

// draw makes expressions about what a server makes of the objects of all kinds.
func (b exactBed) draw(ctx context.Context, random *rand.Rand, count int) (expressions []exactExpression, err error) {
	objects := drawnObjects()
	drawing := expressionDrawing{random: random, members: map[string]bool{}}
	var stored []any
	for _, one := range objects {
		path := strings.ReplaceAll(one.path, "@ns", exactNamespace)
		answer, err := b.plain.send(ctx, "POST", path, jsonType, fmt.Appendf(nil, one.document, 0))
		if err != nil || !answer.isAccepted() {
			return nil, fmt.Errorf("%s: %d %s: %w", one.resource, answer.code, answer.message, err)
		}
		stored = append(stored, answer.object)
		spec, _ := answer.object.(map[string]any)["spec"].(map[string]any)
		for member := range spec {
			drawing.members[member] = true
		}
	}
	for number := range count {
		at := number % len(objects)
		one := exactExpression{Kind: objects[at].resource, at: objects[at]}
		one.Expression, one.message = drawing.about("object", stored[at], 0)
		expressions = append(expressions, one)
	}
	return expressions, nil
}

// An expressionDrawing draws expressions about a value that is known.
type expressionDrawing struct {
	random *rand.Rand
	// members are the names that any spec has.
	members map[string]bool
}

// quoted is a text as JSON, which is a literal of CEL, too.
func quoted(text string) string {
	literal, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(literal)
}

// unstable are the members whose values no two servers have in common.
var unstable = regexp.MustCompile(`^(uid|.*controller-uid|resourceVersion|creationTimestamp|time|.*TransitionTime|name|message)$`)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (d *expressionDrawing) one(of ...string) string { return of[d.random.IntN(len(of))] }

// about is an expression about a value and, if it can be printed, one that prints it.
func (d *expressionDrawing) about(path string, value any, depth int) (condition, message string) {
	switch value := value.(type) {
	case map[string]any:
		return d.aboutMap(path, value, depth)
	case []any:
		return d.aboutList(path, value, depth)
	case string:
		literal := quoted(value)
		start := quoted(value[:min(3, len(value))])
		return d.one(path+" == "+literal, path+" != "+literal, path+".startsWith("+start+")", path+fmt.Sprintf(".size() > %d", len(value)/2), "!("+path+" in ["+literal+"])"), "string(" + path + ")"
	case json.Number:
		return d.one(path+" == ", path+" != ", path+" < ", path+" >= ") + value.String(), "string(" + path + ")"
	case bool:
		return d.one("!"+path, path+" == true"), "string(" + path + ")"
	}
	return path + " == null", ""
}

func (d *expressionDrawing) aboutMap(path string, value map[string]any, depth int) (condition, message string) {
	names := slices.Sorted(maps.Keys(value))
	switch {
	case len(names) == 0 || d.random.IntN(12) == 0:
		return path + fmt.Sprintf(".size() %s %d", d.one("==", ">", "<"), len(names)), ""
	case d.random.IntN(8) == 0:
		all := slices.Sorted(maps.Keys(d.members))
		return d.one("", "!") + "has(" + path + "." + all[d.random.IntN(len(all))] + ")", ""
	}
	// Metadata is less often what an expression is about.
	name := names[d.random.IntN(len(names))]
	if name == "metadata" && depth == 0 && d.random.IntN(3) > 0 {
		name = names[d.random.IntN(len(names))]
	}
	inner := path + "[" + quoted(name) + "]"
	if identifier.MatchString(name) {
		inner = path + "." + name
	}
	if unstable.MatchString(name) || d.random.IntN(8) == 0 {
		if inner == path+"."+name {
			return d.one("", "!") + "has(" + inner + ")", ""
		}
		return quoted(name) + " in " + path, ""
	}
	return d.about(inner, value[name], depth+1)
}

func (d *expressionDrawing) aboutList(path string, value []any, depth int) (condition, message string) {
	if len(value) == 0 || d.random.IntN(3) == 0 {
		return path + fmt.Sprintf(".size() %s %d", d.one("==", ">", "<"), len(value)), "string(" + path + ".size())"
	}
	element := fmt.Sprintf("e%d", depth)
	inner, _ := d.about(element, value[d.random.IntN(len(value))], depth+1)
	return path + d.one(".all(", ".exists(") + element + ", " + inner + ")", ""
}
