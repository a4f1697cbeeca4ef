package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A Session is a sequence of requests that can be played on any server: all it needs of earlier answers it
// takes through placeholders, and it touches no object whose name or label does not begin with its own name.
type Session struct {
	Name string
	// ManagedFields keeps metadata.managedFields in the normalised answers. It is most of the text of an
	// answer, so only sessions about field ownership request it.
	ManagedFields bool
	Requests      []Request
}

// A Request is one step of a session. Path, query, header values and body may hold placeholders:
//
//	{{rv:NAME}}      the resource version with which an object of that name was last seen
//	{{first:NAME}}   the one with which it was first seen
//	{{uid:NAME}}     its uid
//	{{rv}}           the resource version of the last list
//	{{continue}}     the last continue token
//	{{generated:N}}  the Nth name that the server generated in this session, from 1
//
// One that cannot be resolved becomes "unknown".
type Request struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Query   string            `json:"query,omitempty"` // as it is on the wire
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
	Base64  string            `json:"bodyBase64,omitempty"` // instead of Body where that is not text
	By      *Requester        `json:"by,omitempty"`         // who sends it; nil for the target's own user
	// Until repeats the request until it is answered with this code, or, if it is [warned], with a warning: a
	// real server notices within seconds that a policy has changed. After [changeLimit] the last answer is the result.
	Until int `json:"until,omitempty"`
	// Warning has to be in one of the warnings that a request is repeated for.
	Warning string `json:"untilWarning,omitempty"`
}

func (r Request) watches() bool {
	return strings.Contains(r.Path, "/watch/") || strings.Contains(r.Query, "watch=")
}

// A Requester is a user with a client certificate.
type Requester struct {
	Name   string   `json:"name"`
	UID    string   `json:"uid,omitempty"`
	Groups []string `json:"groups,omitempty"`
}

// warned is the code of warnings in HTTP, which no answer has.
const warned = 299

// A Response is a normalised response. At most one of Body, Events and Text is set.
type Response struct {
	Code    int             `json:"code"` // 0 when the server closed the connection instead
	Headers ResponseHeaders `json:"headers"`
	// Body is a decoded document, whatever it was encoded in.
	Body any `json:"body,omitempty"`
	// Events are those of a watch; not nil when the answer was one.
	Events []any `json:"events,omitzero"`
	// Text is a body that is no document.
	Text string `json:"text,omitempty"`
}

// ResponseHeaders are those that are compared.
type ResponseHeaders struct {
	ContentType string   `json:"Content-Type,omitempty"`
	Warning     []string `json:"Warning,omitempty"`
	RetryAfter  string   `json:"Retry-After,omitempty"`
}

// An Exchange is one line of the corpus.
type Exchange struct {
	Session       string   `json:"session"`
	ManagedFields bool     `json:"managedFields,omitempty"`
	Request       Request  `json:"request"`
	Response      Response `json:"response"`
}

// noAnswer stands for a missing response: a server that panics closes the connection.
const noAnswer = "the connection was closed without an answer"

// sessionAgent is the User-Agent of a request that names none. The default field manager derives from it.
const sessionAgent = "session/1.0"

// A Target is a server on which sessions are played.
type Target struct {
	Name string
	// Conditions says that a controller on the server, or on the one it is compared with, writes conditions
	// into FlowSchemas during the sessions. Its writes are then waited for, and what they do to
	// resource versions and watches is not looked at.
	Conditions bool
	Writes     bool // there is such a controller on this one
	// As makes the transport of another user. Targets that play sessions with such users need it.
	As func(Requester) (http.RoundTripper, error)

	base      *url.URL
	transport http.RoundTripper
}

// NewTarget makes a target of a client configuration. It speaks HTTP/1.1.
func NewTarget(name string, config *rest.Config) (*Target, error) {
	config = rest.CopyConfig(config)
	config.DisableCompression = true
	config.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(config.Host)
	return &Target{Name: name, base: base, transport: transport}, err
}

// TargetOf makes a target of a kubeconfig file.
func TargetOf(name, kubeconfig string) (*Target, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	return NewTarget(name, config)
}

// WritesConditions says whether a controller writes conditions into FlowSchemas there: then it has written
// that of one which is always there.
func (t *Target) WritesConditions(ctx context.Context) (bool, error) {
	const always = "exempt"
	seen := newNormaliser(false, false)
	_, err := t.send(ctx, Request{Method: "GET", Path: flowSchemasPath + "/" + always}, seen)
	return seen.dangling[always], err
}

// Play plays a session and returns its responses, normalised. An error is one of the connection: whatever
// the server answers is a result.
func (t *Target) Play(ctx context.Context, session Session) ([]Exchange, error) {
	seen := newNormaliser(session.ManagedFields, t.Conditions)
	var exchanges []Exchange
	for number, request := range session.Requests {
		err := t.freshen(ctx, request)
		if err == nil && t.Conditions && t.Writes {
			err = t.adopt(ctx, request, seen)
		}
		var response Response
		if err == nil {
			response, err = t.sendUntil(ctx, request, seen)
		}
		if err != nil {
			return exchanges, fmt.Errorf("%s: session %s, request %d (%s %s): %w", t.Name, session.Name, number, request.Method, request.Path, err)
		}
		exchanges = append(exchanges, Exchange{session.Name, session.ManagedFields, request, response})
		if t.Conditions && t.Writes {
			if err := t.settle(ctx, request, response, seen); err != nil {
				return exchanges, err
			}
		}
	}
	return exchanges, nil
}

// freshen waits, before a request that takes what a real server has in its cache, until the cache has come as
// far as the store. A plain list is answered only then.
func (t *Target) freshen(ctx context.Context, request Request) error {
	if !request.watches() && !strings.Contains(request.Query, "resourceVersion=") {
		return nil
	}
	list := Request{Method: "GET", Path: levelsPath, Query: "labelSelector=none"}
	for _, path := range []string{flowSchemasPath, policiesPath, bindingsPath} {
		if strings.Contains(request.Path, path[strings.LastIndex(path, "/"):]) {
			list.Path = path
		}
	}
	_, err := t.send(ctx, list, newNormaliser(false, false))
	return err
}

// settle waits after a write of a FlowSchema until the controller has written its condition, and takes the
// object's resource version as if the write had made it.
func (t *Target) settle(ctx context.Context, request Request, response Response, seen *normaliser) error {
	name := text(response.Body, "metadata", "name")
	written := request.Method != "GET" && request.Method != "DELETE" && response.Code < 300
	if !written || name == "" || !flowSchemasPaths.MatchString(request.Path) || strings.Contains(request.Query, "dryRun=All") {
		return nil
	}
	own := seen.resolve(name)
	get := Request{Method: "GET", Path: flowSchemasPath + "/" + own}
	probe, version := newNormaliser(false, false), ""
	// Some writes never have one. Where it comes later than this, sessions that differ are played again (see lasting).
	err := poll(3*time.Second, 50*time.Millisecond, func() (bool, error) {
		before := version
		current, err := t.send(ctx, get, probe)
		version = probe.values["rv:"+own]
		return current.Code != http.StatusOK || version == before && probe.dangling[own], err
	})
	if written := seen.values["rv:"+own]; version != "" && seen.values["first:"+own] == written {
		seen.values["first:"+own] = version
	}
	if version != "" {
		seen.values["rv:"+own] = version
		seen.settled[own] = version
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// adopt takes the resource versions of the FlowSchemas that a request names as they are now, if the controller
// has written these since they were settled: that one schema covers another it may find out later. What reads
// the past is left alone: by then there may be further objects.
func (t *Target) adopt(ctx context.Context, request Request, seen *normaliser) error {
	if request.Method == "GET" && !request.watches() {
		return nil
	}
	if request.Method == "DELETE" {
		defer clear(seen.settled) // what is marked as deleted has been written by the session
	}
	for _, found := range placeholder.FindAllStringSubmatch(request.Query+request.Body, -1) {
		settled, known := seen.settled[found[2]]
		if !known || found[1] != "rv" && found[1] != "first" {
			continue
		}
		probe := newNormaliser(false, false)
		if _, err := t.send(ctx, Request{Method: "GET", Path: flowSchemasPath + "/" + found[2]}, probe); err != nil {
			return err
		}
		now := probe.values["rv:"+found[2]]
		for _, kind := range []string{"rv:", "first:"} {
			if now != "" && seen.values[kind+found[2]] == settled {
				seen.values[kind+found[2]] = now
			}
		}
		seen.settled[found[2]] = now
	}
	return nil
}

// flowSchemasPaths begin so, whatever the version.
var flowSchemasPaths = regexp.MustCompile(`^` + regexp.QuoteMeta(groupPath) + `/[^/]+/flowschemas`)

// Clear removes all objects that sessions have made, or an earlier run has left.
func (t *Target) Clear(ctx context.Context, sessions []Session) error {
	for _, path := range []string{bindingsPath, policiesPath, flowSchemasPath, levelsPath, budgetsPath} {
		seen := newNormaliser(false, false)
		response, err := t.send(ctx, Request{Method: "GET", Path: path}, seen)
		if err != nil {
			return err
		}
		items, _ := at(response.Body, "items").([]any)
		for _, item := range items {
			name := text(item, "metadata", "name")
			own := func(session Session) bool { return strings.HasPrefix(name, session.Name+"-") }
			if !slices.ContainsFunc(sessions, own) {
				continue
			}
			for _, request := range []Request{
				{Method: "PATCH", Headers: map[string]string{contentHeader: mergePatch}, Body: `{"metadata":{"finalizers":null}}`},
				{Method: "DELETE"},
			} {
				request.Path = path + "/" + name
				if _, err := t.send(ctx, request, seen); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sendUntil sends a request, again if it says until when.
func (t *Target) sendUntil(ctx context.Context, request Request, seen *normaliser) (response Response, err error) {
	if request.Until == 0 {
		return t.send(ctx, request, seen)
	}
	before, interval := seen.clone(), 100*time.Millisecond
	if request.Warning != "" {
		interval = 300 * time.Millisecond // many sessions wait so at once
	}
	err = poll(changeLimit, interval, func() (bool, error) {
		*seen = *before.clone() // only the last answer counts
		response, err = t.send(ctx, request, seen)
		isWarned := request.Until == warned && slices.ContainsFunc(response.Headers.Warning, func(one string) bool { return strings.Contains(one, request.Warning) })
		return isWarned || response.Code == request.Until, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return response, err
}

func (t *Target) send(ctx context.Context, request Request, seen *normaliser) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	body := []byte(seen.resolve(request.Body))
	if request.Base64 != "" {
		var err error
		if body, err = base64.StdEncoding.DecodeString(request.Base64); err != nil {
			return Response{}, err
		}
	}
	wire, err := http.NewRequestWithContext(ctx, request.Method, t.base.String(), bytes.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	// Opaque, so that nothing is cleaned or escaped on the way.
	wire.URL.Opaque = seen.resolve(request.Path)
	wire.URL.RawQuery = seen.resolve(request.Query)
	if len(body) == 0 {
		wire.Body, wire.ContentLength = http.NoBody, 0
	}
	wire.Header.Set("User-Agent", sessionAgent)
	for name, value := range request.Headers {
		wire.Header.Set(name, seen.resolve(value))
	}
	transport := t.transport
	if request.By != nil {
		if transport, err = t.As(*request.By); err != nil {
			return Response{}, err
		}
	}
	answer, err := transport.RoundTrip(wire)
	if errors.Is(err, io.EOF) {
		return Response{Text: noAnswer}, nil
	}
	if err != nil {
		return Response{}, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Response{}, err
	}
	return seen.response(request, answer, data)
}

var placeholder = regexp.MustCompile(`\{\{([a-z]+)(?::([^{}]+))?\}\}`)

// resolve puts values of earlier answers in the place of placeholders.
func (n *normaliser) resolve(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		if value, ok := n.values[strings.Trim(found, "{}")]; ok {
			return value
		}
		return "unknown"
	})
}

// line encodes an exchange as the corpus has it.
func (e Exchange) line() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(e)
	return text.Bytes(), err
}
