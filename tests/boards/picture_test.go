package boards

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Pictures of the boards, for readers who have no Grafana at hand, made from the same files. The page is one column of rows
// with the panels where Grafana places them.

const (
	cell       = 50 // pixels of a column of Grafana's grid
	rowHeight  = 26 // pixels of a row of the grid
	legendRows = 4
	samples    = 120
)

// Colours that differ for most readers who see colours differently, too (Okabe and Ito).
var colours = []string{"#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a7a00", "#000000"}

// A palette has the colours of a board: a name has the same one on every panel.
type palette map[string]string

func (p palette) of(name string) string {
	if p[name] == "" {
		p[name] = colours[len(p)%len(colours)]
	}
	return p[name]
}

type series struct {
	name   string
	points [][2]float64
}

// draw writes each board as a page of HTML, with what happened since begun.
func (p *prometheus) draw(t *testing.T, directory, prefix string, variables *strings.Replacer, begun time.Time) {
	for uid, board := range boardFiles(t) {
		var page strings.Builder
		palette := palette{}
		fmt.Fprintf(&page, "<!doctype html><meta charset=utf-8><title>%s</title><style>body{font:13px sans-serif;margin:12px;position:relative}"+
			".p{position:absolute;box-sizing:border-box;padding:4px}.s{font-size:30px;text-align:center;padding:12px 0;margin-top:4px;border-radius:4px}.n{font-size:18px;color:#777;text-align:center;padding:16px 0}"+
			"small{display:block;line-height:15px;overflow:hidden;max-height:45px}table{border-collapse:collapse;width:100%%}td,th{text-align:left;padding:3px 8px;border-bottom:1px solid #ddd}</style>"+
			"<h2>%s</h2><div style=position:relative>", html.EscapeString(board.titleWith(variables)), html.EscapeString(board.titleWith(variables)))
		var marks []mark
		for _, annotation := range board.Annotations.List {
			for _, one := range p.history(t, variables.Replace(annotation.Expr), annotation.Name, begun) {
				marks = append(marks, mark{one.name, one.points[0][0]})
			}
		}
		for _, panel := range board.Panels {
			at := panel.GridPos
			fmt.Fprintf(&page, "<div class=p style=left:%dpx;top:%dpx;width:%dpx;height:%dpx>", at.X*cell, at.Y*rowHeight, at.W*cell, at.H*rowHeight)
			if panel.Type == "row" {
				fmt.Fprintf(&page, "<b style=font-size:16px>%s</b></div>", html.EscapeString(variables.Replace(panel.Title)))
				continue
			}
			fmt.Fprintf(&page, "<b title=\"%s\">%s</b>%s%s</div>", html.EscapeString(panel.Description), html.EscapeString(panel.Title),
				legendOfColours(panel), p.content(t, panel, palette, variables, begun, marks))
		}
		page.WriteString("</div>")
		name := prefix + strings.TrimPrefix(uid, "fairgate-") + ".html"
		if err := os.WriteFile(filepath.Join(directory, name), []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// titleWith is the title with what is chosen at the top of the board.
func (b boardFile) titleWith(variables *strings.Replacer) string {
	for _, variable := range b.Templating.List {
		if variable.Name == "level" {
			return b.Title + ": level " + variables.Replace("$level")
		}
	}
	return b.Title
}

// legendOfColours returns what the description of a panel says of its colours, in small letters.
func legendOfColours(panel boardPanel) string {
	_, colours, found := strings.Cut(panel.Description, " Colours: ")
	if !found {
		return ""
	}
	return "<div style=font-size:10px;color:#777;white-space:nowrap;overflow:hidden>" + html.EscapeString(strings.TrimSuffix(colours, ".")) + "</div>"
}

// content returns what a panel shows below its title.
func (p *prometheus) content(t *testing.T, panel boardPanel, palette palette, variables *strings.Replacer, begun time.Time, marks []mark) string {
	if panel.Type == "table" {
		return p.table(t, panel, variables)
	}
	var all []series
	for _, target := range panel.Targets {
		all = append(all, p.history(t, variables.Replace(target.Expr), target.LegendFormat, begun)...)
	}
	if panel.Type == "stat" {
		// It is empty if there is nothing now, whatever there was before.
		all = slices.DeleteFunc(all, func(one series) bool {
			return time.Now().Unix()-int64(one.points[len(one.points)-1][0]) > 10
		})
	}
	switch {
	case len(all) == 0:
		return "<div class=n>" + html.EscapeString(panel.FieldConfig.Defaults.NoValue) + "</div>"
	case panel.Type == "stat":
		return number(all, panel)
	}
	return plot(panel, all, palette, marks, begun)
}

// table returns a row for each priority level, with a column for each query.
func (p *prometheus) table(t *testing.T, panel boardPanel, variables *strings.Replacer) string {
	var out strings.Builder
	out.WriteString("<table><tr><th>")
	cells := map[string][]string{}
	for i, target := range panel.Targets {
		fmt.Fprintf(&out, "<th>%s", html.EscapeString(target.LegendFormat))
		for _, found := range p.query(t, variables.Replace(target.Expr)) {
			level := cmp.Or(found.Metric["priority_level"], found.Metric["server"], found.Metric["instance"])
			if cells[level] == nil {
				cells[level] = make([]string, len(panel.Targets))
			}
			unit, colour := "", "text"
			for _, override := range panel.FieldConfig.Overrides {
				for _, property := range override.Properties {
					var steps thresholds
					switch {
					case override.Matcher.Options != target.LegendFormat:
					case property.ID == "unit":
						json.Unmarshal(property.Value, &unit)
					case property.ID == "thresholds":
						json.Unmarshal(property.Value, &steps)
						colour = steps.colour(value(found))
					}
				}
			}
			cells[level][i] = fmt.Sprintf("<td style=background:%s>%s", background[colour], inUnit(value(found), unit))
		}
	}
	for _, level := range slices.Sorted(maps.Keys(cells)) {
		fmt.Fprintf(&out, "<tr><td>%s", html.EscapeString(level))
		for _, cell := range cells[level] {
			out.WriteString(cmp.Or(cell, "<td>"))
		}
	}
	out.WriteString("</table>")
	return out.String()
}

// background has a colour for each one that thresholds name.
var background = map[string]string{"green": "#d8eeda", "orange": "#ffe0b0", "red": "#f8c4c0", "text": "#fff"}

// colour is that of a value.
func (b thresholds) colour(value float64) string {
	colour := "text"
	for _, step := range b.Steps {
		if step.Value == nil || value >= *step.Value {
			colour = step.Color
		}
	}
	return colour
}

// A mark is something that happened at a moment.
type mark struct {
	name string
	at   float64
}

// history returns the results of an expression since begun.
func (p *prometheus) history(t *testing.T, expr, legend string, begun time.Time) []series {
	now := time.Now()
	step := max(now.Sub(begun)/samples, time.Second)
	query := url.Values{"query": {expr}, "step": {fmt.Sprint(step.Seconds())},
		"start": {fmt.Sprint(begun.Unix())}, "end": {fmt.Sprint(now.Unix())}}
	response, err := http.Get(p.url + "/api/v1/query_range?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var result struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&result); err != nil {
		t.Fatal(err)
	}
	var found []series
	for _, one := range result.Data.Result {
		line := series{name: named(legend, one.Metric)}
		for _, value := range one.Values {
			y, err := strconv.ParseFloat(fmt.Sprint(value[1]), 64)
			if err == nil && !math.IsNaN(y) {
				line.points = append(line.points, [2]float64{value[0].(float64), y})
			}
		}
		if len(line.points) > 0 {
			found = append(found, line)
		}
	}
	slices.SortFunc(found, func(a, b series) int { return strings.Compare(a.name, b.name) })
	return found
}

func number(all []series, panel boardPanel) string {
	defaults := panel.FieldConfig.Defaults
	worst, texts := 0, []string{}
	colours := []string{"text", "green", "orange", "red"}
	for _, one := range all {
		value := one.points[len(one.points)-1][1]
		text := inUnit(value, defaults.Unit)
		if len(all) > 1 {
			text = html.EscapeString(one.name) + " " + text
		}
		worst = max(worst, slices.Index(colours, defaults.Thresholds.colour(value)))
		texts = append(texts, text)
	}
	size := ""
	if len(all) > 1 {
		size = ";font-size:18px"
	}
	return fmt.Sprintf("<div class=s style=\"background:%s%s\">%s</div>", background[colours[worst]], size, strings.Join(texts, ", "))
}

// inUnit writes a value as Grafana does with this unit.
func inUnit(value float64, unit string) string {
	// Three digits, but no exponents.
	short := func(value float64) string {
		rounded, _ := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 3, 64), 64)
		return strconv.FormatFloat(rounded, 'f', -1, 64)
	}
	switch unit {
	case "percentunit":
		return short(value*100) + " %"
	case "s":
		switch {
		case value > 0 && value < 0.001:
			return short(value*1e6) + " µs"
		case value > 0 && value < 1:
			return short(value*1e3) + " ms"
		}
		return short(value) + " s"
	case "d":
		return short(value) + " days"
	case "reqps":
		return short(value) + " /s"
	case "bytes":
		for _, unit := range []string{"B", "KiB", "MiB"} {
			if value < 1024 {
				return short(value) + " " + unit
			}
			value /= 1024
		}
		return short(value) + " GiB"
	case "bool_yes_no":
		if value != 0 {
			return "yes"
		}
		return "no"
	}
	return short(value)
}

// A band is a line over time, and the line below it where the panel adds its series up.
type band struct {
	name         string
	upper, lower [][2]float64
}

// bands places the series as the panel says.
func (p boardPanel) bands(all []series) []band {
	if p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal" {
		return stacked(all)
	}
	return overlaid(all)
}

// overlaid draws each series from the axis.
func overlaid(all []series) []band {
	var bands []band
	for _, one := range all {
		bands = append(bands, band{name: one.name, upper: one.points})
	}
	return bands
}

// stacked draws each series on top of those before it. Where one has no value it adds nothing.
func stacked(all []series) []band {
	height := map[float64]float64{}
	var bands []band
	for _, one := range all {
		next := band{name: one.name}
		for _, point := range one.points {
			at, value := point[0], point[1]
			next.lower = append(next.lower, [2]float64{at, height[at]})
			height[at] += value
			next.upper = append(next.upper, [2]float64{at, height[at]})
		}
		bands = append(bands, next)
	}
	return bands
}

// plot returns lines over time, with their legend.
func plot(panel boardPanel, series []series, palette palette, marks []mark, begun time.Time) string {
	all, defaults := panel.bands(series), panel.FieldConfig.Defaults
	width, height, unit := panel.GridPos.W*cell-8, (panel.GridPos.H-legendRows)*rowHeight, defaults.Unit
	least, most := 0.0, 0.0
	for _, line := range all {
		for _, point := range line.upper {
			least, most = min(least, point[1]), max(most, point[1])
		}
	}
	if most == least {
		most = least + 1
	}
	const margin = 56
	from, to := float64(begun.Unix()), float64(time.Now().Unix())
	x := func(at float64) float64 { return margin + (at-from)/(to-from)*float64(width-margin) }
	y := func(value float64) float64 { return 12 + (most-value)/(most-least)*float64(height-16) }
	points := func(line [][2]float64) string {
		var text strings.Builder
		for _, point := range line {
			fmt.Fprintf(&text, "%.1f,%.1f ", x(point[0]), y(point[1]))
		}
		return text.String()
	}
	var out strings.Builder
	fmt.Fprintf(&out, "<svg width=%d height=%d style=display:block>", width, height)
	for _, value := range []float64{least, (least + most) / 2, most} {
		fmt.Fprintf(&out, `<line x1=%d x2=%d y1=%.1f y2=%.1f stroke="#ddd"/><text x=%d y=%.1f font-size=10 text-anchor=end>%s</text>`,
			margin, width, y(value), y(value), margin-3, y(value)+3, html.EscapeString(inUnit(value, unit)))
	}
	for _, step := range defaults.Thresholds.Steps {
		if defaults.Custom.ThresholdsStyle.Mode != "" && step.Value != nil && *step.Value <= most {
			fmt.Fprintf(&out, `<line x1=%d x2=%d y1=%.1f y2=%.1f stroke="%s" stroke-dasharray="6 4"/>`, margin, width, y(*step.Value), y(*step.Value), step.Color)
		}
	}
	for i, mark := range marks {
		fmt.Fprintf(&out, `<line x1=%.1f x2=%.1f y1=8 y2=%d stroke="#35c" stroke-dasharray="2 3"/><text x=%.1f y=%d font-size=9 fill="#35c">%s</text>`,
			x(mark.at), x(mark.at), height, x(mark.at)+2, 8+10*i, html.EscapeString(mark.name))
	}
	for _, line := range all {
		colour := palette.of(line.name)
		if line.lower != nil {
			below := slices.Clone(line.lower)
			slices.Reverse(below)
			fmt.Fprintf(&out, `<polygon fill="%s" fill-opacity=0.4 points="%s%s"/>`, colour, points(line.upper), points(below))
		}
		if len(line.upper) == 1 {
			fmt.Fprintf(&out, `<circle fill="%s" r=3 cx=%.1f cy=%.1f />`, colour, x(line.upper[0][0]), y(line.upper[0][1]))
		}
		fmt.Fprintf(&out, `<polyline fill=none stroke-width=1.5 stroke="%s" points="%s"/>`, colour, points(line.upper))
	}
	out.WriteString("</svg><small>")
	for _, line := range all {
		fmt.Fprintf(&out, `<span style="color:%s">&#9644; %s</span> &nbsp;`, palette.of(line.name), html.EscapeString(line.name))
	}
	out.WriteString("</small>")
	return out.String()
}

func TestStackedSeriesAddUp(t *testing.T) {
	all := []series{
		{name: "a", points: [][2]float64{{0, 1}, {1, 2}, {2, 3}}},
		{name: "b", points: [][2]float64{{1, 10}}},
		{name: "c", points: [][2]float64{{0, 5}, {1, 5}, {2, 5}}},
	}
	want := []band{
		{"a", [][2]float64{{0, 1}, {1, 2}, {2, 3}}, [][2]float64{{0, 0}, {1, 0}, {2, 0}}},
		{"b", [][2]float64{{1, 12}}, [][2]float64{{1, 2}}},
		{"c", [][2]float64{{0, 6}, {1, 17}, {2, 8}}, [][2]float64{{0, 1}, {1, 12}, {2, 3}}},
	}
	if found := stacked(all); !reflect.DeepEqual(found, want) {
		t.Errorf("%v", found)
	}
	// The highest line of the picture is the sum.
	begun := time.Now().Add(-time.Minute)
	var panel boardPanel
	panel.GridPos.W, panel.GridPos.H = 8, 8
	if picture := plot(panel, all, palette{}, nil, begun); !strings.Contains(picture, ">10<") || strings.Contains(picture, "<polygon") {
		t.Error(picture)
	}
	panel.FieldConfig.Defaults.Custom.Stacking.Mode = "normal"
	if picture := plot(panel, all, palette{}, nil, begun); !strings.Contains(picture, ">17<") || strings.Count(picture, "<polygon") != 3 {
		t.Error(picture)
	}
}

func TestPanelsThatSayStackedAreStacked(t *testing.T) {
	found := map[string]bool{}
	for _, panel := range boardFiles(t)[overviewBoard].Panels {
		found[panel.Title] = panel.bands([]series{{points: [][2]float64{{0, 1}}}})[0].lower != nil
	}
	for title, want := range map[string]bool{"Refusals of flow control by reason": true, "Seats in use by level": true, "Queue depth by level": false} {
		if stacked, ok := found[title]; !ok || stacked != want {
			t.Errorf("%s: stacked is %v, and there is one: %v", title, stacked, ok)
		}
	}
}

func TestPicturesOfTheLevelBoardNameTheLevel(t *testing.T) {
	board := boardFiles(t)["fairgate-level"]
	if title := board.titleWith(variables); !strings.HasSuffix(title, ": level busy") {
		t.Errorf("the title of the picture is %q", title)
	}
	// In Grafana the first row says it.
	if row := variables.Replace(board.Panels[0].Title); row != "Level busy at a glance" {
		t.Errorf("the first row is %q", row)
	}
	if title := boardFiles(t)[overviewBoard].titleWith(variables); strings.Contains(title, "level") {
		t.Errorf("the overview is of all levels, and its title is %q", title)
	}
}
