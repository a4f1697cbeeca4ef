package main

// A Board is one dashboard.
type Board struct {
	// UID names it in URLs and links; it never changes.
	UID, Title, About string
	// ByLevel adds a variable for one priority level.
	ByLevel bool
	Rows    []Row
}

// A Row is a titled group of panels, which are laid out from left to right.
type Row struct {
	Title  string
	Panels []Panel
}

// A Panel shows the results of its queries.
type Panel struct {
	Title string
	// About says in a sentence what one sees.
	About string
	Unit  Unit
	Kind  Kind
	// Stacked adds the series up.
	Stacked bool
	// Wide is for half of the board's width instead of a third.
	Wide bool
	// Ours says that a metric is needed that kube-apiserver lacks.
	Ours bool
	// Quiet says that there are no data while all is well, and shows the word none.
	Quiet   bool
	Queries []Query
}

// A Query is an expression of PromQL, and the legend of its series.
type Query struct{ Expr, Legend string }

// A Unit is a unit by Grafana's name of it.
type Unit string

// The units in use.
const (
	Count    Unit = "short"
	PerSec   Unit = "reqps"
	Seconds  Unit = "s"
	Bytes    Unit = "bytes"
	Fraction Unit = "percentunit"
	Cores    Unit = "none"
	Boolean  Unit = "bool_yes_no"
)

// A Kind is a kind of panel by Grafana's name of it.
type Kind string

// The kinds in use.
const (
	Lines Kind = "timeseries"
	Stat  Kind = "stat"
)

// The selector of the board's variables. Expressions have an @ where it belongs.
const selector = `cluster=~"$cluster", job="$job", instance=~"$instance"`

var boards = []Board{overview, level, health, upstream}
