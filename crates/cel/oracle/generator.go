package main

import (
	_ "embed"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
)

//go:embed grammar.txt
var grammarText string

// A production produces an expression of a type from a template.
type production struct {
	group    string
	of       celType
	template []part
}

// A part of a template is a text, or a hole: the name of a pool, the declaration of a variable, or a type.
type part struct {
	text, pool, variable string
	of                   *celType
}

// A celType is a name with parameters. T, K and V stand for any type, ord for one with an order.
type celType struct {
	name   string
	params []celType
}

func (t celType) String() string {
	if len(t.params) == 0 {
		return t.name
	}
	var all []string
	for _, p := range t.params {
		all = append(all, p.String())
	}
	return t.name + "(" + strings.Join(all, ", ") + ")"
}

// parseType reads a type as celType.String writes it.
func parseType(text string) celType {
	name, rest, found := strings.Cut(text, "(")
	t := celType{name: name}
	if !found {
		return t
	}
	depth, from := 0, 0
	rest = rest[:len(rest)-1]
	for i, c := range rest {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				t.params = append(t.params, parseType(strings.TrimSpace(rest[from:i])))
				from = i + 1
			}
		}
	}
	t.params = append(t.params, parseType(strings.TrimSpace(rest[from:])))
	return t
}

// parseTemplate splits a template at its holes. A brace that does not open a hole is text.
func parseTemplate(text string) []part {
	var parts []part
	for text != "" {
		open := strings.IndexByte(text, '{')
		if open < 0 {
			return append(parts, part{text: text})
		}
		end := strings.IndexAny(text[open+1:], "{}")
		hole := ""
		if end >= 0 && text[open+1+end] == '}' {
			hole = text[open+1 : open+1+end]
		}
		if hole == "" || strings.HasPrefix(hole, "?") {
			parts = append(parts, part{text: text[:open+1]})
			text = text[open+1:]
			continue
		}
		if open > 0 {
			parts = append(parts, part{text: text[:open]})
		}
		parts = append(parts, parseHole(hole))
		text = text[open+2+end:]
	}
	return parts
}

func parseHole(hole string) part {
	if strings.HasPrefix(hole, "'") {
		name := strings.Trim(hole, "'")
		if pools[name] == nil {
			panic("grammar.txt: no pool " + name)
		}
		return part{pool: name}
	}
	name, of, declares := strings.Cut(hole, ":")
	if !declares {
		of, name = hole, ""
	}
	t := parseType(of)
	return part{variable: name, of: &t}
}

// parseGrammar reads grammar.txt.
func parseGrammar() []production {
	var all []production
	group := ""
	for number, line := range strings.Split(grammarText, "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			group = strings.Trim(line, "[]")
		default:
			of, template, found := strings.Cut(line, " := ")
			if !found {
				panic(fmt.Sprintf("grammar.txt:%d: no production", number+1))
			}
			all = append(all, production{group: group, of: parseType(of), template: parseTemplate(template)})
		}
	}
	return all
}

// A generator draws expressions.
type generator struct {
	random      *rand.Rand
	productions []production
	// Variables in scope and their types, innermost last.
	scope []variable
	// The productions for types, as far as they have been needed.
	known map[string][]candidate
}

type variable struct {
	name string
	of   celType
}

// simpleTypes are what T, K and V stand for most often.
var simpleTypes = []string{"int", "int", "string", "string", "bool", "double", "uint", "bytes", "timestamp", "duration", "list(int)", "map(string, int)", "null_type", "type"}

var orderedTypes = []string{"int", "uint", "double", "string", "bool", "bytes", "timestamp", "duration"}

var keyTypes = []string{"string", "string", "int", "uint", "bool"}

// expression draws an expression, and returns it with the group of its production.
func (g *generator) expression() (group, text string) {
	p := g.productions[g.random.IntN(len(g.productions))]
	g.scope = g.scope[:0]
	return p.group, g.fill(p, map[string]celType{}, 1+g.random.IntN(3))
}

// fill draws an expression of a production.
func (g *generator) fill(p production, bound map[string]celType, depth int) string {
	begin := len(g.scope)
	var text strings.Builder
	for _, part := range p.template {
		switch {
		case part.pool != "":
			text.WriteString(pools[part.pool](g.random))
		case part.of == nil:
			text.WriteString(part.text)
		case part.variable != "":
			name := fmt.Sprintf("%s%d", part.variable, len(g.scope))
			if part.of.name == "dyn" {
				name = part.variable
			}
			g.scope = append(g.scope, variable{name, g.resolve(*part.of, bound)})
			text.WriteString(name)
		default:
			text.WriteString(g.ofType(g.resolve(*part.of, bound), depth-1))
		}
	}
	g.scope = g.scope[:begin]
	return text.String()
}

// resolve replaces type parameters, drawing those that are not bound.
func (g *generator) resolve(t celType, bound map[string]celType) celType {
	candidates := simpleTypes
	switch t.name {
	case "T", "V":
	case "K":
		candidates = keyTypes
	case "ord":
		candidates = orderedTypes
	default:
		made := celType{name: t.name}
		for _, p := range t.params {
			made.params = append(made.params, g.resolve(p, bound))
		}
		return made
	}
	if known, ok := bound[t.name]; ok {
		return known
	}
	drawn := parseType(candidates[g.random.IntN(len(candidates))])
	bound[t.name] = drawn
	return drawn
}

// ofType draws an expression of a type, or occasionally of another type.
func (g *generator) ofType(t celType, depth int) string {
	if g.random.IntN(60) == 0 {
		t = parseType(simpleTypes[g.random.IntN(len(simpleTypes))])
	}
	if g.random.IntN(40) == 0 {
		return "dyn(" + g.ofType(t, depth-1) + ")"
	}
	var known []string
	for _, v := range g.scope {
		if v.of.String() == t.String() || v.of.name == "dyn" {
			known = append(known, v.name)
		}
	}
	if len(known) > 0 && g.random.IntN(2) == 0 {
		name := known[g.random.IntN(len(known))]
		if g.random.IntN(8) == 0 {
			return "." + name
		}
		return name
	}
	if depth > 0 || !g.hasLiteral(t) {
		if text, ok := g.produced(t, depth); ok {
			return text
		}
	}
	return g.literal(t, depth)
}

func (g *generator) hasLiteral(t celType) bool {
	return t.name == "list" || t.name == "map" || t.name == "optional_type" || t.name == "dyn" || literal(rand.New(rand.NewPCG(0, 0)), t.name) != ""
}

// produced draws an expression from the productions for a type; false if there are none. If no depth is left,
// productions that contain the same type again are excluded.
func (g *generator) produced(t celType, depth int) (string, bool) {
	all := g.candidates(t, depth)
	if len(all) == 0 {
		return "", false
	}
	drawn := all[g.random.IntN(len(all))]
	text := g.fill(drawn.production, maps.Clone(drawn.bound), depth)
	if strings.ContainsAny(text, " ?") {
		text = "(" + text + ")"
	}
	return text, true
}

// A candidate is a production for a type, with the types that its parameters stand for.
type candidate struct {
	production
	bound map[string]celType
}

// candidates returns the productions for a type.
func (g *generator) candidates(t celType, depth int) []candidate {
	key := fmt.Sprint(t, depth <= 0)
	if known, ok := g.known[key]; ok {
		return known
	}
	var all []candidate
	for _, p := range g.productions {
		bound := map[string]celType{}
		if depth <= 0 && p.mentions(t) {
			continue
		}
		if unify(p.of, t, bound) {
			all = append(all, candidate{p, bound})
		}
	}
	g.known[key] = all
	return all
}

func (p production) mentions(t celType) bool {
	for _, part := range p.template {
		if part.of != nil && (part.of.name == t.name || part.of.name == "T" || part.of.name == "V") {
			return true
		}
	}
	return false
}

// unify binds the parameters of a production's type so that it equals t; false if that is not possible.
func unify(p, t celType, bound map[string]celType) bool {
	switch p.name {
	case "T", "K", "V":
		if known, ok := bound[p.name]; ok {
			return known.String() == t.String()
		}
		bound[p.name] = t
		return true
	case "ord":
		bound["ord"] = t
		for _, name := range orderedTypes {
			if name == t.String() {
				return true
			}
		}
		return false
	}
	if p.name != t.name || len(p.params) != len(t.params) {
		return false
	}
	for i := range p.params {
		if !unify(p.params[i], t.params[i], bound) {
			return false
		}
	}
	return true
}

func (g *generator) literal(t celType, depth int) string {
	switch t.name {
	case "list":
		var elements []string
		for range g.random.IntN(4) {
			elements = append(elements, g.ofType(t.params[0], depth-1))
		}
		return "[" + strings.Join(elements, ", ") + "]"
	case "map":
		var entries []string
		for range g.random.IntN(3) {
			entries = append(entries, g.ofType(t.params[0], 0)+": "+g.ofType(t.params[1], depth-1))
		}
		return "{" + strings.Join(entries, ", ") + "}"
	case "optional_type":
		if g.random.IntN(4) == 0 {
			return "optional.none()"
		}
		return "optional.of(" + g.ofType(t.params[0], depth-1) + ")"
	case "dyn":
		return "dyn(" + g.ofType(parseType(simpleTypes[g.random.IntN(len(simpleTypes))]), depth-1) + ")"
	}
	return literal(g.random, t.name)
}
