package main

import (
	"embed"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"sort"
)

// curated has the cases that are written by hand, one file for each subject.
//
//go:embed curated
var curated embed.FS

// A caseRecord is a case with the original's answers.
type caseRecord struct {
	Case      string           `json:"case"`
	Request   string           `json:"request"`
	Policies  []map[string]any `json:"policies"`
	Bindings  []map[string]any `json:"bindings"`
	Budgets   *budgets         `json:"budgets,omitempty"`
	Cancelled bool             `json:"cancelled,omitempty"`
	Outcome   *outcome         `json:"outcome"`
	// With budgets that are one less than what each part cost; with exactly that the outcome is the same.
	Less []lessRecord `json:"less,omitempty"`
}

type lessRecord struct {
	Budgets budgets          `json:"budgets"`
	Exact   budgets          `json:"exact"`
	Denied  string           `json:"denied,omitempty"`
	Reports []decisionRecord `json:"decisions,omitempty"`
}

func written() ([]*testCase, error) {
	files, err := curated.ReadDir("curated")
	if err != nil {
		return nil, err
	}
	var all []*testCase
	for _, file := range files {
		text, err := curated.ReadFile(path.Join("curated", file.Name()))
		if err != nil {
			return nil, err
		}
		var cases []*testCase
		if err := readYAML(text, &cases); err != nil {
			return nil, fmt.Errorf("curated/%s: %w", file.Name(), err)
		}
		all = append(all, cases...)
	}
	return all, nil
}

// writeCases writes the world, the requests, and the cases: those by hand, then count drawn ones.
func writeCases(path string, seed uint64, count int) error {
	w, err := newWorld()
	if err != nil {
		return err
	}
	requests, err := readRequests()
	if err != nil {
		return err
	}
	var names []string
	for name := range requests {
		names = append(names, name)
	}
	sort.Strings(names)
	lines := []any{map[string]any{"world": w.record}}
	for _, name := range names {
		lines = append(lines, requests[name])
	}
	cases, err := written()
	if err != nil {
		return err
	}
	handWritten := len(cases)
	cases = append(cases, drawn(rand.New(rand.NewPCG(seed, 1)), count, names)...)
	for i, c := range cases {
		record, err := w.answer(c, requests)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Case, err)
		}
		if record == nil {
			fmt.Fprintln(os.Stderr, "oracle: differs from run to run:", c.Case)
			continue
		}
		if i >= handWritten {
			record.Outcome.Headers = nil
		}
		lines = append(lines, record)
	}
	return writeLines(path, lines)
}

// answer has a case judged, also with budgets that just do and just do not suffice. It returns nil for a case whose
// outcome differs from run to run.
func (w *world) answer(c *testCase, requests map[string]*request) (*caseRecord, error) {
	r := requests[c.Request]
	if r == nil {
		return nil, fmt.Errorf("no request %q", c.Request)
	}
	if !c.Raw {
		c.defaulted()
	}
	j, err := w.newJudge(c, r)
	if err != nil {
		return nil, err
	}
	first, err := j.outcome(c.Budgets)
	if err != nil {
		return nil, err
	}
	for range 2 {
		again, err := j.outcome(c.Budgets)
		if err != nil {
			return nil, err
		}
		if mustJSON(again) != mustJSON(first) {
			return nil, nil
		}
	}
	record := &caseRecord{Case: c.Case, Request: c.Request, Outcome: first, Cancelled: c.Cancelled}
	if c.Budgets != (budgets{}) {
		record.Budgets = &c.Budgets
	}
	for _, p := range c.Policies {
		content, err := without(p)
		if err != nil {
			return nil, err
		}
		record.Policies = append(record.Policies, content)
	}
	for _, b := range c.Bindings {
		content, err := without(b)
		if err != nil {
			return nil, err
		}
		record.Bindings = append(record.Bindings, content)
	}
	if c.Budgets == (budgets{}) && !c.Cancelled && len(first.Evaluations) == 1 {
		err = j.less(record)
	}
	return record, err
}

// less tries budgets of exactly the cost and of one less, part by part.
func (j *judge) less(record *caseRecord) error {
	costs := record.Outcome.Evaluations[0].Costs
	known := func(stage int) int64 {
		if costs[stage] == nil || *costs[stage] == overBudget {
			return 0
		}
		return *costs[stage]
	}
	tries := []struct {
		cost int64
		with func(*int64) budgets
	}{
		{known(stageConditions), func(b *int64) budgets { return budgets{Conditions: b} }},
		{known(stageValidations) + known(stageMessages), func(b *int64) budgets { return budgets{Validations: b} }},
		{known(stageAnnotations), func(b *int64) budgets { return budgets{Annotations: b} }},
	}
	for _, try := range tries {
		if try.cost == 0 {
			continue
		}
		exact, oneLess := try.cost, try.cost-1
		same, err := j.outcome(try.with(&exact))
		if err != nil {
			return err
		}
		if mustJSON(same) != mustJSON(record.Outcome) {
			return fmt.Errorf("a budget of exactly the cost %d makes a difference", exact)
		}
		other, err := j.outcome(try.with(&oneLess))
		if err != nil {
			return err
		}
		one := lessRecord{Budgets: try.with(&oneLess), Exact: try.with(&exact)}
		if other.Status != nil {
			one.Denied = other.Status.Message
		}
		if len(other.Evaluations) == 1 {
			one.Reports = other.Evaluations[0].Decisions
		}
		record.Less = append(record.Less, one)
	}
	return nil
}
