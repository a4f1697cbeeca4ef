package cluster

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"fairgate.dev/tests/cluster/queueset"
)

// tracesVariable names fairgate's example queue_traces; without it the script queueset/build is asked.
const tracesVariable = "FAIRGATE_TRACES"

// It plays the first of the traces that the script queueset/run plays all of.
func TestCompatibleDoesAsTheOriginalAfterEveryEvent(t *testing.T) {
	if *direct {
		t.Skip("nothing of fairgate takes part")
	}
	const seed, traces = 1, 500
	program := tracesProgram(t)
	summary := must[*queueset.Summary](t)(queueset.Run(inTime(t, 20*time.Minute), program, seed, 0, traces))
	if summary.Shortest != nil {
		t.Error(must[*queueset.Difference](t)(queueset.Shrink(program, summary.Shortest)))
	}
	t.Log(summary)
}

func tracesProgram(t *testing.T) string {
	if named := os.Getenv(tracesVariable); named != "" {
		return named
	}
	build := exec.Command("./queueset/build")
	build.Stderr = os.Stderr
	return strings.TrimSpace(string(must[[]byte](t)(build.Output())))
}
