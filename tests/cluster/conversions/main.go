// Writes what Kubernetes converts objects to, for every kind that a server can serve in several versions: one JSON object a
// line, with the object, with the same in another version, and with what that is if the object gets the defaults of its own version
// first, as in a server. Some objects are those of cases.yaml, most are random.
//
// The compressed output is checked in as crates/objects/src/conversion/cases.jsonl.gz, with which the crate is compared.
// .ci/run kubernetes_corpora checks that it is current. To write it: go run ./conversions | gzip -9n >FILE
package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"sigs.k8s.io/yaml"
)

//go:embed cases.yaml
var text []byte

type result struct {
	Object    json.RawMessage `json:"object"`
	Converted json.RawMessage `json:"converted"`
	Defaulted json.RawMessage `json:"defaulted"`
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	lines := json.NewEncoder(out)
	if err := curated(lines); err != nil {
		log.Fatal(err)
	}
	for index, one := range families {
		fill := filler(int64(index + 1))
		for _, version := range one.versions {
			for range randomCases(one.kind) {
				object, err := legacyscheme.Scheme.New(version.WithKind(one.kind))
				if err != nil {
					log.Fatal(err)
				}
				fill.Fill(object)
				sent, err := json.Marshal(object)
				if err != nil {
					log.Fatal(err)
				}
				if err := one.write(lines, version, sent); err != nil {
					log.Fatal(err)
				}
			}
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

// curated writes the objects of cases.yaml.
func curated(lines *json.Encoder) error {
	var cases []json.RawMessage
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		return err
	}
	for _, sent := range cases {
		var head metav1.TypeMeta
		if err := json.Unmarshal(sent, &head); err != nil {
			return err
		}
		version := head.GroupVersionKind().GroupVersion()
		index := slices.IndexFunc(families, func(one family) bool { return one.kind == head.Kind && slices.Contains(one.versions, version) })
		if index < 0 {
			return fmt.Errorf("cases.yaml: %s %s", head.APIVersion, head.Kind)
		}
		if err := families[index].write(lines, version, sent); err != nil {
			return err
		}
	}
	return nil
}

// write writes an object in each other version.
func (f family) write(lines *json.Encoder, from schema.GroupVersion, sent []byte) error {
	// What JSON leaves out is not there.
	object, err := f.decoded(from, sent)
	if err != nil {
		return err
	}
	written, err := f.converted(object, from, from)
	if err != nil {
		return err
	}
	for _, to := range f.versions {
		if to == from {
			continue
		}
		line := result{Object: written}
		if object, err = f.decoded(from, written); err != nil {
			return err
		}
		if line.Converted, err = f.converted(object, from, to); err != nil {
			return err
		}
		if object, err = f.decoded(from, written); err != nil {
			return err
		}
		legacyscheme.Scheme.Default(object)
		if line.Defaulted, err = f.converted(object, from, to); err != nil {
			return err
		}
		if err := lines.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

func (f family) decoded(version schema.GroupVersion, text []byte) (runtime.Object, error) {
	object, err := legacyscheme.Scheme.New(version.WithKind(f.kind))
	if err != nil {
		return nil, err
	}
	return object, json.Unmarshal(text, object)
}

// converted is an object in a version, as JSON.
func (f family) converted(object runtime.Object, from, to schema.GroupVersion) ([]byte, error) {
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if from != to {
		internal, err := legacyscheme.Scheme.UnsafeConvertToVersion(object, runtime.InternalGroupVersioner)
		if err != nil {
			return nil, err
		}
		if object, err = legacyscheme.Scheme.UnsafeConvertToVersion(internal, to); err != nil {
			return nil, err
		}
	}
	object.GetObjectKind().SetGroupVersionKind(to.WithKind(f.kind))
	return json.Marshal(object)
}
