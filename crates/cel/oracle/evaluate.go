package main

import (
	"fmt"
	"strings"

	celpb "cel.dev/expr"
	"cel.dev/expr/conformance/proto2"
	"cel.dev/expr/conformance/proto3"
	testpb "cel.dev/expr/conformance/test"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"

	"k8s.io/apiserver/pkg/cel/environment"
)

// A judge runs conformance cases in the originals.
type judge struct {
	// cel-go with every extension that the cases use.
	celGo *cel.Env
	// Kubernetes with all its libraries, and the same without the check of aggregate literals.
	kubernetes, mixed *cel.Env
}

func newJudge() (*judge, error) {
	celGo, err := cel.NewCustomEnv(
		cel.StdLib(), cel.ClearMacros(), cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true),
		cel.EagerlyValidateDeclarations(true), cel.DefaultUTCTimeZone(true), cel.Macros(cel.StandardMacros...),
		cel.Types(&proto2.TestAllTypes{}, &proto3.TestAllTypes{}),
		ext.Bindings(), ext.Encoders(), ext.Math(), ext.Protos(), ext.Strings(), ext.Lists(), ext.Sets(),
		ext.TwoVarComprehensions(),
		cel.EnableIdentifierEscapeSyntax(),
	)
	if err != nil {
		return nil, err
	}
	kubernetes := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).StoredExpressionsEnv()
	mixed, err := mixedKubernetes()
	if err != nil {
		return nil, err
	}
	return &judge{celGo: celGo, kubernetes: kubernetes, mixed: mixed}, nil
}

// mixedKubernetes has those of Kubernetes' functions that the conformance cases use, without the check of literals,
// which cannot be removed from an environment.
func mixedKubernetes() (*cel.Env, error) {
	return cel.NewEnv(
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true),
		ext.Strings(ext.StringsVersion(2)), ext.Lists(ext.ListsVersion(3)), ext.Sets(), ext.TwoVarComprehensions(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
	)
}

// fails returns why a case does not pass in the originals, or nothing if it passes. It sets Mixed if the case passes
// only without the check of literals.
func (j *judge) fails(c *conformanceCase, test *testpb.SimpleTest) string {
	if why := passes(j.celGo, c, test); why != "" {
		return "cel-go itself does not pass: " + why
	}
	why := passes(j.kubernetes, c, test)
	if why == "" {
		return ""
	}
	if passes(j.mixed, c, test) == "" {
		c.Mixed = true
		return ""
	}
	return "Kubernetes does not pass: " + why
}

// passes runs a case, and returns the difference from the expected result, or nothing if there is none.
func passes(base *cel.Env, c *conformanceCase, test *testpb.SimpleTest) string {
	env, err := extended(base, c, test)
	if err != nil {
		return firstLine(err.Error())
	}
	ast, issues := env.Parse(c.Expr)
	if issues.Err() == nil && !c.NoCheck {
		ast, issues = env.Check(ast)
	}
	if issues.Err() != nil {
		if c.Errors != nil {
			return ""
		}
		return issues.Errors()[0].Message
	}
	if c.Deduced != "" && ast.OutputType().String() != c.Deduced {
		return fmt.Sprintf("deduced type %s", ast.OutputType())
	}
	if c.CheckOnly {
		return ""
	}
	program, err := env.Program(ast)
	if err != nil {
		if c.Errors != nil {
			return ""
		}
		return firstLine(err.Error())
	}
	return unexpected(program, c, test)
}

func extended(base *cel.Env, c *conformanceCase, test *testpb.SimpleTest) (*cel.Env, error) {
	options := []cel.EnvOption{cel.Container(c.Container)}
	if c.NoMacros {
		options = append(options, cel.ClearMacros())
	}
	for _, decl := range test.GetTypeEnv() {
		option, err := cel.ProtoAsDeclaration(decl)
		if err != nil {
			return nil, err
		}
		options = append(options, option)
	}
	return base.Extend(options...)
}

// unexpected evaluates a program, and returns the difference from the expected result, or nothing if there is none.
func unexpected(program cel.Program, c *conformanceCase, test *testpb.SimpleTest) string {
	bindings := map[string]any{}
	for name, binding := range test.GetBindings() {
		value, err := bound(binding)
		if err != nil {
			return err.Error()
		}
		bindings[name] = value
	}
	got, _, err := program.Eval(bindings)
	switch {
	case err != nil && c.Errors == nil:
		return firstLine(err.Error())
	case err != nil:
		return ""
	case c.Errors != nil:
		return "no error"
	}
	value, err := jsonOf(got)
	if err != nil {
		return firstLine(err.Error())
	}
	if mustJSON(value) != mustJSON(c.Value[0]) {
		return "another value"
	}
	return ""
}

func bound(binding *celpb.ExprValue) (ref.Val, error) {
	return cel.ProtoAsValue(types.DefaultTypeAdapter, binding.GetValue())
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
