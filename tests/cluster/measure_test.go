package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMeasurementsAreAppendedAndDecideNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "measured")
	t.Setenv(measuredVariable, file)
	measured(t, "too long, for a test", 3, "s", 2)
	measured(t, "a figure, for a test", 0.5, "MiB", 0)
	want := `{"name":"too long, for a test","value":3,"unit":"s","bound":2,"ok":false}` + "\n" +
		`{"name":"a figure, for a test","value":0.5,"unit":"MiB","bound":null,"ok":true}` + "\n"
	if got := string(must[[]byte](t)(os.ReadFile(file))); got != want {
		t.Errorf("appended\n%swant\n%s", got, want)
	}
}
