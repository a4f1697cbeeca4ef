package boards

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// A runbookCommand is a command of a runbook, and what it prints there.
type runbookCommand struct{ text, prints string }

// runbookCommands reads the blocks of an alert's page that people paste into a shell.
func runbookCommands(t *testing.T, alert string) (commands []runbookCommand) {
	page, err := os.ReadFile("../../docs/runbooks/" + alert + ".md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```\n").FindAllStringSubmatch(string(page), -1) {
		continues := false
		for line := range strings.Lines(block[1]) {
			if text, is := strings.CutPrefix(line, "$ "); is {
				commands = append(commands, runbookCommand{text: text})
			} else if last := &commands[len(commands)-1]; continues {
				last.text += line
			} else {
				last.prints += line
			}
			continues = (continues || strings.HasPrefix(line, "$ ")) && strings.HasSuffix(strings.TrimSpace(line), "|")
		}
	}
	return commands
}

func TestEveryRunbookHasCommandsWithWhatTheyPrint(t *testing.T) {
	for _, alert := range alerts(t) {
		commands := runbookCommands(t, alert)
		if len(commands) == 0 {
			t.Errorf("%s has no command", alert)
		}
		for _, command := range commands {
			if command.prints == "" {
				t.Errorf("%s does not say what %q prints", alert, command.text)
			}
		}
	}
}

// pasteRunbooks runs the commands of the runbooks of alerts that fire, in the outages that they are for. They print something of the
// kind that the runbooks show.
func (w *world) pasteRunbooks(t *testing.T, alerts ...string) {
	for _, alert := range alerts {
		environment := append(os.Environ(), "PROMETHEUS="+w.prometheus.url)
		// Some come and go.
		firing := w.prometheus.query(t, fmt.Sprintf(`last_over_time(ALERTS{alertstate="firing", alertname=%q}[5m])`, alert))
		if len(firing) == 0 {
			t.Errorf("%s has not fired", alert)
			continue
		}
		labels := firing[0].Metric
		environment = append(environment, "ADMIN=http://"+labels["instance"], "LEVEL="+labels["priority_level"],
			"FLEET="+labels["fleet"])
		for _, command := range runbookCommands(t, alert) {
			shell := exec.Command("bash", "-c", command.text)
			shell.Env = environment
			printed, err := shell.CombinedOutput()
			t.Logf("RUNBOOK %s\n$ %s%s", alert, command.text, printed)
			if _, hasEnded := err.(*exec.ExitError); err != nil && !hasEnded {
				t.Fatal(err)
			}
			for sample := range strings.Lines(command.prints) {
				if kind := kindOf(sample); kind == "" || !regexp.MustCompile("(?m)^ *"+kind).Match(printed) {
					t.Errorf("%s: %q prints nothing like %q, but %q", alert, command.text, sample, printed)
				}
			}
		}
	}
}

// kindOf is a pattern for lines that begin as this one does: with a line of readyz, a metric, a level, a count, or an error of curl.
func kindOf(line string) string {
	begin := regexp.MustCompile(`^\[.\]\w+|^[a-z_]+[{ ]|^curl: \(\d+\)|^\{"status":"success"|^\w+,|^\d+ `).FindString(strings.TrimLeft(line, " "))
	return regexp.MustCompile(`\d+`).ReplaceAllString(regexp.QuoteMeta(begin), `\d+`)
}
