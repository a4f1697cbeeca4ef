package main

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"unicode/utf8"
)

// A patternCase is a pattern, and what Go's package regexp makes of it.
type patternCase struct {
	Pattern string `json:"pattern"`
	// Why it is refused.
	Error string `json:"error,omitempty"`
	// The texts that were searched.
	Texts []searchedText `json:"texts,omitempty"`
}

// A searchedText is a text in pieces, each repeated, and where the matches in it begin and end, in bytes.
type searchedText struct {
	Text []piece  `json:"text"`
	All  [][2]int `json:"all"`
}

// mostMatches is the number of matches of one text that are recorded.
const mostMatches = 12

// A piece is a text and how often it is repeated.
type piece struct {
	text  string
	count int
}

func (p piece) MarshalJSON() ([]byte, error) {
	line, err := lineOf([2]any{p.text, p.count})
	return []byte(strings.TrimSuffix(string(line), "\n")), err
}

func textOf(pieces []piece) string {
	var out strings.Builder
	for _, p := range pieces {
		out.WriteString(strings.Repeat(p.text, p.count))
	}
	return out.String()
}

// shortened merges equal neighbours.
func shortened(pieces []piece) []piece {
	merged := []piece{}
	for _, p := range pieces {
		last := len(merged) - 1
		switch {
		case p.count == 0 || p.text == "":
		case last >= 0 && merged[last].text == p.text:
			merged[last].count += p.count
		default:
			merged = append(merged, p)
		}
	}
	return merged
}

// A patternNode is a part of a pattern that is drawn: its text, and texts that it is likely to match.
type patternNode struct {
	text   string
	sample func(random *rand.Rand) []piece
}

// classes are classes with characters that they contain or nearly contain.
var classes = []struct {
	text    string
	samples string
}{
	{`.`, "aé\n0𝒜"}, {`[a-c]`, "abcdA"}, {`[^a-c]`, "dxé\na"}, {`\d`, "09٣"}, {`\D`, "a٣0"}, {`\s`, " \t\v"}, {`\S`, "a\v "},
	{`\w`, "a_Zé"}, {`\W`, "é-a"}, {`\pL`, "aéΩЖ中0"}, {`\PL`, "0-_a"}, {`\p{Lu}`, "AÉΩa"}, {`\p{^Lu}`, "aé0A"},
	{`\p{Greek}`, "αΩa"}, {`\pN`, "09٣½a"}, {`\P{C}`, "aé中\n"}, {`[\p{L}\p{N}_.-]`, "aé0_.-中 "}, {`[^\pL]`, "0_ a"},
	{`[^\PN\x00-\x{ff}]`, "٣0a"}, {`[[:alpha:]]`, "aZé0"}, {`[[:^digit:]]`, "aé0"}, {`[[:word:]é]`, "aé_-"},
	{`[\w-]`, "a-é"}, {`[k\x{17f}]`, "kKſs"}, {`[^k]`, "kK\u212a"}, {`\p{Ll}`, "aéſK"}, {`[À-ÿ]`, "éÉa"}, {`\pS`, "+<$a"},
	{`[\x{10000}-\x{10FFFF}]`, "𝒜a"}, {`[^\x00-\x{10FFFF}]`, "a"}, {`[]a]`, "]ab"}, {`[\]\\^-]`, "]\\^-a"}, {`\pP`, ".-_a"},
}

// letters are characters that stand for themselves in a pattern.
var letters = []rune("abcABkKsSſ\u212aéÉßẞσςΣ0_- \n中𝒜")

var positions = []string{`^`, `$`, `\A`, `\z`, `\b`, `\B`}

func one(text string) func(*rand.Rand) []piece {
	return func(*rand.Rand) []piece { return []piece{{text, 1}} }
}

func drawnRune(random *rand.Rand, from []rune) string { return string(from[random.IntN(len(from))]) }

func drawnNode(random *rand.Rand, depth int) patternNode {
	if depth <= 0 || random.IntN(6) == 0 {
		return drawnAtom(random)
	}
	switch random.IntN(10) {
	case 0, 1, 2:
		return drawnConcatenation(random, depth)
	case 3, 4:
		return drawnAlternation(random, depth)
	case 5, 6:
		return drawnGroup(random, depth)
	default:
		return drawnRepetition(random, depth)
	}
}

func drawnAtom(random *rand.Rand) patternNode {
	switch random.IntN(12) {
	case 0:
		return patternNode{positions[random.IntN(len(positions))], one("")}
	case 1, 2, 3, 4, 5:
		class := classes[random.IntN(len(classes))]
		samples := []rune(class.samples)
		return patternNode{class.text, func(random *rand.Rand) []piece {
			// Mostly the first ones, which it contains.
			at := min(random.IntN(len(samples)), random.IntN(len(samples)))
			return []piece{{string(samples[at]), 1}}
		}}
	case 6:
		return patternNode{"", one("")}
	default:
		text := drawnRune(random, letters)
		return patternNode{regexp.QuoteMeta(text), one(text)}
	}
}

func drawnConcatenation(random *rand.Rand, depth int) patternNode {
	parts := make([]patternNode, 2+random.IntN(3))
	var text strings.Builder
	for at := range parts {
		parts[at] = drawnNode(random, depth-1)
		text.WriteString(parts[at].text)
	}
	return patternNode{text.String(), func(random *rand.Rand) []piece {
		var all []piece
		for _, part := range parts {
			all = append(all, part.sample(random)...)
		}
		return all
	}}
}

func drawnAlternation(random *rand.Rand, depth int) patternNode {
	parts := make([]patternNode, 2+random.IntN(3))
	texts := make([]string, len(parts))
	for at := range parts {
		parts[at] = drawnNode(random, depth-1)
		texts[at] = parts[at].text
	}
	text := "(?:" + strings.Join(texts, "|") + ")"
	return patternNode{text, func(random *rand.Rand) []piece { return parts[random.IntN(len(parts))].sample(random) }}
}

func drawnGroup(random *rand.Rand, depth int) patternNode {
	opens := []string{"(", "(?:", "(?i:", "(?s:", "(?m:", "(?U:", "(?ims:", "(?-i:", "(?P<n>", "(?i)(?:", "(?:(?i)", "(?:(?U)"}
	inner := drawnNode(random, depth-1)
	return patternNode{opens[random.IntN(len(opens))] + inner.text + ")", inner.sample}
}

func drawnRepetition(random *rand.Rand, depth int) patternNode {
	inner := drawnNode(random, depth-2)
	low, high := random.IntN(4), random.IntN(5)
	if random.IntN(6) == 0 {
		low, high = random.IntN(60), random.IntN(300)
	}
	if random.IntN(40) == 0 {
		low, high = 900, 1000
	}
	high = max(low, high)
	operator := ""
	switch random.IntN(8) {
	case 0, 1:
		operator, low, high = "*", 0, 3
	case 2, 3:
		operator, low, high = "+", 1, 3
	case 4:
		operator, low, high = "?", 0, 1
	case 5:
		operator, high = fmt.Sprintf("{%d}", low), low
	case 6:
		operator, high = fmt.Sprintf("{%d,}", low), low+2
	default:
		operator = fmt.Sprintf("{%d,%d}", low, high)
	}
	operator += strings.Repeat("?", random.IntN(4)/3)
	text := "(?:" + inner.text + ")" + operator
	if utf8.RuneCountInString(inner.text) == 1 && inner.text != "\\" {
		text = inner.text + operator
	}
	return patternNode{text, func(random *rand.Rand) []piece {
		count := []int{low, high, max(0, low-1), high + 1, (low + high) / 2}[random.IntN(5)]
		once := inner.sample(random)
		if len(once) == 1 {
			return []piece{{once[0].text, once[0].count * count}}
		}
		var all []piece
		for range min(count, 4) {
			all = append(all, once...)
		}
		return all
	}}
}

// disturbedText puts a character at the ends or in the middle.
func disturbedText(random *rand.Rand, pieces []piece) []piece {
	extra := piece{drawnRune(random, letters), 1}
	switch random.IntN(5) {
	case 0:
		return append([]piece{extra}, pieces...)
	case 1:
		return append(pieces, extra)
	case 2:
		return append(append([]piece{extra}, pieces...), pieces...)
	case 3:
		at := random.IntN(len(pieces) + 1)
		return append(append(append([]piece{}, pieces[:at]...), extra), pieces[at:]...)
	}
	return pieces
}

// longestText is the maximum length of a text that is searched, in bytes.
const longestText = 5000

func answered(pattern string, texts [][]piece) patternCase {
	answer := patternCase{Pattern: pattern}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		answer.Error = err.Error()
		return answer
	}
	seen := map[string]bool{}
	for _, pieces := range texts {
		pieces = shortened(pieces)
		text := textOf(pieces)
		if seen[text] || len(text) > longestText {
			continue
		}
		seen[text] = true
		all := [][2]int{}
		for _, found := range compiled.FindAllStringIndex(text, mostMatches) {
			all = append(all, [2]int{found[0], found[1]})
		}
		answer.Texts = append(answer.Texts, searchedText{pieces, all})
	}
	return answer
}

// writtenPatterns are patterns that Go accepts and that are large once counts and classes are expanded, with texts at their
// borders.
func writtenPatterns() []patternCase {
	border := func(text string, counts ...int) [][]piece {
		var all [][]piece
		for _, count := range counts {
			all = append(all, []piece{{text, count}})
		}
		return all
	}
	return []patternCase{
		answered(`^[\p{L}\p{N}_.-]{1,253}$`, append(border("é", 0, 1, 252, 253, 254), []piece{{"é", 9}, {" ", 1}})),
		answered(`^\p{L}{1,256}$`, append(border("中", 0, 1, 255, 256, 257), []piece{{"a", 255}, {"0", 1}})),
		answered(`^\P{C}{1,1000}$`, append(border("x", 0, 1, 999, 1000, 1001), []piece{{"x", 99}, {"\u0007", 1}})),
		answered(`(\pL|\pN|\pP|\pS){200}0`, [][]piece{{{"a", 200}, {"0", 1}}, {{"a", 199}, {"0", 1}}, {{"a", 150}, {"0", 60}}, {{"a", 1}}}),
		answered(`(?i)^\p{L}{1,256}$`, border("ſ", 256, 257)),
		answered(`(?i)^\p{Lu}{1,256}k$`, [][]piece{{{"ſ", 256}, {"\u212a", 1}}, {{"a", 256}, {"K", 1}}, {{"0", 2}, {"K", 1}}}),
		answered(`\pL{1000}\pN{1000}`, [][]piece{{{"a", 1000}, {"1", 1000}}, {{"a", 1000}, {"1", 999}}, {{"a", 1200}, {"1", 1200}}}),
		answered(`(?:\p{Greek}|\p{Cyrillic}|[0-9]){20,400}?x`, [][]piece{{{"α", 20}, {"x", 2}}, {{"ж", 19}, {"x", 2}}, {{"7", 500}, {"x", 1}}}),
		answered(`\b(?:\pL\pM*){3,300}\b`, [][]piece{{{"e\u0301", 10}, {" ", 1}, {"abc", 3}}, {{"ab", 200}, {"-", 1}, {"é", 5}}}),
		answered(`(?s)^.{0,1000}$`, border("\n", 0, 999, 1000, 1001)),
		answered(`(?m)^\pL{1,400}$`, [][]piece{{{"a\n", 5}, {"b", 400}}, {{"0\n", 2}, {"é", 401}}}),
		answered(`((\pL{1,10}){1,10}){1,10}!`, [][]piece{{{"a", 999}, {"!", 1}}, {{"a", 1001}, {"!", 1}}, {{"a", 99}}}),
		answered(`(?U)\pL{2,300}`, border("a", 1, 2, 3, 300, 7)),
		answered(`\pL{2,300}?x|\pN{1,300}`, [][]piece{{{"a", 5}, {"x", 2}, {"1", 301}}}),
		// An empty match within a character is none, and another one may begin there.
		answered(`(?:𝒜|\B)(?:_|)`, [][]piece{{{"b𝒜_", 1}}, {{"b𝒜b", 1}}, {{"𝒜", 1}}, {{"é𝒜é", 2}}}),
		answered(`𝒜_|\B`, [][]piece{{{"b𝒜_", 1}}, {{"b𝒜b", 1}}, {{"𝒜", 1}}, {{"é𝒜é", 2}}}),
		answered(`(?:|\B)é?`, [][]piece{{{"bé", 1}}, {{"éé", 3}}, {{"b𝒜b", 1}}}),
		// The characters beside the surrogates, which stand beside each other in a text.
		answered(`[^\x{d7ff}\x{e000}]+`, [][]piece{{{"\ud7ff\ue000", 2}, {"a", 2}}, {{"\ud7fe\ue001", 1}}}),
		answered(`(?i)[^\x{d7ff}-\x{e000}k]+`, [][]piece{{{"\ud7ff\ue000K", 2}, {"a", 2}}, {{"\ud7fe\ue001", 1}}}),
		answered(`[\x{d700}-\x{d800}\x{dfff}-\x{e001}]+`, [][]piece{{{"a\ud7ff\ue000", 2}, {"\ue002", 1}}, {{"\ud6ff\ue001", 1}}}),
		answered(`\P{C}+`, [][]piece{{{"a\ud7ff\ue000", 2}}, {{"\uf8ff", 1}, {"\uf900", 1}}}),
		answered(`(\PL{0,500}|\pL{0,500}){0,2}`, [][]piece{{{"a", 501}, {"1", 501}, {"a", 2}}, {}}),
	}
}

// drawnPatterns are count patterns, each with a few texts.
func drawnPatterns(random *rand.Rand, count int) []patternCase {
	var all []patternCase
	for len(all) < count {
		node := drawnConcatenation(random, 2+random.IntN(4))
		pattern := node.text
		if random.IntN(20) == 0 {
			pattern = mutated(random, pattern)
		}
		if len(pattern) > 120 {
			continue
		}
		var texts [][]piece
		for range 4 {
			texts = append(texts, disturbedText(random, node.sample(random)))
		}
		all = append(all, answered(pattern, texts))
	}
	return all
}

// writePatterns writes the written patterns, then count drawn ones.
func writePatterns(path string, seed uint64, count int) error {
	cases := append(writtenPatterns(), drawnPatterns(rand.New(rand.NewPCG(seed, 2)), count)...)
	return writeLines(path, cases)
}
