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
	// Wide is for half of the board's width instead of a third. Numbers take a quarter.
	Wide bool
	// Low is for panels that are empty in health.
	Low bool
	// Ours says that a metric is needed that kube-apiserver lacks.
	Ours bool
	// Empty says why there are no data where that may be so in health. Other panels always have data there.
	Empty string
	// Bounds are where values become bad.
	Bounds *Bounds
	// To leads to a board, by its UID. Series of priority levels lead to the board of their level anyway.
	To string
	// RowsOf is the label whose values are the rows of a table; without it there is a row for each priority level.
	RowsOf  string
	Queries []Query
}

// Bounds are where a value is worth a look, and where it is bad. Values above are; or below, if Bad is less than Warn.
type Bounds struct{ Warn, Bad float64 }

// A Query is an expression of PromQL, and the legend of its series. In a table the legend is the title of the column, which has a
// unit and bounds of its own.
type Query struct {
	Expr, Legend string
	Unit         Unit
	Bounds       *Bounds
}

// A Unit is a unit by Grafana's name of it.
type Unit string

// The units in use.
const (
	Count    Unit = "short"
	PerSec   Unit = "reqps"
	Seconds  Unit = "s"
	Days     Unit = "d"
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
	// Table has a row for each priority level, or each value of another label, and a column for each query.
	Table Kind = "table"
)

// Bounds of several panels.
var (
	// nearLimit is for the used part of something that ends.
	nearLimit = &Bounds{Warn: 0.8, Bad: 0.9}
	// full is for seats: a full level is worth a look, and no more.
	full = &Bounds{Warn: 0.9, Bad: 1.2}
	// failing is for the part of requests that fail.
	failing = &Bounds{Warn: 0.01, Bad: 0.1}
	// unusual is for what does not happen in health.
	unusual = &Bounds{Warn: 0.001, Bad: 1}
	// is is for what has to be 1.
	is = &Bounds{Warn: 1, Bad: 0.5}
	// noSeats is for the seats of a level: none is worth a look.
	noSeats = &Bounds{Warn: 1, Bad: 0}
	// starved is for what a flow has of its fair share.
	starved = &Bounds{Warn: 0.7, Bad: 0.5}
	// waits: requests are refused after 15 s by default, and a quarter of that is an alert.
	waits = &Bounds{Warn: 1, Bad: 3.75}
)

// slow is for the time that requests execute.
var slow = &Bounds{Warn: 1, Bad: 10}

// absent is shown where there are no data although there should be.
const absent = "no data: nothing has happened, not scraped, or not a metric of this server"

// The selector of the board's variables. Expressions have an @ where it belongs.
const selector = `cluster="$cluster", job="$job", instance=~"$instance"`

var boards = []Board{overview, level, health, upstream, evictions, fleet}
