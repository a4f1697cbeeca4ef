package main

import (
	"encoding/binary"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// prefix begins every body.
const prefix = "k8s\x00"

// The wire types.
const (
	varint  = 0
	fixed64 = 1
	bytes2  = 2
	group   = 3
	end     = 4
	fixed32 = 5
)

// fixed are the lengths of numbers that always take the same.
var fixed = map[uint64]int{fixed64: 8, fixed32: 4}

// messageType has the fields of a message by number. It comes from the tags of Go's structs, not from the code that decodes messages.
type messageType map[int32]fieldType

// fieldType says how often a field may be there, and of which type its messages are, if they are messages.
type fieldType struct {
	isRepeated bool
	isMap      bool
	message    messageType
}

var known = map[reflect.Type]messageType{
	reflect.TypeFor[metav1.Time]():       {1: {}, 2: {}},
	reflect.TypeFor[metav1.MicroTime]():  {1: {}, 2: {}},
	reflect.TypeFor[resource.Quantity](): {1: {}},
}

func typeOfMessage(goType reflect.Type) messageType {
	if found, ok := known[goType]; ok {
		return found
	}
	message := messageType{}
	known[goType] = message
	if goType.Kind() == reflect.Slice {
		item := typeOfField(goType.Elem())
		item.isRepeated = true
		message[1] = item
		return message
	}
	for i := range goType.NumField() {
		tag := strings.Split(goType.Field(i).Tag.Get("protobuf"), ",")
		if len(tag) < 3 {
			continue
		}
		number, err := strconv.ParseInt(tag[1], 10, 32)
		if err != nil {
			panic(err)
		}
		message[int32(number)] = typeOfField(goType.Field(i).Type)
	}
	return message
}

func typeOfField(goType reflect.Type) fieldType {
	if goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	switch {
	case reflect.PointerTo(goType).Implements(reflect.TypeFor[interface{ Unmarshal([]byte) error }]()):
		return fieldType{message: typeOfMessage(goType)}
	case goType.Kind() == reflect.Map:
		return fieldType{isMap: true, message: messageType{1: {}, 2: typeOfField(goType.Elem())}}
	case goType.Kind() == reflect.Slice && goType.Elem().Kind() != reflect.Uint8:
		item := typeOfField(goType.Elem())
		item.isRepeated = true
		return item
	}
	return fieldType{}
}

// part is one field of a message as it is on the wire.
type part struct {
	number int32
	wire   uint64
	// value is a number, or the bits of a fixed one.
	value uint64
	// raw are the bytes of what has a length, or of a group with its end.
	raw []byte
	// parts are those of raw, if it is a message.
	parts []*part
	ty    *fieldType
	// wrongLength is added to the length, and padding bytes to the numbers.
	wrongLength int64
	padding     int
}

var errWire = errors.New("not on the wire")

// parse reads the fields of a message; ty is none within what is unknown.
func parse(message messageType, data []byte) ([]*part, error) {
	var parts []*part
	for len(data) > 0 {
		tag, n := number(data)
		if n <= 0 {
			return nil, errWire
		}
		data = data[n:]
		field := &part{number: int32(tag >> 3), wire: tag & 7}
		rest, err := field.parseValue(data)
		if err != nil {
			return nil, err
		}
		data = rest
		if ty, ok := message[field.number]; ok {
			field.ty = &ty
			if ty.message != nil && field.wire == bytes2 {
				if field.parts, err = parse(ty.message, field.raw); err != nil {
					return nil, err
				}
			}
		}
		parts = append(parts, field)
	}
	return parts, nil
}

func (p *part) parseValue(data []byte) ([]byte, error) {
	length := fixed[p.wire]
	switch p.wire {
	case varint, bytes2:
		value, n := number(data)
		if n <= 0 {
			return nil, errWire
		}
		p.value, data = value, data[n:]
		if p.wire == varint {
			return data, nil
		}
		if value > uint64(len(data)) {
			return nil, errWire
		}
		length = int(value)
	case fixed64, fixed32:
		if length > len(data) {
			return nil, errWire
		}
	default:
		// Groups are in no message of Kubernetes.
		return nil, errWire
	}
	p.raw = data[:length]
	return data[length:], nil
}

// encode writes fields as they are, with all that is wrong about them.
func encode(parts []*part) []byte {
	var out []byte
	for _, p := range parts {
		out = p.append(out)
	}
	return out
}

func (p *part) append(out []byte) []byte {
	out = p.number64(out, uint64(uint32(p.number))<<3|p.wire)
	raw := p.raw
	if p.ty != nil && p.ty.message != nil && p.parts != nil {
		raw = encode(p.parts)
	}
	switch p.wire {
	case varint:
		return p.number64(out, p.value)
	case bytes2:
		out = p.number64(out, uint64(int64(len(raw))+p.wrongLength))
	}
	return append(out, raw...)
}

// number64 appends a number, in more bytes than it needs if there is padding.
func (p *part) number64(out []byte, number uint64) []byte {
	out = binary.AppendUvarint(out, number)
	for range p.padding {
		out[len(out)-1] |= 0x80
		out = append(out, 0)
	}
	return out
}

// saysOnce tells whether all fields of a body that could be decoded are known, and none but those of lists is there twice.
func saysOnce(body []byte, goType reflect.Type) bool {
	envelope, err := parse(typeOfMessage(reflect.TypeFor[runtime.Unknown]()), body[len(prefix):])
	if err != nil || !eachOnce(envelope) {
		return false
	}
	for _, field := range envelope {
		if field.number == 2 {
			parts, err := parse(typeOfMessage(goType), field.raw)
			if err != nil || !eachOnce(parts) {
				return false
			}
		}
	}
	return true
}

func eachOnce(parts []*part) bool {
	seen := map[string]bool{}
	for _, p := range parts {
		if p.ty == nil || !eachOnce(p.parts) {
			return false
		}
		name := strconv.Itoa(int(p.number))
		if p.ty.isMap {
			name += "/" + keyOf(p)
		}
		if seen[name] && !p.ty.isRepeated {
			return false
		}
		seen[name] = true
	}
	return true
}

// keyOf is the key of an entry of a map.
func keyOf(entry *part) string {
	for _, p := range entry.parts {
		if p.number == 1 {
			return string(p.raw)
		}
	}
	return ""
}

// number reads a number as Go's decoders do: bits over 64 are lost.
func number(data []byte) (uint64, int) {
	var value uint64
	for i := range min(10, len(data)) {
		value |= uint64(data[i]&0x7f) << (7 * i)
		if data[i] < 0x80 {
			return value, i + 1
		}
	}
	return 0, 0
}
