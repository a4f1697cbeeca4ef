package main

import (
	"math/rand/v2"
	"slices"
)

// texts are bytes that are read otherwise in one place or another.
var texts = []string{
	"", "a", "\xff", "a\xc3", "null", "{}", `{"a":1,"a":2}`, `{"a":1} `, `{"a":{"b":1,"b":1}}`, "{", "1e3", "1.5Gi", " 1", "1000m", "0x1", "1e400",
	"\x00", "\x08\x01", "\x0a\x00", "\x12\x00", "\x0a\x01a\x12\x01b", "\x08\x00\x10\x05\x1a\x01x", "v1", "Pod", "a/b/c", "__internal",
}

// values are numbers near bounds: of types, of what Go's times hold, and of years.
var values = []uint64{
	0, 1, 2, 3, 127, 128, 999, 1000, 999_999_999, 1_000_000_000, 1 << 31, 1<<31 - 1, 1 << 32, 1<<32 + 1, 1 << 63, 1<<64 - 1,
	253_402_300_799, 253_402_300_800, 1<<64 - 62_135_596_800, 1<<64 - 62_135_596_801, 1<<64 - 62_167_219_200, 1<<64 - 62_167_219_201, 1<<64 - 1000,
}

// change makes one change to a message, or to one within it.
func change(random *rand.Rand, parts *[]*part) {
	// As many deep messages are changed as others.
	for len(*parts) > 0 && random.IntN(4) > 0 {
		within := pick(random, *parts)
		if within.ty == nil || within.ty.message == nil || within.wire != bytes2 {
			break
		}
		parts = &within.parts
	}
	if random.IntN(12) == 0 || len(*parts) == 0 {
		insert(random, parts, addition(random, *parts))
		return
	}
	at := random.IntN(len(*parts))
	field := (*parts)[at]
	switch random.IntN(12) {
	case 0: // the same field twice
		insert(random, parts, field.clone())
	case 1: // and with another value
		again := field.clone()
		again.changeValue(random)
		insert(random, parts, again)
	case 2: // a message in two pieces
		again := field.clone()
		if len(again.parts) > 1 {
			cut := 1 + random.IntN(len(again.parts)-1)
			field.parts, again.parts = field.parts[:cut], again.parts[cut:]
		}
		insert(random, parts, again)
	case 3:
		random.Shuffle(len(*parts), func(i, j int) { (*parts)[i], (*parts)[j] = (*parts)[j], (*parts)[i] })
	case 4:
		*parts = slices.Delete(*parts, at, at+1)
	case 5:
		field.parts, field.wire = nil, pick(random, []uint64{varint, fixed64, bytes2, group, end, fixed32, 6, 7})
	case 6:
		field.wrongLength = pick(random, []int64{-1, 1, 2, 1 << 31, 1 << 62, -1 << 63, -1000})
	case 7:
		field.padding = 1 + random.IntN(10)
	case 8:
		field.pack(random)
	case 9:
		field.number = pick(random, []int32{0, 1, 2, 3, 5, field.number + 1, 1000, 1<<29 - 1, 1 << 29, -1})
		field.parts, field.ty = nil, nil
	default:
		field.changeValue(random)
	}
}

// addition is a field that a message may not have.
func addition(random *rand.Rand, beside []*part) *part {
	field := &part{number: int32(1 + random.IntN(20)), wire: pick(random, []uint64{varint, fixed64, bytes2, group, fixed32})}
	if len(beside) > 0 && random.IntN(2) == 0 {
		field.number = pick(random, beside).number
	}
	switch field.wire {
	case varint:
		field.value = pick(random, values)
	case bytes2:
		field.raw = []byte(pick(random, texts))
	case group:
		field.raw = []byte{byte(field.number&15)<<3 | end}
		field.number &= 15
	default:
		field.raw = make([]byte, fixed[field.wire])
	}
	return field
}

func insert(random *rand.Rand, parts *[]*part, field *part) {
	*parts = slices.Insert(*parts, random.IntN(len(*parts)+1), field)
}

func (p *part) clone() *part {
	clone := *p
	clone.parts = nil
	for _, within := range p.parts {
		clone.parts = append(clone.parts, within.clone())
	}
	return &clone
}

// changeValue makes a field say something else.
func (p *part) changeValue(random *rand.Rand) {
	if p.wire == varint {
		p.value = pick(random, values)
		return
	}
	p.raw, p.parts = []byte(pick(random, texts)), nil
}

// pack makes bytes of a number, as those of a list may be, or of a text the number that its first byte is.
func (p *part) pack(random *rand.Rand) {
	if p.wire == varint {
		again := &part{wire: varint, value: pick(random, values)}
		p.raw = append(p.number64(nil, p.value), again.number64(nil, again.value)...)
		p.wire = bytes2
		return
	}
	p.wire, p.value, p.parts = varint, uint64(len(p.raw)), nil
}

// changeBytes changes a body wherever it may be.
func changeBytes(random *rand.Rand, body []byte) []byte {
	at := random.IntN(len(body))
	body = slices.Clone(body)
	switch random.IntN(5) {
	case 0:
		body[at] ^= 1 << random.IntN(8)
	case 1:
		body[at] = byte(random.IntN(256))
	case 2:
		body = slices.Insert(body, at, byte(random.IntN(256)))
	case 3:
		body = slices.Delete(body, at, at+1)
	case 4:
		body = body[:at]
	}
	return body
}
