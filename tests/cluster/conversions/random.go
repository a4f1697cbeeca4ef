package main

import (
	"maps"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/randfill"
)

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

func pick[T any](c randfill.Continue, values ...T) T { return values[c.Intn(len(values))] }

// filler draws objects of a kind. Kinds do not depend on each other.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 2).Funcs(
		func(text *string, c randfill.Continue) { *text = pick(c, words...) },
		func(number *int32, c randfill.Continue) { *number = int32(c.Intn(200) - 20) },
		func(number *int64, c randfill.Continue) { *number = int64(c.Intn(3)) },
		func(amount *resource.Quantity, c randfill.Continue) {
			*amount = resource.MustParse(pick(c, amounts...))
		},
		func(name *corev1.ResourceName, c randfill.Continue) {
			*name = corev1.ResourceName(pick(c, words[1:4]...))
		},
		func(kind *autoscalingv2.MetricSourceType, c randfill.Continue) {
			*kind = pick[autoscalingv2.MetricSourceType](c, "Resource", "Pods", "Object", "External", "ContainerResource", "<")
		},
		func(uid *types.UID, c randfill.Continue) { *uid = types.UID(pick(c, words...)) },
		func(at *metav1.Time, c randfill.Continue) {
			*at = metav1.NewTime(time.Unix(int64(1+c.Intn(2_000_000_000)), 0).UTC())
		},
		func(at *metav1.MicroTime, c randfill.Continue) {
			*at = metav1.NewMicroTime(time.UnixMicro(int64(1 + c.Intn(2_000_000_000_000))).UTC())
		},
		func(raw *runtime.RawExtension, c randfill.Continue) {
			raw.Raw = []byte(pick(c, `{"a":1}`, `{}`, `{"b":[null,{"c":""}]}`))
		},
		func(kind *metav1.TypeMeta, _ randfill.Continue) { *kind = metav1.TypeMeta{} },
		func(meta *metav1.ObjectMeta, c randfill.Continue) {
			*meta = metav1.ObjectMeta{Name: "n", Namespace: "s", Generation: int64(c.Intn(3))}
			for _, key := range slices.Sorted(maps.Keys(annotations)) {
				if values := annotations[key]; c.Intn(3) == 0 {
					metav1.SetMetaDataAnnotation(meta, key, pick(c, values...))
				}
			}
		},
	).Funcs(devices...)
}

// tainted is a time that every taint has: its default would be the time of defaulting.
var tainted = &metav1.Time{Time: time.Unix(1_700_000_000, 0).UTC()}

// devices fill types that conversion or defaults look at.
var devices = []any{
	func(mode *resourcev1.DeviceAllocationMode, c randfill.Continue) {
		*mode = pick[resourcev1.DeviceAllocationMode](c, "", "", "ExactCount", "All")
	},
	func(mode *resourcev1beta1.DeviceAllocationMode, c randfill.Continue) {
		*mode = pick[resourcev1beta1.DeviceAllocationMode](c, "", "", "ExactCount", "All")
	},
	func(mode *resourcev1beta2.DeviceAllocationMode, c randfill.Continue) {
		*mode = pick[resourcev1beta2.DeviceAllocationMode](c, "", "", "ExactCount", "All")
	},
	func(operator *resourcev1.DeviceTolerationOperator, c randfill.Continue) {
		*operator = pick[resourcev1.DeviceTolerationOperator](c, "", "Exists")
	},
	func(operator *resourcev1beta1.DeviceTolerationOperator, c randfill.Continue) {
		*operator = pick[resourcev1beta1.DeviceTolerationOperator](c, "", "Exists")
	},
	func(operator *resourcev1beta2.DeviceTolerationOperator, c randfill.Continue) {
		*operator = pick[resourcev1beta2.DeviceTolerationOperator](c, "", "Exists")
	},
	func(taint *resourcev1.DeviceTaint, c randfill.Continue) {
		c.FillNoCustom(taint)
		taint.TimeAdded = tainted
	},
	func(taint *resourcev1alpha3.DeviceTaint, c randfill.Continue) {
		c.FillNoCustom(taint)
		taint.TimeAdded = tainted
	},
	func(taint *resourcev1beta1.DeviceTaint, c randfill.Continue) {
		c.FillNoCustom(taint)
		taint.TimeAdded = tainted
	},
	func(taint *resourcev1beta2.DeviceTaint, c randfill.Continue) {
		c.FillNoCustom(taint)
		taint.TimeAdded = tainted
	},
	// Half of the requests have nothing but what all of them have.
	func(request *resourcev1beta1.DeviceRequest, c randfill.Continue) {
		c.FillNoCustom(request)
		if c.Intn(3) == 0 {
			*request = resourcev1beta1.DeviceRequest{Name: request.Name, FirstAvailable: request.FirstAvailable}
		}
	},
}
