// Writes what Kubernetes' decoder says about values of the wrong type: one JSON object a line, with the kind, a body in which one member has such a
// value, and the message. Each member of each kind that fairgate hosts gets each type of JSON that it does not take.
//
// The output is checked in as crates/objects/corpus/wrong_types.jsonl, with which the crate is compared.
// .ci/run cluster checks that it is current. To write it: go run ./wrongtypes >FILE
package main

import (
	"encoding/json"
	"log"
	"os"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	policyv1 "k8s.io/api/policy/v1"
	kjson "sigs.k8s.io/json"
)

type wrongType struct {
	Group   string          `json:"group"`
	Version string          `json:"version"`
	Kind    string          `json:"kind"`
	Body    json.RawMessage `json:"body"`
	Message string          `json:"message"`
}

var kinds = []struct {
	group, version string
	object         any
}{
	{"flowcontrol.apiserver.k8s.io", "v1", flowcontrolv1.FlowSchema{}},
	{"flowcontrol.apiserver.k8s.io", "v1", flowcontrolv1.PriorityLevelConfiguration{}},
	{"flowcontrol.apiserver.k8s.io", "v1beta3", flowcontrolv1beta3.FlowSchema{}},
	{"flowcontrol.apiserver.k8s.io", "v1beta3", flowcontrolv1beta3.PriorityLevelConfiguration{}},
	{"admissionregistration.k8s.io", "v1", admissionv1.ValidatingAdmissionPolicy{}},
	{"admissionregistration.k8s.io", "v1", admissionv1.ValidatingAdmissionPolicyBinding{}},
	{"policy", "v1", policyv1.PodDisruptionBudget{}},
}

// values are one of each type of JSON, and numbers that fit into some types of Go.
var values = []string{`5`, `1.5`, `99999999999`, `-1`, `"x"`, `true`, `[true]`, `[5]`, `{"a":true}`, `{"a":5}`}

func main() {
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for number, kind := range kinds {
		of := reflect.TypeOf(kind.object)
		for _, path := range members(of, nil) {
			// All have the same metadata.
			if number > 0 && len(path) > 1 && path[0] == `{"metadata":` {
				continue
			}
			said := map[string]bool{}
			for _, value := range values {
				body := strings.Join(path, "") + value
				// What is open is closed in the opposite order.
				for i := len(path) - 1; i >= 0; i-- {
					body += map[byte]string{'{': "}", '[': "]"}[path[i][0]]
				}
				err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(body), reflect.New(of).Interface())
				if err == nil || said[err.Error()] {
					continue
				}
				said[err.Error()] = true
				one := wrongType{kind.group, kind.version, of.Name(), json.RawMessage(body), err.Error()}
				if err := out.Encode(one); err != nil {
					log.Fatal(err)
				}
			}
		}
	}
}

// members are the paths of the members of a type, as texts that begin a document.
func members(of reflect.Type, path []string) (all [][]string) {
	step := func(text string, next reflect.Type) {
		longer := append(append([]string{}, path...), text)
		all = append(append(all, longer), members(next, longer)...)
	}
	switch {
	case of.Kind() == reflect.Pointer:
		return members(of.Elem(), path)
	case reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()):
	case of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8:
		step("[", of.Elem())
	case of.Kind() == reflect.Map:
		step(`{"key":`, of.Elem())
	case of.Kind() == reflect.Struct:
		for _, field := range reflect.VisibleFields(of) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			// What is embedded is visible with its own fields. Kind and version are read before anything else.
			if name == "" || name == "-" || len(path) == 0 && (name == "kind" || name == "apiVersion") {
				continue
			}
			step(`{"`+name+`":`, field.Type)
		}
	}
	return all
}
