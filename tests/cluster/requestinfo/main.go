// Command requestinfo records how Kubernetes itself reads requests: it draws hostile request lines by
// seed, has them read by net/http and k8s.io/apiserver as a server would, and prints one line for each.
//
//	cd tests/cluster && go run ./requestinfo -seed 1 -count 2500 > ../../fuzz/recorded/request_info.tsv
//
// The test fuzz/tests/request_info.rs replays the lines.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

var methods = []string{"GET", "GET", "GET", "GET", "DELETE", "DELETE", "POST", "PUT", "PATCH", "HEAD", "OPTIONS", "get", "PROPFIND"}

// Segments of paths: what decides something, and what looks like it.
var segments = []string{
	"api", "apis", "api", "apis", "v1", "v1", "apps", "flowcontrol.apiserver.k8s.io", "v1beta3", "namespaces",
	"namespaces", "default", "kube-system", "pods", "pods", "deployments", "a", "b", "x", "watch", "proxy", "status",
	"finalize", "log", "exec", "attach", "portforward", "binding", "scale", "", "", ".", "..", "%2e", "%2E%2e", "%2F",
	"a%2Fb", "%2f%2f", "%00", "%ff", "%C3%A9", "é", "%25", "%252F", "a;b", "a=b", "a&b", "a+b", "a:b", "@", "~", "*", "$", "'",
	"WATCH", "Namespaces", "API", "aPis", "watchlist", "proxy%2F", "namespace", "%6eamespaces", "%77atch", "%61pi", "a%20b",
	"healthz", "version", "openapi", "debug", "pprof", "logs", "[", "]", "{", "}", "|", "\\", "^", "`", "\"", "<", ">", "#",
}

// Whole beginnings, so that most paths are some resource's.
var beginnings = []string{
	"/api/v1/", "/api/v1/", "/apis/apps/v1/", "/apis/apps/v1/", "/api/v1/namespaces/default/", "/apis/apps/v1/namespaces/a/",
	"/api/v1/watch/", "/api/v1/proxy/", "/apis/apps/v1/watch/namespaces/a/", "/api/v1/namespaces/", "/", "//", "/api", "/apis/",
	"/api//v1/", "//api/v1/", "/api/v1//", "/apis//v1/", "/apis/apps//",
}

// Collections, of which the query decides more.
var collections = []string{
	"/api/v1/pods", "/apis/apps/v1/namespaces/a/deployments", "/api/v1/namespaces", "/api/v1/watch/pods", "/api/v1/pods/",
	"/api/v1/namespaces/a/pods//log",
}

var badEscapes = []string{"%", "%2", "%zz", "%g0", "%%", "%-1", "%u0041"}

var keys = []string{
	"watch", "watch", "watch", "fieldSelector", "fieldSelector", "fieldSelector", "labelSelector", "labelSelector", "limit", "timeoutSeconds",
	"resourceVersion", "resourceVersionMatch", "continue", "sendInitialEvents", "allowWatchBookmarks", "timeout", "Watch", "watc%68",
	"%77atch", "fieldselector", "field%53elector", "", "x",
}

var values = []string{
	"", "1", "0", "true", "false", "TRUE", "False", "fALSE", "no", "t", "2", "-1", "+1", "9223372036854775807", "9223372036854775808",
	"1e3", "0x10", " 1", "%31", "1%20", "metadata.name=a", "metadata.name%3Da", "metadata.name==a", "metadata.name!=a", "metadata.name=",
	"metadata.name=..", "metadata.name=.", "metadata.name=a/b", "metadata.name=a%2Fb", "metadata.name=a%2525", "metadata.name=a,b=c",
	"metadata.name=a,metadata.name=b", "metadata.name=a,metadata.name=a", "metadata.name=a%5C,b", "metadata.name=a%5C%5C", "metadata.name=a%5Cx",
	"spec.nodeName=n", "metadata.name=a,spec.nodeName=n", "metadata.namespace=x", "=a", "a", ",", "a=b=c", "metadata.name%20=a", "metadata.name=%20a",
	"a=b", "a==b", "a!=b", "a in (b)", "a%20in%20(b,c)", "a+in+(b)", "a+notin+(b,c)", "!a", "a,!b", "a%20in%20()", "a>1", "a%3E1", "a%3Ex", "a<1",
	"a in b", "(", ")", "a=b,", ",a=b", "A_-.z=1", "-a=b", "a/b=c", "a/b/c=d", "a=b%20c", "a=%C3%A9", "%ff", "a=%ff", "%00", "a%00=b",
	"Exact", "NotOlderThan", "NotExact", "NaN", "é", "a;b", "a%3Bb", "a%26b", "a%zz", "%",
}

type drawing struct{ *rand.Rand }

func (d drawing) one(of []string) string { return of[d.Intn(len(of))] }

func (d drawing) target() string {
	var text strings.Builder
	if d.Intn(3) == 0 {
		text.WriteString(d.one(collections))
	} else {
		text.WriteString(d.one(beginnings))
		for n := d.Intn(6); n > 0; n-- {
			text.WriteString(d.one(segments))
			if n > 1 || d.Intn(4) == 0 {
				text.WriteByte('/')
			}
		}
	}
	if d.Intn(40) == 0 {
		text.WriteString(d.one(badEscapes))
	}
	if d.Intn(3) == 0 {
		return text.String()
	}
	text.WriteByte('?')
	for n := d.Intn(4); n >= 0; n-- {
		text.WriteString(d.one(keys))
		if d.Intn(10) > 0 {
			text.WriteByte('=')
			text.WriteString(strings.ReplaceAll(d.one(values), " ", "+"))
		}
		if n > 0 {
			text.WriteString(d.one([]string{"&", "&", "&", "&", "&", ";", "&&", "?"}))
		}
	}
	return text.String()
}

// escaped has nothing but printable ASCII, and no space.
func escaped(text string) string {
	var out strings.Builder
	for _, b := range []byte(text) {
		if b <= ' ' || b == '%' || b >= 0x7f {
			fmt.Fprintf(&out, "%%%02x", b)
		} else {
			out.WriteByte(b)
		}
	}
	return out.String()
}

// read says what a server makes of a request line.
func read(factory *request.RequestInfoFactory, method, target string) string {
	head := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: a\r\n\r\n", method, target)
	parsed, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head)))
	if err != nil {
		return "malformed"
	}
	info, err := factory.NewRequestInfo(parsed)
	if err != nil {
		return "unclassifiable"
	}
	fields := []string{"other"}
	if info.IsResourceRequest {
		fields[0] = "resource"
	}
	if path, _, _ := strings.Cut(target, "?"); info.Path != path {
		fields = append(fields, "path="+escaped(info.Path))
	}
	for _, field := range []struct{ name, value string }{
		{"verb", info.Verb},
		{"prefix", info.APIPrefix},
		{"group", info.APIGroup},
		{"version", info.APIVersion},
		{"namespace", info.Namespace},
		{"resource", info.Resource},
		{"subresource", info.Subresource},
		{"name", info.Name},
		{"parts", strings.Join(info.Parts, "\n")},
		// fairgate keeps these as text.
		{"fields", strings.ToValidUTF8(info.FieldSelector, "\uFFFD")},
		{"labels", strings.ToValidUTF8(info.LabelSelector, "\uFFFD")},
	} {
		if field.value != "" {
			fields = append(fields, field.name+"="+escaped(field.value))
		}
	}
	return strings.Join(fields, "\t")
}

func main() {
	seed := flag.Int64("seed", 1, "what the requests are drawn by")
	count := flag.Int("count", 2500, "how many requests")
	flag.Parse()
	// What it logs of queries that do not decode is no news here.
	logging := flag.NewFlagSet("klog", flag.ExitOnError)
	klog.InitFlags(logging)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := logging.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(io.Discard)
	// As kube-apiserver's own.
	factory := &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	draw := drawing{rand.New(rand.NewSource(*seed))}
	out := bufio.NewWriter(os.Stdout)
	seen := map[string]bool{}
	for len(seen) < *count {
		method, target := draw.one(methods), draw.target()
		if seen[method+target] {
			continue
		}
		seen[method+target] = true
		fmt.Fprintf(out, "%s\t%s\t%s\n", method, target, read(factory, method, target))
	}
	if err := out.Flush(); err != nil {
		os.Exit(1)
	}
}
