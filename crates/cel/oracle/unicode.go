package main

import (
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A unicodeFact is a fact of Go's tables of characters. Exactly one of Class, Orbits, Printable and Spaces is set, or
// Version.
type unicodeFact struct {
	// The version of Unicode of the package unicode.
	Version string `json:"version,omitempty"`
	// The name of a class as in `\p{Greek}`.
	Class string `json:"class,omitempty"`
	// Why Go refuses the name.
	Error string `json:"error,omitempty"`
	// The name of a class with the same characters.
	Same string `json:"same,omitempty"`
	// The ranges of characters of the class, and those where case does not matter, if they are others.
	Ranges string `json:"ranges,omitempty"`
	Folded string `json:"folded,omitempty"`
	// The characters that differ in case alone, those of an orbit with spaces between them.
	Orbits []string `json:"orbits,omitempty"`
	// The ranges that are printed without escapes.
	Printable string `json:"printable,omitempty"`
	// The ranges that are spaces.
	Spaces string `json:"spaces,omitempty"`
}

// writeUnicode writes what Go says of each code point and of each class that it knows.
func writeUnicode(path string) error {
	facts := []unicodeFact{{Version: unicode.Version}}
	classes, err := unicodeClasses()
	if err != nil {
		return err
	}
	facts = append(facts, classes...)
	facts = append(facts,
		unicodeFact{Orbits: orbits()},
		unicodeFact{Printable: rangesWhere(strconv.IsPrint)},
		unicodeFact{Spaces: rangesWhere(unicode.IsSpace)},
	)
	return writeLines(path, facts)
}

// unicodeClasses are the classes of all names that the package unicode has. Those of one letter come first, so that a long
// name refers to a short one.
func unicodeClasses() ([]unicodeFact, error) {
	names := slices.Sorted(maps.Keys(unicode.Categories))
	names = append(names, slices.Sorted(maps.Keys(unicode.CategoryAliases))...)
	names = append(names, slices.Sorted(maps.Keys(unicode.Scripts))...)
	names = append(names, "Any", "Assigned", "ASCII", "any", "aSSigned", "l_u", "L-u", " Lu", "greek", "GREEK")
	first := map[string]string{}
	var facts []unicodeFact
	for _, name := range names {
		fact := unicodeFact{Class: name}
		ranges, err := rangesOfPattern(`\p{` + name + `}`)
		if err != nil {
			fact.Error = err.Error()
			facts = append(facts, fact)
			continue
		}
		folded, err := rangesOfPattern(`(?i)\p{` + name + `}`)
		if err != nil {
			return nil, err
		}
		key := ranges + ";" + folded
		if same, ok := first[key]; ok {
			fact.Same = same
		} else {
			first[key] = name
			fact.Ranges = ranges
			if folded != ranges {
				fact.Folded = folded
			}
		}
		facts = append(facts, fact)
	}
	return facts, nil
}

// rangesOfPattern returns the characters of a pattern that is one class.
func rangesOfPattern(pattern string) (string, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "", err
	}
	switch parsed.Op {
	case syntax.OpCharClass:
		return rangesText(parsed.Rune), nil
	case syntax.OpLiteral:
		return rangesText([]rune{parsed.Rune[0], parsed.Rune[0]}), nil
	case syntax.OpAnyChar:
		return rangesText([]rune{0, unicode.MaxRune}), nil
	case syntax.OpNoMatch:
		return "", nil
	}
	return "", fmt.Errorf("%s is no class but %v", pattern, parsed.Op)
}

// rangesText writes ranges, first and last in turn, as hexadecimal numbers.
func rangesText(ranges []rune) string {
	var parts []string
	for at := 0; at < len(ranges); at += 2 {
		part := strconv.FormatInt(int64(ranges[at]), 16)
		if ranges[at+1] != ranges[at] {
			part += "-" + strconv.FormatInt(int64(ranges[at+1]), 16)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " ")
}

func rangesWhere(holds func(rune) bool) string {
	var ranges []rune
	for r := rune(0); r <= unicode.MaxRune; r++ {
		switch {
		case !holds(r):
		case len(ranges) > 0 && ranges[len(ranges)-1] == r-1:
			ranges[len(ranges)-1] = r
		default:
			ranges = append(ranges, r, r)
		}
	}
	return rangesText(ranges)
}

func orbits() []string {
	var all []string
	for r := rune(0); r <= unicode.MaxRune; r++ {
		orbit := []string{strconv.FormatInt(int64(r), 16)}
		for other := unicode.SimpleFold(r); other > r; other = unicode.SimpleFold(other) {
			orbit = append(orbit, strconv.FormatInt(int64(other), 16))
		}
		// An orbit is written at its first character.
		if len(orbit) > 1 && isFirst(r) {
			all = append(all, strings.Join(orbit, " "))
		}
	}
	return all
}

func isFirst(r rune) bool {
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		if other < r {
			return false
		}
	}
	return true
}
