// Command protobufdocuments records how Kubernetes itself reads bodies in protobuf. It draws small objects of built-in kinds, encodes
// them, changes most of the encodings, and prints a line for each: group, version, kind, the body in base64, and what a server reads,
// as JSON, or
// "refused", or "ambiguous" where the body says more than that JSON shows or says something twice.
//
//	(cd tests/cluster && go run ./protobufdocuments) | gzip -9n > fuzz/recorded/protobuf_documents.tsv.gz
//
// The test fuzz/tests/protobuf_documents.rs replays the lines. The same seed and version of Kubernetes give the same lines.
package main

import (
	"bufio"
	"encoding/base64"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// deleteOptions are read otherwise than objects.
var deleteOptions = metav1.SchemeGroupVersion.WithKind("DeleteOptions")

// common are the kinds that clients write most, and those with fields of rare types.
var common = []string{
	"Pod", "Deployment", "ConfigMap", "Service", "Secret", "CronJob", "DeleteOptions", "Eviction", "Lease", "Event", "ControllerRevision",
	"HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget", "SubjectAccessReview", "CertificateSigningRequest", "ResourceClaim",
	"PersistentVolumeClaim", "FlowSchema", "Role", "Binding", "Scale",
}

func main() {
	count := flag.Int("count", 8000, "how many bodies")
	seed := flag.Uint64("seed", 1, "the seed that they are drawn by")
	flag.Parse()
	random := rand.New(rand.NewPCG(*seed, 0))
	all := kinds()
	often := slices.DeleteFunc(slices.Clone(all), func(kind schema.GroupVersionKind) bool { return !slices.Contains(common, kind.Kind) })
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for range *count {
		kind := pick(random, all)
		if random.IntN(4) > 0 {
			kind = pick(random, often)
		}
		body, err := draw(random, kind)
		if err != nil {
			fmt.Fprintf(os.Stderr, "protobufdocuments: %v: %v\n", kind, err)
			os.Exit(1)
		}
		text := base64.StdEncoding.EncodeToString(body)
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\n", kind.Group, kind.Version, kind.Kind, text, reading(kind, body))
	}
}

// kinds are the objects that clients write, in order, and the options of deletions.
func kinds() []schema.GroupVersionKind {
	found := []schema.GroupVersionKind{deleteOptions}
	for kind, goType := range scheme.Scheme.AllKnownTypes() {
		_, hasMetadata := goType.FieldByName("ObjectMeta")
		if kind.Version != "__internal" && hasMetadata && kind.Group != metav1.GroupName {
			found = append(found, kind)
		}
	}
	slices.SortFunc(found, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return found
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }
