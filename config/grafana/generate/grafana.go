package main

import (
	"cmp"
	"strconv"
	"strings"
)

type object = map[string]any

const (
	width   = 24
	height  = 8
	lowness = 4
	// slight is the height of lines that are seldom there.
	slight = 6
)

var datasource = object{"type": "prometheus", "uid": "${datasource}"}

// expand puts the selector of the board's variables where an expression has an @.
func (b Board) expand(expr string) string {
	selector := selector
	if b.ByLevel {
		selector += `, priority_level="$level"`
	}
	return strings.ReplaceAll(expr, "@", selector)
}

// grafana returns the dashboard as Grafana imports it.
func (b Board) grafana() object {
	panels := []object{}
	id, y := 1, 0
	for _, row := range b.Rows {
		panels = append(panels, object{
			"id": id, "type": "row", "title": row.Title, "collapsed": false, "panels": []object{},
			"gridPos": object{"x": 0, "y": y, "w": width, "h": 1},
		})
		id++
		y++
		x, tallest := 0, 0
		for _, panel := range row.Panels {
			w, h := panel.size()
			if x+w > width {
				x, y, tallest = 0, y+tallest, 0
			}
			panels = append(panels, b.panel(panel, id, object{"x": x, "y": y, "w": w, "h": h}))
			id++
			x += w
			tallest = max(tallest, h)
		}
		y += tallest
	}
	return object{
		"uid": b.UID, "title": b.Title, "description": b.About, "tags": []string{"fairgate", "kubernetes"},
		"schemaVersion": 39, "version": 1, "editable": true, "graphTooltip": 1, "timezone": "browser",
		"refresh": "30s", "time": object{"from": "now-1h", "to": "now"},
		"annotations": object{"list": annotations()},
		"links": []object{{
			"title": "fairgate", "type": "dashboards", "tags": []string{"fairgate"}, "asDropdown": true,
			"includeVars": true, "keepTime": true,
		}},
		"templating": object{"list": b.variables()},
		"panels":     panels,
	}
}

// size returns the width and the height in cells of Grafana's grid.
func (p Panel) size() (w, h int) {
	switch {
	case p.Kind == Stat:
		return width / 4, lowness
	case p.Kind == Table:
		return width, height + 2
	case p.Wide && p.Low:
		return width / 2, slight
	case p.Wide:
		return width / 2, height
	}
	return width / 3, height
}

// annotations mark what may be the cause of what the graphs show.
func annotations() []object {
	one := func(name, colour, expr string) object {
		expr = strings.ReplaceAll(expr, "@", selector)
		return object{
			"name": name, "datasource": datasource, "enable": true, "iconColor": colour,
			"expr": expr, "titleFormat": name, "textFormat": "{{instance}}", "step": "15s",
		}
	}
	return []object{
		one("Policy applied", "blue", `changes(fairgate_policy_generation{@}[$__rate_interval]) > 0`),
		one("Policy refused", "red", `increase(fairgate_policy_loads_total{outcome="failed", @}[$__rate_interval]) > 0`),
		one("Configuration reloaded", "purple", `sum by (instance) (increase(fairgate_config_reloads_total{@}[$__rate_interval])) > 0`),
		one("Started", "orange", `changes(process_start_time_seconds{@}[$__rate_interval]) > 0`),
	}
}

func (b Board) panel(p Panel, id int, place object) object {
	kind := p.Kind
	if kind == "" {
		kind = Lines
	}
	targets := []object{}
	for i, query := range p.Queries {
		target := object{
			"refId": refID(i), "datasource": datasource, "expr": b.expand(query.Expr),
			"legendFormat": query.Legend, "instant": kind != Lines, "range": kind == Lines,
		}
		if kind == Table {
			target["format"] = "table"
		}
		targets = append(targets, target)
	}
	custom, options := object{}, object{}
	switch kind {
	case Lines:
		custom = object{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false}
		if p.Stacked {
			custom["stacking"] = object{"mode": "normal", "group": "A"}
			custom["fillOpacity"] = 40
		}
		if p.Bounds != nil {
			custom["thresholdsStyle"] = object{"mode": "dashed"}
		}
		options = object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
	case Stat:
		options = object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
			"colorMode":     "background", "graphMode": "none",
		}
	case Table:
		options = object{"showHeader": true, "sortBy": []object{{"displayName": p.Queries[0].Legend, "desc": true}}}
	}
	defaults := object{"unit": string(p.Unit), "custom": custom, "noValue": absent, "thresholds": p.Bounds.steps()}
	if kind == Lines {
		// What has one name has one colour, on every panel.
		defaults["color"] = object{"mode": "palette-classic-by-name"}
	}
	if !p.canBeNegative() {
		defaults["min"] = 0
	}
	if p.Empty != "" {
		defaults["noValue"] = p.Empty
	}
	if links := b.links(p); len(links) > 0 {
		defaults["links"] = links
	}
	panel := object{
		"id": id, "type": string(kind), "title": p.Title, "description": p.description(), "datasource": datasource,
		"gridPos": place, "targets": targets, "options": options,
		"fieldConfig": object{
			"defaults":  defaults,
			"overrides": p.columns(),
		},
	}
	if kind == Table {
		panel["transformations"] = p.joined()
	}
	return panel
}

func refID(i int) string { return string(rune('A' + i)) }

// steps returns the thresholds. Without bounds nothing has a colour of its own.
func (b *Bounds) steps() object {
	step := func(colour string, value any) object { return object{"color": colour, "value": value} }
	steps := []object{step("text", nil)}
	switch {
	case b == nil:
	case b.Bad < b.Warn:
		steps = []object{step("red", nil), step("orange", b.Bad), step("green", b.Warn)}
	default:
		steps = []object{step("green", nil), step("orange", b.Warn), step("red", b.Bad)}
	}
	return object{"mode": "absolute", "steps": steps}
}

// description is the explanation, with what the colours mean.
func (p Panel) description() string {
	parts := []string{p.About}
	if p.Bounds != nil && p.Kind != Table {
		parts = append(parts, "Colours: "+p.Bounds.legend(p.Unit)+".")
	}
	for _, query := range p.Queries {
		if p.Kind == Table && query.Bounds != nil {
			parts = append(parts, query.Legend+": "+query.Bounds.legend(query.Unit)+".")
		}
	}
	return strings.Join(parts, " ")
}

// legend says what the colours of values mean.
func (b Bounds) legend(unit Unit) string {
	isLow := b.Bad < b.Warn
	switch {
	case unit == Boolean && isLow:
		return "green is yes, red is no"
	case unit == Boolean:
		return "green is no, red is yes"
	case isLow:
		return "green from " + unit.text(b.Warn) + ", orange below, red below " + unit.text(b.Bad)
	case b == *unusual:
		return "green is none, orange is any, red from " + unit.text(b.Bad)
	}
	return "green below " + unit.text(b.Warn) + ", orange from there, red from " + unit.text(b.Bad)
}

// text is a value in the unit.
func (u Unit) text(value float64) string {
	number := func(value float64) string { return strconv.FormatFloat(value, 'g', 4, 64) }
	switch u {
	case Fraction:
		return number(value*100) + " %"
	case Seconds:
		return number(value) + " s"
	case Days:
		return number(value) + " days"
	case PerSec:
		return number(value) + " each second"
	}
	return number(value)
}

// links returns where the panel leads to. The variables of the present board and the time are kept.
func (b Board) links(p Panel) []object {
	const kept = "?${__url_time_range}&${__all_variables}"
	links := []object{}
	if p.To != "" {
		links = append(links, object{"title": "More", "url": "/d/" + p.To + kept})
	}
	switch {
	case b.ByLevel:
	case p.Kind == Table && p.rowsOf() == "priority_level":
		links = append(links, object{"title": "This level", "url": "/d/" + level.UID + kept + `&var-level=${__data.fields.Level}`})
	case strings.Contains(p.Queries[0].Legend, "{{priority_level}}"):
		links = append(links, object{"title": "This level", "url": "/d/" + level.UID + kept + `&var-level=${__field.labels.priority_level}`})
	}
	return links
}

// columns returns what the columns of a table have of their own.
func (p Panel) columns() []object {
	columns := []object{}
	if p.Kind != Table {
		return columns
	}
	for _, query := range p.Queries {
		properties := []object{{"id": "unit", "value": string(query.Unit)}}
		if query.Bounds != nil {
			properties = append(properties,
				object{"id": "thresholds", "value": query.Bounds.steps()},
				object{"id": "custom.cellOptions", "value": object{"type": "color-background"}})
		}
		columns = append(columns, object{
			"matcher": object{"id": "byName", "options": query.Legend}, "properties": properties,
		})
	}
	return columns
}

func (p Panel) rowsOf() string { return cmp.Or(p.RowsOf, "priority_level") }

// joined makes one table of the results, with the titles of the columns.
func (p Panel) joined() []object {
	titles, order := object{}, object{}
	for label, title := range map[string]string{"priority_level": "Level", "server": "Server", "instance": "Gateway"} {
		if label == p.rowsOf() {
			titles[label], order[label] = title, 0
		}
	}
	for i, query := range p.Queries {
		name := "Value #" + refID(i)
		titles[name], order[name] = query.Legend, i+1
	}
	return []object{
		{"id": "merge", "options": object{}},
		{"id": "organize", "options": object{
			"excludeByName": object{"Time": true}, "renameByName": titles, "indexByName": order,
		}},
	}
}

// canBeNegative says whether the axis has to go below 0.
func (p Panel) canBeNegative() bool {
	for _, query := range p.Queries {
		if strings.Contains(query.Expr, " - ") {
			return true
		}
	}
	return false
}

func (b Board) variables() []object {
	const anchor = "apiserver_flowcontrol_nominal_limit_seats"
	one := func(name, title, query string) object {
		return object{
			"name": name, "label": title, "type": "query", "datasource": datasource, "query": query,
			"refresh": 2, "sort": 1, "includeAll": false, "multi": false,
		}
	}
	several := func(name, title, query string) object {
		variable := one(name, title, query)
		variable["includeAll"], variable["multi"] = true, true
		variable["current"] = object{"text": "All", "value": "$__all"}
		return variable
	}
	const chosen = `cluster="$cluster", job="$job"`
	fleet := several("fleet", "Fleet", `label_values(fairgate_fleet_seats{`+chosen+`}, fleet)`)
	// Matches a label that is not there, too: gateways without a fleet, and kube-apiservers.
	fleet["allValue"] = ".*"
	list := []object{
		{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1},
		// One cluster at a time, as on the boards of Kubernetes: levels, users and fleets of two may have the same names. Without a
		// label cluster the value is empty, which selects just those series.
		one("cluster", "Cluster", "label_values("+anchor+", cluster)"),
		// One job at a time: a request that passes a gateway and then a kube-apiserver is counted by both.
		one("job", "Job", `label_values(`+anchor+`{cluster="$cluster"}, job)`),
		fleet,
		// Only a fleet's own metrics have its name, so it is the instances that it chooses: all of them are those listed.
		several("instance", "Instance", `label_values({__name__=~"`+anchor+`|fairgate_fleet_seats", `+chosen+`, fleet=~"$fleet"}, instance)`),
	}
	if b.ByLevel {
		list = append(list, one("level", "Priority level",
			`label_values(`+anchor+`{`+chosen+`}, priority_level)`))
	}
	return list
}
