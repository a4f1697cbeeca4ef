package boards

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// measured reports a figure that decides nothing, as tests/cluster does: a line MEASURED {json}, which is also appended to
// the file that FAIRGATE_MEASURED names.
func measured(t *testing.T, name string, value float64, unit string) {
	t.Helper()
	one := struct {
		Name  string  `json:"name"`
		Value float64 `json:"value"`
		Unit  string  `json:"unit"`
	}{name, value, unit}
	line, err := json.Marshal(one)
	if err != nil {
		t.Logf("%s of %v cannot be written: %v", name, value, err)
		return
	}
	fmt.Printf("MEASURED %s\n", line)
	file := os.Getenv("FAIRGATE_MEASURED")
	if file == "" {
		return
	}
	appended, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = appended.Write(append(line, '\n'))
		_ = appended.Close()
	}
	if err != nil {
		t.Logf("%s is not appended: %v", name, err)
	}
}
