package cluster

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// An evictionCase is a pod, the budgets beside it, and a request to evict it.
type evictionCase struct {
	Number int
	// Pod is nil if there is none. Its status is written after it was created.
	Pod *corev1.Pod
	// Deleted is whether the pod is being deleted already.
	Deleted bool
	Budgets []*policyv1.PodDisruptionBudget
	Request evictionRequest
	// Departs says how the two servers may disagree; empty if they must not.
	Departs []*departure
}

// A departure is an answer of fairgate that is meant to differ from that of the real server.
type departure struct {
	Name    string
	Code    int            // of fairgate's answer
	Message string         // a part of fairgate's message
	Real    map[int]string // codes of the real server's answer, and what the server does instead
}

var (
	staleVersion = &departure{"a stale resource version is noticed before the budget is charged", http.StatusConflict, "the ResourceVersion in the precondition", map[int]string{
		http.StatusCreated:             "it overlooks the version of an unready pod that needs no budget",
		http.StatusForbidden:           "it refuses for the state of the budget first",
		http.StatusConflict:            "it notices the version after it has charged the budget",
		http.StatusUnprocessableEntity: "it refuses options first that no deletion can have",
		http.StatusTooManyRequests:     "it refuses for the budget first, or takes a conflict for a change of the pod",
	}}
	wrongUID = &departure{"a wrong UID is noticed before the budget is charged", http.StatusConflict, "the UID in the precondition", map[int]string{
		http.StatusForbidden:           "it refuses for the state of the budget first",
		http.StatusConflict:            "it notices the UID after it has charged the budget",
		http.StatusUnprocessableEntity: "it refuses options first that no deletion can have",
		http.StatusTooManyRequests:     "it refuses for the budget first, or takes a conflict for a change of the pod",
	}}
	badOptions = &departure{"options that no deletion can have are refused before anything is changed", http.StatusUnprocessableEntity, "DeleteOptions.meta.k8s.io \"\" is invalid", map[int]string{
		http.StatusUnprocessableEntity: "it notices them after it has charged the budget or marked the pod",
	}}
)

// An evictionRequest is sent to both servers. {{ns}}, {{uid}} and {{rv}} stand for the values of each server.
type evictionRequest struct {
	Query       string
	ContentType string
	Body        string // JSON, or what UnmarshalJSON made of it
	Protobuf    bool
}

const evictedPod = "victim"

// drawCase draws the case of a number; the same for the same seed.
func drawCase(seed uint64, number int) *evictionCase {
	random := rand.New(rand.NewPCG(seed, uint64(number)))
	c := &evictionCase{Number: number}
	chance := func(percent int) bool { return random.IntN(100) < percent }
	pick := func(words ...string) string { return words[random.IntN(len(words))] }

	phase := corev1.PodPhase(pick("Running", "Running", "Running", "Running", "Running", "Pending", "Succeeded", "Failed", "Unknown"))
	ready := chance(60)
	if !chance(4) {
		c.Pod = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: evictedPod, Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
			Status:     corev1.PodStatus{Phase: phase},
		}
		status := corev1.ConditionFalse
		if ready {
			status = corev1.ConditionTrue
		}
		if chance(95) {
			c.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
		}
		if chance(30) {
			c.Pod.Spec.NodeName = "node"
		}
		if chance(15) {
			c.Pod.Finalizers = []string{"example.com/stays"}
		}
		c.Deleted = chance(8) && (c.Pod.Spec.NodeName != "" || c.Pod.Finalizers != nil)
	}

	count := 1
	if chance(10) {
		count = 0
	} else if chance(8) {
		count = 2
	}
	for index := range count {
		c.Budgets = append(c.Budgets, drawBudget(random, fmt.Sprintf("budget-%d", index)))
	}
	c.drawRequest(random, phase, ready)
	return c
}

func drawBudget(random *rand.Rand, name string) *policyv1.PodDisruptionBudget {
	chance := func(percent int) bool { return random.IntN(100) < percent }
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"kept": "yes"}},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one},
		Status: policyv1.PodDisruptionBudgetStatus{
			DisruptionsAllowed: []int32{0, 0, 1, 1, 2, 5}[random.IntN(6)],
			CurrentHealthy:     random.Int32N(5),
			DesiredHealthy:     random.Int32N(4),
			ExpectedPods:       random.Int32N(6),
			ObservedGeneration: 1,
		},
	}
	switch random.IntN(12) {
	case 0:
		budget.Spec.Selector = nil
	case 1:
		budget.Spec.Selector = &metav1.LabelSelector{}
	case 2:
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	case 3:
		in := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", "x"}}
		exists := metav1.LabelSelectorRequirement{Key: "gone", Operator: metav1.LabelSelectorOpDoesNotExist}
		budget.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in, exists}}
	default:
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	}
	switch random.IntN(4) {
	case 0:
		policy := policyv1.AlwaysAllow
		budget.Spec.UnhealthyPodEvictionPolicy = &policy
	case 1:
		policy := policyv1.IfHealthyBudget
		budget.Spec.UnhealthyPodEvictionPolicy = &policy
	}
	if chance(12) {
		budget.Status.ObservedGeneration = 0
	}
	condition := func(status metav1.ConditionStatus, reason, message string) {
		budget.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: status, Reason: reason,
			Message: message, LastTransitionTime: metav1.Unix(1700000000, 0), ObservedGeneration: 1}}
	}
	switch random.IntN(6) {
	case 0:
		condition(metav1.ConditionFalse, policyv1.SyncFailedReason, "found no controllers for pod \"x\"")
	case 1:
		condition(metav1.ConditionFalse, "OtherReason", "some message <&>")
	case 2:
		condition(metav1.ConditionFalse, policyv1.InsufficientPodsReason, "")
	case 3:
		condition(metav1.ConditionTrue, policyv1.SufficientPodsReason, "")
	}
	entries := []int{0, 0, 0, 0, 0, 0, 0, 1, 3}[random.IntN(9)]
	if chance(2) {
		entries = 2000 + random.IntN(2)
	}
	if entries > 0 {
		budget.Status.DisruptedPods = map[string]metav1.Time{}
		for index := range entries {
			budget.Status.DisruptedPods[fmt.Sprintf("gone-%d", index)] = metav1.NewTime(time.Unix(1700000000, 0))
		}
	}
	return budget
}

func (c *evictionCase) drawRequest(random *rand.Rand, phase corev1.PodPhase, ready bool) {
	chance := func(percent int) bool { return random.IntN(100) < percent }
	eviction := map[string]any{"metadata": map[string]any{"name": evictedPod, "namespace": "{{ns}}"}}
	switch random.IntN(5) {
	case 0:
		eviction["apiVersion"], eviction["kind"] = "policy/v1beta1", "Eviction"
	case 1:
	default:
		eviction["apiVersion"], eviction["kind"] = "policy/v1", "Eviction"
	}
	options, preconditions := map[string]any{}, map[string]any{}
	if chance(25) {
		options["gracePeriodSeconds"] = []int{0, 1, 30, 300}[random.IntN(4)]
	}
	exempt := phase == corev1.PodPending || phase == corev1.PodSucceeded || phase == corev1.PodFailed || c.Deleted
	switch random.IntN(12) {
	case 0:
		preconditions["uid"] = "{{uid}}"
	case 1:
		preconditions["resourceVersion"] = "{{rv}}"
	case 2:
		preconditions["uid"], preconditions["resourceVersion"] = "{{uid}}", "{{rv}}"
	case 3:
		preconditions["resourceVersion"] = "1"
		c.Departs = append(c.Departs, staleVersion)
	case 4:
		// The real server tries this for ten seconds if the pod needs no budget.
		if !exempt || chance(10) {
			preconditions["uid"] = "00000000-0000-0000-0000-000000000000"
			c.Departs = append(c.Departs, wrongUID)
		}
	}
	if len(preconditions) > 0 {
		options["preconditions"] = preconditions
	}
	if chance(20) {
		options["propagationPolicy"] = []string{"Background", "Foreground", "Orphan"}[random.IntN(3)]
	} else if chance(10) {
		options["orphanDependents"] = chance(50)
	}
	if chance(3) {
		options["propagationPolicy"], options["orphanDependents"] = "Background", true
		c.Departs = append(c.Departs, badOptions)
	} else if chance(3) {
		options["propagationPolicy"] = "Sideways"
		c.Departs = append(c.Departs, badOptions)
	}
	if chance(3) {
		options["ignoreStoreReadErrorWithClusterBreakingPotential"] = chance(70)
	}
	dryRun := chance(12)
	if dryRun && chance(60) {
		options["dryRun"] = []string{"All"}
	}
	var query []string
	if dryRun && chance(60) {
		query = append(query, "dryRun=All")
	}
	if chance(2) {
		options["dryRun"] = []string{"x"}
		c.Departs = append(c.Departs, badOptions)
	}
	if chance(2) {
		query = append(query, "dryRun=x")
	}
	if chance(20) {
		query = append(query, "fieldValidation="+[]string{"Strict", "Warn", "Ignore", "Other"}[random.IntN(4)])
	}
	if chance(5) {
		query = append(query, "fieldManager=someone")
	}
	if len(options) > 0 || chance(30) {
		eviction["deleteOptions"] = options
	}
	format := random.IntN(10)
	wellFormed := true
	switch random.IntN(40) {
	case 0:
		eviction["metadata"].(map[string]any)["name"] = []string{"other", ""}[random.IntN(2)]
	case 1:
		eviction["metadata"].(map[string]any)["namespace"] = "elsewhere"
	case 2:
		delete(eviction["metadata"].(map[string]any), "namespace")
	case 3:
		eviction["apiVersion"], eviction["kind"], wellFormed = "policy/v2", "Eviction", false
	case 4:
		kinds := [][2]string{{"policy/v1", "PodDisruptionBudget"}, {"policy/v1", "Nothing"}, {"v1", "Pod"}, {"v1", "Eviction"}, {"policy/v1beta1", "PodDisruptionBudget"}, {"apps/v1", "Deployment"}, {"apps/v9", "Deployment"}}
		kind := kinds[random.IntN(len(kinds))]
		eviction["apiVersion"], eviction["kind"], wellFormed = kind[0], kind[1], false
	case 5:
		eviction["unknown"], wellFormed = []any{1}, false
	case 6:
		wrong := []any{1, "x", []any{}, map[string]any{"name": 7}}
		eviction["metadata"], wellFormed = wrong[random.IntN(len(wrong))], false
	case 7:
		wrong := []any{1, "x", []any{}, map[string]any{"dryRun": "All"}, map[string]any{"gracePeriodSeconds": "5"}, map[string]any{"preconditions": 5}}
		eviction["deleteOptions"], wellFormed = wrong[random.IntN(len(wrong))], false
	}
	c.Request.Query = strings.Join(query, "&")
	c.Request.Body = string(asJSON(eviction))
	c.Request.ContentType = "application/json"
	switch {
	case random.IntN(60) == 0:
		c.Request.Body = []string{"", "{", "[]", "null", "\"x\"", "{\"metadata\":{\"name\":\"victim\"}"}[random.IntN(6)]
	case random.IntN(60) == 0:
		c.Request.ContentType = []string{"text/html", "application/xml", "application/json; charset=utf-8"}[random.IntN(3)]
	case format < 2:
		// Every JSON document is one of YAML.
		c.Request.ContentType = "application/yaml"
		c.Request.Body = "# an eviction\n" + c.Request.Body
	case format < 5 && wellFormed:
		c.Request.ContentType, c.Request.Protobuf = runtime.ContentTypeProtobuf, true
	}
}

// body is the body for a server on which the pod has this UID and version.
func (r evictionRequest) body(namespace string, uid types.UID, version string) (string, error) {
	text := strings.NewReplacer("{{ns}}", namespace, "{{uid}}", string(uid), "{{rv}}", version).Replace(r.Body)
	if !r.Protobuf {
		return text, nil
	}
	return asProtobuf(text)
}

// asProtobuf is an eviction in JSON as protobuf, with the version that it names.
func asProtobuf(text string) (string, error) {
	var named metav1.TypeMeta
	if err := json.Unmarshal([]byte(text), &named); err != nil {
		return "", err
	}
	var object runtime.Object = &policyv1.Eviction{}
	if named.APIVersion == "policy/v1beta1" {
		object = &policyv1beta1.Eviction{}
	}
	if err := json.Unmarshal([]byte(text), object); err != nil {
		return "", err
	}
	var sealed strings.Builder
	serializer := protobuf.NewSerializer(clientscheme.Scheme, clientscheme.Scheme)
	err := serializer.Encode(object, &sealed)
	return sealed.String(), err
}

func asJSON(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}
