package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// table is what is known of a struct.
type table struct {
	goType reflect.Type
	fields []field
	inline []inline
	atomic bool
}

// field is one field of a struct as JSON has it: those of inlined structs are among the struct's own.
type field struct {
	name      string
	number    int // 0: protobuf carries it in another message, or not at all
	ty        fieldType
	presence  string
	patch     string
	required  bool
	byDefault string // JSON; empty if there is no default but the zero value
}

// inline is a struct that JSON spreads over the one that it is in, and that is a message of its own in protobuf.
type inline struct {
	number int
	goType reflect.Type
}

// fieldType is the type of a value.
type fieldType struct {
	name   string       // a simple type's name in Rust, or Object, List, Map
	object reflect.Type // of Object
	item   *fieldType   // of List and Map
	atomic bool         // of Object and Map: owned as a whole here
	// Of List: how items are identified.
	topology string
	keys     []string
	message  bool // of List: protobuf has a message with the items
}

// simple are the types that are neither structs of fields nor made of other types.
var simple = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():          "Time",
	reflect.TypeFor[metav1.MicroTime]():     "MicroTime",
	reflect.TypeFor[metav1.FieldsV1]():      "Raw",
	reflect.TypeFor[runtime.RawExtension](): "RawExtension",
	reflect.TypeFor[resource.Quantity]():    "Quantity",
	reflect.TypeFor[intstr.IntOrString]():   "IntOrString",
	reflect.TypeFor[[]byte]():               "Bytes",
}

// ownership is how server-side apply takes a value apart, as the structural schema or the markers have it.
type ownership struct {
	atomic   bool
	topology string
	keys     []string
}

// collector gathers tables.
type collector struct {
	schema  *structural
	markers markers
	tables  map[reflect.Type]*table
	// nested are the types of fields; lists do not count.
	nested map[reflect.Type]bool
	err    error
}

// collect gathers the tables of some types, and of all types that they are made of.
func collect(roots []reflect.Type) (map[reflect.Type]*table, error) {
	schema, err := readStructural()
	if err != nil {
		return nil, err
	}
	markers, err := readMarkers()
	if err != nil {
		return nil, err
	}
	c := &collector{schema: schema, markers: markers, tables: map[reflect.Type]*table{}, nested: map[reflect.Type]bool{
		reflect.TypeFor[metav1.DeleteOptions](): true,
	}}
	for _, root := range roots {
		c.collect(root)
	}
	return c.tables, c.err
}

func (c *collector) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

func (c *collector) collect(goType reflect.Type) {
	if _, known := c.tables[goType]; known {
		return
	}
	t := &table{goType: goType}
	c.tables[goType] = t
	t.atomic = c.schema.atomic(goType, c.markers)
	c.members(t, goType, goType, true)
	names := map[string]bool{}
	for _, f := range t.fields {
		if names[f.name] {
			c.fail("%v has two fields %q", goType, f.name)
		}
		names[f.name] = true
	}
}

// members adds the fields of goType, which is owner or inlined in it, to the table of owner.
func (c *collector) members(t *table, owner, goType reflect.Type, numbered bool) {
	for i := range goType.NumField() {
		f := goType.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		number := 0
		if tag := f.Tag.Get("protobuf"); numbered && tag != "" {
			var err error
			if number, err = strconv.Atoi(strings.Split(tag, ",")[1]); err != nil {
				c.fail("%v.%s: protobuf tag %q", goType, f.Name, tag)
			}
		}
		if name == "" {
			if !strings.Contains(options, "inline") || f.Type.Kind() != reflect.Struct {
				c.fail("%v.%s: JSON tag %q", goType, f.Name, f.Tag.Get("json"))
				continue
			}
			c.inlined(t, owner, f.Type, number)
			continue
		}
		t.fields = append(t.fields, c.field(owner, goType, f, name, options, number))
	}
}

func (c *collector) inlined(t *table, owner, goType reflect.Type, number int) {
	if goType == reflect.TypeFor[metav1.TypeMeta]() {
		// Kind and API version are not in the tables, except for options that are part of another object.
		if owner == reflect.TypeFor[metav1.DeleteOptions]() {
			c.members(t, owner, goType, false)
		}
		return
	}
	if number > 0 {
		t.inline = append(t.inline, inline{number, goType})
		c.collect(goType)
	}
	c.members(t, owner, goType, false)
}

func (c *collector) field(owner, goType reflect.Type, f reflect.StructField, name, options string, number int) field {
	marked := c.markers.of(goType, f.Name)
	plain := f.Type
	pointer := plain.Kind() == reflect.Pointer
	if pointer {
		plain = plain.Elem()
	}
	omitted := strings.Contains(options, "omitempty")
	out := field{name: name, number: number, presence: presence(plain, pointer, options)}
	out.required = marked.has("required") || !omitted && !marked.has("optional") && !marked.has("k8s:optional")
	out.ty = c.fieldType(plain)
	c.own(&out, owner, name, marked)
	out.patch = patchStrategy(f.Tag)
	if out.patch == "" {
		c.fail("%v.%s: patch strategy %q", goType, f.Name, f.Tag.Get("patchStrategy"))
	}
	return out
}

// own fills in how the value of a field is owned, and its default.
func (c *collector) own(f *field, owner reflect.Type, name string, marked marks) {
	fromMarks := marked.ownership()
	own, byDefault, found := c.schema.field(owner, name)
	if !found {
		own, byDefault = fromMarks, marked.byDefault()
	}
	switch f.ty.name {
	case "List":
		if own.topology == "" {
			own.topology = "Atomic"
		}
		f.ty.topology, f.ty.keys = own.topology, own.keys
	case "Map":
		f.ty.atomic = own.atomic
	case "Object":
		f.ty.atomic = own.atomic && !c.schema.atomic(f.ty.object, c.markers)
	}
	if byDefault != nil && !isZero(byDefault) {
		text, err := json.Marshal(byDefault)
		if err != nil {
			c.fail("%v.%s: default: %v", owner, name, err)
		}
		f.byDefault = string(text)
	}
}

func isZero(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case map[any]any:
		return len(value) == 0
	case string:
		return value == ""
	case bool:
		return !value
	case int:
		return value == 0
	case int64:
		return value == 0
	case float64:
		return value == 0
	}
	return value == nil
}

func (c *collector) fieldType(goType reflect.Type) fieldType {
	if name, ok := simple[goType]; ok {
		return fieldType{name: name}
	}
	switch goType.Kind() {
	case reflect.String:
		return fieldType{name: "Text"}
	case reflect.Bool:
		return fieldType{name: "Flag"}
	case reflect.Int32:
		return fieldType{name: "Int32"}
	case reflect.Int64:
		return fieldType{name: "Int64"}
	case reflect.Struct:
		c.collect(goType)
		return fieldType{name: "Object", object: goType}
	case reflect.Slice:
		item := c.fieldType(goType.Elem())
		_, message := reflect.PointerTo(goType).MethodByName("Marshal")
		return fieldType{name: "List", item: &item, topology: "Atomic", message: message}
	case reflect.Map:
		if goType.Key().Kind() == reflect.String {
			item := c.fieldType(goType.Elem())
			return fieldType{name: "Map", item: &item}
		}
	}
	c.fail("unsupported type %v", goType)
	return fieldType{name: "Text"}
}

// presence is whether a field is written when it was not given, as encoding/json decides it.
func presence(plain reflect.Type, pointer bool, options string) string {
	switch {
	case pointer && strings.Contains(options, "omitempty"):
		return "Pointer"
	case pointer:
		return "Nullable"
	case strings.Contains(options, "omitzero"):
		return "NonZero"
	// The zero of a struct is not empty.
	case strings.Contains(options, "omitempty") && plain.Kind() != reflect.Struct:
		return "NonZero"
	default:
		return "Always"
	}
}

func patchStrategy(tag reflect.StructTag) string {
	key := tag.Get("patchMergeKey")
	strategies := strings.Split(tag.Get("patchStrategy"), ",")
	retain := slices.Contains(strategies, "retainKeys")
	switch {
	case slices.Contains(strategies, "merge") && key != "" && retain:
		return fmt.Sprintf("MergeByRetainingKeys(%q)", key)
	case slices.Contains(strategies, "merge") && key != "":
		return fmt.Sprintf("MergeBy(%q)", key)
	case slices.Contains(strategies, "merge"):
		return "MergeSet"
	case slices.Contains(strategies, "replace"):
		return "Replace"
	case retain:
		return "RetainKeys"
	case strategies[0] == "":
		return "Plain"
	}
	return ""
}

// modelName is the name of a type in the structural schema.
func modelName(goType reflect.Type) string {
	path := strings.Split(goType.PkgPath(), "/")
	return "io.k8s." + strings.Join(path[1:], ".") + "." + goType.Name()
}

func toOwnership(atom smd.Atom, relationship *smd.ElementRelationship) ownership {
	var own ownership
	switch {
	case atom.List != nil:
		r := atom.List.ElementRelationship
		if relationship != nil {
			r = *relationship
		}
		switch {
		case r != smd.Associative:
			own.topology = "Atomic"
		case len(atom.List.Keys) > 0:
			own.topology, own.keys = "Map", atom.List.Keys
		default:
			own.topology = "Set"
		}
	case atom.Map != nil:
		r := atom.Map.ElementRelationship
		if relationship != nil {
			r = *relationship
		}
		own.atomic = r == smd.Atomic
	}
	return own
}
