package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// A pool draws the text of a literal, or of a name.
type pool func(*rand.Rand) string

// pools are those that the grammar names in quotes.
var pools = map[string]pool{
	"field":       plain("spec", "metadata", "name", "labels", "replicas", "containers", "nothing", "empty", "none", "missing", "data", "namespace", "map", "deep", "kind"),
	"fieldtext":   quoted("spec", "metadata", "name", "app", "tier.x/y", "missing", "x-y", "data", ""),
	"key":         plain("a", "b", "x"),
	"number":      quoted("1", "-1", "0", "1.5", "1e3", " 1", "1 ", "abc", "", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615", "18446744073709551616", "NaN", "Infinity", "-inf", "0x10", "1_000", "+5", "-0", "1e400", ".5", "5.", "0b1", "١"),
	"truth":       quoted("true", "false", "t", "f", "1", "0", "True", "TRUE", "yes", "", "tRUE", "T"),
	"time":        quoted("2024-02-29T12:30:45Z", "2024-02-29T12:30:45.123456789Z", "2023-12-31T23:59:59.999-08:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "1969-12-31T23:59:59Z", "2023-02-29T00:00:00Z", "2024-01-01", "2024-01-01T00:00:00", "2024-01-01t00:00:00z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:60Z", "2024-01-01T00:00:00+14:00", "10000-01-01T00:00:00Z", "x"),
	"span":        quoted("1s", "1h30m", "-1.5h", "100ms", "1us", "1µs", "10ns", "0", "1", "1d", "", "2562047h", "9223372036s", "-2562047h47m16.854775808s", "1h1h", "+5m", ".5s", "1.s", "s", "1e3s", "1 s"),
	"zone":        quoted("UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "-08:00", "+05:30", "+14:00", "02:00", "Nowhere/City", "", "Z", "local"),
	"regex":       regexPool,
	"format":      formatPool,
	"precise":     precisePool,
	"typename":    typenamePool,
	"characters":  charactersPool,
	"class":       classPool,
	"classes":     classesPool,
	"small":       plain("0", "1", "3", "5", "-1", "12"),
	"url":         urlPool,
	"ip":          quoted("10.0.0.1", "192.168.0.1", "127.0.0.1", "0.0.0.0", "::", "::1", "fd00::1", "fe80::1", "2001:db8::1", "224.0.0.251", "ff02::1", "169.254.1.1", "255.255.255.255", "2001:DB8::1", "2001:db8:0:0:0:0:0:1"),
	"address":     quoted("10.0.0.1", "::1", "::ffff:1.2.3.4", "fe80::1%eth0", "10.0.0.01", "256.1.1.1", "1.2.3", "1.2.3.4.5", "", ":::", "1::2::3", "12345::", "::g", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:1.2.3.4", "::1.2.3.4", "1.2.3.a", ".1.2.3", "1..2.3", "1:", "fd00::00001", "10.0.0.1 ", "a.b.c.d", "0:0::0", "1:2:3:4:5:6:7::", "::%", "::%x", "1.2.3.4%x"),
	"cidr":        quoted("10.0.0.0/8", "192.168.0.1/16", "0.0.0.0/0", "::/0", "fd00::/8", "2001:db8::/32", "10.1.2.3/32", "::1/128", "192.168.0.0/24", "10.0.0.128/25", "2001:db8::ffff/49"),
	"network":     quoted("10.0.0.0/33", "10.0.0.0", "10.0.0.0/", "/8", "10.0.0.0/-1", "10.0.0.0/08", "10.0.0.0/+8", "::ffff:1.2.3.4/120", "fe80::1%a/64", "::/129", "10.0.0/8", "10.0.0.0/8/8", "10.0.0.0/a", "", "10.0.0.0/0", "fd00::/1000", "10.0.0.0/4294967304", "fd00::/4294967296", "10.0.0.0/18446744073709551624", "::/256"),
	"quantity":    quoted("1", "500m", "1Gi", "1.5Gi", "0", "-1", "1k", "1e3", "100n", "2u", "1Ei", "1E", "0.1", "12345678901234567890", "1Mi", "1M", "0.5", "3.14", "-0.25", "9223372036854775807", "1000m", "1e-3"),
	"amount":      amountPool,
	"semver":      quoted("1.2.3", "0.0.0", "1.2.3-rc.1", "1.2.3-rc.1+build.5", "2.0.0", "1.10.0", "1.2.3-alpha", "1.2.3-1", "1.2.3-alpha.1", "10.20.30+x", "18446744073709551615.0.0"),
	"version":     quoted("1.2.3", "v1.2.3", "1.2", "1", "v1", "01.2.3", "1.02.3", "1.2.03", "1.2.3-", "1.2.3+", "1.2.3-01", "1.2.3-a..b", "", "a.b.c", "1.2.3.4", "1.2-rc", "1.2.x", "-1.2.3", "1..3", "18446744073709551616.0.0", "1.2.3-é", "v", "00.00.00", "1.2.3-rc+é", "1.2.3-0", "1.2.3+01", " 1.2.3", "vv1.2.3", "1.+2.3", "1.2.3-00a"),
	"namedformat": plain("dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix", "dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue", "uri", "uuid", "byte", "date", "datetime"),
	"formatname":  quoted("dns1123Label", "uri", "date", "labelValue", "unknown", "", "DNS1123Label", "datetime"),
	"named":       namedPool,
	"label":       quoted("", " ", "pods", "default", "apps", "Bad_Name", "a-b", "-a", "status", "a.b", "system:x"),
	"path":        quoted("/healthz", "", " ", "/api/v1", "x", "*"),
	"selector":    quoted("a=b", "a==b,c!=d", "a in (b,c)", "!a", "", "a=", "=", "a in b", "metadata.name=x", "a\\\\=b", "((", "a,b"),
	"verb":        quoted("get", "list", "delete", "create", "fail", "", "*"),
}

func plain(all ...string) pool {
	return func(random *rand.Rand) string { return all[random.IntN(len(all))] }
}

func quoted(all ...string) pool {
	return func(random *rand.Rand) string { return quote(all[random.IntN(len(all))]) }
}

// quote writes a string literal.
func quote(text string) string {
	if strings.ContainsAny(text, "'\\\n\r\t") {
		return strconv.Quote(text)
	}
	return "'" + text + "'"
}

// joined draws up to most parts.
func joined(random *rand.Rand, most int, parts ...string) string {
	var text strings.Builder
	for range 1 + random.IntN(most) {
		text.WriteString(parts[random.IntN(len(parts))])
	}
	return text.String()
}

func regexPool(random *rand.Rand) string {
	return quote(joined(random, 4,
		"a", "b", ".", "[a-z]", "[^0-9]", "\\d", "\\w", "\\s", "\\b", "\\D", "\\W", "\\S", "(a|b)", "(?:x)", "(?i)A", "^", "$", "o+", "o*", "o?", "o+?", "l{2}", "l{1,3}", "l{2,}",
		"(?P<n>a)", "(?<n>a)", "\\pL", "\\p{Greek}", "\\PN", "[[:alpha:]]", "[[:^digit:]]", "\\x41", "\\x{263a}", "\\Qa.b\\E", "\\z", "\\A", "(?s).", "(?m)^", "(?U)a+", "é", "☺", "[é-ü]", "{", "a{", "a{,2}", "]", "}",
		"(", ")", "[", "*", "a**", "x+*", "\\", "(?=a)", "(?!a)", "\\1", "\\Z", "(?x)a", "[b-a]", "a{1001}", "(?P<1>a)", "(?P<n>a)(?P<n>b)", "\\C", "[a&&b]", "[[a]]", "[a--b]", "\\8", "\\07", "\\v", "\\f", "\\_", "\\é", "[\\d]", "[^\\D]", "[\\W]", "(?i:k)", "(?-s)", "a||b", "(|a)", "()", "[[:foo:]]", "\\pX", "\\p{Foo}", "[a-\\d]", "[-a]", "[a-]", "[]a]", "(?i)ß", "(?i)[k-s]",
		"(?", "(?i", "(?i-", "(?-)", "(?P<n", "(?<", "(?é", "\\x{110000}", "\\x{10ffff}", "\\x{}", "\\x{g}", "\\x4", "\\p{", "\\p{^}", "[\\x{110000}]"))
}

func formatPool(random *rand.Rand) string {
	return quote(joined(random, 2, "%s", "%d", "%f", "%.2f", "%.0f", "%e", "%.3e", "%b", "%x", "%X", "%o", "%%", "a", "%", "%y", "%.s", "%5d", "%.10f", "%.999f", "%.1000f", "%.-1f", "%.2d", "☺"))
}

func urlPool(random *rand.Rand) string {
	scheme := plain("https://", "http://", "ftp://", "//", "mailto:", "", "a b://", "https:", "1http://", "h+t.p-://", "/", ":")(random)
	host := plain("example.com", "example.com:8080", "[::1]:80", "[::1", "user:pw@host", "", "10.0.0.1:", "host:port", "h%41st", "h%zzst", "ho st", "[fe80::1%25en0]:1", "é.com", "a^b", "host:99999", "u%20s@h")(random)
	rest := plain("", "/", "/a/b", "/a b", "/%41%2f", "/%zz", "/é", "?x=1", "/?x=1&x=2&y", "/p?a=%20+b&c=%zz", "#f", "/a#b?c", "/?a;b=1", "/*", "/a?b?c", "/?=", "//x", "/\\x7f", "/?é=ü", "/!$&'()", "/a%", "?")(random)
	return quote(scheme + host + rest)
}

func amountPool(random *rand.Rand) string {
	sign := plain("", "", "", "-", "+", "--", " ")(random)
	number := plain("0", "1", "1.5", ".5", "5.", "", "1000", "1024", "999999999999999999", "9223372036854775808", "123456789012345678901234567890", "0.000000001", "0.0000000001", "1.23456789012345", "00012", "1,5", "1.2.3", "0.0")(random)
	suffix := plain("", "", "n", "u", "m", "k", "K", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "ki", "e3", "E-2", "e", "e+18", "e40", "e-40", "i", "B", "mi", " ", "e1.5", "e1000")(random)
	return quote(sign + number + suffix)
}

func namedPool(random *rand.Rand) string {
	switch random.IntN(10) {
	case 0:
		return quote(strings.Repeat(plain("a", "A", "-", "a.", "é")(random), 30+random.IntN(60)))
	case 1:
		return quote(strings.Repeat("a", 250+random.IntN(10)))
	}
	return quoted("a", "abc-def", "-a", "a-", "A", "1a", "a1", "a.b", "a..b", ".a", "example.com/name", "/name", "a/b/c", "Ex.com/n", "a_b", "", "a b",
		"https://example.com", "/abs", "rel", "://x", "123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000", "123e4567e89b12d3a456426614174000", "x23e4567-e89b-12d3-a456-426614174000",
		"aGVsbG8=", "aGVsbG8", "!!!!", "aGVs\nbG8=", "2024-02-29", "2023-02-29", "2024-2-9", "2024-02-29T12:00:00Z", "2024-02-29T12:00:00.123+01:00", "2024-02-29 12:00:00", "2024-02-29t12:00:00z", "2024-02-29T25:00:00Z", "2024-02-29T12:00:00", "☺")(random)
}

// literal draws a literal of a type; empty where the type has none.
func literal(random *rand.Rand, of string) string {
	switch of {
	case "int":
		return plain("0", "1", "2", "3", "-1", "10", "7", "100", "9223372036854775807", "-9223372036854775808", "-5", "0x1F", "1000000")(random)
	case "uint":
		return plain("0u", "1u", "2u", "3u", "10u", "18446744073709551615u", "0xFu", "9223372036854775808u")(random)
	case "double":
		return plain("0.0", "1.0", "1.5", "-2.5", "1e10", "1e308", "-0.0", "3.14159", "(0.0/0.0)", "(1.0/0.0)", "0.1", "9223372036854775808.0", "1e-320", "2.0", "123456789.125")(random)
	case "bool":
		return plain("true", "false")(random)
	case "string":
		return quoted("", "a", "b", "abc", "foo bar", "hello", "héllo", "☺", "😀 x", "A B", "aaa", " trim ", "10", "web-0", "1.5", "a,b,c", "\n", "it's", "the quick brown fox jumps")(random)
	case "bytes":
		return plain("b''", "b'a'", "b'abc'", "b'\\xff\\x00'", "b'héllo'", "b'0123456789abc'")(random)
	case "null_type":
		return "null"
	case "duration":
		return fmt.Sprintf("duration(%s)", quoted("1s", "1h30m", "-1.5h", "100ms", "10ns", "0s", "2562047h")(random))
	case "timestamp":
		return fmt.Sprintf("timestamp(%s)", quoted("2024-02-29T12:30:45Z", "2023-12-31T23:59:59.999-08:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "1970-01-01T00:00:00Z")(random))
	case "type":
		return plain("int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type", "google.protobuf.Timestamp", "google.protobuf.Duration", "optional_type")(random)
	}
	return ""
}
