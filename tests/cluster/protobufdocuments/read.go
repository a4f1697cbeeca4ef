package main

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/equality"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// reading is what a server reads of a body that is to be an object of a kind, as text.
func reading(kind schema.GroupVersionKind, body []byte) string {
	object, err := decode(kind, body)
	if err != nil {
		return "refused"
	}
	if !saysOnce(body, reflect.TypeOf(object).Elem()) {
		return "ambiguous"
	}
	text, err := stdjson.Marshal(object)
	// Raw JSON may be no UTF-8.
	if err != nil || !utf8.Valid(text) {
		return "ambiguous"
	}
	// What JSON does not show nobody could evaluate.
	shown := reflect.New(reflect.TypeOf(object).Elem()).Interface()
	if err := stdjson.Unmarshal(text, shown); err != nil || !same.DeepEqual(object, shown) {
		return "ambiguous"
	}
	return string(text)
}

// decode reads a body as the handlers of a server do, without defaults.
func decode(kind schema.GroupVersionKind, body []byte) (runtime.Object, error) {
	if kind == deleteOptions {
		options := &metav1.DeleteOptions{}
		codecs := metainternalversionscheme.Codecs
		serializer, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		read, _, err := codecs.DecoderToVersion(serializer.Serializer, kind.GroupVersion()).Decode(body, &kind, options)
		if err == nil && read != options {
			err = errors.New("decoded object cannot be converted to DeleteOptions")
		}
		options.TypeMeta = metav1.TypeMeta{}
		return options, err
	}
	object, found, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(body, &kind, nil)
	if err == nil && *found != kind {
		err = fmt.Errorf("another kind: %v", *found)
	}
	return object, err
}

// same compares objects, and raw JSON in them by what it says.
var same = func() equalities {
	same := equality.Semantic.Copy()
	err := same.AddFuncs(
		func(a, b runtime.RawExtension) bool { return sameJSON(a.Raw, b.Raw) },
		func(a, b metav1.FieldsV1) bool { return sameJSON(a.Raw, b.Raw) },
	)
	if err != nil {
		panic(err)
	}
	return same
}()

// equalities is what equality.Semantic is.
type equalities interface{ DeepEqual(a, b any) bool }

func sameJSON(a, b []byte) bool {
	values := [2]any{}
	for i, raw := range [][]byte{a, b} {
		if len(raw) == 0 {
			continue
		}
		decoder := stdjson.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		if err := decoder.Decode(&values[i]); err != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
