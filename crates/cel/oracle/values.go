package main

import (
	"encoding/base64"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	apiservercel "k8s.io/apiserver/pkg/cel"
)

// tagged is a JSON object of one key, the name of the CEL type.
type tagged map[string]any

// jsonOf writes a CEL value so that values of different types differ:
//
//	null, true, "text", [1]       null, bool, string, list
//	{"int": 1}                    uint likewise; both always fit a JSON number
//	{"double": "1.5"}             the shortest digits; NaN, +Inf, -Inf, -0
//	{"bytes": "aGk="}             base64
//	{"map": [[key, value], …]}    sorted by the key's JSON
//	{"timestamp": "…Z"}           RFC 3339 with as many digits as needed
//	{"duration": 1500000000}      nanoseconds
//	{"type": "list"}              the name without parameters
//	{"optional": []}              no value, or one
//	{"kubernetes.Quantity": "1e0"}  the type's name, and a text that is the same for equal values
func jsonOf(value ref.Val) (any, error) {
	switch v := value.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.String:
		return string(v), nil
	case types.Int:
		return tagged{"int": int64(v)}, nil
	case types.Uint:
		return tagged{"uint": uint64(v)}, nil
	case types.Double:
		return tagged{"double": doubleText(float64(v))}, nil
	case types.Bytes:
		return tagged{"bytes": base64.StdEncoding.EncodeToString(v)}, nil
	case types.Timestamp:
		return tagged{"timestamp": v.Time.UTC().Format(time.RFC3339Nano)}, nil
	case types.Duration:
		return tagged{"duration": int64(v.Duration)}, nil
	case *types.Optional:
		return optionalJSON(v)
	case *types.Type:
		return tagged{"type": v.TypeName()}, nil
	case *types.Err:
		return nil, v
	case traits.Lister:
		return listJSON(v)
	case traits.Mapper:
		return mapJSON(v)
	}
	return opaqueJSON(value)
}

func doubleText(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case v == 0 && math.Signbit(v):
		return "-0"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func optionalJSON(v *types.Optional) (any, error) {
	if !v.HasValue() {
		return tagged{"optional": []any{}}, nil
	}
	inner, err := jsonOf(v.GetValue())
	return tagged{"optional": []any{inner}}, err
}

func listJSON(v traits.Lister) (any, error) {
	all := []any{}
	for it := v.Iterator(); it.HasNext() == types.True; {
		element, err := jsonOf(it.Next())
		if err != nil {
			return nil, err
		}
		all = append(all, element)
	}
	return all, nil
}

func mapJSON(v traits.Mapper) (any, error) {
	pairs := [][2]any{}
	for it := v.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, err := jsonOf(key)
		if err != nil {
			return nil, err
		}
		element, err := jsonOf(v.Get(key))
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, [2]any{name, element})
	}
	sort.Slice(pairs, func(i, j int) bool { return mustJSON(pairs[i][0]) < mustJSON(pairs[j][0]) })
	return tagged{"map": pairs}, nil
}

// opaqueJSON writes the types that Kubernetes adds.
func opaqueJSON(value ref.Val) (any, error) {
	text := ""
	switch v := value.(type) {
	case apiservercel.Quantity:
		text = quantityText(v)
	case *apiservercel.Quantity:
		text = quantityText(*v)
	case apiservercel.IP:
		text = v.Addr.String()
	case apiservercel.CIDR:
		text = v.Prefix.String()
	case apiservercel.URL:
		text = v.URL.String()
	case apiservercel.Semver:
		text = v.Version.String()
	case apiservercel.Format:
		text = v.Name
	default:
		// The values of the authorizer library: only the type is visible.
		if !strings.HasPrefix(value.Type().TypeName(), "kubernetes.authorization.") {
			return nil, fmt.Errorf("no JSON for a %s, %T", value.Type().TypeName(), value)
		}
	}
	return tagged{value.Type().TypeName(): text}, nil
}

// quantityText is the number as digits that do not end in zero, "e" and an exponent of ten. Written in full, a
// quantity such as 1e2147483647 would not fit into memory.
func quantityText(v apiservercel.Quantity) string {
	number := v.Quantity.AsDec()
	if number.Sign() == 0 {
		return "0e0"
	}
	digits := number.UnscaledBig().String()
	short := strings.TrimRight(digits, "0")
	return fmt.Sprintf("%se%d", short, len(digits)-len(short)-int(number.Scale()))
}
