package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// amounts are how many quantities the corpus has besides objects.
const amounts = 3000

// object is what every kind in the corpus is.
type object interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// writeCorpus draws count objects of each kind, fewer of lists, and writes a line for each: group, version, kind,
// protobuf in base64, JSON. Lines of quantities follow: the text, and the result of parsing it.
func writeCorpus(path string, seed int64, count int) error {
	f := &filler{rand.New(rand.NewPCG(uint64(seed), 0))}
	var lines bytes.Buffer
	objects := 0
	for _, k := range kinds() {
		times := count
		if strings.HasSuffix(k.Kind, "List") {
			times = max(1, count/6)
		}
		for n := range times {
			line, err := f.line(k, n == 0)
			if err != nil {
				return fmt.Errorf("%v: %w", k.GroupVersionKind, err)
			}
			lines.WriteString(line)
			objects++
		}
	}
	for range amounts {
		text := f.amount()
		result := "!"
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			result += err.Error()
		} else {
			result = quantity.String()
		}
		fmt.Fprintf(&lines, "quantity\t%s\t%s\n", text, result)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(lines.Bytes()); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d objects of %d kinds, %d quantities: %d bytes, %d compressed\n",
		objects, len(kinds()), amounts, lines.Len(), packed.Len())
	return os.WriteFile(path, packed.Bytes(), 0o644)
}

// line is the line of an object of a kind, which is empty if empty is set.
func (f *filler) line(k kind, empty bool) (string, error) {
	value := reflect.New(k.goType)
	if !empty {
		f.fill(value.Elem(), 0)
	}
	first, ok := value.Interface().(object)
	if !ok {
		return "", fmt.Errorf("no protobuf")
	}
	message, err := first.Marshal()
	if err != nil {
		return "", err
	}
	first.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	text, err := json.Marshal(first)
	if err != nil {
		return "", err
	}
	// Both formats must decode to the same object; otherwise the line would only test a defect of Go's codecs.
	second := reflect.New(k.goType).Interface().(object)
	if err := json.Unmarshal(text, second); err != nil {
		return "", err
	}
	again, err := second.Marshal()
	if err != nil {
		return "", err
	}
	if !bytes.Equal(message, again) {
		return "", fmt.Errorf("the JSON decodes to another message: %s", text)
	}
	third := reflect.New(k.goType).Interface().(object)
	if err := third.Unmarshal(message); err != nil {
		return "", err
	}
	third.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	back, err := json.Marshal(third)
	if err != nil {
		return "", err
	}
	if !bytes.Equal(text, back) {
		return "", fmt.Errorf("the message decodes to another text: %s and %s", text, back)
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\n", k.Group, k.Version, k.Kind,
		base64.StdEncoding.EncodeToString(message), text), nil
}

// filler fills objects at random.
type filler struct{ *rand.Rand }

var words = []string{
	"a", "b", "name", "app", "kube-system", "default", "example.com/x", "1", "true", "Ready", "TCP", "nginx:1.29", "",
	"with space", "quote\" and \\", "<&>", "ü€", "line\nbreak", "\u2028", "\x01", "10.0.0.1",
}

var numbers = []int64{0, 1, 2, 5, 80, 443, 1000, -1, 1 << 20, 1<<31 - 1, -1 << 31, 1 << 40, 1<<63 - 1, -1 << 63}

var quantities = []string{
	"0", "1", "100m", "1500m", "2Gi", "1.5Gi", "0.5", "1e3", "12E6", "1000000", "1k", "-5", "3Ki", "1.1Ki", "5n", "123456789012345678901",
}

var documents = []string{
	`{"a":1,"b":[true,null,"x"],"c":{}}`, `{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`, `"text"`, `[1,2.5,-3]`, `{}`, `{"\u003c":"\u0026"}`,
}

func pick[T any](f *filler, from []T) T { return from[f.IntN(len(from))] }

// likely decides at random whether a value is filled in; the deeper it is, the less often.
func (f *filler) likely(depth int) bool { return f.IntN(4+depth) < 3 }

func (f *filler) fill(v reflect.Value, depth int) {
	switch v.Addr().Interface().(type) {
	case *metav1.TypeMeta:
		return
	case *metav1.Time:
		if f.IntN(5) > 0 {
			v.Set(reflect.ValueOf(metav1.Unix(f.Int64N(1<<33)-1<<31, 0)))
		}
		return
	case *metav1.MicroTime:
		if f.IntN(5) > 0 {
			v.Set(reflect.ValueOf(metav1.MicroTime{Time: time.UnixMicro(f.Int64N(1<<53) - 1<<51)}))
		}
		return
	case *resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse(pick(f, quantities))))
		return
	case *intstr.IntOrString:
		if f.IntN(2) == 0 {
			v.Set(reflect.ValueOf(intstr.FromString(pick(f, words))))
		} else {
			v.Set(reflect.ValueOf(intstr.FromInt32(int32(pick(f, numbers)))))
		}
		return
	case *runtime.RawExtension:
		if f.IntN(4) > 0 {
			v.Set(reflect.ValueOf(runtime.RawExtension{Raw: []byte(pick(f, documents))}))
		}
		return
	case *metav1.FieldsV1:
		v.Set(reflect.ValueOf(metav1.FieldsV1{Raw: []byte(pick(f, documents))}))
		return
	case *[]byte:
		if f.IntN(3) > 0 {
			bytes := make([]byte, 1+f.IntN(12))
			for i := range bytes {
				bytes[i] = byte(f.IntN(256))
			}
			v.SetBytes(bytes)
		}
		return
	}
	f.fillKind(v, depth)
}

func (f *filler) fillKind(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(pick(f, words))
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int32:
		v.SetInt(int64(int32(pick(f, numbers))))
	case reflect.Int64:
		v.SetInt(pick(f, numbers))
	case reflect.Pointer:
		if f.likely(depth) {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
			// JSON writes such a value as null, which is read as a nil pointer.
			if _, isSimple := simple[v.Type().Elem()]; isSimple && v.Elem().IsZero() {
				v.SetZero()
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f.likely(depth) {
				f.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		// An empty slice and a nil slice are the same in protobuf.
		if n := f.IntN(3); n > 0 && f.likely(depth) {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				f.fill(v.Index(i), depth+2)
			}
		}
	case reflect.Map:
		if n := f.IntN(4); n > 0 && f.likely(depth) {
			v.Set(reflect.MakeMap(v.Type()))
			for range n {
				value := reflect.New(v.Type().Elem()).Elem()
				f.fill(value, depth+2)
				if value.Kind() == reflect.Slice && value.IsNil() {
					continue // protobuf decodes a nil slice as an empty one
				}
				v.SetMapIndex(reflect.ValueOf(pick(f, words)).Convert(v.Type().Key()), value)
			}
			if v.Len() == 0 {
				v.SetZero()
			}
		}
	}
}

var signs = []string{"", "", "", "+", "-"}

var wholes = []string{
	"", "0", "1", "5", "8", "16", "100", "999", "1000", "1023", "1024", "1025", "1048576", "007", "123456789", "9223372036854775807",
	"9223372036854775808", "123456789012345678", "1234567890123456789012345", "1000000000000000000000",
}

var fractions = []string{
	"", "", "", ".", ".0", ".5", ".25", ".000", ".500", ".1", ".001", ".0000000001", ".000000000000000001", ".123456789", ".1234567891", ".9999999999",
}

var suffixes = []string{
	"", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E3", "e0", "e-3", "e+2", "e20", "e-12", "e1", "E9",
	"i", "K", "mm", "e", "ee3", "e3.5", " ", "x", "mi", "Kim", "5", "m5", "e400", "e-400", "e99999999999999999999",
}

// amount is a quantity, or a text that resembles one.
func (f *filler) amount() string {
	return pick(f, signs) + pick(f, wholes) + pick(f, fractions) + pick(f, suffixes)
}
