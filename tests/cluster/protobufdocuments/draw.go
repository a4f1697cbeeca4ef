package main

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

var words = []string{"a", "b", "app", "1", "TCP", "", "<&>", "ü", "\u2028", "\x01", "10.0.0.1", "50%"}

var numbers = []int64{0, 1, 2, 80, -1, 1<<31 - 1, -1 << 31, 1 << 40, -1 << 63}

var quantities = []string{"0", "100m", "1500m", "1.5Gi", "1e3", "-5", "1.1Ki", "5n", "123456789012345678901"}

var documents = []string{`{"a":1,"b":[true,null,"x"]}`, `{"f:metadata":{".":{}}}`, `"text"`, `[1,2.5,-3]`, `{ "<": "&" }`, "null"}

// draw makes a body of an object of a kind; in four cases of five one that is changed.
func draw(random *rand.Rand, kind schema.GroupVersionKind) ([]byte, error) {
	object, err := scheme.Scheme.New(kind)
	if kind == deleteOptions {
		object, err = &metav1.DeleteOptions{}, nil
	}
	if err != nil {
		return nil, err
	}
	fill(random, reflect.ValueOf(object).Elem(), 0)
	marshaller, ok := object.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return nil, fmt.Errorf("no protobuf")
	}
	message, err := marshaller.Marshal()
	if err != nil {
		return nil, err
	}
	parts, err := parse(typeOfMessage(reflect.TypeOf(object).Elem()), message)
	if err != nil {
		return nil, err
	}
	if random.IntN(5) == 0 {
		return seal(kind, parts, nil)
	}
	for range 1 + random.IntN(4)/3 {
		change(random, &parts)
	}
	body, err := seal(kind, parts, random)
	if random.IntN(8) == 0 {
		body = changeBytes(random, body)
	}
	return body, err
}

// seal puts a message in its envelope, which is changed in some cases.
func seal(kind schema.GroupVersionKind, parts []*part, random *rand.Rand) ([]byte, error) {
	apiVersion, name := kind.ToAPIVersionAndKind()
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: name}, Raw: encode(parts)}
	message, err := unknown.Marshal()
	if err != nil {
		return nil, err
	}
	if random != nil && random.IntN(8) == 0 {
		envelope, err := parse(typeOfMessage(reflect.TypeFor[runtime.Unknown]()), message)
		if err != nil {
			return nil, err
		}
		change(random, &envelope)
		message = encode(envelope)
	}
	return append([]byte(prefix), message...), nil
}

// fill sets few fields of a value at random: the deeper it is, the fewer.
func fill(random *rand.Rand, v reflect.Value, depth int) {
	switch v.Addr().Interface().(type) {
	case *metav1.TypeMeta:
	case *metav1.Time:
		v.Set(reflect.ValueOf(metav1.Unix(random.Int64N(1<<33)-1<<31, 0)))
	case *metav1.MicroTime:
		v.Set(reflect.ValueOf(metav1.MicroTime{Time: time.UnixMicro(random.Int64N(1<<53) - 1<<51)}))
	case *resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse(pick(random, quantities))))
	case *intstr.IntOrString:
		v.Set(reflect.ValueOf(intstr.Parse(pick(random, words))))
	case *runtime.RawExtension:
		v.Set(reflect.ValueOf(runtime.RawExtension{Raw: []byte(pick(random, documents))}))
	case *metav1.FieldsV1:
		v.Set(reflect.ValueOf(metav1.FieldsV1{Raw: []byte(pick(random, documents))}))
	default:
		fillKind(random, v, depth)
	}
}

func fillKind(random *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(pick(random, words))
	case reflect.Bool:
		v.SetBool(random.IntN(2) == 0)
	case reflect.Int32:
		v.SetInt(int64(int32(pick(random, numbers))))
	case reflect.Int64, reflect.Int:
		v.SetInt(pick(random, numbers))
	case reflect.Uint8:
		v.SetUint(random.Uint64N(256))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(random, v.Elem(), depth)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+random.IntN(2), 2))
		for i := range v.Len() {
			fill(random, v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + random.IntN(2) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(random, key, depth+1)
			fill(random, value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		fillStruct(random, v, depth)
	}
}

// fillStruct sets fewer than three fields on average, so that objects stay small.
func fillStruct(random *rand.Rand, v reflect.Value, depth int) {
	var fields []int
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("protobuf") != "" {
			fields = append(fields, i)
		}
	}
	for n := range 3 {
		if len(fields) > 0 && random.IntN(3+n+depth) < 3 {
			fill(random, v.Field(pick(random, fields)), depth+1)
		}
	}
}
