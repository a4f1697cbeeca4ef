// Writes what Kubernetes' defaults make of objects: one JSON object a line, with an object as it is sent, and the same when
// it has its defaults, both as their version's types encode them. Some are those of cases.yaml, most are random: all kinds of all
// stable and beta versions that kube-apiserver can serve, and alpha ones with defaults, with most of their fields left out.
//
// The compressed output is checked in as crates/objects/src/defaults/cases.jsonl.gz, with which the crate is compared.
// .ci/run kubernetes_corpora checks that it is current. To write it: go run ./defaults | gzip -9n >FILE
//
// A default that is the time of defaulting (timeAdded of a taint of a device) is defaultedAt.
package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"math/rand"
	"os"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
	"sigs.k8s.io/yaml"
)

//go:embed cases.yaml
var text []byte

// seed makes every run draw the same objects.
const seed = 1

// longest is the most bytes of a random object, as it is sent.
const longest = 3000

type result struct {
	Object    json.RawMessage `json:"object"`
	Defaulted json.RawMessage `json:"defaulted"`
}

func main() {
	apiextensions.Install(legacyscheme.Scheme)
	apiregistration.Install(legacyscheme.Scheme)
	out := bufio.NewWriter(os.Stdout)
	lines := json.NewEncoder(out)
	write := func(kind schema.GroupVersionKind, sent []byte) error {
		line, err := defaulted(kind, sent)
		if err != nil {
			return fmt.Errorf("%v: %w", kind, err)
		}
		return lines.Encode(line)
	}
	if err := curated(write); err != nil {
		log.Fatal(err)
	}
	for index, kind := range served(legacyscheme.Scheme) {
		// The objects of a kind do not depend on those of others.
		drawn := drawer{random: rand.New(rand.NewSource(seed + int64(index))), kind: kind.Kind}
		for range randomCases(kind.Kind) {
			sent, err := drawn.object(kind)
			if err != nil {
				log.Fatal(kind, err)
			}
			if err := write(kind, sent); err != nil {
				log.Fatal(err)
			}
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

// curated writes the objects of cases.yaml.
func curated(write func(schema.GroupVersionKind, []byte) error) error {
	var cases []json.RawMessage
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		return err
	}
	for _, one := range cases {
		var head runtime.TypeMeta
		if err := json.Unmarshal(one, &head); err != nil {
			return err
		}
		if err := write(schema.FromAPIVersionAndKind(head.APIVersion, head.Kind), one); err != nil {
			return err
		}
	}
	return nil
}

// defaulted is an object in its version, without and with its defaults.
func defaulted(kind schema.GroupVersionKind, sent []byte) (result, error) {
	object, err := legacyscheme.Scheme.New(kind)
	if err != nil {
		return result{}, err
	}
	if err := json.Unmarshal(sent, object); err != nil {
		return result{}, err
	}
	before, err := encoded(kind, object)
	if err != nil {
		return result{}, err
	}
	// What JSON leaves out is not there.
	if object, err = legacyscheme.Scheme.New(kind); err != nil {
		return result{}, err
	}
	if err := json.Unmarshal(before, object); err != nil {
		return result{}, err
	}
	legacyscheme.Scheme.Default(object)
	fixTimes(object)
	after, err := encoded(kind, object)
	return result{before, after}, err
}

func encoded(kind schema.GroupVersionKind, object runtime.Object) ([]byte, error) {
	object.GetObjectKind().SetGroupVersionKind(kind)
	return json.Marshal(object)
}
