package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sort"
	"strings"

	v1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celmetrics "k8s.io/apiserver/pkg/admission/plugin/policy/validating/metrics"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/component-base/metrics/legacyregistry"
)

// A testCase is a question: policies and bindings, in this order, and a request.
type testCase struct {
	Case     string                                 `json:"case"`
	Request  string                                 `json:"request"`
	Policies []*v1.ValidatingAdmissionPolicy        `json:"policies"`
	Bindings []*v1.ValidatingAdmissionPolicyBinding `json:"bindings"`
	Budgets  budgets                                `json:"budgets"`
	// Whether the request is cancelled before it is judged.
	Cancelled bool `json:"cancelled"`
	// Whether defaults are left out. A server always sets them.
	Raw bool `json:"raw"`
}

// An outcome is what judging a request ends with.
type outcome struct {
	// The refusal.
	Status *metav1.Status `json:"status,omitempty"`
	// The texts that are given to the recorder, and the headers that it makes of them.
	Warnings []string `json:"warnings,omitempty"`
	Headers  []string `json:"headers,omitempty"`
	// The annotations of the audit event.
	Annotations map[string]string `json:"auditAnnotations,omitempty"`
	// Policy, binding, type of error, action, count.
	Metrics     [][5]string   `json:"metrics,omitempty"`
	Evaluations []*evaluation `json:"evaluations,omitempty"`
}

// recorder keeps the texts of warnings and passes them on.
type recorder struct {
	ctx   context.Context
	texts []string
}

func (r *recorder) AddWarning(agent, text string) {
	r.texts = append(r.texts, text)
	warning.AddWarning(r.ctx, agent, text)
}

// A judge is the original's dispatcher with the policies of a case, compiled once.
type judge struct {
	world   *world
	test    *testCase
	request *request
	hooks   []validating.PolicyHook
	log     *meterLog
}

func (w *world) newJudge(c *testCase, r *request) (*judge, error) {
	j := &judge{world: w, test: c, request: r, log: &meterLog{}}
	for _, p := range c.Policies {
		hook, err := w.hook(p, c.Bindings, j.log)
		if err != nil {
			return nil, err
		}
		if len(hook.Bindings) > 0 {
			j.hooks = append(j.hooks, *hook)
		}
	}
	return j, nil
}

// outcome judges the request once.
func (j *judge) outcome(limits budgets) (*outcome, error) {
	w, c, log := j.world, j.test, j.log
	log.budgets, log.evaluations = limits, nil
	asked, err := j.request.attributes()
	if err != nil {
		return nil, err
	}
	dispatcher := validating.NewDispatcher(verbAuthorizer{}, generic.NewPolicyMatcher(matching.NewMatcher(namespaceLister{world: w}, client{})))
	celmetrics.Metrics.Reset()
	result := &outcome{}
	handler := filters.WithWarningRecorder(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		texts := &recorder{ctx: req.Context()}
		ctx, cancel := context.WithCancel(warning.WithWarningRecorder(req.Context(), texts))
		defer cancel()
		if c.Cancelled {
			cancel()
		}
		err = dispatcher.Dispatch(ctx, asked, w.interfaces(), j.hooks)
		result.Warnings = texts.texts
	}))
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, httptest.NewRequest(http.MethodPost, "/", nil))
	if err != nil {
		var status *apierrors.StatusError
		if !errors.As(err, &status) {
			return nil, fmt.Errorf("not a status: %w", err)
		}
		result.Status = &status.ErrStatus
	}
	result.Headers = response.Header().Values("Warning")
	result.Annotations = asked.annotations
	result.Evaluations = log.evaluations
	result.Metrics, err = checks()
	return result, err
}

// checks returns the metrics of policy checks since they were reset.
func checks() ([][5]string, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return nil, err
	}
	var all [][5]string
	for _, family := range families {
		if family.GetName() != "apiserver_validating_admission_policy_check_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			all = append(all, [5]string{labels["policy"], labels["policy_binding"], labels["error_type"], labels["enforcement_action"],
				fmt.Sprint(int(metric.GetCounter().GetValue()))})
		}
	}
	sort.Slice(all, func(i, j int) bool { return slices.Compare(all[i][:], all[j][:]) < 0 })
	return all, nil
}

// verbAuthorizer decides by the verb alone, and its reason shows what it was asked.
type verbAuthorizer struct{}

func (verbAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	reason := strings.Join([]string{
		a.GetUser().GetName(), strings.Join(a.GetUser().GetGroups(), ","), a.GetVerb(),
		a.GetPath(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName(),
	}, "|")
	switch a.GetVerb() {
	case "get", "list", "watch":
		return authorizer.DecisionAllow, reason, nil
	case "fail":
		return authorizer.DecisionDeny, "", errors.New("the authorizer failed")
	}
	return authorizer.DecisionNoOpinion, reason, nil
}
