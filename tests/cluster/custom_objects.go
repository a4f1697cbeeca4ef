package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// customNamespace is where custom resources are sent with nulls and with members that no schema has.
const customNamespace = "custom-objects"

const (
	customGroup = "custom.example.com"
	customPath  = "/apis/" + customGroup + "/v1/namespaces/" + customNamespace + "/shapes"
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

// customSchema has each of the extensions that decide what a server keeps of a body, and defaults at all kinds of places.
const customSchema = `{"type":"object","properties":{` +
	`"metadata":{"type":"object","properties":{"name":{"type":"string","maxLength":63}}},` +
	`"spec":{"type":"object","properties":{` + customMembers + `}},` +
	`"status":{"type":"object","nullable":true,"properties":{` + customMembers + `}},` +
	`"extra":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{` + customMembers + `}}}}`

const customMembers = `"t":{"type":"string"},` +
	`"n":{"type":"string","nullable":true},` +
	`"i":{"x-kubernetes-int-or-string":true},` +
	`"ni":{"x-kubernetes-int-or-string":true,"nullable":true},` +
	`"m":{"type":"object","additionalProperties":{"type":"string"}},` +
	`"mn":{"type":"object","additionalProperties":{"type":"string","nullable":true}},` +
	`"mm":{"type":"object","nullable":true,"additionalProperties":{"type":"object","properties":{"t":{"type":"string"},"n":{"type":"integer","nullable":true}}}},` +
	`"l":{"type":"array","items":{"type":"object","properties":{"t":{"type":"string"},"n":{"type":"string","nullable":true}}}},` +
	`"ln":{"type":"array","items":{"type":"object","nullable":true,"properties":{"t":{"type":"string"}}}},` +
	`"ll":{"type":"array","nullable":true,"items":{"type":"array","items":{"type":"string"}}},` +
	`"f":{"x-kubernetes-preserve-unknown-fields":true},` +
	`"fl":{"type":"array","x-kubernetes-preserve-unknown-fields":true,"items":{"type":"object","properties":{"t":{"type":"string"},"o":{"type":"object","properties":{"t":{"type":"string"}}}}}},` +
	`"o":{"type":"object","properties":{"t":{"type":"string"},"o":{"type":"object","nullable":true,"properties":{"t":{"type":"string"},"n":{"type":"boolean","nullable":true}}}}},` +
	`"p":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"t":{"type":"string"},"o":{"type":"object","properties":{"t":{"type":"string"}}}}},` +
	`"dt":{"type":"string","default":"dflt"},` +
	`"dn":{"type":"string","nullable":true,"default":"dflt"},` +
	`"do":{"type":"object","default":{},"properties":{"t":{"type":"string","default":"inner"},"o":{"type":"object","properties":{"n":{"type":"integer","default":7}}}}},` +
	`"du":{"type":"object","properties":{"t":{"type":"string","default":"inner"}}},` +
	`"dl":{"type":"array","default":[{"n":"first"}],"items":{"type":"object","properties":{"t":{"type":"string","default":"item"},"n":{"type":"string"}}}},` +
	`"di":{"type":"array","items":{"type":"string","default":"item"}},` +
	`"dm":{"type":"object","additionalProperties":{"type":"string","default":"each"}},` +
	`"e":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},` +
	`"ec":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"spec":{"type":"object","properties":{"t":{"type":"string"}}}}},` +
	`"el":{"type":"array","nullable":true,"items":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true,"properties":{"o":{"type":"object","properties":{"t":{"type":"string"}}}}}}`

// customDefinitions are two resources of the same schema: with the subresource status, and without.
func customDefinitions() []string {
	define := func(plural, kind, subresources string) string {
		return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.%[2]s"},"spec":{"group":"%[2]s","scope":"Namespaced",`+
			`"names":{"plural":"%[1]s","singular":"%[3]s","kind":"%[4]s","listKind":"%[4]sList"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":%[5]s}%[6]s}]}}`,
			plural, customGroup, strings.ToLower(kind), kind, customSchema, subresources)
	}
	return []string{define("shapes", "Shape", `,"subresources":{"status":{}}`), define("forms", "Form", "")}
}

// printedValue is an expression that prints a value of any type, to a depth.
func printedValue(value string, depth int) string {
	if depth == 0 {
		return `(dyn(` + value + `) == null ? 'null' : '*')`
	}
	key := fmt.Sprintf("k%d", depth)
	return fmt.Sprintf(`(dyn(%[1]s) == null ? 'null' : type(%[1]s) == map ? '{' + %[1]s.map(%[2]s, %[2]s + ':' + %[3]s).sort().join(',') + '}' : type(%[1]s) == list ? '[' + %[1]s.map(%[2]s, %[4]s).join(',') + ']' : `+
		`type(%[1]s) == string ? '<' + %[1]s + '>' : string(%[1]s))`, value, key, printedValue(value+"["+key+"]", depth-1), printedValue(key, depth-1))
}

// customEcho prints the object, without the metadata that is another each time.
func customEcho() string {
	member := func(name string) string {
		return `('` + name + `' in object ? ' ` + name + `' + ` + printedValue("object."+name, 5) + ` : '')`
	}
	return `object.map(k, k).sort().join('+') + ' ' + object.metadata.map(k, !(k in ['uid', 'creationTimestamp', 'resourceVersion', 'managedFields', 'generation']), k + ':' + ` +
		printedValue("object.metadata[k]", 3) + `).sort().join(',') + ` + member("spec") + ` + ` + member("status") + ` + ` + member("extra") + ` + ' .'`
}

// nullPolicies are one that prints what it sees, and one that denies and whose errors are ignored: an expression that a null breaks
// lets everything through.
func nullPolicies() (policies []string) {
	add := func(name, failure, action, validation string) {
		policies = append(policies, fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"%s"},"spec":{"failurePolicy":%q,"matchConstraints":{`+
			`"namespaceSelector":{"matchLabels":{"custom":"yes"}},"resourceRules":[{"apiGroups":[%q],"apiVersions":["*"],"operations":["CREATE","UPDATE"],"resources":["shapes","shapes/status","forms"]}]},"validations":[%s]}}`,
			name, failure, customGroup, validation),
			fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"%[1]s"},"spec":{"policyName":"%[1]s","validationActions":[%[2]q]}}`, name, action))
	}
	add("custom-echo", "Fail", "Warn", fmt.Sprintf(`{"expression":"false","messageExpression":%q}`, `'echo '+`+customEcho()))
	evil := `(has(object.metadata.labels) && object.metadata.labels.exists(k, object.metadata.labels[k].startsWith('evil'))) || ` +
		`(has(object.spec) && ((has(object.spec.t) && object.spec.t.startsWith('evil')) || (has(object.spec.m) && !object.spec.m.all(k, object.spec.m[k].size() > 1)) || ` +
		`(has(object.spec.o) && has(object.spec.o.t) && object.spec.o.t.startsWith('evil'))))`
	add("custom-deny", "Ignore", "Deny", fmt.Sprintf(`{"expression":%q,"message":"evil"}`, `!(`+evil+`)`))
	return policies
}

// customTarget is what updates are about.
const customTarget = `{"apiVersion":"` + customGroup + `/v1","kind":"%[2]s","metadata":{"name":"%[1]s","labels":{"a":"b"},"annotations":{"a":"b"}},"spec":{"t":"v","n":"v","i":1,"m":{"a":"vv"},"mn":{"a":null},` +
	`"l":[{"t":"v"}],"ln":[null],"f":{"u":{"v":null}},"o":{"t":"v","o":{"t":"v"}},"p":{"u":1},"e":{"apiVersion":"v1","kind":"K","metadata":{"name":"e","labels":{"a":"b"}},"u":1}},"extra":{"u":{"v":1},"t":"v"}}`

// A customMaker draws bodies of custom resources, with nulls and unknown members at any place.
type customMaker struct {
	random *rand.Rand
	count  int
}

func (c *customMaker) one(of ...any) any { return of[c.random.IntN(len(of))] }

// members are some of these, with values, and now and then one that no schema has.
func (c *customMaker) members(depth int, draw map[string]func() any) map[string]any {
	made := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(draw)) {
		switch c.random.IntN(8) {
		case 0, 1, 2:
			made[name] = draw[name]()
		case 3:
			made[name] = nil
		}
	}
	if c.random.IntN(4) == 0 {
		made[c.one("u", "u", "labels", "metadata", "T", "w").(string)] = c.any(depth)
	}
	return made
}

// any is a value of any type, most of which no schema has.
func (c *customMaker) any(depth int) any {
	if depth <= 0 {
		return c.one(nil, "v", "evil", 7, true, "")
	}
	switch c.random.IntN(7) {
	case 0:
		return nil
	case 1:
		return []any{c.any(depth - 1), c.any(depth - 1)}
	case 2, 3, 4:
		return map[string]any{"u": c.any(depth - 1), c.one("t", "o", "w", "metadata").(string): c.any(depth - 1)}
	}
	return c.one("v", "evil", 7, -1, false, 1.5, "")
}

func (c *customMaker) text() any { return c.one("v", "v", "vv", "evil", "") }

func (c *customMaker) texts() map[string]any {
	made := c.members(0, map[string]func() any{"a": c.text, "b": c.text})
	for _, unknown := range []string{"u", "labels", "metadata", "T", "w"} {
		if _, found := made[unknown]; found && c.random.IntN(10) > 0 {
			made[unknown] = c.text()
		}
	}
	return made
}

// item is an object with a text, a nullable member and another such object.
func (c *customMaker) item(depth int) any {
	draw := map[string]func() any{"t": c.text, "n": func() any { return c.one(nil, "v") }}
	if depth > 0 {
		draw["o"] = func() any { return c.item(depth - 1) }
	}
	return c.members(1, draw)
}

func (c *customMaker) list(draw func() any) any {
	list := []any{}
	for range c.random.IntN(3) {
		if c.random.IntN(15) == 0 {
			list = append(list, nil)
		} else {
			list = append(list, draw())
		}
	}
	return list
}

func (c *customMaker) metadata(name string) any {
	made := c.members(1, map[string]func() any{
		"labels": func() any { return c.texts() }, "annotations": func() any { return c.texts() }, "finalizers": func() any {
			return c.one([]any{}, nil, []any{"example.com/f"}, []any{"example.com/f", "example.com/f"})
		},
		"ownerReferences": func() any {
			return c.list(func() any {
				return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": c.one("u", "v"), "controller": nil, "u": 1}
			})
		},
		"generateName": func() any { return c.one("", nil) }, "deletionTimestamp": func() any { return nil }, "selfLink": func() any { return c.one(nil, "", "x") },
		"managedFields": func() any { return c.one(nil, []any{}) }, "creationTimestamp": func() any { return c.one(nil, "2020-01-01T00:00:00Z") },
	})
	if name != "" {
		made["name"] = name
	}
	return made
}

func (c *customMaker) embedded() any {
	made := c.item(1).(map[string]any)
	made["apiVersion"], made["kind"], made["metadata"] = "v1", "K", c.metadata(c.one("", "e").(string))
	made["spec"] = c.item(0)
	if c.random.IntN(25) == 0 {
		made[c.one("apiVersion", "kind", "metadata").(string)] = c.one(nil, 1, "x", map[string]any{})
	}
	return made
}

func (c *customMaker) contents() any {
	return c.members(2, map[string]func() any{
		"t": c.text, "n": func() any { return c.one(nil, "v") }, "i": func() any { return c.one(1, "50%", nil) }, "ni": func() any { return c.one(1, nil) },
		"m": func() any { return c.texts() }, "mn": func() any { return c.texts() },
		"mm": func() any { return map[string]any{"a": c.item(0), "b": c.one(nil, map[string]any{"n": nil})} },
		"l":  func() any { return c.list(func() any { return c.item(0) }) }, "ln": func() any { return c.list(func() any { return c.item(0) }) },
		"ll": func() any { return c.list(func() any { return c.list(c.text) }) },
		"f":  func() any { return c.any(3) }, "fl": func() any { return c.list(func() any { return c.item(1) }) },
		"o": func() any { return c.item(1) }, "p": func() any { return c.item(1) },
		"dt": c.text, "dn": func() any { return c.one(nil, "v") }, "do": func() any { return c.item(1) }, "du": func() any { return c.item(0) },
		"dl": func() any { return c.list(func() any { return c.item(0) }) }, "di": func() any { return c.list(c.text) }, "dm": func() any { return c.texts() },
		"e": c.embedded, "ec": c.embedded, "el": func() any { return c.list(c.embedded) },
	})
}

// object draws an object, or a merge patch of one.
func (c *customMaker) object(kind, name string) map[string]any {
	made := c.members(2, map[string]func() any{"spec": c.contents, "status": c.contents, "extra": c.contents})
	made["apiVersion"], made["kind"], made["metadata"] = customGroup+"/v1", kind, c.metadata(name)
	if c.random.IntN(3) > 0 {
		made["spec"] = c.contents()
	}
	return made
}

// next draws a request. Each is a dry run, so that nothing depends on those before.
func (c *customMaker) next() sentDocument {
	c.count++
	plural, kind := "shapes", "Shape"
	if c.random.IntN(3) == 0 {
		plural, kind = "forms", "Form"
	}
	path := strings.Replace(customPath, "shapes", plural, 1)
	sent := sentDocument{method: "POST", path: path, media: jsonType}
	name := "target"
	body := any(nil)
	switch draw := c.random.IntN(10); {
	case draw < 4:
		name = fmt.Sprintf("c-%07d", c.count)
		body = c.object(kind, name)
		if draw == 0 {
			sent.media = yamlType
		}
	case draw < 6:
		sent.method, sent.path = "PUT", path+"/target"
		body = c.object(kind, name)
	case draw < 8:
		sent.method, sent.path, sent.media = "PATCH", path+"/target", mergePatch
		patch := c.object(kind, name)
		delete(patch, "apiVersion")
		body = patch
	default:
		sent.method, sent.path, sent.media = "PATCH", path+"/target", jsonPatch
		at := c.one("/spec/t", "/spec/n", "/spec/u", "/spec/o/o", "/spec/e/metadata/labels/a", "/spec/e/u", "/spec/f/u", "/extra/u", "/metadata/labels", "/metadata/labels/a", "/metadata/annotations", "/metadata/u", "/spec", "/spec/l/0", "/spec/m/a")
		body = []any{map[string]any{"op": "add", "path": at, "value": c.one(nil, "v", "evil", c.any(2))}}
	}
	if kind == "Shape" && sent.method != "POST" && c.random.IntN(4) == 0 {
		sent.path += "/status"
	}
	sent.path += "?dryRun=All"
	data, err := json.Marshal(body)
	if err != nil {
		panic(err) // made here
	}
	sent.body, sent.name = data, name
	return sent
}
