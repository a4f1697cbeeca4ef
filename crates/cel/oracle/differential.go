package main

import (
	"bufio"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// curated are the hand-written expressions, one file for each group.
//
//go:embed curated
var curated embed.FS

// disturbedWorlds is the number of worlds that are drawn in addition to the written ones.
const disturbedWorlds = 28

var worldPrefix = regexp.MustCompile(`^#[0-9]+$`)

// longest is the maximum length of a drawn expression, in bytes.
const longest = 400

// written reads the curated expressions. A line is an expression, after any of these prefixes and a space:
//
//	@1.28            compiled as a new expression in that release
//	#2               evaluated in that world; the default is 0
//	name = expr ;;   a variable of the policy
//
// A line that begins with # and a space is a comment.
func written() ([]question, error) {
	files, err := curated.ReadDir("curated")
	if err != nil {
		return nil, err
	}
	var all []question
	for _, file := range files {
		text, err := curated.ReadFile(path.Join("curated", file.Name()))
		if err != nil {
			return nil, err
		}
		for number, line := range strings.Split(string(text), "\n") {
			if line == "" || strings.HasPrefix(line, "# ") {
				continue
			}
			q := question{Group: strings.TrimSuffix(file.Name(), ".txt")}
			if err := q.parse(line); err != nil {
				return nil, fmt.Errorf("curated/%s:%d: %w", file.Name(), number+1, err)
			}
			all = append(all, q)
		}
	}
	return all, nil
}

func (q *question) parse(line string) error {
	for {
		head, rest, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(head, "@"):
			q.Compatibility = head[1:]
		case worldPrefix.MatchString(head):
			world, err := strconv.Atoi(head[1:])
			if err != nil {
				return err
			}
			q.World = world
		default:
			parts := strings.Split(line, " ;; ")
			for _, v := range parts[:len(parts)-1] {
				name, expr, found := strings.Cut(v, " = ")
				if !found {
					return fmt.Errorf("a variable is name = expr")
				}
				q.Variables = append(q.Variables, [2]string{name, expr})
			}
			q.Expr = strings.ReplaceAll(parts[len(parts)-1], `⏎`, "\n")
			return nil
		}
		line = rest
	}
}

// drawn returns count different questions.
func drawn(random *rand.Rand, count, worlds int) []question {
	g := &generator{random: random, productions: parseGrammar(), known: map[string][]candidate{}}
	seen := map[string]bool{}
	var all []question
	for len(all) < count {
		group, expr := g.expression()
		if random.IntN(25) == 0 {
			group, expr = "broken", mutated(random, expr)
		}
		q := question{Group: group, World: random.IntN(worlds), Expr: expr}
		key := fmt.Sprint(q.World, q.Expr)
		if len(expr) > longest || seen[key] {
			continue
		}
		seen[key] = true
		all = append(all, q)
	}
	return all
}

// mutated removes, doubles or replaces a few characters.
func mutated(random *rand.Rand, expr string) string {
	runes := []rune(expr)
	for range 1 + random.IntN(2) {
		at := random.IntN(len(runes) + 1)
		insert := []rune(plain("", "", "(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "'", "\"", "\\", "+", "&", "|", "=", "!", "0", "9", "x", " in ", "null", "`", "#", "é", "1e", "0x", "b'", "r'", "//", "@", "$", "..", "?.", "[?", "true", "as", "-")(random))
		end := min(at+random.IntN(2), len(runes))
		runes = append(append(append([]rune{}, runes[:at]...), insert...), runes[end:]...)
	}
	return string(runes)
}

// writeDifferential writes the worlds, then the cases: the curated ones, then count drawn ones.
func writeDifferential(path string, seed uint64, count int) error {
	worlds, records, err := makeWorlds(rand.New(rand.NewPCG(seed, 0)), disturbedWorlds)
	if err != nil {
		return err
	}
	questions, err := written()
	if err != nil {
		return err
	}
	questions = append(questions, drawn(rand.New(rand.NewPCG(seed, 1)), count, len(worlds))...)
	o := newOriginal(worlds)
	var lines []any
	for _, record := range records {
		lines = append(lines, record)
	}
	for _, q := range questions {
		answer, err := o.answer(q)
		if errors.Is(err, errNothing) {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		if err != nil {
			return err
		}
		lines = append(lines, answer)
	}
	return writeLines(path, lines)
}

// answerAll reads questions as JSON lines and writes each with its answer, in the worlds of the seed.
func answerAll(in io.Reader, out io.Writer, seed uint64) error {
	worlds, _, err := makeWorlds(rand.New(rand.NewPCG(seed, 0)), disturbedWorlds)
	if err != nil {
		return err
	}
	o := newOriginal(worlds)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return err
		}
		answer, err := o.answer(q)
		if err != nil {
			return err
		}
		if err := writeLine(out, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}
