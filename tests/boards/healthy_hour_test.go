package boards

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A healthy hour: what a gateway really shows for a minute, stretched to an hour, to which the rules and alerts apply as they
// are in config/prometheus, with their own ranges and durations. promtool evaluates them.

const (
	// scrapes make an hour: each stands for stretched seconds, as with Prometheus' usual interval.
	scrapes, stretched = 120, 30
	scrapeEvery        = 750 * time.Millisecond
)

// A recording has the samples of some scrapes of one gateway.
type recording struct {
	begun time.Time
	last  time.Time
	// kinds has the types of the families of metrics.
	kinds map[string]string
	// series has the values of each series by its name and labels, as written in the exposition.
	series map[string]*recordedSeries
	count  int
}

type recordedSeries struct {
	// raw is the value of the last scrape.
	raw float64
	// value is what promtool gets: for counters stretched like the time.
	value float64
	texts []string
}

// bystandersMayWait is a sixteenth of the longest wait of 7.5 s, in seconds: alerts about levels need bystanders to wait longer.
const bystandersMayWait = 7.5 / 16

var expositionLine = regexp.MustCompile(`^([A-Za-z_:][A-Za-z0-9_:]*)(\{.*\})? (\S+)$`)

// scrape adds what the gateway shows now. One that does not answer is down, as for Prometheus.
func (r *recording) scrape(t *testing.T, of *gateway) {
	t.Helper()
	response, err := http.Get("http://" + of.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("the metrics cannot be read: %s %v", response.Status, err)
	}
	now := time.Now()
	if r.count == 0 {
		r.begun, r.last = now, now
		r.kinds, r.series = map[string]string{}, map[string]*recordedSeries{}
	}
	factor := 0.0
	if passed := now.Sub(r.last).Seconds(); passed > 0 {
		factor = stretched / passed
	}
	r.last = now
	for line := range strings.Lines(string(text)) {
		r.add(t, strings.TrimSuffix(line, "\n"), factor)
	}
	r.add(t, "up 1", factor)
	r.count++
	for _, series := range r.series {
		if len(series.texts) < r.count {
			series.texts = append(series.texts, "stale")
		}
	}
}

// add enters a line of an exposition. The growth of counters is stretched by the factor, so that rates stay what they were;
// what gauges say stays as it is, but for times, which are counted from the first scrape.
func (r *recording) add(t *testing.T, line string, factor float64) {
	t.Helper()
	if fields := strings.Fields(line); len(fields) == 4 && fields[1] == "TYPE" {
		r.kinds[fields[2]] = fields[3]
		return
	}
	if line == "" || line[0] == '#' {
		return
	}
	match := expositionLine.FindStringSubmatch(line)
	if match == nil {
		t.Fatalf("this is no sample: %q", line)
	}
	name, labels := match[1], strings.Trim(match[2], "{}")
	value, err := strconv.ParseFloat(match[3], 64)
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if strings.HasSuffix(name, "_timestamp_seconds") {
		value -= float64(r.begun.Unix())
	}
	if labels != "" {
		labels = ", " + labels
	}
	key := name + `{job="fairgate", instance="recorded"` + labels + "}"
	series := r.series[key]
	switch {
	case series == nil:
		series = &recordedSeries{value: value}
		for range r.count {
			series.texts = append(series.texts, "_")
		}
		r.series[key] = series
	case r.counts(t, name):
		series.value += (value - series.raw) * factor
	default:
		series.value = value
	}
	series.raw = value
	series.texts = append(series.texts, strconv.FormatFloat(series.value, 'f', 9, 64))
}

// counts says whether a series of this name only grows.
func (r *recording) counts(t *testing.T, name string) bool {
	t.Helper()
	for _, ending := range []string{"_bucket", "_sum", "_count"} {
		if family, cut := strings.CutSuffix(name, ending); cut && r.kinds[family] == "histogram" {
			return true
		}
	}
	switch kind := r.kinds[name]; kind {
	case "counter":
		return true
	case "gauge":
		return false
	default:
		if name != "up" {
			t.Fatalf("%s has the type %q", name, kind)
		}
		return false
	}
}

// least is the least value of a series whose name and labels have all of these words, over the scrapes from this one on.
func (r *recording) least(t *testing.T, from int, words ...string) float64 {
	t.Helper()
	for key, series := range r.series {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(key, word) }) {
			least := 0.0
			for number, text := range series.texts[from:] {
				value, err := strconv.ParseFloat(text, 64)
				if err != nil {
					t.Fatalf("%s at scrape %d: %v", key, from+number, err)
				}
				if number == 0 || value < least {
					least = value
				}
			}
			return least
		}
	}
	t.Fatalf("no series has %q", words)
	return 0
}

// numbers are the values of a series.
func numbers(texts []string) (found []float64) {
	for _, text := range texts {
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			found = append(found, value)
		}
	}
	return found
}

// An expectation is an expression and the samples that it gives at the end of a recording.
type expectation struct {
	expr    string
	samples []object
}

// evaluate has promtool compare what the rules make of the recording; it returns what it says, and whether all is as expected.
func (r *recording) evaluate(t *testing.T, expectations ...expectation) (string, bool) {
	t.Helper()
	rules, err := filepath.Abs("../../config/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	known := read(t, "rules.yaml") + read(t, "alerts.yaml")
	used := map[string]bool{}
	for _, name := range regexp.MustCompile(`[a-z_]{2,}`).FindAllString(known, -1) {
		used[name] = true
	}
	var input []object
	for _, key := range slices.Sorted(maps.Keys(r.series)) {
		if name, _, _ := strings.Cut(key, "{"); used[name] {
			input = append(input, object{"series": key, "values": strings.Join(r.series[key].texts, " ")})
		}
	}
	var expected []object
	for _, one := range expectations {
		expected = append(expected, object{"expr": one.expr, "exp_samples": one.samples,
			"eval_time": fmt.Sprintf("%ds", (r.count-1)*stretched)})
	}
	interval := fmt.Sprintf("%ds", stretched)
	text := encode(t, object{
		"rule_files":          []string{filepath.Join(rules, "rules.yaml"), filepath.Join(rules, "alerts.yaml")},
		"evaluation_interval": interval,
		"tests":               []object{{"interval": interval, "input_series": input, "promql_expr_test": expected}},
	})
	directory := t.TempDir()
	// JSON is YAML.
	write(t, directory, "recorded.yaml", text)
	said, err := exec.Command(filepath.Join(os.Getenv("PROMETHEUS_BIN"), "promtool"), "test", "rules",
		filepath.Join(directory, "recorded.yaml")).CombinedOutput()
	t.Logf("promtool evaluated %d series over %s", len(input), time.Duration((r.count-1)*stretched)*time.Second)
	return string(said), err == nil
}

// record scrapes a gateway so many times, and stretches that.
func (r *recording) record(t *testing.T, of *gateway, times int) {
	t.Helper()
	ticks := time.NewTicker(scrapeEvery)
	defer ticks.Stop()
	for range times {
		<-ticks.C
		r.scrape(t, of)
	}
}

// Users read and write, and after a quarter of the hour one of them sends far more than its level serves, until the end. It waits
// behind itself and hurts nobody: no alert may fire, nor become pending, warnings included. Then the upstream ends, which
// shows that alerts do fire on what is recorded in this way.
func TestBoardsAreQuietInAHealthyHour(t *testing.T) {
	up := startUpstream(t, "", "")
	directory := t.TempDir()
	certify(t, directory, 90*24*time.Hour)
	gateway := startGateway(t, directory, object{
		"mode": "files", "upstream": object{"url": "http://" + up.address},
		// The longest wait is a quarter of it.
		"timeouts": object{"request": "30s"},
	}, true)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	gateway.load(ctx, 2, "mouse", "GET", podsOfA+"?delay=20ms&bytes=5000", 50*time.Millisecond)
	gateway.load(ctx, 1, "mouse", "GET", podsOfA+"/one?delay=5ms", 50*time.Millisecond)
	gateway.load(ctx, 1, "mouse", "POST", podsOfA+"?delay=10ms&code=201", 100*time.Millisecond)
	gateway.load(ctx, 1, "impatient", "GET", podsOfA+"?delay=20ms", 100*time.Millisecond)
	gateway.load(ctx, 1, "elephant", "GET", podsOfA+"?delay=20ms", 50*time.Millisecond)
	gateway.load(ctx, 2, "node", "GET", "/api/v1/nodes/a?delay=5ms", 100*time.Millisecond)
	gateway.load(ctx, 1, "root", "GET", podsOfA+"?delay=20ms", 100*time.Millisecond)
	gateway.load(ctx, 3, "mouse", "GET", "/api/v1/pods?watch=true", time.Second)
	gateway.load(ctx, 2, "node", "GET", "/api/v1/services?watch=true", time.Second)
	hour := &recording{}
	hour.record(t, gateway, scrapes/8)
	go func() {
		// It grows within half an hour of stretched time, in which the level borrows as it does within minutes. Requests take
		// differently long, as those of an API server do: seats become free all the time.
		grows := time.NewTicker(50 * time.Millisecond)
		defer grows.Stop()
		for number := range 620 {
			<-grows.C
			delay := 1500 + number*997%3000
			gateway.load(ctx, 1, "elephant", "GET", fmt.Sprintf("%s?delay=%dms&bytes=5000", podsOfA, delay), 0)
		}
	}()
	hour.record(t, gateway, scrapes*7/8+1)

	queued := hour.least(t, scrapes*3/4, "fairgate_flow_inqueue_requests{", `flow="elephant"`)
	if queued < 50 {
		t.Errorf("the flood does not wait all the time: at least %v requests do", queued)
	}
	waits := hour.series[`fairgate_bystander_wait_seconds{job="fairgate", instance="recorded", apiserver="`+up.address+`",priority_level="global-default"}`]
	if waits == nil {
		t.Fatal("the level of the flood has no wait of bystanders")
	}
	t.Logf("at least %v requests of the flood wait; bystanders wait for at most %v s", queued, longestOf(waits.texts))
	quiet := expectation{expr: `count by (alertname, alertstate) (count_over_time(ALERTS[2h]))`, samples: []object{}}
	full := expectation{expr: `min_over_time((min(priority_level:apiserver_flowcontrol_seat_utilization:ratio{priority_level="global-default"}))[15m:30s]) > bool 0.9`,
		samples: []object{{"labels": "{}", "value": 1}}}
	// The flood waits long, by what alerts say.
	slow := expectation{expr: `min_over_time((min(priority_level:apiserver_flowcontrol_request_wait_duration_seconds:p99_5m{priority_level="global-default"}))[15m:30s]) > bool 1.875`,
		samples: []object{{"labels": "{}", "value": 1}}}
	expected := []expectation{full, slow}
	if longest := longestOf(waits.texts); longest > bystandersMayWait {
		// A machine that stands still lets bystanders wait, and then alerts are right to fire: this says nothing about the rules.
		t.Logf("bystanders waited for %v s, so whether alerts fire is not looked at", longest)
	} else {
		expected = append(expected, quiet)
	}
	measured(t, "longest wait of bystanders in a healthy hour", longestOf(waits.texts), "s")
	if said, ok := hour.evaluate(t, expected...); !ok {
		t.Errorf("in a healthy hour:\n%s", said)
	}

	up.down()
	hour.record(t, gateway, 20)
	down := expectation{expr: `count by (alertname) (last_over_time(ALERTS{alertname="FairgateUpstreamDown", alertstate="firing"}[1m]))`,
		samples: []object{{"labels": `{alertname="FairgateUpstreamDown"}`, "value": 1}}}
	if said, ok := hour.evaluate(t, down); !ok {
		t.Errorf("after the upstream's end:\n%s", said)
	}
}

// longestOf is the greatest of some samples.
func longestOf(texts []string) float64 { return slices.Max(numbers(texts)) }
