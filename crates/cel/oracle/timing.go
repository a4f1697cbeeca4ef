package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/google/cel-go/cel"

	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// A timedExpression is an expression that the tests of the crate evaluated until it ended, and how long that took.
type timedExpression struct {
	Expr        string  `json:"expr"`
	Nanoseconds float64 `json:"nanoseconds"`
}

// slowest bounds one evaluation of the original, which has no limit of work.
const slowest = 5 * time.Second

// writeTimings evaluates the expressions of a file, and prints how long the original takes beside ours.
func writeTimings(path string, out io.Writer) error {
	runtime.GOMAXPROCS(1)
	env, err := timingEnvironment()
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	variables := timingVariables()
	for lines.Scan() {
		one := timedExpression{}
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return err
		}
		took, end := timed(env, one.Expr, variables)
		ours := time.Duration(one.Nanoseconds)
		ratio := took.Seconds() / ours.Seconds()
		fmt.Fprintf(out, "%8.1f ms beside %8.1f ms: %5.1f times, %s: %s\n", ms(took), ms(ours), ratio, end, one.Expr)
	}
	return lines.Err()
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// timed evaluates once, with the limits of one expression in the original.
func timed(env *cel.Env, expr string, variables map[string]any) (time.Duration, string) {
	ast, issues := env.Compile(expr)
	if issues.Err() != nil {
		return 0, strings.ReplaceAll(issues.Err().Error(), "\n", " ")
	}
	program, err := env.Program(ast, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		return 0, err.Error()
	}
	runtime.GC()
	ctx, cancel := context.WithTimeout(context.Background(), slowest)
	defer cancel()
	start := time.Now()
	_, _, err = program.ContextEval(ctx, variables)
	took := time.Since(start)
	if err != nil {
		return took, err.Error()
	}
	return took, "a value"
}

func timingEnvironment() (*cel.Env, error) {
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions: []cel.EnvOption{
			cel.Variable("xs", cel.ListType(cel.IntType)),
			cel.Variable("text", cel.StringType),
			cel.Variable("wide", cel.StringType),
			cel.Variable("none", cel.OptionalType(cel.IntType)),
			cel.Variable("json", cel.DynType),
		},
	})
	if err != nil {
		return nil, err
	}
	return set.Env(environment.StoredExpressions)
}

// timingVariables are the values that the tests of the crate bind.
func timingVariables() map[string]any {
	xs := make([]int64, 1_000)
	for at := range xs {
		xs[at] = int64(at)
	}
	object := map[string]any{}
	for at := range 100_000 {
		object[fmt.Sprint(at)] = int64(at)
	}
	empty := make([]any, 1_000_000)
	for at := range empty {
		empty[at] = []any{}
	}
	return map[string]any{
		"xs":   xs,
		"text": strings.Repeat("a", 3_000_000),
		"wide": strings.Repeat("\u200b", 1_000_000),
		"none": nil,
		"json": map[string]any{
			"object": object,
			"empty":  empty,
			"a":      map[string]any{"b": map[string]any{"c": int64(-1)}},
		},
	}
}
