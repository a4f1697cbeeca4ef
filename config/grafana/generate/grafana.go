package main

import "strings"

type object = map[string]any

const (
	width   = 24
	height  = 8
	lowness = 4
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
			w, h := width/3, height
			if panel.Wide {
				w = width / 2
			}
			if panel.Kind == Stat {
				h = lowness
			}
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
		"annotations": object{"list": []object{}},
		"links": []object{{
			"title": "fairgate", "type": "dashboards", "tags": []string{"fairgate"}, "asDropdown": true,
			"includeVars": true, "keepTime": true,
		}},
		"templating": object{"list": b.variables()},
		"panels":     panels,
	}
}

func (b Board) panel(p Panel, id int, place object) object {
	kind := p.Kind
	if kind == "" {
		kind = Lines
	}
	targets := []object{}
	for i, query := range p.Queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": datasource, "expr": b.expand(query.Expr),
			"legendFormat": query.Legend, "instant": kind == Stat, "range": kind != Stat,
		})
	}
	custom, options := object{}, object{}
	switch kind {
	case Lines:
		custom = object{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false}
		if p.Stacked {
			custom["stacking"] = object{"mode": "normal", "group": "A"}
			custom["fillOpacity"] = 40
		}
		options = object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
	case Stat:
		options = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}}
	}
	defaults := object{"unit": string(p.Unit), "custom": custom}
	if !p.canBeNegative() {
		defaults["min"] = 0
	}
	if p.Quiet {
		defaults["noValue"] = "none"
	}
	return object{
		"id": id, "type": string(kind), "title": p.Title, "description": p.About, "datasource": datasource,
		"gridPos": place, "targets": targets, "options": options,
		"fieldConfig": object{
			"defaults":  defaults,
			"overrides": []object{},
		},
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
	label := func(name, title, query string, all bool) object {
		variable := object{
			"name": name, "label": title, "type": "query", "datasource": datasource, "query": query,
			"refresh": 2, "sort": 1, "includeAll": all, "multi": all,
		}
		if all {
			// Matches a label that is not there, too.
			variable["allValue"] = ".*"
			variable["current"] = object{"text": "All", "value": "$__all"}
		}
		return variable
	}
	list := []object{
		{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1},
		label("cluster", "Cluster", "label_values("+anchor+", cluster)", true),
		// One job at a time: a request that passes a gateway and then a kube-apiserver is counted by both.
		label("job", "Job", `label_values(`+anchor+`{cluster=~"$cluster"}, job)`, false),
		label("instance", "Instance", `label_values(`+anchor+`{cluster=~"$cluster", job="$job"}, instance)`, true),
	}
	if b.ByLevel {
		list = append(list, label("level", "Priority level",
			`label_values(`+anchor+`{cluster=~"$cluster", job="$job"}, priority_level)`, false))
	}
	return list
}
