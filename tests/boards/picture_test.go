package boards

import (
	"encoding/json"
	"fmt"
	"html"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
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

// missing is a label in a legend that the series does not have.
var missing = regexp.MustCompile(`\{\{\w+\}\}`)

type panelFile struct {
	Title, Type, Description string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct {
		Defaults struct {
			Unit   string
			Custom struct{ Stacking struct{ Mode string } }
		}
	}
	Targets []struct{ Expr, LegendFormat string }
}

type series struct {
	name   string
	points [][2]float64
}

// draw writes each board as a page of HTML, with what happened since begun.
func (p *prometheus) draw(t *testing.T, directory string, begun time.Time) {
	paths, err := filepath.Glob("../../config/grafana/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Title  string
			Panels []panelFile
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatal(err)
		}
		var page strings.Builder
		fmt.Fprintf(&page, "<!doctype html><meta charset=utf-8><title>%s</title><style>body{font:13px sans-serif;margin:12px;position:relative}"+
			".p{position:absolute;box-sizing:border-box;padding:4px}.s{font-size:34px;text-align:center}small{display:block;line-height:15px;overflow:hidden;max-height:32px}</style>"+
			"<h2>%s</h2><div style=position:relative>", html.EscapeString(board.Title), html.EscapeString(board.Title))
		for _, panel := range board.Panels {
			at := panel.GridPos
			fmt.Fprintf(&page, "<div class=p style=left:%dpx;top:%dpx;width:%dpx;height:%dpx>", at.X*cell, at.Y*rowHeight, at.W*cell, at.H*rowHeight)
			if panel.Type == "row" {
				fmt.Fprintf(&page, "<b style=font-size:16px>%s</b></div>", html.EscapeString(panel.Title))
				continue
			}
			fmt.Fprintf(&page, "<b>%s</b>", html.EscapeString(panel.Title))
			var all []series
			for _, target := range panel.Targets {
				all = append(all, p.history(t, variables.Replace(target.Expr), target.LegendFormat, begun)...)
			}
			if panel.Type == "stat" {
				page.WriteString(number(all, panel.FieldConfig.Defaults.Unit))
			} else {
				page.WriteString(plot(panel.bands(all), at.W*cell-8, (at.H-legendRows)*rowHeight, begun, panel.FieldConfig.Defaults.Unit))
			}
			page.WriteString("</div>")
		}
		page.WriteString("</div>")
		name := strings.TrimSuffix(filepath.Base(path), ".json") + ".html"
		if err := os.WriteFile(filepath.Join(directory, name), []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
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
		name := legend
		for label, value := range one.Metric {
			name = strings.ReplaceAll(name, "{{"+label+"}}", value)
		}
		line := series{name: missing.ReplaceAllString(name, "")}
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

func number(all []series, unit string) string {
	if len(all) == 0 {
		return "<div class=s>no data</div>"
	}
	points := all[0].points
	return "<div class=s>" + inUnit(points[len(points)-1][1], unit) + "</div>"
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
		return short(value) + " s"
	case "d":
		return short(value) + " days"
	case "reqps":
		return short(value) + " /s"
	case "bytes":
		return short(value/(1<<20)) + " MiB"
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
func (p panelFile) bands(all []series) []band {
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
func plot(all []band, width, height int, begun time.Time, unit string) string {
	if len(all) == 0 {
		return "<div class=s>no data</div>"
	}
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
	for i, line := range all {
		colour := colours[i%len(colours)]
		if line.lower != nil {
			below := slices.Clone(line.lower)
			slices.Reverse(below)
			fmt.Fprintf(&out, `<polygon fill="%s" fill-opacity=0.4 points="%s%s"/>`, colour, points(line.upper), points(below))
		}
		fmt.Fprintf(&out, `<polyline fill=none stroke-width=1.5 stroke="%s" points="%s"/>`, colour, points(line.upper))
	}
	out.WriteString("</svg><small>")
	for i, line := range all {
		fmt.Fprintf(&out, `<span style="color:%s">&#9644; %s</span> &nbsp;`, colours[i%len(colours)], html.EscapeString(line.name))
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
	if picture := plot(stacked(all), 400, 200, begun, "short"); !strings.Contains(picture, ">17<") || strings.Count(picture, "<polygon") != 3 {
		t.Error(picture)
	}
	if picture := plot(overlaid(all), 400, 200, begun, "short"); !strings.Contains(picture, ">10<") || strings.Contains(picture, "<polygon") {
		t.Error(picture)
	}
}

func TestPanelsThatSayStackedAreStacked(t *testing.T) {
	text, err := os.ReadFile("../../config/grafana/overview.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct{ Panels []panelFile }
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, panel := range board.Panels {
		found[panel.Title] = panel.bands([]series{{points: [][2]float64{{0, 1}}}})[0].lower != nil
	}
	for title, want := range map[string]bool{"Refusals by reason": true, "Seats in use by level": true, "Queue depth by level": false} {
		if stacked, ok := found[title]; !ok || stacked != want {
			t.Errorf("%s: stacked is %v, and there is one: %v", title, stacked, ok)
		}
	}
}
