package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func eachPanel(t *testing.T, see func(t *testing.T, b Board, p Panel)) {
	seen := 0
	for _, board := range boards {
		for _, row := range board.Rows {
			for _, panel := range row.Panels {
				seen++
				t.Run(board.UID+"/"+panel.Title, func(t *testing.T) { see(t, board, panel) })
			}
		}
	}
	if seen < 40 {
		t.Errorf("only %d panels", seen)
	}
}

func TestEveryPanelIsExplainedAndHasAUnit(t *testing.T) {
	eachPanel(t, func(t *testing.T, _ Board, p Panel) {
		if p.Unit == "" || !strings.HasSuffix(p.About, ".") || len(p.About) < 20 {
			t.Errorf("unit %q, about %q", p.Unit, p.About)
		}
		if p.Unit == Fraction || p.Unit == Boolean || p.Unit == Days {
			if p.Bounds == nil {
				t.Error("it has a bound, and does not show where it becomes bad")
			}
		}
		needsOurs := false
		for _, query := range p.Queries {
			needsOurs = needsOurs || strings.Contains(query.Expr, "fairgate_")
			if query.Legend == "" {
				t.Error("no legend")
			}
		}
		if p.Ours != needsOurs {
			t.Errorf("Ours is %v, which its metrics contradict", p.Ours)
		}
		if p.Ours != strings.HasSuffix(p.Title, "(fairgate)") || p.Ours != strings.Contains(p.About, "of fairgate.") {
			t.Error("title and explanation of a panel say that it needs metrics of fairgate, and no others do")
		}
	})
}

func TestEveryMetricIsSelectedByTheVariables(t *testing.T) {
	eachPanel(t, func(t *testing.T, b Board, p Panel) {
		for _, query := range p.Queries {
			expr := query.Expr
			metrics := strings.Count(expr, "apiserver_") + strings.Count(expr, "fairgate_") + strings.Count(expr, "process_")
			if selectors := strings.Count(expr, "@}"); selectors == 0 || selectors != metrics {
				t.Errorf("%d metrics and %d selectors in %s", metrics, selectors, expr)
			}
			if strings.Contains(b.expand(expr), "@") {
				t.Errorf("not expanded: %s", expr)
			}
		}
	})
}

func TestNothingIsDividedByWhatCanBeZero(t *testing.T) {
	eachPanel(t, func(t *testing.T, _ Board, p Panel) {
		for _, query := range p.Queries {
			if bad := unguarded(query.Expr); bad != "" {
				t.Errorf("%s is divided by what can be 0; compare the divisor with > 0: %s", query.Expr, bad)
			}
		}
	})
	for expr, ok := range map[string]bool{
		"a / b":                                false,
		"a / (b)":                              false,
		"a / (b > 0)":                          true,
		"a / 86400":                            true,
		"a / 0":                                false,
		"a / on(x) group_left () (sum(b) > 0)": true,
		"a / on(x) (sum(b > 0))":               false,
		`a{b="c/d"}`:                           true,
	} {
		if (unguarded(expr) == "") != ok {
			t.Errorf("%s: %q", expr, unguarded(expr))
		}
	}
}

// Queries of documents and rules, as those of the boards.
func TestNothingElseIsDividedByWhatCanBeZero(t *testing.T) {
	const root = "../../../"
	texts := map[string]*regexp.Regexp{
		"README.md": code, "docs/*.md": code, "docs/*/*.md": code, "loadtest/*.md": code,
		"config/prometheus/rules.yaml": expression, "config/prometheus/alerts.yaml": expression,
	}
	count := 0
	for pattern, form := range texts {
		paths, err := filepath.Glob(root + pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range form.FindAllStringSubmatch(string(text), -1) {
				expr := strings.Join(strings.Fields(found[1]), " ")
				if !metric.MatchString(expr) || !strings.Contains(expr, " / ") {
					continue
				}
				count++
				if bad := unguarded(expr); bad != "" {
					t.Errorf("%s: %s is divided by what can be 0; compare the divisor with > 0: %s", path, expr, bad)
				}
			}
		}
	}
	if count < 8 {
		t.Errorf("only %d divisions were found", count)
	}
}

var (
	// code is a piece of code in a document, on one line.
	code = regexp.MustCompile("`([^`\n]+)`")
	// expression is that of a rule, up to its next key.
	expression = regexp.MustCompile(`(?s)expr: (?:>-)?(.*?)\n +(?:for|labels|- record|- alert|annotations)\b`)
	metric     = regexp.MustCompile(`apiserver_|fairgate_|process_`)
)

// unguarded returns a divisor that is neither a number nor compared with > 0.
func unguarded(expr string) string {
	quoted := false
	for i, c := range expr {
		if c == '"' {
			quoted = !quoted
		}
		if c != '/' || quoted {
			continue
		}
		rest := strings.TrimSpace(expr[i+1:])
		for _, word := range []string{"on", "ignoring", "group_left", "group_right"} {
			if after, found := strings.CutPrefix(rest, word); found {
				after = strings.TrimSpace(after)
				rest = strings.TrimSpace(after[strings.Index(after, ")")+1:])
			}
		}
		if rest[0] >= '1' && rest[0] <= '9' {
			continue
		}
		if rest[0] != '(' || !strings.HasSuffix(rest[:closing(rest)], "> 0") {
			return rest
		}
	}
	return ""
}

// closing returns where the parenthesis closes with which text begins.
func closing(text string) int {
	depth := 0
	for i, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
			if depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

func TestPanelsDoNotOverlap(t *testing.T) {
	for _, board := range boards {
		taken := map[[2]int]string{}
		for _, panel := range board.grafana()["panels"].([]object) {
			at := panel["gridPos"].(object)
			x, y, w, h := at["x"].(int), at["y"].(int), at["w"].(int), at["h"].(int)
			if x+w > width {
				t.Errorf("%s: %v is too wide", board.UID, panel["title"])
			}
			for i := x; i < x+w; i++ {
				for j := y; j < y+h; j++ {
					if other := taken[[2]int{i, j}]; other != "" {
						t.Errorf("%s: %v overlaps %v", board.UID, panel["title"], other)
					}
					taken[[2]int{i, j}] = panel["title"].(string)
				}
			}
		}
	}
}
