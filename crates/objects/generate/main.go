package main

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// apiTypes is the module of the built-in kinds.
const apiTypes = "k8s.io/api/"

// metaTypes are types of meta/v1 that are not fields of a kind, or not only that.
var metaTypes = []reflect.Type{
	reflect.TypeFor[metav1.APIGroup](),
	reflect.TypeFor[metav1.APIGroupList](),
	reflect.TypeFor[metav1.APIResourceList](),
	reflect.TypeFor[metav1.APIVersions](),
	reflect.TypeFor[metav1.DeleteOptions](),
	reflect.TypeFor[metav1.ListMeta](),
	reflect.TypeFor[metav1.ObjectMeta](),
	reflect.TypeFor[metav1.PartialObjectMetadata](),
	reflect.TypeFor[metav1.PartialObjectMetadataList](),
	reflect.TypeFor[metav1.Status](),
}

// annotationTypes are what annotations of autoscaling/v1 have as JSON: the fields that only later versions have.
var annotationTypes = []reflect.Type{
	reflect.TypeFor[autoscalingv1.HorizontalPodAutoscalerCondition](),
	reflect.TypeFor[autoscalingv1.MetricSpec](),
	reflect.TypeFor[autoscalingv1.MetricStatus](),
}

// kind is a built-in kind in one version.
type kind struct {
	schema.GroupVersionKind
	goType reflect.Type
}

func main() {
	seed := flag.Int64("seed", 1, "seed of the random objects in the corpus")
	count := flag.Int("count", 12, "objects of each kind in the corpus")
	flag.Parse()
	var err error
	switch {
	case flag.NArg() == 2 && flag.Arg(0) == "tables":
		err = writeTables(flag.Arg(1))
	case flag.NArg() == 2 && flag.Arg(0) == "corpus":
		err = writeCorpus(flag.Arg(1), *seed, *count)
	default:
		err = fmt.Errorf("usage: generate tables DIR | generate [-seed N] [-count N] corpus FILE")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// kinds are the built-in kinds and their lists, in order.
func kinds() []kind {
	var all []kind
	for gvk, goType := range scheme.Scheme.AllKnownTypes() {
		if strings.HasPrefix(goType.PkgPath(), apiTypes) {
			all = append(all, kind{gvk, goType})
		}
	}
	sort.Slice(all, func(i, j int) bool { return less(all[i].GroupVersionKind, all[j].GroupVersionKind) })
	return all
}

func less(a, b schema.GroupVersionKind) bool {
	if a.Group != b.Group {
		return a.Group < b.Group
	}
	if a.Version != b.Version {
		return a.Version < b.Version
	}
	return a.Kind < b.Kind
}
