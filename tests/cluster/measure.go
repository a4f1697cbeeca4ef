package cluster

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// What only the clock or the memory of a process can show is measured, and fails no test: the machine may be busy with
// something else. A time is evaluated only beside a control in the same slices, by the median of at least three. Everything else is
// a figure, which a person reads beside the last one.

const (
	// measureVariable is set to 1 to measure as with the flag -measure.
	measureVariable = "FAIRGATE_MEASURE"
	// measuredVariable names a file to which measurements are appended, a line of JSON each.
	measuredVariable = "FAIRGATE_MEASURED"
)

var measuring = flag.Bool("measure", os.Getenv(measureVariable) == "1", "also run what only measures, and measure beside the controls")

// leastPairs is how many measurements beside their controls a evaluation needs at least.
const leastPairs = 3

// A Measurement is one figure.
type Measurement struct {
	Name  string   `json:"name"`
	Value float64  `json:"value"`
	Unit  string   `json:"unit"`
	Bound *float64 `json:"bound"` // what a ratio to a control should be at most; null if there is only a figure
	OK    bool     `json:"ok"`
}

// measured reports a figure, without a verdict.
func measured(t *testing.T, name string, value float64, unit string) {
	t.Helper()
	Measurement{Name: name, Value: value, Unit: unit, OK: true}.report(t)
}

// measuredBeside reports the median of the ratios of some times to those of a control, which should be at most bound. Each time was
// measured beside the control's of the same index, in turn; there must be three of them at least. It never fails the test.
func measuredBeside(t *testing.T, name string, ours, controls []time.Duration, bound float64) {
	t.Helper()
	if len(ours) != len(controls) || len(ours) < leastPairs {
		t.Fatalf("%s: %d times cannot be judged beside %d of the control", name, len(ours), len(controls))
	}
	var ratios []float64
	for number := range ours {
		ratios = append(ratios, ours[number].Seconds()/controls[number].Seconds())
	}
	slices.Sort(ratios)
	median := ratios[len(ratios)/2]
	Measurement{Name: name, Value: median, Bound: &bound, OK: median <= bound}.report(t)
}

// report prints the figure, and appends it to the file that [measuredVariable] names.
func (one Measurement) report(t *testing.T) {
	t.Helper()
	line, err := json.Marshal(one)
	if err != nil {
		t.Logf("%s of %v cannot be written: %v", one.Name, one.Value, err)
		return
	}
	// Not by t.Log, which says nothing of tests that pass.
	fmt.Printf("MEASURED %s\n", line)
	file := os.Getenv(measuredVariable)
	if file == "" {
		return
	}
	// One write each, so that lines of tests that run side by side do not mix.
	appended, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = appended.Write(append(line, '\n'))
		_ = appended.Close()
	}
	if err != nil {
		t.Logf("%s is not appended: %v", one.Name, err)
	}
}

// measuredTimes reports median and longest of some times, in seconds.
func measuredTimes(t *testing.T, name string, times []time.Duration) {
	t.Helper()
	if len(times) == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(times))
	measured(t, name+", median", sorted[len(sorted)/2].Seconds(), "s")
	measured(t, name+", longest", sorted[len(sorted)-1].Seconds(), "s")
}

// onlyMeasures skips a test that takes long and decides nothing.
func onlyMeasures(t *testing.T) {
	t.Helper()
	if !*measuring {
		t.Skipf("this only measures: run it with -measure or %s=1", measureVariable)
	}
}
