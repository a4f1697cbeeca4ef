package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/google/cel-go/cel"

	"k8s.io/apimachinery/pkg/util/version"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

const (
	// Runs of an expression without comprehensions, of which one result is expected.
	fewRuns = 3
	// Runs of an expression that may iterate over a map, whose order is random in Go.
	manyRuns = 100
	// The cost of all runs of an expression after which no further run is started.
	mostCost = 200_000
)

// A question is an expression, with the environment and the world in which it is evaluated.
type question struct {
	Group string `json:"group"`
	World int    `json:"world"`
	Expr  string `json:"expr"`
	// The compatibility version of the environment for new expressions; empty for the environment of stored ones.
	Compatibility string `json:"compatibility,omitempty"`
	// The names and expressions of the policy's variables.
	Variables [][2]string `json:"variables,omitempty"`
}

// An outcome is the result of an evaluation, a value or an error, and its cost.
type outcome struct {
	// The value, in a list so that null differs from no value.
	Value []any  `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
	Cost  int64  `json:"cost"`
}

// A differentialCase is a question with the original's answer: the compiler's error, or the type and all
// outcomes that were seen.
type differentialCase struct {
	question
	Compile  string    `json:"compile,omitempty"`
	Type     string    `json:"type,omitempty"`
	Outcomes []outcome `json:"outcomes,omitempty"`
}

// An accessor is an expression of any type.
type accessor struct{ name, expr string }

func (a accessor) GetName() string          { return a.name }
func (a accessor) GetExpression() string    { return a.expr }
func (a accessor) ReturnTypes() []*cel.Type { return []*cel.Type{cel.AnyType} }

// The original is Kubernetes' compiler and evaluator.
type original struct {
	worlds    []*world
	compilers map[string]*celplugin.CompositedCompiler
}

func newOriginal(worlds []*world) *original {
	return &original{worlds: worlds, compilers: map[string]*celplugin.CompositedCompiler{}}
}

// everything is declared, as for a policy with params in a server with an authorizer.
var everything = celplugin.OptionalVariableDeclarations{HasParams: true, HasAuthorizer: true}

func newCompiler(compatibility string) (*celplugin.CompositedCompiler, error) {
	release := environment.DefaultCompatibilityVersion()
	if compatibility != "" {
		parsed, err := version.ParseGeneric(compatibility)
		if err != nil {
			return nil, err
		}
		release = parsed
	}
	return celplugin.NewCompositedCompiler(environment.MustBaseEnvSet(release))
}

// compiler returns the compiler for a question: a new one if there are variables, because they would stay in it.
func (o *original) compiler(q question, mode environment.Type) (*celplugin.CompositedCompiler, error) {
	if len(q.Variables) == 0 {
		if known, ok := o.compilers[q.Compatibility]; ok {
			return known, nil
		}
	}
	made, err := newCompiler(q.Compatibility)
	if err != nil {
		return nil, err
	}
	for _, v := range q.Variables {
		made.CompileAndStoreVariable(accessor{v[0], v[1]}, everything, mode)
	}
	if len(q.Variables) == 0 {
		o.compilers[q.Compatibility] = made
	}
	return made, nil
}

// errNothing is for expressions with which the original panics or exceeds any budget, because its cost becomes
// negative: there is nothing to compare with.
var errNothing = errors.New("nothing to compare with")

// answer compiles and evaluates.
func (o *original) answer(q question) (answer *differentialCase, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			answer, err = nil, fmt.Errorf("%w: %s: %v", errNothing, q.Expr, panicked)
		}
	}()
	if q.World < 0 || q.World >= len(o.worlds) {
		return nil, fmt.Errorf("no world %d", q.World)
	}
	mode := environment.StoredExpressions
	if q.Compatibility != "" {
		mode = environment.NewExpressions
	}
	compiler, err := o.compiler(q, mode)
	if err != nil {
		return nil, err
	}
	answer = &differentialCase{question: q}
	compiled := compiler.CompileCELExpression(accessor{"", q.Expr}, everything, mode)
	if err := sameIfNew(compiler, q, compiled); err != nil {
		return nil, err
	}
	if compiled.Error != nil {
		answer.Compile = compiled.Error.Detail
		return answer, nil
	}
	answer.Type = compiled.OutputType.String()
	var evaluator celplugin.ConditionEvaluator = celplugin.NewCondition([]celplugin.CompilationResult{compiled})
	if len(q.Variables) > 0 {
		evaluator = compiler.CompileCondition([]celplugin.ExpressionAccessor{accessor{"", q.Expr}}, everything, mode)
	}
	answer.Outcomes, err = o.outcomes(evaluator, q)
	return answer, err
}

// sameIfNew returns an error if a stored policy may have an expression that a new one may not have. In the pinned release
// there is none, and fairgate's validation of policies makes no difference.
func sameIfNew(compiler *celplugin.CompositedCompiler, q question, stored celplugin.CompilationResult) error {
	if q.Compatibility != "" {
		return nil
	}
	fresh := compiler.CompileCELExpression(accessor{"", q.Expr}, everything, environment.NewExpressions)
	detail := func(of celplugin.CompilationResult) string {
		if of.Error == nil {
			return ""
		}
		return of.Error.Detail
	}
	if detail(fresh) != detail(stored) {
		return fmt.Errorf("a new policy may not have %s, a stored one may: %s", q.Expr, detail(fresh))
	}
	return nil
}

// outcomes evaluates a question often enough to see all results that depend on the order of maps.
func (o *original) outcomes(evaluator celplugin.ConditionEvaluator, q question) ([]outcome, error) {
	runs := fewRuns
	if mayIterate(q) {
		runs = manyRuns
	}
	var all []outcome
	seen := map[string]bool{}
	spent := int64(0)
	for range runs {
		one, err := o.evaluate(evaluator, q)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errNothing, q.Expr, err)
		}
		if spent += one.Cost; spent > mostCost && len(all) > 0 {
			break
		}
		if text := mustJSON(one); !seen[text] {
			seen[text] = true
			all = append(all, *one)
		}
	}
	sortOutcomes(all)
	return all, nil
}

// mayIterate reports whether the text may contain a comprehension, or a function that iterates over a map.
func mayIterate(q question) bool {
	text := q.Expr
	for _, v := range q.Variables {
		text += v[1]
	}
	for _, macro := range []string{".all", ".exists", ".map", ".filter", ".transform", ".sortBy", ".format", "transformMap"} {
		if strings.Contains(strings.ReplaceAll(text, " ", ""), macro) {
			return true
		}
	}
	return false
}

func (o *original) evaluate(evaluator celplugin.ConditionEvaluator, q question) (*outcome, error) {
	w := o.worlds[q.World]
	results, left, err := evaluator.ForInput(context.Background(), w.attributes, w.request, w.bindings(), w.namespace, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	one := &outcome{Cost: math.MaxInt64 - left}
	if results[0].Error != nil {
		one.Error = strings.TrimPrefix(results[0].Error.Error(), "expression '"+q.Expr+"' resulted in error: ")
		return one, nil
	}
	value, err := jsonOf(results[0].EvalResult)
	one.Value = []any{value}
	return one, err
}
