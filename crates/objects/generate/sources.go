package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// structural is the structural schema of client-go.
type structural struct {
	schema *smd.Schema
}

// moduleDir is where the source of a module is.
func moduleDir(module string) (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// readStructural reads the schema from client-go's source, since the package that holds it is internal.
func readStructural() (*structural, error) {
	dir, err := moduleDir("k8s.io/client-go")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "applyconfigurations", "internal", "internal.go")
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return nil, err
	}
	var text string
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "schemaYAML" || len(spec.Values) != 1 {
			return true
		}
		if call, ok := spec.Values[0].(*ast.CallExpr); ok && len(call.Args) == 1 {
			if literal, ok := call.Args[0].(*ast.BasicLit); ok {
				text, err = strconv.Unquote(literal.Value)
			}
		}
		return false
	})
	if err != nil || text == "" {
		return nil, fmt.Errorf("no schema in %s: %v", path, err)
	}
	parsed, err := typed.NewParser(typed.YAMLObject(text))
	if err != nil {
		return nil, err
	}
	return &structural{schema: &parsed.Schema}, nil
}

// structOf is the schema of a struct, if there is one.
func (s *structural) structOf(goType reflect.Type) (*smd.Map, bool) {
	def, ok := s.schema.FindNamedType(modelName(goType))
	if !ok || def.Map == nil {
		return nil, false
	}
	return def.Map, true
}

// atomic says whether a struct is owned as a whole wherever it is.
func (s *structural) atomic(goType reflect.Type, markers markers) bool {
	if def, ok := s.structOf(goType); ok {
		return def.ElementRelationship == smd.Atomic
	}
	return markers.of(goType, "").ownership().atomic
}

// field is how a field is owned, and its default.
func (s *structural) field(owner reflect.Type, name string) (own ownership, byDefault any, found bool) {
	def, ok := s.structOf(owner)
	if !ok {
		return own, nil, false
	}
	f, ok := def.FindField(name)
	if !ok {
		return own, nil, false
	}
	atom, ok := s.schema.Resolve(f.Type)
	if !ok {
		return own, nil, false
	}
	return toOwnership(atom, f.Type.ElementRelationship), f.Default, true
}

// marks are the markers of a type or a field: +key=value.
type marks map[string][]string

// markers are those of all types, by package, type and field; the field is empty for the type itself.
type markers map[[3]string]marks

func (m markers) of(goType reflect.Type, field string) marks {
	return m[[3]string{goType.PkgPath(), goType.Name(), field}]
}

func (m marks) has(key string) bool { return len(m[key]) > 0 }

func (m marks) first(key string) string {
	if m.has(key) {
		return m[key][0]
	}
	return ""
}

func (m marks) ownership() ownership {
	own := ownership{atomic: m.first("structType") == "atomic" || m.first("mapType") == "atomic"}
	switch m.first("listType") {
	case "map":
		own.topology, own.keys = "Map", m["listMapKey"]
	case "set":
		own.topology = "Set"
	}
	return own
}

func (m marks) byDefault() any {
	text := m.first("default")
	if text == "" || strings.HasPrefix(text, "ref(") {
		return nil
	}
	var value any
	if json.Unmarshal([]byte(text), &value) != nil {
		return nil
	}
	return value
}

// readMarkers reads the comments of all packages of API types.
func readMarkers() (markers, error) {
	all := markers{}
	api, err := moduleDir("k8s.io/api")
	if err != nil {
		return nil, err
	}
	machinery, err := moduleDir("k8s.io/apimachinery")
	if err != nil {
		return nil, err
	}
	for _, source := range []struct{ dir, path, pattern string }{
		{api, "k8s.io/api", "*/*/*.go"},
		{machinery, "k8s.io/apimachinery", "pkg/apis/meta/v1/*.go"},
	} {
		files, err := filepath.Glob(filepath.Join(source.dir, source.pattern))
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") || strings.Contains(filepath.Base(name), "generated") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			relative, err := filepath.Rel(source.dir, filepath.Dir(name))
			if err != nil {
				return nil, err
			}
			all.read(source.path+"/"+filepath.ToSlash(relative), file)
		}
	}
	return all, nil
}

func (m markers) read(path string, file *ast.File) {
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			typeSpec, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			m[[3]string{path, typeSpec.Name.Name, ""}] = marksOf(general.Doc, typeSpec.Doc)
			structType, ok := typeSpec.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, f := range structType.Fields.List {
				for _, name := range f.Names {
					m[[3]string{path, typeSpec.Name.Name, name.Name}] = marksOf(f.Doc)
				}
			}
		}
	}
}

func marksOf(comments ...*ast.CommentGroup) marks {
	found := marks{}
	for _, group := range comments {
		if group == nil {
			continue
		}
		for _, line := range group.List {
			text, marked := strings.CutPrefix(strings.TrimSpace(strings.TrimPrefix(line.Text, "//")), "+")
			if !marked {
				continue
			}
			key, value, _ := strings.Cut(text, "=")
			key = strings.TrimSpace(key)
			found[key] = append(found[key], strings.TrimSpace(value))
		}
	}
	return found
}
