package cluster

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestMeasurementsAreAppendedAndDecideNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "measured")
	t.Setenv(measuredVariable, file)
	measured(t, "a figure, for a test", 0.5, "MiB")
	// The machine was ten times as slow in the second pair: the ratios are 3, 2.5 and 1.
	ours, controls := []time.Duration{3, 50, 2}, []time.Duration{1, 20, 2}
	measuredBeside(t, "too long, for a test", ours, controls, 2)
	measuredBeside(t, "short enough, for a test", ours, controls, 2.5)
	want := `{"name":"a figure, for a test","value":0.5,"unit":"MiB","bound":null,"ok":true}` + "\n" +
		`{"name":"too long, for a test","value":2.5,"unit":"","bound":2,"ok":false}` + "\n" +
		`{"name":"short enough, for a test","value":2.5,"unit":"","bound":2.5,"ok":true}` + "\n"
	if got := string(must[[]byte](t)(os.ReadFile(file))); got != want {
		t.Errorf("appended\n%swant\n%s", got, want)
	}
}
