package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	celpb "cel.dev/expr"
	testpb "cel.dev/expr/conformance/test"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"google.golang.org/protobuf/encoding/prototext"

	// The messages that the cases name.
	_ "cel.dev/expr/conformance/proto2"
	_ "cel.dev/expr/conformance/proto3"
)

// A conformanceCase is one test of cel-spec. Exactly one of Outside, Value, Errors and CheckOnly says what is
// expected of it.
type conformanceCase struct {
	File    string `json:"file"`
	Section string `json:"section"`
	Name    string `json:"name"`
	Expr    string `json:"expr"`
	// The reason why the case is not run in the crate; empty if it is.
	Outside string `json:"outside,omitempty"`
	// Whether the case needs aggregate literals of mixed types.
	Mixed     bool   `json:"mixed,omitempty"`
	NoCheck   bool   `json:"noCheck,omitempty"`
	NoMacros  bool   `json:"noMacros,omitempty"`
	CheckOnly bool   `json:"checkOnly,omitempty"`
	Container string `json:"container,omitempty"`
	// The names of the types of declared variables.
	Types    map[string]string `json:"types,omitempty"`
	Bindings map[string]any    `json:"bindings,omitempty"`
	// The expected value, in a list so that null differs from no value.
	Value []any `json:"value,omitempty"`
	// Messages of which one is expected. cel-spec does not require their wording.
	Errors []string `json:"errors,omitempty"`
	// The type that the checker finds.
	Deduced string `json:"deduced,omitempty"`
}

// needsMessages matches cases that need protocol buffer messages or enums.
var needsMessages = regexp.MustCompile(`TestAllTypes|NestedTestAllTypes|GlobalEnum|cel\.expr\.conformance|google\.protobuf|wrapper\(|TestRequired`)

// wellKnown matches the names of messages that are CEL types of their own, unless a message is constructed.
var wellKnown = regexp.MustCompile(`google\.protobuf\.(Timestamp|Duration)([^{A-Za-z]|$)`)

// withoutExtension has the files about extensions that no environment of Kubernetes has, with the reason.
var withoutExtension = map[string]string{
	"bindings_ext": "the macro cel.bind is not in Kubernetes",
	"block_ext":    "blocks are what an optimizer writes, not users",
	"encoders_ext": "base64 is not in Kubernetes",
	"math_ext":     "math is not in Kubernetes",
	"network_ext":  "Kubernetes has its own library of addresses",
	"proto2_ext":   "needs protocol buffer messages",
}

func writeConformance(path string) error {
	cases, err := conformanceCases()
	if err != nil {
		return err
	}
	fmt.Fprint(os.Stderr, summary(cases))
	return writeLines(path, cases)
}

// conformanceCases reads and classifies all cases, in the order of files and sections.
func conformanceCases() ([]*conformanceCase, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "cel.dev/expr").Output()
	if err != nil {
		return nil, fmt.Errorf("the module cel.dev/expr is not there: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "tests/simple/testdata/*.textproto"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("the module cel.dev/expr has no test files (%v)", err)
	}
	judge, err := newJudge()
	if err != nil {
		return nil, err
	}
	var all []*conformanceCase
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		suite := &testpb.SimpleTestFile{}
		if err := prototext.Unmarshal(text, suite); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, section := range suite.GetSection() {
			for _, test := range section.GetTest() {
				all = append(all, judge.classify(suite.GetName(), section.GetName(), test))
			}
		}
	}
	return all, nil
}

// classify converts a test to a case: one that is left out, with the reason, or one that passes in the originals.
func (j *judge) classify(file, section string, test *testpb.SimpleTest) *conformanceCase {
	c := &conformanceCase{
		File: file, Section: section, Name: test.GetName(), Expr: test.GetExpr(),
		NoCheck: test.GetDisableCheck(), NoMacros: test.GetDisableMacros(), CheckOnly: test.GetCheckOnly(),
		Container: test.GetContainer(),
	}
	if reason, ok := withoutExtension[file]; ok {
		c.Outside = reason
		return c
	}
	if needsMessages.MatchString(wellKnown.ReplaceAllString(prototext.Format(test), "")) {
		c.Outside = "needs protocol buffer messages"
		return c
	}
	if err := fill(c, test); err != nil {
		c.Outside = err.Error()
		return c
	}
	if reason := j.fails(c, test); reason != "" {
		c.Outside = reason
		c.Types, c.Bindings, c.Value, c.Errors, c.Deduced = nil, nil, nil, nil, ""
	}
	return c
}

// fill copies declarations, bindings and expectations.
func fill(c *conformanceCase, test *testpb.SimpleTest) error {
	for _, decl := range test.GetTypeEnv() {
		if decl.GetIdent() == nil {
			return fmt.Errorf("declares a function")
		}
		celType, err := types.ProtoAsType(decl.GetIdent().GetType())
		if err != nil {
			return fmt.Errorf("declares %s of an unknown type", decl.GetName())
		}
		if c.Types == nil {
			c.Types = map[string]string{}
		}
		c.Types[decl.GetName()] = celType.String()
	}
	for name, binding := range test.GetBindings() {
		value, err := valueJSON(binding.GetValue())
		if err != nil {
			return fmt.Errorf("binding: %w", err)
		}
		if c.Bindings == nil {
			c.Bindings = map[string]any{}
		}
		c.Bindings[name] = value
	}
	return fillExpectation(c, test)
}

func fillExpectation(c *conformanceCase, test *testpb.SimpleTest) error {
	switch want := test.GetResultMatcher().(type) {
	case nil:
		c.Value = []any{true}
	case *testpb.SimpleTest_Value:
		value, err := valueJSON(want.Value)
		if err != nil {
			return fmt.Errorf("value: %w", err)
		}
		c.Value = []any{value}
	case *testpb.SimpleTest_TypedResult:
		if !c.CheckOnly {
			value, err := valueJSON(want.TypedResult.GetResult())
			if err != nil {
				return fmt.Errorf("value: %w", err)
			}
			c.Value = []any{value}
		}
		deduced, err := types.ProtoAsType(want.TypedResult.GetDeducedType())
		if err != nil {
			return fmt.Errorf("deduces an unknown type")
		}
		c.Deduced = deduced.String()
	case *testpb.SimpleTest_EvalError:
		c.Errors = errorTexts(want.EvalError)
	case *testpb.SimpleTest_AnyEvalErrors:
		for _, set := range want.AnyEvalErrors.GetErrors() {
			c.Errors = append(c.Errors, errorTexts(set)...)
		}
	default:
		return fmt.Errorf("expects unknown values")
	}
	return nil
}

func errorTexts(set *celpb.ErrorSet) []string {
	texts := []string{}
	for _, status := range set.GetErrors() {
		texts = append(texts, status.GetMessage())
	}
	return texts
}

func valueJSON(proto *celpb.Value) (any, error) {
	value, err := cel.ProtoAsValue(types.DefaultTypeAdapter, proto)
	if err != nil {
		return nil, err
	}
	return jsonOf(value)
}

// summary counts the cases, and the reasons why cases are left out.
func summary(cases []*conformanceCase) string {
	runnable, reasons := 0, map[string]int{}
	for _, c := range cases {
		if c.Outside == "" {
			runnable++
		} else {
			reasons[c.Outside]++
		}
	}
	lines := []string{}
	for reason, count := range reasons {
		lines = append(lines, fmt.Sprintf("%5d  %s\n", count, reason))
	}
	sort.Sort(sort.Reverse(sort.StringSlice(lines)))
	return fmt.Sprintf("%d cases, %d of them run\n%s", len(cases), runnable, strings.Join(lines, ""))
}
