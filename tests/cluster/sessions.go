package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// The groups' paths.
const (
	groupPath       = "/apis/flowcontrol.apiserver.k8s.io"
	versionPath     = groupPath + "/v1"
	flowSchemasPath = versionPath + "/flowschemas"
	levelsPath      = versionPath + "/prioritylevelconfigurations"
)

// Media types.
const (
	jsonType      = "application/json"
	yamlType      = "application/yaml"
	protobufType  = "application/vnd.kubernetes.protobuf"
	jsonPatch     = "application/json-patch+json"
	mergePatch    = "application/merge-patch+json"
	strategic     = "application/strategic-merge-patch+json"
	applyPatch    = "application/apply-patch+yaml"
	tableType     = "application/json;as=Table;v=v1;g=meta.k8s.io"
	partialType   = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	partialsType  = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	contentHeader = "Content-Type"
)

// A script writes a session. In every text the sign @ stands for the session's name and a hyphen, so that
// "@a" is an object name that no other session uses.
type script struct{ Session }

// do adds a request. The target may hold a query; headers come in pairs of name and value.
func (s *script) do(method, target, body string, headers ...string) {
	own := strings.NewReplacer("@", s.Name+"-")
	path, query, _ := strings.Cut(own.Replace(target), "?")
	request := Request{Method: method, Path: path, Query: query, Body: own.Replace(body)}
	for i := 0; i < len(headers); i += 2 {
		if request.Headers == nil {
			request.Headers = map[string]string{}
		}
		request.Headers[headers[i]] = headers[i+1]
	}
	s.Requests = append(s.Requests, request)
}

func (s *script) get(target string, headers ...string)    { s.do("GET", target, "", headers...) }
func (s *script) delete(target string, headers ...string) { s.do("DELETE", target, "", headers...) }

func (s *script) post(target, body string, headers ...string) {
	s.do("POST", target, body, append([]string{contentHeader, jsonType}, headers...)...)
}

func (s *script) put(target, body string, headers ...string) {
	s.do("PUT", target, body, append([]string{contentHeader, jsonType}, headers...)...)
}

func (s *script) patch(target, kind, body string, headers ...string) {
	s.do("PATCH", target, body, append([]string{contentHeader, kind}, headers...)...)
}

func (s *script) apply(target, manager, body string, headers ...string) {
	join := "?"
	if strings.Contains(target, "?") {
		join = "&"
	}
	s.patch(target+join+"fieldManager="+manager, applyPatch, body, headers...)
}

// watch reads a watch of one second; the query begins after it.
func (s *script) watch(path, query string, headers ...string) {
	s.get(path+"?watch=true&timeoutSeconds=1&"+query, headers...)
}

var plainVersion = regexp.MustCompile(`(flowcontrol\.apiserver\.k8s\.io/)v1\b`)

// InVersion is a session in another version of the group, such as v1beta3, for a server that still has it.
func (s Session) InVersion(version string) Session {
	if version == "v1" {
		return s
	}
	other := s
	other.Requests = slices.Clone(s.Requests)
	for i := range other.Requests {
		request := &other.Requests[i]
		request.Path = plainVersion.ReplaceAllString(request.Path, "${1}"+version)
		request.Body = plainVersion.ReplaceAllString(request.Body, "${1}"+version)
		request.Base64 = protobufInVersion(request.Base64, version)
	}
	return other
}

// protobufInVersion is a body in protobuf with the object in another version of the group. The fields of all
// versions have the same numbers, so only the envelope changes.
func protobufInVersion(body, version string) string {
	data, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		panic(err) // written here
	}
	raw, enveloped := bytes.CutPrefix(data, []byte(protobufMagic))
	var envelope runtime.Unknown
	if !enveloped || envelope.Unmarshal(raw) != nil {
		return body
	}
	envelope.APIVersion = plainVersion.ReplaceAllString(envelope.APIVersion, "${1}"+version)
	if raw, err = envelope.Marshal(); err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(append([]byte(protobufMagic), raw...))
}

// protobufMagic begins every document in protobuf.
const protobufMagic = "k8s\x00"

const flowSchemaDocument = `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"%s","labels":{"s":"@all"}},` +
	`"spec":{"matchingPrecedence":9000,"priorityLevelConfiguration":{"name":"global-default"},"distinguisherMethod":{"type":"ByUser"},` +
	`"rules":[{"subjects":[{"kind":"User","user":{"name":"nobody"}}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`

const levelDocument = `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"PriorityLevelConfiguration","metadata":{"name":"%s","labels":{"s":"@all"}},` +
	`"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":2,"limitResponse":{"type":"Queue","queuing":{"queues":16,"handSize":4,"queueLengthLimit":10}}}}}`

// flowSchema is the JSON of a FlowSchema after edits; see [edited].
func flowSchema(name string, edits ...string) string {
	return edited(fmt.Sprintf(flowSchemaDocument, name), edits...)
}

// fullFlowSchema is one that has a rule about resources too.
func fullFlowSchema(name string, edits ...string) string {
	rule := `spec.rules.0.resourceRules=[{"verbs":["get","list"],"apiGroups":["apps"],"resources":["pods"],"namespaces":["default"]}]`
	return flowSchema(name, append([]string{rule}, edits...)...)
}

// level is the JSON of a PriorityLevelConfiguration after edits; see [edited].
func level(name string, edits ...string) string {
	return edited(fmt.Sprintf(levelDocument, name), edits...)
}

// edited changes a JSON document. An edit is "path=JSON" or "-path", the path being of keys and indices
// joined by dots. A document is written here, so a mistake in one is a mistake of the program.
func edited(document string, edits ...string) string {
	var tree any
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		panic(err)
	}
	for _, edit := range edits {
		if path, found := strings.CutPrefix(edit, "-"); found {
			tree = change(tree, strings.Split(path, "."), nil, true)
			continue
		}
		path, text, _ := strings.Cut(edit, "=")
		tree = change(tree, strings.Split(path, "."), json.RawMessage(text), false)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(tree); err != nil {
		panic(fmt.Sprintf("%v: %q", err, edits))
	}
	return strings.TrimSpace(text.String())
}

func change(node any, path []string, value any, remove bool) any {
	if len(path) == 0 {
		return value
	}
	switch node := node.(type) {
	case map[string]any:
		if len(path) == 1 && remove {
			delete(node, path[0])
		} else {
			node[path[0]] = change(node[path[0]], path[1:], value, remove)
		}
		return node
	case []any:
		index, err := strconv.Atoi(path[0])
		if err != nil {
			panic(err)
		}
		node[index] = change(node[index], path[1:], value, remove)
		return node
	case json.RawMessage:
		var tree any
		if err := json.Unmarshal(node, &tree); err != nil {
			panic(err)
		}
		return change(tree, path, value, remove)
	case nil:
		return change(map[string]any{}, path, value, remove)
	}
	panic(fmt.Sprintf("nothing at %q", path))
}
