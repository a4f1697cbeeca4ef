package boards

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// withoutBounds are panels of what has a bound by its unit, and why they show none.
var withoutBounds = map[string]string{
	"fairgate-overview: Time of a forwarded request, mean by phase (fairgate)":            "how long a phase may last depends on the upstream; its own panel has bounds",
	"fairgate-overview: Time of a forwarded request by phase, 99th percentile (fairgate)": "the same",
	"fairgate-health: Age of the policy (fairgate)":                                       "an old policy is as good as a new one",
	"fairgate-health: Uptime (fairgate)":                                                  "no time is too long",
	"fairgate-overview: Levels: which is full, and why":                                   "its columns have bounds of their own",
	"fairgate-fleet: Servers: state, seats, errors and watches (fairgate)":                "its columns have bounds of their own",
	"fairgate-fleet: Gateways: seats, ledger and state (fairgate)":                        "its columns have bounds of their own",
}

func eachPanel(t *testing.T, see func(t *testing.T, board boardFile, panel boardPanel)) {
	seen := 0
	for uid, board := range boardFiles(t) {
		for _, panel := range board.Panels {
			if panel.Type != "row" {
				seen++
				t.Run(uid+": "+panel.Title, func(t *testing.T) { see(t, board, panel) })
			}
		}
	}
	if seen < 90 {
		t.Errorf("only %d panels", seen)
	}
}

func TestEveryPanelExplainsItself(t *testing.T) {
	eachPanel(t, func(t *testing.T, board boardFile, panel boardPanel) {
		if panel.Description == "" {
			t.Error("it has no description")
		}
		if len(panel.FieldConfig.Defaults.Thresholds.Steps) > 1 && !strings.Contains(panel.Description, "Colours: green") {
			t.Error("it has colours, and does not say what they mean")
		}
		for _, column := range panel.FieldConfig.Overrides {
			for _, property := range column.Properties {
				if property.ID == "thresholds" && !strings.Contains(panel.Description, column.Matcher.Options+": green") {
					t.Errorf("the colours of the column %s are not explained", column.Matcher.Options)
				}
			}
		}
		if panel.FieldConfig.Defaults.NoValue == "" {
			t.Error("it does not say why it is empty")
		}
	})
}

func TestPanelsOfWhatHasABoundShowIt(t *testing.T) {
	used := map[string]bool{}
	eachPanel(t, func(t *testing.T, board boardFile, panel boardPanel) {
		bounded := slices.Contains([]string{"percentunit", "s", "d", "bool_yes_no"}, panel.FieldConfig.Defaults.Unit) || panel.Type == "table"
		steps := panel.FieldConfig.Defaults.Thresholds.Steps
		name := board.UID + ": " + panel.Title
		if _, is := withoutBounds[name]; is {
			used[name] = true
		} else if bounded && len(steps) != 3 {
			t.Errorf("it has %d colours", len(steps))
		}
		for i := 1; i < len(steps); i++ {
			if steps[i].Value == nil || i > 1 && *steps[i].Value < *steps[i-1].Value {
				t.Errorf("threshold %d is not above the one before", i)
			}
		}
	})
	for name := range withoutBounds {
		if !used[name] {
			t.Errorf("there is no panel %q", name)
		}
	}
}

func TestLinksLeadToBoardsAndTheirVariables(t *testing.T) {
	boards := boardFiles(t)
	count := 0
	eachPanel(t, func(t *testing.T, board boardFile, panel boardPanel) {
		for _, link := range panelLinks(panel) {
			count++
			match := regexp.MustCompile(`^/d/([a-z-]+)\?\$\{__url_time_range\}&\$\{__all_variables\}(?:&var-(\w+)=\$\{[\w.]+\})?$`).FindStringSubmatch(link)
			if match == nil {
				t.Errorf("%q is not understood", link)
				continue
			}
			target, exists := boards[match[1]]
			if !exists || match[1] == board.UID {
				t.Errorf("%q leads to no other board", link)
			}
			if match[2] != "" && !slices.ContainsFunc(target.Templating.List, func(v struct{ Name string }) bool { return v.Name == match[2] }) {
				t.Errorf("%s has no variable %s", match[1], match[2])
			}
		}
		for _, target := range panel.Targets {
			if strings.Contains(target.LegendFormat, "{{priority_level}}") && !links(panel, "fairgate-level", "var-level=${__field.labels.priority_level}") {
				t.Error("its levels do not lead to their board")
			}
		}
	})
	if count < 20 {
		t.Errorf("only %d links", count)
	}
}

// Some metrics are only there if something is configured, so that tests/it/metrics.golden does not have all: what is there
// is what the reference lists, which is generated from the same catalogue.
func TestPanelsAndRulesAskForMetricsThatExist(t *testing.T) {
	var known []string
	for path, pattern := range map[string]string{
		"../../tests/it/metrics.golden":      `(?m)^# TYPE (\S+) (\S+)`,
		"../../docs/reference/metrics.md":    "(?m)^\\| `(\\w+)` \\| (\\w+)",
		"../../config/prometheus/rules.yaml": `(?m)record: (\S+)(\s)`,
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
		if len(found) < 5 {
			t.Fatalf("%s has only %d metrics", path, len(found))
		}
		for _, match := range found {
			known = append(known, match[1])
			if match[2] == "histogram" {
				known = append(known, match[1]+"_bucket", match[1]+"_sum", match[1]+"_count")
			}
		}
	}
	texts := read(t, "alerts.yaml") + read(t, "rules.yaml")
	for _, board := range boardFiles(t) {
		text, err := json.Marshal(board)
		if err != nil {
			t.Fatal(err)
		}
		texts += string(text)
	}
	asked := regexp.MustCompile(`\b(?:apiserver_|fairgate_|process_)\w+`).FindAllString(texts, -1)
	slices.Sort(asked)
	asked = slices.Compact(asked)
	for _, name := range asked {
		if !slices.Contains(known, name) && !slices.ContainsFunc(known, func(rule string) bool { return strings.Contains(rule, ":"+name+":") }) {
			t.Errorf("there is no metric %s", name)
		}
	}
	if len(asked) < 80 {
		t.Errorf("only %d metrics", len(asked))
	}
}
