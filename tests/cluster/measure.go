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

// What only the clock or the memory of a process can show is measured, and decides nothing: the machine may be busy with
// something else. A person reads it beside the last figures.

const (
	// measureVariable is set to 1 to measure as with the flag -measure.
	measureVariable = "FAIRGATE_MEASURE"
	// measuredVariable names a file to which measurements are appended, a line of JSON each.
	measuredVariable = "FAIRGATE_MEASURED"
)

var measuring = flag.Bool("measure", os.Getenv(measureVariable) == "1", "also run what only measures, and measure beside the controls")

// A Measurement is one figure.
type Measurement struct {
	Name  string   `json:"name"`
	Value float64  `json:"value"`
	Unit  string   `json:"unit"`
	Bound *float64 `json:"bound"` // it should be at most this; null if there is only a figure
	OK    bool     `json:"ok"`
}

// measured reports a figure that should be at most bound, unless that is 0. It never fails the test.
func measured(t *testing.T, name string, value float64, unit string, bound float64) {
	t.Helper()
	one := Measurement{Name: name, Value: value, Unit: unit, OK: true}
	if bound != 0 {
		one.Bound, one.OK = &bound, value <= bound
	}
	line, err := json.Marshal(one)
	if err != nil {
		t.Logf("%s of %v cannot be written: %v", name, value, err)
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
		t.Logf("%s is not appended: %v", name, err)
	}
}

// measuredTimes reports median and longest of some times, in seconds.
func measuredTimes(t *testing.T, name string, times []time.Duration, medianBound, longestBound time.Duration) {
	t.Helper()
	if len(times) == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(times))
	measured(t, name+", median", sorted[len(sorted)/2].Seconds(), "s", medianBound.Seconds())
	measured(t, name+", longest", sorted[len(sorted)-1].Seconds(), "s", longestBound.Seconds())
}

// onlyMeasures skips a test that takes long and decides nothing.
func onlyMeasures(t *testing.T) {
	t.Helper()
	if !*measuring {
		t.Skipf("this only measures: run it with -measure or %s=1", measureVariable)
	}
}
