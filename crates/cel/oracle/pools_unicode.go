package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// precisePool draws formats with any precision, most of them near a border of the original.
func precisePool(random *rand.Rand) string {
	precision := plain("", "0", "1", "17", "1073", "1074", "1075", "999", "1000", "2000", "00003", "10000010", "99999999",
		"2147483648", "99999999999", "9223372036854775807", "9223372036854775808", "18446744073709551616", "-1", "+1", ".1", "1.1")(random)
	return quote("%." + precision + plain("f", "f", "f", "e", "e", "s", "d", "x", "g", "F", "%", "")(random))
}

// typenamePool draws the names of types, and a few that are none.
func typenamePool(random *rand.Rand) string {
	message := plain("Timestamp", "Duration", "Any", "Struct", "Value", "ListValue", "NullValue", "NullValue.NULL_VALUE", "Empty", "BoolValue", "BytesValue",
		"DoubleValue", "FloatValue", "Int32Value", "Int64Value", "UInt32Value", "UInt64Value", "StringValue", "FieldMask", "Struct.FieldsEntry")
	kubernetes := plain("Quantity", "Semver", "URL", "NamedFormat", "authorization.Authorizer", "authorization.Decision", "UserInfo", "AdmissionRequest", "Namespace",
		"GroupVersionKind", "variables")
	name := plain("int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type", "dyn", "timestamp", "duration", "optional_type", "net.IP", "net.CIDR",
		"google.protobuf."+message(random), "google.protobuf."+message(random), "kubernetes."+kubernetes(random), "kubernetes."+kubernetes(random))(random)
	if random.IntN(6) == 0 {
		return "." + name
	}
	return name
}

// newer are characters that are assigned in a later version of Unicode than that of the pinned Go, or whose case has
// changed since.
var newer = []rune{0x264, 0x19b, 0x1c89, 0x1c8a, 0xa7cb, 0xa7cc, 0xa7cd, 0xa7da, 0xa7db, 0xa7dc, 0x2ffc, 0x31ef, 0x2ebf0, 0x10d50, 0x10d70, 0x105c0, 0x1e6c0, 0x1cc00, 0x1fae9, 0x16ea0, 0x16ebb, 0x20c1, 0xa7ce, 0xa7d2}

// cased are some characters with a case that is unlike that of most.
var cased = []rune("kKſsSßẞσςΣµμΜiİıIåÅÅωΩΩθϑϴΘǅǆǄᏸᏰꭰᲀвВЀѐՃ𐐀𐐨𞤀𞤢ⅷⅧⓐⒶ")

// charactersPool draws texts with characters of all parts of Unicode.
func charactersPool(random *rand.Rand) string {
	var text strings.Builder
	for range 1 + random.IntN(4) {
		switch random.IntN(5) {
		case 0:
			text.WriteRune(newer[random.IntN(len(newer))])
		case 1:
			text.WriteRune(cased[random.IntN(len(cased))])
		case 2:
			fmt.Fprint(&text, string(rune('a'+random.IntN(26))))
		case 3:
			text.WriteRune(rune(0xa0 + random.IntN(0xd700)))
		default:
			text.WriteRune(rune(0x10000 + random.IntN(0x20000)))
		}
	}
	return "'" + strings.ReplaceAll(strings.ReplaceAll(text.String(), `\`, ``), "'", "") + "'"
}

var classNames = slices.Concat(slices.Sorted(maps.Keys(unicode.Categories)), slices.Sorted(maps.Keys(unicode.CategoryAliases)),
	slices.Sorted(maps.Keys(unicode.Scripts)), []string{"Any", "Assigned", "ASCII", "Garay", "Todhri", "Sidetic"})

// oneClass draws a class of Unicode, or one of characters that have a case.
func oneClass(random *rand.Rand) string {
	name := classNames[random.IntN(len(classNames))]
	if random.IntN(2) == 0 {
		name = plain("L", "Lu", "Ll", "Lt", "Lo", "M", "N", "P", "S", "So", "C", "Cn", "Z", "Han", "Latin", "Cyrillic", "Greek")(random)
	}
	from := slices.Concat(newer, cased)
	switch random.IntN(6) {
	case 0:
		return "[^" + string(from[random.IntN(len(from))]) + "]"
	case 1:
		return string(from[random.IntN(len(from))])
	case 2:
		low, high := from[random.IntN(len(from))], from[random.IntN(len(from))]
		return "[" + string(min(low, high)) + "-" + string(max(low, high)) + "]"
	case 3:
		return `\P{` + name + `}`
	case 4:
		return `[^\p{` + name + `}0-9]`
	}
	return `\p{` + name + `}`
}

func classPool(random *rand.Rand) string {
	return strconv.Quote(plain("", "(?i)")(random) + oneClass(random))
}

func classesPool(random *rand.Rand) string {
	text := plain("", "(?i)")(random)
	for range 1 + random.IntN(3) {
		text += oneClass(random) + plain("", "+", "*", "?", "|")(random)
	}
	return strconv.Quote(text)
}
