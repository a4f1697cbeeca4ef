package boards

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// absent is what panels show without data that always have some in health. The others say why they have none.
const absent = "no data: nothing has happened, not scraped, or not a metric of this server"

// A boardFile is a dashboard of config/grafana.
type boardFile struct {
	UID, Title  string
	Panels      []boardPanel
	Annotations struct {
		List []struct{ Name, Expr string }
	}
	Templating struct{ List []struct{ Name string } }
}

type boardPanel struct {
	Title, Type, Description string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct {
		Defaults struct {
			Unit, NoValue string
			Thresholds    thresholds
			Links         []struct{ Title, URL string }
			Custom        struct{ Stacking, ThresholdsStyle struct{ Mode string } }
		}
		Overrides []struct {
			Matcher    struct{ Options string }
			Properties []struct {
				ID    string
				Value json.RawMessage
			}
		}
	}
	Targets []struct{ RefID, Expr, LegendFormat string }
}

// thresholds are values from which on something has another colour.
type thresholds struct {
	Steps []struct {
		Color string
		Value *float64
	}
}

// boardFiles returns the dashboards by their UIDs.
func boardFiles(t *testing.T) map[string]boardFile {
	t.Helper()
	paths, err := filepath.Glob("../../config/grafana/*.json")
	if err != nil || len(paths) < 5 {
		t.Fatalf("%d boards: %v", len(paths), err)
	}
	found := map[string]boardFile{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var board boardFile
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatal(err)
		}
		found[board.UID] = board
	}
	return found
}

// missing is a label in a legend that the series does not have.
var missing = regexp.MustCompile(`\{\{\w+\}\}`)

// named returns the legend of a series with these labels.
func named(legend string, labels map[string]string) string {
	for label, value := range labels {
		legend = strings.ReplaceAll(legend, "{{"+label+"}}", value)
	}
	return missing.ReplaceAllString(legend, "")
}

// links says whether the panel leads to a board, with this in the address.
func links(panel boardPanel, board, part string) bool {
	for _, link := range panelLinks(panel) {
		if strings.HasPrefix(link, "/d/"+board) && strings.Contains(link, part) {
			return true
		}
	}
	return false
}

// panelLinks returns the addresses that a panel leads to.
func panelLinks(panel boardPanel) (found []string) {
	for _, link := range panel.FieldConfig.Defaults.Links {
		found = append(found, link.URL)
	}
	return found
}
