// Writes what Kubernetes converts objects to whose versions have different fields: one JSON object a line, with the object,
// and the same in the other version. Half of the cases are those of cases.yaml, half are random.
//
// The output is checked in as crates/objects/src/conversion/cases.jsonl, with which the crate is compared.
// .ci/run cluster checks that it is current. To write it: go run ./conversions >FILE
package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"
)

//go:embed cases.yaml
var text []byte

// random is the number of random objects of each version.
const random = 30

// A pair of versions, in both directions.
type pair struct {
	from, to schema.GroupVersion
	object   func() runtime.Object
}

var pairs = []pair{
	{autoscalingv1.SchemeGroupVersion, autoscalingv2.SchemeGroupVersion, func() runtime.Object { return &autoscalingv1.HorizontalPodAutoscaler{} }},
	{autoscalingv2.SchemeGroupVersion, autoscalingv1.SchemeGroupVersion, func() runtime.Object { return &autoscalingv2.HorizontalPodAutoscaler{} }},
	{corev1.SchemeGroupVersion, eventsv1.SchemeGroupVersion, func() runtime.Object { return &corev1.Event{} }},
	{eventsv1.SchemeGroupVersion, corev1.SchemeGroupVersion, func() runtime.Object { return &eventsv1.Event{} }},
}

type result struct {
	Object    json.RawMessage `json:"object"`
	Converted json.RawMessage `json:"converted"`
}

func main() {
	out := json.NewEncoder(os.Stdout)
	write := func(object runtime.Object, p pair) error {
		from, err := encoded(object, p.from)
		if err != nil {
			return err
		}
		// What JSON leaves out is not there.
		object = p.object()
		if err := json.Unmarshal(from, object); err != nil {
			return err
		}
		to, err := encoded(object, p.to)
		if err != nil {
			return err
		}
		return out.Encode(result{from, to})
	}
	if err := curated(write); err != nil {
		log.Fatal(err)
	}
	fill := filler()
	for _, p := range pairs {
		for range random {
			object := p.object()
			fill.Fill(object)
			if err := write(object, p); err != nil {
				log.Fatal(err)
			}
		}
	}
}

// curated writes the objects of cases.yaml.
func curated(write func(runtime.Object, pair) error) error {
	var cases []json.RawMessage
	if err := yaml.Unmarshal(text, &cases); err != nil {
		return err
	}
	for _, one := range cases {
		var head metav1.TypeMeta
		if err := json.Unmarshal(one, &head); err != nil {
			return err
		}
		known := false
		for _, p := range pairs {
			if p.from.String() != head.APIVersion {
				continue
			}
			known = true
			object := p.object()
			if err := json.Unmarshal(one, object); err != nil {
				return err
			}
			if err := write(object, p); err != nil {
				return err
			}
		}
		if !known {
			return fmt.Errorf("cases.yaml: apiVersion %q", head.APIVersion)
		}
	}
	return nil
}

// encoded is an object in a version, as JSON. No defaults are applied.
func encoded(object runtime.Object, version schema.GroupVersion) ([]byte, error) {
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(object)
	if err != nil {
		return nil, err
	}
	if kinds[0].GroupVersion() != version {
		internal, err := legacyscheme.Scheme.UnsafeConvertToVersion(object, runtime.InternalGroupVersioner)
		if err != nil {
			return nil, err
		}
		if object, err = legacyscheme.Scheme.UnsafeConvertToVersion(internal, version); err != nil {
			return nil, err
		}
	}
	object.GetObjectKind().SetGroupVersionKind(version.WithKind(kinds[0].Kind))
	return json.Marshal(object)
}

var words = []string{"a", "cpu", "memory", "x.io/requests", "Resource", "Utilization", "AverageValue", "<&>", "quote\" and \\", "ü€\u2028", ""}

var amounts = []string{"0", "1", "100m", "1500m", "2Gi", "0.5", "1e3", "-5"}

var annotations = map[string][]string{
	"a": words,
	"autoscaling.alpha.kubernetes.io/metrics":            {"", "null", "[]", "x", `[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1000m"}}]`, `[{"type":"Object","object":{"target":{"kind":"K","name":"n"},"metricName":"m","targetValue":"0","averageValue":"3"}}]`},
	"autoscaling.alpha.kubernetes.io/current-metrics":    {"null", "[]", "[1]", `[{"type":"External","external":{"metricName":"m","currentValue":"1e3"}}]`, `[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":7,"currentAverageValue":"0.1"}}]`},
	"autoscaling.alpha.kubernetes.io/conditions":         {"null", "[]", "{}", `[{"type":"AbleToScale","status":"True","lastTransitionTime":null,"reason":"<"}]`},
	"autoscaling.alpha.kubernetes.io/behavior":           {"null", "{}", "[]", `{"ScaleUp":{"StabilizationWindowSeconds":3,"SelectPolicy":null,"Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":2}],"Tolerance":"100m"},"ScaleDown":null}`},
	"autoscaling.alpha.kubernetes.io/scale-up-tolerance": {"1"},
}

func filler() *randfill.Filler {
	return randfill.NewWithSeed(1).NilChance(0.4).NumElements(0, 3).Funcs(
		func(text *string, c randfill.Continue) { *text = words[c.Intn(len(words))] },
		func(number *int32, c randfill.Continue) { *number = int32(c.Intn(200) - 20) },
		func(number *int64, c randfill.Continue) { *number = int64(c.Intn(200)) },
		func(amount *resource.Quantity, c randfill.Continue) {
			*amount = resource.MustParse(amounts[c.Intn(len(amounts))])
		},
		func(name *corev1.ResourceName, c randfill.Continue) {
			*name = corev1.ResourceName(words[1:][c.Intn(3)])
		},
		func(kind *autoscalingv2.MetricSourceType, c randfill.Continue) {
			kinds := []autoscalingv2.MetricSourceType{"Resource", "Pods", "Object", "External", "ContainerResource", "<"}
			*kind = kinds[c.Intn(len(kinds))]
		},
		func(uid *types.UID, c randfill.Continue) { *uid = types.UID(words[c.Intn(len(words))]) },
		func(at *metav1.Time, c randfill.Continue) {
			*at = metav1.NewTime(time.Unix(int64(1+c.Intn(2_000_000_000)), 0).UTC())
		},
		func(at *metav1.MicroTime, c randfill.Continue) {
			*at = metav1.NewMicroTime(time.UnixMicro(int64(1 + c.Intn(2_000_000_000_000))).UTC())
		},
		func(kind *metav1.TypeMeta, _ randfill.Continue) { *kind = metav1.TypeMeta{} },
		func(meta *metav1.ObjectMeta, c randfill.Continue) {
			*meta = metav1.ObjectMeta{Name: "n", Namespace: "s", Generation: int64(c.Intn(3))}
			for _, key := range slices.Sorted(maps.Keys(annotations)) {
				if values := annotations[key]; c.Intn(3) == 0 {
					metav1.SetMetaDataAnnotation(meta, key, values[c.Intn(len(values))])
				}
			}
		},
	)
}
