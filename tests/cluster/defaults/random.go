package main

import (
	"encoding/json"
	"maps"
	"math"
	"math/rand"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/randfill"
)

// drawer draws objects of a kind.
type drawer struct {
	random *rand.Rand
	kind   string
}

// object is a random object, as it could be sent.
func (d drawer) object(kind schema.GroupVersionKind) ([]byte, error) {
	full, err := legacyscheme.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	filler(d.random).Fill(full)
	text, err := json.Marshal(full)
	if err != nil {
		return nil, err
	}
	for keep := 0.3 + 0.5*d.random.Float64(); ; keep *= 0.9 {
		var tree map[string]any
		if err := json.Unmarshal(text, &tree); err != nil {
			return nil, err
		}
		d.thin(tree, keep, 0)
		if sent, err := json.Marshal(tree); err != nil || len(sent) <= longest {
			return sent, err
		}
	}
}

// thin removes fields at random, and gives some of the others values that defaults depend on.
func (d drawer) thin(tree map[string]any, keep float64, depth int) {
	// Of many parts, such as all sources that a volume may have, only some.
	parts := 0
	for _, value := range tree {
		if inner(value) {
			parts++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		// The way down should be there.
		chance := keep
		if depth == 0 || slices.Contains(ways, name) {
			chance = 0.8
		} else if inner(tree[name]) {
			chance = math.Sqrt(keep) * min(1, 6/float64(parts))
		}
		if d.random.Float64() > chance {
			delete(tree, name)
			continue
		}
		values := words[d.kind+"."+name]
		if values == nil {
			values = words[name]
		}
		switch value := tree[name].(type) {
		case string:
			// Random text stands where a type of its own does, which knows its values.
			if values == nil && strings.ContainsFunc(value, func(letter rune) bool { return letter > unicode.MaxASCII }) {
				values = texts
			}
			if values != nil {
				tree[name] = values[d.random.Intn(len(values))]
			}
		case map[string]any:
			d.thin(value, keep, depth+1)
		case []any:
			for _, item := range value {
				if item, ok := item.(map[string]any); ok {
					d.thin(item, keep, depth+1)
				}
			}
		}
	}
}

// inner tells whether a value has values in it.
func inner(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// ways are fields that lead to many with defaults.
var ways = []string{"spec", "template", "containers", "initContainers", "volumes", "devices", "requests", "exactly"}

// words are the values of text fields that defaults look at, by the name of the field, or of kind and field.
var words = map[string][]string{
	"Service.type":            {"ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer", "ExternalName", ""},
	"sessionAffinity":         {"None", "ClientIP", "ClientIP", ""},
	"externalTrafficPolicy":   {"Local", "Cluster", ""},
	"protocol":                {"TCP", "UDP", ""},
	"image":                   images,
	"reference":               images,
	"pullPolicy":              {"", "Never"},
	"imagePullPolicy":         {"", "Never"},
	"restartPolicy":           {"Always", "Always", "Never", ""},
	"type":                    {"RollingUpdate", "OnDelete", "Recreate", "", "Container", "Limited"},
	"LimitRange.type":         {"Container", "Container", "Pod", ""},
	"Subject.kind":            {"User"},
	"RoleBinding.kind":        {"User", "Group", "ServiceAccount", "Other"},
	"ClusterRoleBinding.kind": {"User", "Group", "ServiceAccount", "Other"},
	"apiGroup":                {"", "", "rbac.authorization.k8s.io", "x"},
	"allocationMode":          {"", "", "ExactCount", "All"},
	"strategy":                {"None", "Webhook"},
}

var images = []string{
	"", "a", "a:latest", "a:1", "r.io/a:latest", "r.io:80/a", "r.io:80/a:v1", "r.io/a/b:latest",
	"a@sha256:0000000000000000000000000000000000000000000000000000000000000000",
	"a:latest@sha256:0000000000000000000000000000000000000000000000000000000000000000", "A:latest", "a:-", "a b:latest",
}

var (
	texts   = []string{"", "a", "b", "Kind"}
	amounts = []string{
		"0", "1", "2", "100m", "1500m", "2Gi", "1Ki", "1e3", "1n", "999u", "1001u", "0.5", "1.0005", "-1500u", "10M", "1234567890123456789012",
	}
	resources = []corev1.ResourceName{"cpu", "memory", "hugepages-2Mi", "hugepages-1Gi", "ephemeral-storage", "x.io/gpu"}
	ports     = []intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(7), intstr.FromString(""), intstr.FromString("25%"), intstr.FromString("http")}
)

func filler(random *rand.Rand) *randfill.Filler {
	return randfill.New().RandSource(random).NilChance(0.1).NumElements(1, 2).MaxDepth(20).Funcs(
		func(text *string, c randfill.Continue) { *text = texts[c.Intn(len(texts))] },
		func(number *int32, c randfill.Continue) { *number = int32(c.Intn(3)) },
		func(number *int64, c randfill.Continue) { *number = int64(c.Intn(3)) },
		func(amount *resource.Quantity, c randfill.Continue) {
			*amount = resource.MustParse(amounts[c.Intn(len(amounts))])
		},
		func(name *corev1.ResourceName, c randfill.Continue) { *name = resources[c.Intn(len(resources))] },
		func(value *intstr.IntOrString, c randfill.Continue) { *value = ports[c.Intn(len(ports))] },
		func(at *metav1.Time, c randfill.Continue) {
			*at = metav1.NewTime(time.Unix(int64(1+c.Intn(1_000_000_000)), 0).UTC())
		},
		func(at *metav1.MicroTime, c randfill.Continue) {
			*at = metav1.NewMicroTime(time.UnixMicro(int64(1 + c.Intn(1_000_000_000_000))).UTC())
		},
		func(length *metav1.Duration, _ randfill.Continue) { length.Duration = time.Minute },
		func(kind *metav1.TypeMeta, _ randfill.Continue) { *kind = metav1.TypeMeta{} },
		func(fields *metav1.FieldsV1, _ randfill.Continue) { fields.Raw = []byte(`{"f:a":{}}`) },
		func(raw *runtime.RawExtension, _ randfill.Continue) { raw.Raw = []byte(`{"a":1}`) },
		func(raw *apiextensionsv1.JSON, _ randfill.Continue) { raw.Raw = []byte(`{"a":1}`) },
		func(schema *apiextensionsv1.JSONSchemaProps, _ randfill.Continue) { schema.Type = "object" },
		func(meta *metav1.ObjectMeta, c randfill.Continue) {
			*meta = metav1.ObjectMeta{Name: texts[c.Intn(2)]}
			if c.Intn(2) == 0 {
				meta.Labels = map[string]string{"l": texts[c.Intn(2)]}
			}
			if c.Intn(3) == 0 {
				meta.Annotations = map[string]string{"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""}
			}
		},
	)
}

// defaultedAt stands for the time of defaulting.
var defaultedAt = metav1.NewTime(time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC))

// fixTimes replaces defaults that are the time of defaulting. No random time is so late.
func fixTimes(object runtime.Object) {
	fix := func(at *metav1.Time) {
		if at != nil && time.Since(at.Time) < time.Hour {
			*at = defaultedAt
		}
	}
	switch object := object.(type) {
	case *resourcev1.ResourceSlice:
		for i := range object.Spec.Devices {
			for j := range object.Spec.Devices[i].Taints {
				fix(object.Spec.Devices[i].Taints[j].TimeAdded)
			}
		}
	case *resourcev1beta1.ResourceSlice:
		for i := range object.Spec.Devices {
			if basic := object.Spec.Devices[i].Basic; basic != nil {
				for j := range basic.Taints {
					fix(basic.Taints[j].TimeAdded)
				}
			}
		}
	case *resourcev1beta2.ResourceSlice:
		for i := range object.Spec.Devices {
			for j := range object.Spec.Devices[i].Taints {
				fix(object.Spec.Devices[i].Taints[j].TimeAdded)
			}
		}
	case *resourcev1alpha3.DeviceTaintRule:
		fix(object.Spec.Taint.TimeAdded)
	case *resourcev1beta2.DeviceTaintRule:
		fix(object.Spec.Taint.TimeAdded)
	}
}
