// Command requestdocuments records how Kubernetes itself reads the bodies of writes. It reads lines of inputs of the fuzz target
// request_documents in hexadecimal, of which the first byte says what the body is, and prints a line for each: the input, and what a
// server reads, as JSON, or
// "refused" or "ambiguous".
//
//	cargo run -p fairgate-fuzz -- request_documents --print 6000 --seed 1 |
//	  (cd tests/cluster && go run ./requestdocuments) > fuzz/recorded/request_documents.tsv
//
// The test fuzz/tests/request_documents.rs replays the lines.
package main

import (
	"bufio"
	"bytes"
	"encoding/hex"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// errProtobuf says that a body is left to others: its messages are checked without being decoded.
var errProtobuf = errors.New("protobuf")

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		input, err := hex.DecodeString(lines.Text())
		if err != nil || len(input) == 0 {
			continue
		}
		reading, err := reading(input)
		if errors.Is(err, errProtobuf) {
			continue
		}
		fmt.Fprintf(out, "%x\t%s\n", input, reading)
	}
}

// colliding are keys that may be those of YAML that are no text, of which there may be another that is.
var colliding = regexp.MustCompile(`"(true|false|[-+.0-9][^"]*)":`)

// reading is what a server reads, as text. Keys of YAML that become the same are read in the order of a map, so in one way or another:
// that is "ambiguous".
func reading(input []byte) (string, error) {
	first, err := readOnce(input)
	if err != nil || !colliding.MatchString(first) {
		return first, err
	}
	// A map with two keys begins with the second one in one of eight cases.
	for range 256 {
		if again, _ := readOnce(input); again != first {
			return "ambiguous", nil
		}
	}
	return first, nil
}

func readOnce(input []byte) (string, error) {
	value, err := read(input[0], input[1:])
	if errors.Is(err, errProtobuf) {
		return "", err
	}
	if err != nil {
		return "refused", nil
	}
	text, err := stdjson.Marshal(plain(value))
	if err != nil {
		return "refused", nil
	}
	return string(text), nil
}

// read is what a server makes of a body. Control bytes are those of the fuzz target.
func read(control byte, body []byte) (any, error) {
	if control%3 == 2 {
		return nil, errProtobuf
	}
	isYAML := control%3 == 1
	switch control / 3 % 7 {
	case 0:
		return typed(isYAML, body, schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, nil)
	case 1:
		if isYAML {
			converted, err := yaml.YAMLToJSON(body)
			if err != nil {
				return nil, err
			}
			body = converted
		}
		object := map[string]any{}
		err := kjson.UnmarshalCaseSensitivePreserveInts(body, &object)
		return object, err
	case 2:
		return typed(isYAML, body, schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}, &metav1.DeleteOptions{})
	case 3:
		var operations []map[string]any
		decoder := stdjson.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		if err := decoder.Decode(&operations); err != nil {
			return nil, err
		}
		if strings.TrimSpace(string(body[decoder.InputOffset():])) != "" {
			return nil, errors.New("more than one value")
		}
		return operations, nil
	case 5:
		object := map[string]any{}
		err := yaml.Unmarshal(body, &object)
		return object, err
	default:
		patch := map[string]any{}
		err := kjson.UnmarshalCaseSensitivePreserveInts(body, &patch)
		return patch, err
	}
}

// plain has floats printed so that nobody takes them for integers.
func plain(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			value[key] = plain(member)
		}
	case []any:
		for i, item := range value {
			value[i] = plain(item)
		}
	case float64:
		return stdjson.Number(strconv.FormatFloat(value, 'e', -1, 64))
	}
	return value
}

// typed is an object of a kind that the server has.
func typed(isYAML bool, body []byte, kind schema.GroupVersionKind, into runtime.Object) (any, error) {
	serializer := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: isYAML})
	object, found, err := serializer.Decode(body, &kind, into)
	if err == nil && *found != kind {
		err = fmt.Errorf("another kind: %v", *found)
	}
	return object, err
}
