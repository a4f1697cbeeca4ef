package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	apiservercel "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
)

// A timingQuestion is what the bench asks: what judging the creation of a Pod costs.
type timingQuestion struct {
	Policies  []*v1.ValidatingAdmissionPolicy        `json:"policies"`
	Bindings  []*v1.ValidatingAdmissionPolicyBinding `json:"bindings"`
	Namespace *corev1.Namespace                      `json:"namespace"`
	Pod       json.RawMessage                        `json:"pod"`
	// A policy with one simple validation.
	Simple *v1.ValidatingAdmissionPolicy `json:"simple"`
}

// A timing is the median of one round, on one core.
type timing struct {
	Name        string  `json:"name"`
	Nanoseconds float64 `json:"nanoseconds"`
	Allocations float64 `json:"allocations"`
}

// measured times a round: the median of 15 runs of at least 20 ms, with the garbage collector's work on the same core.
func measured(name string, round func()) timing {
	rounds := 1
	run := func() time.Duration {
		start := time.Now()
		for range rounds {
			round()
		}
		return time.Since(start)
	}
	for run() < 20*time.Millisecond {
		rounds *= 2
	}
	var times []float64
	for range 15 {
		times = append(times, float64(run().Nanoseconds())/float64(rounds))
	}
	slices.Sort(times)
	return timing{name, times[len(times)/2], testing.AllocsPerRun(20, round)}
}

// writeTimings reads a question and answers it with one line for each timing.
func writeTimings(in io.Reader, out io.Writer) error {
	runtime.GOMAXPROCS(1)
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	question := &timingQuestion{}
	if err := utiljson.Unmarshal(text, question); err != nil {
		return err
	}
	timings, err := question.timings()
	if err != nil {
		return err
	}
	for _, one := range timings {
		if err := writeLine(out, one); err != nil {
			return err
		}
	}
	return nil
}

func (q *timingQuestion) timings() ([]timing, error) {
	// A server has Go's type of a Pod, and each policy makes JSON of it.
	typed := &corev1.Pod{}
	if err := json.Unmarshal(q.Pod, typed); err != nil {
		return nil, err
	}
	// Custom resources are JSON from the start.
	content := map[string]any{}
	if err := utiljson.Unmarshal(q.Pod, &content); err != nil {
		return nil, err
	}
	hooks, err := hooksOf(q.Policies, q.Bindings)
	if err != nil {
		return nil, err
	}
	simple, err := hooksOf([]*v1.ValidatingAdmissionPolicy{q.Simple}, nil)
	if err != nil {
		return nil, err
	}
	w := &world{namespaces: map[string]*corev1.Namespace{q.Namespace.Name: q.Namespace}}
	untyped := &unstructured.Unstructured{Object: content}
	cases := []struct {
		name  string
		round func() error
	}{
		{"ten policies, by the dispatcher", q.dispatching(w, hooks, typed)},
		{"ten policies, by their validators", q.validating(hooks, typed)},
		{"ten policies, of a custom resource", q.validating(hooks, untyped)},
		{"one simple validation, of a custom resource", q.validating(simple, untyped)},
		{"compile ten policies", func() error { _, err := hooksOf(q.Policies, nil); return err }},
	}
	var timings []timing
	for _, c := range cases {
		if err := c.round(); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		timings = append(timings, measured(c.name, func() { _ = c.round() }))
	}
	return timings, nil
}

// hooksOf compiles policies as the server does, with all bindings of each.
func hooksOf(policies []*v1.ValidatingAdmissionPolicy, bindings []*v1.ValidatingAdmissionPolicyBinding) ([]validating.PolicyHook, error) {
	var hooks []validating.PolicyHook
	for _, policy := range policies {
		validator, err := validatorOf(policy, unmetered)
		if err != nil {
			return nil, err
		}
		hook := validating.PolicyHook{Policy: policy, Evaluator: validator}
		for _, b := range bindings {
			if b.Spec.PolicyName == policy.Name {
				hook.Bindings = append(hook.Bindings, b)
			}
		}
		hooks = append(hooks, hook)
	}
	return hooks, nil
}

var (
	podKind     = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

func (q *timingQuestion) creation(object apiruntime.Object) admission.Attributes {
	info := &user.DefaultInfo{Name: "alice", Groups: []string{"dev", user.AllAuthenticated}}
	return admission.NewAttributesRecord(object, nil, podKind, q.Namespace.Name, "web-7d4b9c6f5-x2x9k", podResource, "",
		admission.Create, nil, false, info)
}

// dispatching matches and judges, as the server does for each request. The object needs no conversion.
func (q *timingQuestion) dispatching(w *world, hooks []validating.PolicyHook, object apiruntime.Object) func() error {
	matcher := generic.NewPolicyMatcher(matching.NewMatcher(namespaceLister{world: w}, client{}))
	dispatcher := validating.NewDispatcher(verbAuthorizer{}, matcher)
	interfaces, asked := w.interfaces(), q.creation(object)
	return func() error { return dispatcher.Dispatch(context.Background(), asked, interfaces, hooks) }
}

// validating only judges.
func (q *timingQuestion) validating(hooks []validating.PolicyHook, object apiruntime.Object) func() error {
	asked := q.creation(object)
	versioned := &admission.VersionedAttributes{Attributes: asked, VersionedObject: object, VersionedKind: podKind}
	return func() error {
		for _, hook := range hooks {
			result := hook.Evaluator.Validate(context.Background(), podResource, versioned, nil, q.Namespace,
				apiservercel.RuntimeCELCostBudget, verbAuthorizer{})
			for _, decision := range result.Decisions {
				if decision.Action != validating.ActionAdmit {
					return fmt.Errorf("%s: %s", hook.Policy.Name, decision.Message)
				}
			}
		}
		return nil
	}
}
